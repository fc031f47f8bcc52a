"""Measure sessions of onnxruntime with gputune as their execution provider (`scripts/bench sessions`)."""

import argparse
import json
import math
import re
import statistics
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import tool
from benchmarks.sessions.cut_models import CutModel, all_models, tiny_model
from gputune.client.generation.ep_context import EpContextFile
from gputune.client.tuning.measuring.intervals import paired_interval
from models import classic_models, material
from tests.native.compiling import INCLUDE, SOURCES, compiled, opencl_library
from tests.onnxruntime.sessions import plugin

WORK = tool.ROOT / "build" / "bench" / "sessions"
APPLICATION = tool.ROOT / "tests" / "onnxruntime" / "application.c"
LARGEST_ADDED_US, LARGEST_SESSION, SESSION_MS, LARGEST_RATIO = 10, 1.3, 50, 1.05
WARM_UP = 10


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    command.add_argument("--rounds", type=int, default=200, help="turns of each session (default: %(default)s)")
    command.add_argument("--loads", type=int, default=7, help="fresh processes of each context (default: %(default)s)")
    command.add_argument("--effort", default="normal", help="of cut models (default: %(default)s)")
    command.add_argument("--tuning_budget", default="3m", help="of each cut model (default: %(default)s)")
    command.add_argument("--models", default="", metavar="TEXT", help="only cut models whose names contain this text")
    command.add_argument("--only", choices=("c", "cut"), help="only what C applications or cut models show")
    command.add_argument("--child", nargs=2, type=Path, metavar=("MODEL", "FILE"), help=argparse.SUPPRESS)
    command.add_argument("--json", type=Path, help="write the numbers to this file as well")


def run(options: argparse.Namespace) -> None:
    """Measure what a session of onnxruntime with gputune adds in C, and compare models of which gputune runs a part
    with plain onnxruntime, in turns."""
    if options.child is not None:
        model, file = options.child
        print(json.dumps(_turns(model, file, options.rounds)))
        return
    WORK.mkdir(parents=True, exist_ok=True)
    result: dict[str, Any] = {}
    if options.only != "cut":
        result["c"] = _in_c(options)
    if options.only != "c":
        result["cut"] = _cut(options)
    if options.json is not None:
        options.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def _in_c(options: argparse.Namespace) -> dict[str, Any]:
    """Sessions in C and gputune_run, in turns in one process; the minima of all processes for inferences, as medians
    are noise, and medians for sessions and loads. The context is loaded before the session and once more after it:
    where a context lies in memory has an effect, too."""
    application = compiled("application", [APPLICATION, *SOURCES], ("-O2", "-g", f"-I{INCLUDE}"))
    contexts = {
        "a product of 16 x 16": (tiny_model(WORK), ""),
        "page orientation": (material.orientation_model(), "x=1,3,224,224"),
        "MobileNetV2-0.5 160": (classic_models.mobilenet_v2(0.5, 160).path, "x=1,3,160,160"),
    }
    rows, found = [], {}
    for name, (model, dimensions) in contexts.items():
        folder = WORK / name.replace(" ", "_")
        arguments = ["--input_dimensions", dimensions] if dimensions else []
        made: list[str | Path] = ["--model", model, "--binary_file", "context", "--tuning_effort", "none", *arguments]
        binary = tool.gputune(folder, "context-binary-generator", *made).context
        EpContextFile(folder / "model.onnx", False).write(binary)
        figures = [_application(application, folder / "model.onnx", binary, options) for _ in range(options.loads)]
        load, session = (statistics.median(one[place] for one in figures) for place in (0, 1))
        own, through, behind = (min(one[place] for one in figures) for place in (2, 3, 4))
        found[name] = {"load_ms": load, "session_ms": session, "run_us": own, "again_us": behind}
        found[name]["session_run_us"] = through
        limit = LARGEST_SESSION * load + SESSION_MS
        shown = (own, behind, through, through - max(own, behind), load, session, limit)
        rows.append((name, *(f"{each:.1f}" for each in shown)))
    added = f"added, at most {LARGEST_ADDED_US}"
    times = ("gputune_run us", "loaded again us", "session us", added)
    head = ("context", *times, "load ms", "session ms", "at most")
    print("\n" + tool.table(head, rows), flush=True)
    return found


def _application(application: Path, model: Path, binary: Path, options: argparse.Namespace) -> list[float]:
    """The times of one process: load and session in ms, inferences in us."""
    import onnxruntime

    (library,) = (Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so.*")
    command = [str(one) for one in (application, library, plugin(), model, binary, options.rounds)]
    ran = subprocess.run(command, env=tool.environment(**opencl_library()), capture_output=True, text=True)
    if ran.returncode:
        raise RuntimeError(ran.stderr)
    return [float(number) for number in re.findall(r"([\d.]+) (?:ms|us)", ran.stdout)]


def _cut(options: argparse.Namespace) -> dict[str, Any]:
    """Cut models and plain onnxruntime in turns, both with `allow_spinning` 0, each in a process of its own."""
    rows, found, large = [], dict[str, Any](), list[float]()
    for model in [one for one in all_models(WORK) if options.models in one.name]:
        file, share = _generated(model, options)
        words = ("sessions", "--rounds", options.rounds, "--child", model.path, file)
        command = [*tool.module("bench"), *map(str, words)]
        ran = subprocess.run(command, env=tool.environment(), capture_output=True, text=True)
        if ran.returncode:
            raise RuntimeError(ran.stderr)
        times = json.loads(ran.stdout.splitlines()[-1])
        ratio = statistics.median(a / b for a, b in zip(times["cut"], times["plain"], strict=True))
        interval = paired_interval(times["cut"], times["plain"])
        large += [ratio] * (share >= 0.5)
        found[model.name] = {"share": share, "ratio": ratio, "low": interval.low, "high": interval.high}
        shown = f"{ratio:.3f} ({interval.low:.3f} to {interval.high:.3f})"
        medians = [f"{statistics.median(times[key]) / 1e3:.0f}" for key in ("cut", "plain")]
        rows.append((model.name, f"{share:.1%}", times["nodes"], *medians, shown, f"{times['off']:.1e}"))
        print(f"{model.name}: {shown}", flush=True)
    head = ("model", "share", "EPContext nodes", "cut us", "plain us", f"ratio, at most {LARGEST_RATIO}", "off by")
    print("\n" + tool.table(head, [tuple(map(str, row)) for row in rows]), flush=True)
    if large:
        mean = math.exp(statistics.fmean(map(math.log, large)))
        print(f"geometric mean where the device has half or more: {mean:.3f}, below 1 is faster", flush=True)
    return found


def _generated(model: CutModel, options: argparse.Namespace) -> tuple[Path, float]:
    """The ONNX file of a tuned cut model, and the share of its multiply-adds on the device."""
    folder = WORK / model.path.stem / "output"
    dimensions = [f"{name}={','.join(map(str, shape))}" for name, shape in model.dimensions.items()]
    budget = () if options.effort == "none" else ("--tuning_budget", options.tuning_budget)
    done = tool.gputune(
        folder,
        "context-binary-generator", "--model", model.path, "--binary_file", "model",
        *(word for each in dimensions for word in ("--input_dimensions", each)),
        "--unsupported", "host", "--tuning_effort", options.effort, *budget,
    )  # fmt: skip
    (cut,) = done.summary["models_in_parts"]
    return folder / "model_ctx.onnx", cut["share"]


def _turns(model: Path, file: Path, rounds: int) -> dict[str, Any]:
    """The times of both sessions in ns, in turns there and back, and how far off the outputs are of their largest."""
    import onnxruntime

    import gputune

    gputune.onnxruntime.register()
    sessions = []
    for path in (file, model):
        session_options = onnxruntime.SessionOptions()
        session_options.log_severity_level = 3
        session_options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        if path == file:
            session_options.add_provider_for_devices(gputune.onnxruntime.devices(), {})
        sessions.append(onnxruntime.InferenceSession(path, session_options))
    inputs = _inputs(sessions[0])
    wanted, got = sessions[1].run(None, inputs), sessions[0].run(None, inputs)
    for session in sessions * WARM_UP:
        session.run(None, inputs)
    times: tuple[list[int], list[int]] = ([], [])
    for number in range(rounds):
        for place in (1, 0) if number % 2 else (0, 1):
            begun = time.perf_counter_ns()
            sessions[place].run(None, inputs)
            times[place].append(time.perf_counter_ns() - begun)
    import onnx

    nodes = sum(node.op_type == "EPContext" for node in _every(onnx.load(file).graph))
    off = max((_off(one, other) for one, other in zip(got, wanted, strict=True)), default=0.0)
    return {"cut": times[0], "plain": times[1], "nodes": nodes, "off": off}


def _every(graph: Any) -> list[Any]:
    inner = [item.g for node in graph.node for item in node.attribute if item.HasField("g")]
    return [*graph.node, *(node for each in inner for node in _every(each))]


def _inputs(session: Any) -> Mapping[str, npt.NDArray[Any]]:
    generator = np.random.default_rng(0)
    kinds = {"tensor(float)": np.float32, "tensor(int64)": np.int64}
    made = {}
    for item in session.get_inputs():
        shape = [size if isinstance(size, int) else 1 for size in item.shape]
        numbers = generator.standard_normal(shape) if item.type == "tensor(float)" else np.full(shape, 16000)
        made[item.name] = np.asarray(numbers).astype(kinds[item.type])
    return made


def _off(got: npt.NDArray[Any], want: npt.NDArray[Any]) -> float:
    if got.shape != want.shape:
        return math.inf
    largest = float(np.max(np.abs(want), initial=0)) or 1.0
    return float(np.max(np.abs(np.subtract(got, want, dtype=np.float64)), initial=0)) / largest
