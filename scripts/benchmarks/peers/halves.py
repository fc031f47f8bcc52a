"""Compare contexts that store float16 with float32 and with onnxruntime on a float16 model (`scripts/bench halves`)."""

import argparse
import json
import math
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import tool
from benchmarks.networks import MODELS
from gputune.client.model.graph import STORED
from gputune.client.tuning.measuring.intervals import paired_interval
from gputune.core.dtypes import FLOAT, HALF
from gputune.runtime.context.format import open_context
from models.tune_models import Model

WORK = tool.ROOT / "build" / "bench" / "halves"
LEAST_OF_FLOAT, LEAST_OF_PEER, MOST_WEIGHTS, MOST_ARENA, MOST_OFF = 0.95, 1.5, 0.52, 0.55, 2e-3
WARM_UP = 5
Times = dict[str, list[int]]


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    command.add_argument("--rounds", type=int, default=60, help="turns of each contender (default: %(default)s)")
    command.add_argument("--effort", default="normal", help="of both contexts (default: %(default)s)")
    command.add_argument("--tuning_budget", default="3m", help="of each context (default: %(default)s)")
    command.add_argument("--models", default="", metavar="TEXT", help="only models whose names contain this text")
    command.add_argument("--child", type=Path, metavar="FOLDER", help=argparse.SUPPRESS)
    command.add_argument("--json", type=Path, help="write the numbers to this file as well")


def run(options: argparse.Namespace) -> None:
    """Compare inferences, bytes and outputs of a context that stores float16 with one in float32, and with onnxruntime
    on the same model in float16, in turns."""
    if options.child is not None:
        print(json.dumps(_turns(options.child, options.rounds)))
        return
    found: dict[str, Any] = {}
    for name in [name for name in MODELS if options.models in name]:
        folder = _made(MODELS[name][0](), options)
        command = [*tool.module("bench"), "halves", "--rounds", str(options.rounds), "--child", str(folder)]
        ran = subprocess.run(command, env=tool.environment(), capture_output=True, text=True)
        if ran.returncode:
            raise RuntimeError(ran.stderr)
        found[name] = json.loads(ran.stdout.splitlines()[-1]) | _bytes(folder)
        print(f"{name}: {_row(found[name])}", flush=True)
    head = [
        "model",
        f"speed of float32's, mean at least {LEAST_OF_FLOAT}",
        f"of onnxruntime's, mean at least {LEAST_OF_PEER}",
        f"weights, at most {MOST_WEIGHTS}",
        f"arena, at most {MOST_ARENA}",
        f"off by, at most {MOST_OFF:g}",
    ]
    print("\n" + tool.table(head, [(name, *_row(each)) for name, each in found.items()]), flush=True)
    for key, other in (("float32", FLOAT), ("onnxruntime in float16", "peer")):
        speeds = [each[other]["speed"] for each in found.values()]
        print(f"geometric mean of speeds, beside {key}: {math.exp(statistics.fmean(map(math.log, speeds))):.3f}")
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


def _row(found: Mapping[str, Any]) -> tuple[str, ...]:
    speeds = (
        f"{found[key]['speed']:.3f} ({found[key]['low']:.3f} to {found[key]['high']:.3f})" for key in (FLOAT, "peer")
    )
    return (*speeds, f"{found['weights']:.3f}", f"{found['arena']:.3f}", f"{found['off']:.1e}")


def _made(model: Model, options: argparse.Namespace) -> Path:
    """A folder with both contexts and both models. onnxruntime's own tool converts the model."""
    from onnxruntime.transformers.float16 import convert_float_to_float16

    folder = WORK / model.path.stem
    folder.mkdir(parents=True, exist_ok=True)
    source = onnx.load(model.path)
    for item in source.graph.input:
        for dimension, size in zip(item.type.tensor_type.shape.dim, model.dimensions.get(item.name, ()), strict=False):
            dimension.dim_value = size
    onnx.save(source, folder / f"{FLOAT}.onnx")
    onnx.save(convert_float_to_float16(source), folder / f"{HALF}.onnx")
    budget = () if options.effort == "none" else ("--tuning_budget", options.tuning_budget)
    for mode in (FLOAT, STORED):
        tool.gputune(
            folder / mode,
            "context-binary-generator", "--model", folder / f"{FLOAT}.onnx", "--binary_file", "model",
            "--precision_mode", mode, "--tuning_effort", options.effort, *budget,
        )  # fmt: skip
    return folder


def _turns(folder: Path, rounds: int) -> dict[str, Any]:
    """Speeds of the context that stores float16 beside the others', in turns there and back, and how far off it is."""
    import onnxruntime

    import gputune

    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    sessions = {
        dtype: onnxruntime.InferenceSession(folder / f"{dtype}.onnx", options, providers=["CPUExecutionProvider"])
        for dtype in (FLOAT, HALF)
    }
    contexts = {mode: gputune.load(folder / mode / "model.bin") for mode in (FLOAT, STORED)}
    numbers = np.random.default_rng(0)
    inputs = {
        tensor.name: numbers.standard_normal(tensor.shape).astype(tensor.dtype)
        if tensor.dtype == FLOAT
        else np.ones(tensor.shape, tensor.dtype)
        for tensor in contexts[FLOAT].inputs
    }
    halves = {name: value.astype(HALF) if value.dtype == FLOAT else value for name, value in inputs.items()}
    contenders: Mapping[str, Callable[[], Any]] = {
        STORED: lambda: contexts[STORED].run(inputs),
        FLOAT: lambda: contexts[FLOAT].run(inputs),
        "peer": lambda: sessions[HALF].run(None, halves),
    }
    for infer in [*contenders.values()] * WARM_UP:
        infer()
    times: Times = {name: [] for name in contenders}
    for number in range(rounds):
        for name in reversed([*contenders]) if number % 2 else contenders:
            begun = time.perf_counter_ns()
            contenders[name]()
            times[name].append(time.perf_counter_ns() - begun)
    got, names = contexts[STORED].run(inputs), [output.name for output in sessions[FLOAT].get_outputs()]
    right = dict(zip(names, sessions[FLOAT].run(None, inputs), strict=True))
    off = max(float(np.abs(got[name] - want).max() / (np.abs(want).max() or 1)) for name, want in right.items())
    found: dict[str, Any] = {"off": off}
    for name in (FLOAT, "peer"):
        interval = paired_interval(times[name], times[STORED])
        speed = statistics.median(a / b for a, b in zip(times[name], times[STORED], strict=True))
        found[name] = {"speed": speed, "low": interval.low, "high": interval.high}
    return found


def _bytes(folder: Path) -> dict[str, float]:
    """The weights and arenas of the context that stores float16, by those of float32."""
    sizes = {}
    for mode in (FLOAT, STORED):
        with open_context(folder / mode / "model.bin") as file:
            header = file.header
            weights = sum(header.sections[index].length for index in header.weights)
            sizes[mode] = weights, sum(header.graphs[0].arena_bytes)
    return {key: sizes[STORED][place] / sizes[FLOAT][place] for place, key in enumerate(("weights", "arena"))}
