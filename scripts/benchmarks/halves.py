"""Compare contexts that store float16 with float32 and with onnxruntime on the same model in float16, in turns."""

import argparse
import math
import os
import statistics
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import onnx

import tool
from benchmarks.networks import wanted
from benchmarks.result import Result, told
from gputune.client.compare.comparing import rounds_of
from gputune.client.compare.turns import Contender, Process
from gputune.client.context.verifying.distance import distance
from gputune.client.progress import SILENT
from gputune.client.tuning.measuring.intervals import Ratio, paired_ratio
from gputune.core.dtypes import FLOAT, HALF
from gputune.core.precision import STORED
from gputune.runtime.context.format import open_context
from models.tune_models import Model

LEAST_OF_FLOAT, LEAST_OF_PEER, MOST_WEIGHTS, MOST_ARENA, MOST_OFF = 0.95, 1.5, 0.52, 0.55, 2e-3
PEER = "onnxruntime"
HEAD = (
    "model",
    f"speed of float32's, mean at least {LEAST_OF_FLOAT}",
    f"of onnxruntime's, mean at least {LEAST_OF_PEER}",
    f"weights, at most {MOST_WEIGHTS}",
    f"arena, at most {MOST_ARENA}",
    f"off by, at most {MOST_OFF:g}",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--only", default="", metavar="TEXT,...", help="networks whose names are or hold one of these")
    parser.add_argument("--seconds", type=float, default=60.0, help="for each network (default: %(default)s)")
    parser.add_argument("--effort", default="normal", help="of both contexts (default: %(default)s)")
    parser.add_argument("--tuning_budget", default="3m", help="of each context (default: %(default)s)")
    parser.add_argument("--device", help="the device to use, as gputune's --device")
    parser.add_argument("--quick", action="store_true", help="only show that everything works: a small model")


def run(options: argparse.Namespace) -> Result:
    """Measure the networks that the options ask for. Raises DeviceOrContextError."""
    rows, figures, speeds = [], dict[str, Any](), dict[str, list[float]]({FLOAT: [], PEER: []})
    for name, (make, _) in wanted(options).items():
        folder = _made(make(), options)
        ratios, off = _compared(folder, options)
        shares = [half / whole for half, whole in zip(_bytes(folder, STORED), _bytes(folder, FLOAT), strict=True)]
        for other, ratio in ratios.items():
            speeds[other].append(ratio.median)
        rows.append((name, *map(told, ratios.values()), *(f"{share:.3f}" for share in shares), f"{off:.1e}"))
        speed = {other: vars(ratio) for other, ratio in ratios.items()}
        figures[name] = {"speeds": speed, "weights": shares[0], "arena": shares[1], "off": off}
    means = {other: math.exp(statistics.fmean(map(math.log, found))) for other, found in speeds.items()}
    lines = [f"geometric mean of speeds, beside {other}: {mean:.3f}" for other, mean in means.items()]
    return Result(figures, [(HEAD, rows)], lines)


def _made(model: Model, options: argparse.Namespace) -> Path:
    """A folder with both contexts and both models. onnxruntime's own tool converts the model."""
    from onnxruntime.transformers.float16 import convert_float_to_float16

    folder: Path = options.work / "halves" / model.path.stem
    folder.mkdir(parents=True, exist_ok=True)
    source = onnx.load(model.path)
    for item in source.graph.input:
        for dimension, size in zip(item.type.tensor_type.shape.dim, model.dimensions.get(item.name, ()), strict=False):
            dimension.dim_value = size
    onnx.save(source, folder / f"{FLOAT}.onnx")
    onnx.save(convert_float_to_float16(source), folder / f"{HALF}.onnx")
    more = [] if options.effort == "none" else ["--tuning_budget", options.tuning_budget]
    more += ["--device", options.device] if options.device else []
    for mode in (FLOAT, STORED):
        tool.gputune(
            folder / mode,
            "context-binary-generator", "--model", folder / f"{FLOAT}.onnx", "--binary_file", "context",
            "--precision_mode", mode, "--tuning_effort", options.effort, *more,
        )  # fmt: skip
    return folder


def _compared(folder: Path, options: argparse.Namespace) -> tuple[dict[str, Ratio], float]:
    """Return the speeds of the context that stores float16 beside the others', and how far off its outputs are."""
    with ExitStack() as stack:
        ours, theirs = (stack.enter_context(Process()) for _ in range(2))
        contexts = [
            Contender(mode, ours, "context", {"context": str(folder / mode / "context.bin"), "device": options.device})
            for mode in (STORED, FLOAT)
        ]
        inputs, threads = contexts[1].facts["inputs"], len(os.sched_getaffinity(0))
        halves = [each | {"dtype": HALF if each["dtype"] == FLOAT else each["dtype"]} for each in inputs]
        peer = Contender(
            PEER, theirs, "onnxruntime", {"model": str(folder / f"{HALF}.onnx"), "inputs": halves, "threads": threads}
        )
        times = rounds_of([*contexts, peer], options.seconds, SILENT, whole=True)
        right = {"model": str(folder / f"{FLOAT}.onnx"), "inputs": inputs, "threads": threads}
        want = Contender(f"{PEER} in {FLOAT}", theirs, "onnxruntime", right).outputs()
        got = contexts[0].outputs()
        off = max(distance(got[name], value) for name, value in want.items()) if contexts[0].facts["computes"] else 0.0
    return {other: paired_ratio(times[other], times[STORED]) for other in (FLOAT, PEER)}, off


def _bytes(folder: Path, mode: str) -> tuple[int, int]:
    """Return what the weights and the arenas of a context take."""
    with open_context(folder / mode / "context.bin") as file:
        header = file.header
        return sum(header.sections[index].length for index in header.weights), sum(header.graphs[0].arena_bytes)
