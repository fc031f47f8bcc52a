"""Compare models of which gputune runs a part with onnxruntime alone, in turns.

The models are real networks with nodes inside or behind them that gputune cannot run.
"""

import argparse
import math
import os
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

import tool
from benchmarks.peers.comparing import chosen
from benchmarks.result import Result, told
from gputune.client.compare.comparing import rounds_of
from gputune.client.compare.turns import Contender, Process
from gputune.client.context.verifying.distance import distance
from gputune.client.progress import SILENT
from gputune.client.tuning.measuring.intervals import Ratio, paired_ratio
from models import classic_models, material, zoo_models
from models.in_onnxruntime import made_models
from models.tune_models import Model

PEER = "onnxruntime"
LARGEST_RATIO = 1.05
QUICK = "classifier"


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    command.add_argument("--only", default="", metavar="TEXT,...", help="models whose names are or hold one of these")
    command.add_argument("--effort", default="normal", help="of the contexts (default: %(default)s)")
    command.add_argument("--tuning_budget", default="3m", help="of each context (default: %(default)s)")
    command.add_argument("--seconds", type=float, default=60.0, help="of each comparison (default: %(default)s)")
    command.add_argument("--device", help="the device to use, as gputune's --device")
    command.add_argument("--quick", action="store_true", help=f"only show that everything works: the {QUICK}, untuned")


def run(options: argparse.Namespace) -> Result:
    """Tune and compare the models that the options ask for."""
    work = options.work / "parts"
    work.mkdir(parents=True, exist_ok=True)
    effort, only = ("none", QUICK) if options.quick else (options.effort, options.only)
    more = ["--device", options.device] if options.device else []
    rows, found, large = [], dict[str, Any](), list[float]()
    models = {model.title: model for model in all_models(work)}
    for name in chosen(list(models), only):
        model = models[name]
        shapes = ["--input_dimensions", model.shapes] if model.shapes else []
        output = work / model.path.stem
        budget = [] if effort == "none" else ["--tuning_budget", options.tuning_budget]
        arguments = ("--model", model.path, *shapes, *more)
        made = tool.gputune(
            output,
            "context-binary-generator", *arguments, "--binary_file", "model",
            "--unsupported", "host", "--tuning_effort", effort, *budget,
        )  # fmt: skip
        (parts,) = made.summary["models_in_parts"]
        ratio, off = _compared(output / "model_ctx.onnx", model, options)
        found[name] = {"share": parts["share"], **vars(ratio)}
        large += [ratio.median] * (parts["share"] >= 0.5)
        rows.append((name, f"{parts['share']:.1%}", told(ratio), f"{off:.1e}"))
    lines = []
    if large:
        mean = math.exp(statistics.fmean(map(math.log, large)))
        lines = [f"geometric mean where the device has half or more: {mean:.3f}, below 1 is faster"]
    head = ("model", "share", f"time by {PEER}'s, at most {LARGEST_RATIO}", "off by")
    return Result(found, [(head, rows)], lines)


def _compared(file: Path, model: Model, options: argparse.Namespace) -> tuple[Ratio, float]:
    """Return the time of the model in parts by that in onnxruntime alone, and how far off its outputs are."""
    with Process() as ours, Process() as theirs:
        parts = Contender("parts", ours, "context", {"context": str(file), "device": options.device})
        given = {"inputs": parts.facts["inputs"], "threads": len(os.sched_getaffinity(0))}
        peer = Contender(PEER, theirs, "onnxruntime", {"model": str(model.path), **given})
        times = rounds_of([parts, peer], options.seconds, SILENT, whole=True)
        got = parts.outputs()
        off = max(distance(got[name], value) for name, value in peer.outputs().items())
    return paired_ratio(times["parts"], times[PEER]), off


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
