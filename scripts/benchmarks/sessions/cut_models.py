"""Make models of which gputune runs only a part: real networks with nodes inside or behind them that it cannot run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from models import classic_models, material

Dimensions = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class CutModel:
    """A model that `--unsupported host` cuts."""

    name: str
    path: Path
    dimensions: Dimensions


def all_models(folder: Path) -> list[CutModel]:
    """Return the models; those that are made are written into the folder."""
    page = {"x": (1, 3, 224, 224)}
    made = {
        "detector with non-maximum suppression": (
            boxes_behind(classic_models.yolo_tiny().path),
            {"x": (1, 3, 416, 416)},
        ),
        "page orientation, quantised tensor inside": (quantised(material.orientation_model(), (0.5,)), page),
        "ResNet-18, three quantised tensors inside": (
            quantised(classic_models.resnet18().path, (0.25, 0.5, 0.75)),
            page,
        ),
        "MobileNetV2, places above a threshold": (
            found_behind(classic_models.mobilenet_v2(0.5, 160).path),
            {"x": (1, 3, 160, 160)},
        ),
    }
    models = []
    for number, (name, (model, dimensions)) in enumerate(made.items()):
        onnx.save(model, folder / f"cut{number}.onnx")
        models.append(CutModel(name, folder / f"cut{number}.onnx", dimensions))
    speech = {"input": (1, 576), "state": (2, 1, 128)}
    return [*models, CutModel("voice detector, both branches", material.silero_ifless_model(), speech)]


def quantised(path: Path, places: Sequence[float]) -> onnx.ModelProto:
    """A model whose activations at these places, as shares of its nodes, are quantised to a byte and back. All that
    comes later waits for them."""
    model = onnx.load(path)
    graph = model.graph
    ends = [place for place, node in enumerate(graph.node) if node.op_type in ("Relu", "Conv", "HardSwish", "Add")]
    chosen = {ends[int(share * len(ends))] for share in places}
    nodes: list[NodeProto] = []
    for place, node in enumerate(graph.node):
        nodes.append(node)
        if place in chosen:
            name, number = node.output[0], len(nodes)
            before = f"{name}/exact"
            nodes[-1].output[0] = before
            nodes.append(helper.make_node("QuantizeLinear", [before, "scale", "zero"], [f"{name}/byte"], f"q{number}"))
            nodes.append(helper.make_node("DequantizeLinear", [f"{name}/byte", "scale", "zero"], [name], f"d{number}"))
    graph.initializer.append(numpy_helper.from_array(np.array(0.05, np.float32), "scale"))
    graph.initializer.append(numpy_helper.from_array(np.array(128, np.uint8), "zero"))
    return _with_nodes(model, nodes)


def boxes_behind(path: Path) -> onnx.ModelProto:
    """A detector of which the first output's channels are boxes and a score for each place, and the best are chosen."""
    model = onnx.load(path)
    name = model.graph.output[0].name
    constants = {"four": [4], "zero": [0], "five": [5], "one": [1], "boxes": [1, -1, 4], "scores": [1, 1, -1]}
    for key, values in constants.items():
        model.graph.initializer.append(numpy_helper.from_array(np.array(values, np.int64), f"nms/{key}"))
    model.graph.initializer.append(numpy_helper.from_array(np.array([100]), "nms/most"))
    for key, value in (("overlap", 0.5), ("least", 0.1)):
        model.graph.initializer.append(numpy_helper.from_array(np.array([value], np.float32), f"nms/{key}"))
    behind = [
        helper.make_node("Slice", [name, "nms/zero", "nms/four", "nms/one"], ["nms/edges"]),
        helper.make_node("Transpose", ["nms/edges"], ["nms/last"], perm=[0, 2, 3, 1]),
        helper.make_node("Reshape", ["nms/last", "nms/boxes"], ["nms/all_boxes"]),
        helper.make_node("Slice", [name, "nms/four", "nms/five", "nms/one"], ["nms/sure"]),
        helper.make_node("Reshape", ["nms/sure", "nms/scores"], ["nms/all_scores"]),
        helper.make_node(
            "NonMaxSuppression",
            ["nms/all_boxes", "nms/all_scores", "nms/most", "nms/overlap", "nms/least"],
            ["chosen"],
        ),
    ]
    model.graph.output.append(helper.make_tensor_value_info("chosen", TensorProto.INT64, None))
    return _with_nodes(model, [*model.graph.node, *behind])


def found_behind(path: Path) -> onnx.ModelProto:
    """A classifier that also returns the places of its output that are above zero."""
    model = onnx.load(path)
    name = model.graph.output[0].name
    model.graph.initializer.append(numpy_helper.from_array(np.array(0, np.float32), "found/zero"))
    behind = [
        helper.make_node("Greater", [name, "found/zero"], ["found/above"]),
        helper.make_node("NonZero", ["found/above"], ["found"]),
    ]
    model.graph.output.append(helper.make_tensor_value_info("found", TensorProto.INT64, None))
    return _with_nodes(model, [*model.graph.node, *behind])


def _with_nodes(model: onnx.ModelProto, nodes: Sequence[NodeProto]) -> onnx.ModelProto:
    copies = [NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del model.graph.node[:]
    model.graph.node.extend(copies)
    return model


def tiny_model(folder: Path) -> Path:
    """Return a model that computes next to nothing: an inference of it is what an inference costs."""
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", [1, 16]), ("y", [1, 16]))
    ]
    weights = numpy_helper.from_array(np.eye(16, dtype=np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], "tiny", values[:1], values[1:], [weights]
    )
    path = folder / "tiny.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path
