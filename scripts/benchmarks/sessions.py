"""Measure what a session of onnxruntime with gputune adds in C to inferences and loads of a context.

Sessions in C and gputune_run take turns in one process. Figures are the minima of all processes for inferences, as
medians are noise, and medians for sessions and loads. The context is loaded before the session and once more after it:
where a context lies in memory has an effect, too.
"""

import argparse
import re
import statistics
import subprocess
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import tool
from benchmarks.result import Result
from gputune.client.generation.ep_context import EpContextFile
from models import classic_models, material
from tests.native.compiling import INCLUDE, SOURCES, compiled, opencl_library
from tests.onnxruntime.sessions import plugin

APPLICATION = tool.ROOT / "tests" / "onnxruntime" / "application.c"
LARGEST_ADDED_US, LARGEST_SESSION, SESSION_MS = 10, 1.3, 50


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    command.add_argument("--rounds", type=int, default=200, help="turns of each session (default: %(default)s)")
    command.add_argument("--loads", type=int, default=7, help="fresh processes of each context (default: %(default)s)")
    command.add_argument("--quick", action="store_true", help="only show that everything works: a tiny model, once")


def run(options: argparse.Namespace) -> Result:
    """Measure untuned contexts. Raises RuntimeError."""
    work = options.work / "sessions"
    work.mkdir(parents=True, exist_ok=True)
    application = compiled("application", [APPLICATION, *SOURCES], ("-O2", "-g", f"-I{INCLUDE}"))
    contexts = {"a product of 16 x 16": (tiny_model(work), "")}
    loads = 1 if options.quick else options.loads
    if not options.quick:
        contexts["page orientation"] = (material.orientation_model(), "x=1,3,224,224")
        contexts["MobileNetV2-0.5 160"] = (classic_models.mobilenet_v2(0.5, 160).path, "x=1,3,160,160")
    rows, found = [], {}
    for name, (model, dimensions) in contexts.items():
        folder = work / name.replace(" ", "_")
        binary = tool.generate(folder, model, dimensions, "none", None).context
        EpContextFile(folder / "model.onnx", False).write(binary)
        figures = [_application(application, folder / "model.onnx", binary, options.rounds) for _ in range(loads)]
        load, session = (statistics.median(one[place] for one in figures) for place in (0, 1))
        own, through, again = (min(one[place] for one in figures) for place in (2, 3, 4))
        found[name] = {"load_ms": load, "session_ms": session, "run_us": own, "again_us": again}
        found[name]["session_run_us"] = through
        limit = LARGEST_SESSION * load + SESSION_MS
        shown = (own, again, through, through - max(own, again), load, session, limit)
        rows.append((name, *(f"{each:.1f}" for each in shown)))
    times = ("gputune_run us", "loaded again us", "session us", f"added, at most {LARGEST_ADDED_US}")
    return Result(found, [(("context", *times, "load ms", "session ms", "at most"), rows)])


def _application(application: Path, model: Path, binary: Path, rounds: int) -> list[float]:
    """The times of one process: load and session in ms, inferences in us."""
    import onnxruntime

    (library,) = (Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so.*")
    command = [str(one) for one in (application, library, plugin(), model, binary, rounds)]
    ran = subprocess.run(command, env=tool.environment(**opencl_library()), capture_output=True, text=True)
    if ran.returncode:
        raise RuntimeError(ran.stderr)
    return [float(number) for number in re.findall(r"([\d.]+) (?:ms|us)", ran.stdout)]


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
