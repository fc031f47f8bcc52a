"""Compare contexts that store float16 with float32 and with onnxruntime on the same model in float16, in turns."""

import argparse
import statistics
from pathlib import Path
from typing import Any

import onnx

import tool
from benchmarks.networks import wanted
from benchmarks.options import add_options
from benchmarks.result import Result, told
from benchmarks.turns import PEER, in_turns
from gputune.client.tuning.measuring.intervals import Ratio
from gputune.core.dtypes import FLOAT, HALF
from gputune.core.precision import STORED
from gputune.runtime.context.format import open_context
from models.tune_models import Model

LEAST_OF_FLOAT, LEAST_OF_PEER, MOST_WEIGHTS, MOST_ARENA, MOST_OFF = 0.95, 1.5, 0.52, 0.55, 2e-3
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
    add_options(parser, only="", seconds=60.0, effort="normal", tuning_budget="3m", device=None, quick=False)


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
    means = {other: statistics.geometric_mean(found) for other, found in speeds.items()}
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
    path = folder / f"{FLOAT}.onnx"
    onnx.save(source, path)
    onnx.save(convert_float_to_float16(source), folder / f"{HALF}.onnx")
    for mode in (FLOAT, STORED):
        more = ("--precision_mode", mode, *tool.budget(options))
        tool.generate(folder / mode, path, "", options.effort, *more, device=options.device)
    return folder


def _compared(folder: Path, options: argparse.Namespace) -> tuple[dict[str, Ratio], float]:
    """Return the speeds of the context that stores float16 beside the others', and how far off its outputs are."""
    contexts = {mode: folder / mode / "context.bin" for mode in (FLOAT, STORED)}
    with in_turns(contexts, options, folder / f"{HALF}.onnx", {FLOAT: HALF}) as turns:
        inputs = turns.contenders[FLOAT].facts["inputs"]
        right = turns.contenders[PEER].beside(FLOAT, model=str(folder / f"{FLOAT}.onnx"), inputs=inputs)
        off = turns.off(STORED, right) if turns.contenders[STORED].facts["computes"] else 0.0
    return {other: turns.ratio(other, STORED) for other in (FLOAT, PEER)}, off


def _bytes(folder: Path, mode: str) -> tuple[int, int]:
    """Return what the weights and the arenas of a context take."""
    with open_context(folder / mode / "context.bin") as file:
        header = file.header
        return sum(header.sections[index].length for index in header.weights), sum(header.graphs[0].arena_bytes)
