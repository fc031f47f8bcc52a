"""Compare models of which gputune runs a part with onnxruntime alone, in turns.

The models are real networks with nodes inside or behind them that gputune cannot run.
"""

import argparse
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

import tool
from benchmarks.options import add_options, chosen
from benchmarks.result import Result, told
from benchmarks.turns import PEER, in_turns
from models import classic_models, material, zoo_models
from models.in_onnxruntime import made_models
from models.tune_models import Model

PARTS = "parts"
LARGEST_RATIO = 1.05
QUICK = "classifier"


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    add_options(command, only="", seconds=60.0, effort="normal", tuning_budget="3m", device=None, quick=False)


def run(options: argparse.Namespace) -> Result:
    """Tune and compare the models that the options ask for."""
    work = options.work / "parts"
    work.mkdir(parents=True, exist_ok=True)
    if options.quick:
        options.effort, options.only = "none", QUICK
    rows, found, large = [], dict[str, Any](), list[float]()
    models = {model.title: model for model in all_models(work)}
    for name in chosen(list(models), options.only):
        model = models[name]
        more = ("--unsupported", "host", *tool.budget(options))
        made = tool.generate(
            work / model.path.stem, model.path, model.shapes, options.effort, *more, device=options.device
        )
        (parts,) = made.summary["models_in_parts"]
        with in_turns({PARTS: made.folder / "context_ctx.onnx"}, options, model.path) as turns:
            ratio, off = turns.ratio(PARTS, PEER), turns.off(PARTS, turns.contenders[PEER])
        found[name] = {"share": parts["share"], **vars(ratio)}
        large += [ratio.median] * (parts["share"] >= 0.5)
        rows.append((name, f"{parts['share']:.1%}", told(ratio), f"{off:.1e}"))
    lines = []
    if large:
        mean = statistics.geometric_mean(large)
        lines = [f"geometric mean where the device has half or more: {mean:.3f}, below 1 is faster"]
    head = ("model", "share", f"time by {PEER}'s, at most {LARGEST_RATIO}", "off by")
    return Result(found, [(head, rows)], lines)


def all_models(folder: Path) -> list[Model]:
    """Return the models; those that are made are written into the folder."""
    made = {
        "ResNet-18, three float64 tensors inside": (
            doubled(classic_models.resnet18().path, (0.25, 0.5, 0.75)),
            {"x": (1, 3, 224, 224)},
        ),
        "MobileNetV2, places above a threshold": (
            found_behind(classic_models.mobilenet_v2(0.5, 160).path),
            {"x": (1, 3, 160, 160)},
        ),
    }
    models = [
        Model("layout detector, NonMaxSuppression behind it", made_models.selecting_detector(), {}),
        Model("classifier, a float64 tensor inside", made_models.double_inside(), {"x": material.ANGLE_SHAPE}),
        Model("voice detector, both branches", material.silero_ifless_model(), zoo_models.SILERO),
    ]
    for number, (name, (model, dimensions)) in enumerate(made.items()):
        onnx.save(model, folder / f"cut{number}.onnx")
        models.append(Model(name, folder / f"cut{number}.onnx", dimensions))
    return models


def doubled(path: Path, places: Sequence[float]) -> onnx.ModelProto:
    """A model whose activations at these places, as shares of its nodes, are float64 for a moment. All that comes later
    waits for them."""
    model = onnx.load(path)
    graph = model.graph
    ends = [place for place, node in enumerate(graph.node) if node.op_type in ("Relu", "Conv", "HardSwish", "Add")]
    chosen = {ends[int(share * len(ends))] for share in places}
    nodes: list[NodeProto] = []
    for place, node in enumerate(graph.node):
        nodes.append(node)
        if place in chosen:
            name, before = node.output[0], f"{node.output[0]}/float"
            nodes[-1].output[0] = before
            nodes.append(helper.make_node("Cast", [before], [f"{name}/double"], to=onnx.TensorProto.DOUBLE))
            nodes.append(helper.make_node("Cast", [f"{name}/double"], [name], to=onnx.TensorProto.FLOAT))
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
