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

import tool
from benchmarks.kernels import gemm
from benchmarks.options import add_options
from benchmarks.result import Result
from gputune.client.generation.ep_context import EpContextFile
from models import classic_models, tune_models
from models.tune_models import saved
from tests.native.compiling import INCLUDE, SOURCES, compiled, opencl_library
from tests.onnxruntime.sessions import plugin

APPLICATION = tool.ROOT / "tests" / "onnxruntime" / "application.c"
LARGEST_ADDED_US, LARGEST_SESSION, SESSION_MS = 10, 1.3, 50


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    add_options(command, rounds=200, quick=False)
    command.add_argument("--loads", type=int, default=7, help="fresh processes of each context (default: %(default)s)")


def run(options: argparse.Namespace) -> Result:
    """Measure untuned contexts. Raises RuntimeError."""
    work = options.work / "sessions"
    work.mkdir(parents=True, exist_ok=True)
    application = compiled("application", [APPLICATION, *SOURCES], ("-O2", "-g", f"-I{INCLUDE}"))
    models = [saved("a product of 16 x 16", "product_16", lambda: gemm(1, 16, 16))]
    models += [] if options.quick else [tune_models.demo(), classic_models.mobilenet_v2(0.5, 160)]
    loads = 1 if options.quick else options.loads
    rows, found = [], {}
    for model in models:
        name, folder = model.title, work / model.path.stem
        binary = tool.generate(folder, model.path, model.shapes, "none").context
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
