"""Make models of which gputune runs only a part: real networks with nodes inside or behind them that it cannot run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from models import classic_models, material, zoo_models
from models.in_onnxruntime import made_models

Dimensions = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class CutModel:
    """A model that `--unsupported host` cuts."""

    name: str
    path: Path
    dimensions: Dimensions


def all_models(folder: Path) -> list[CutModel]:
    """Return the models; those that are made are written into the folder."""
    made = {
        "ResNet-18, three quantised tensors inside": (
            quantised(classic_models.resnet18().path, (0.25, 0.5, 0.75)),
            {"x": (1, 3, 224, 224)},
        ),
        "MobileNetV2, places above a threshold": (
            found_behind(classic_models.mobilenet_v2(0.5, 160).path),
            {"x": (1, 3, 160, 160)},
        ),
    }
    models = [
        CutModel("layout detector, NonMaxSuppression behind it", made_models.selecting_detector(), {}),
        CutModel("classifier, quantised tensor inside", made_models.quantised_inside(), {"x": material.ANGLE_SHAPE}),
        CutModel("voice detector, both branches", material.silero_ifless_model(), zoo_models.SILERO),
    ]
    for number, (name, (model, dimensions)) in enumerate(made.items()):
        onnx.save(model, folder / f"cut{number}.onnx")
        models.append(CutModel(name, folder / f"cut{number}.onnx", dimensions))
    return models


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
