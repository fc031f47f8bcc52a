"""Measure a fresh process until its first result, with every compiler's cache switched off (`scripts/bench load`)."""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

import tool
from benchmarks.peers.limits import spread
from gputune.client.generation.config.generator_keys import WEIGHTS
from gputune.runtime import native
from gputune.runtime.context.format import read_header
from gputune.runtime.context.records import GraphRecord
from models import classic_models

sys.path.append(str(tool.ROOT))
from tests.native.compiling import compiled, opencl_library

WORK = tool.ROOT / "build" / "bench"
SOURCES = sorted((native.FOLDER / "src").glob("*.c"))
FLAGS = ("-O2", f"-I{native.FOLDER / 'include'}")
LARGEST_MS = 100.0  # promised for a context of some fifty kernels
INFERENCES = 50
FORMS_MODEL = "SqueezeNet"  # whose packed weights have twice the model's bytes


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    command.add_argument("--rounds", type=int, default=5, help="fresh processes (default: %(default)s)")
    command.add_argument("--context", type=Path, help="a context binary, by default MobileNetV2-0.5 160 of defaults")
    command.add_argument(
        "--forms", action="store_true", help=f"load a packed and a compact context of {FORMS_MODEL} in turns, also in C"
    )
    command.add_argument("--device", help="the device to use, as gputune's --device")
    command.add_argument("--json", type=Path, help="write the numbers to this file as well")


def run(options: argparse.Namespace) -> None:
    """Measure the time of a fresh process until its first result. A context is loaded in fresh processes: the time from
    after the imports and the opening of the device until the first inference is done, less the usual time of an
    inference. Nothing is in any compiler's cache."""
    os.environ.update(POCL_KERNEL_CACHE="0", PYOPENCL_NO_CACHE="1")
    if options.forms:
        _compare_forms(options)
        return
    path = options.context or _generated(options.device)
    graph = read_header(path).graphs[0]
    inputs = _ones(graph)
    runs = [
        tool.net_run(WORK / "load_run", path, inputs, INFERENCES, quiet=True).summary for _ in range(options.rounds)
    ]
    over_ns = [one["load_ns"] + one["first_inference_ns"] - one["median_inference_ns"] for one in runs]
    kernels, programs = len(graph.launches), len({launch.program for launch in graph.launches})
    result: dict[str, Any] = {
        "device": runs[0]["device"],
        "context": path.name,
        "kernels": kernels,
        "programs": programs,
        "runs": runs,
        "over_steady_ns": over_ns,
    }

    def row(name: str) -> str:
        values = [one[name] for one in runs]
        return f"{tool.milliseconds(statistics.median(values))} ms, spread {spread(values):.1%} of {len(values)}"

    rows = [
        ("device", runs[0]["device"]),
        ("kernels, in programs", f"{kernels}, {programs}"),
        ("load, device open before it", row("load_ns")),
        ("first inference", row("first_inference_ns")),
        ("steady inference", row("median_inference_ns")),
        (
            f"load + first - steady, at most {LARGEST_MS:.0f} ms promised",
            f"{tool.milliseconds(statistics.median(over_ns))} ms, at most {max(over_ns) / 1e6:.1f} ms",
        ),
    ]
    print("\n" + tool.table(["what", "result"], rows), flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def _ones(graph: GraphRecord) -> Path:
    """An input list with ones for all inputs."""
    named: list[str] = []
    for tensor in graph.inputs:
        ones = WORK / f"ones.{len(named)}.raw"
        np.ones(tensor.shape, tensor.dtype).tofile(ones)
        named.append(f"{tensor.name}:={ones}")
    (WORK / "load.txt").write_text(" ".join(named) + "\n", encoding="utf-8")
    return WORK / "load.txt"


def _compare_forms(options: argparse.Namespace) -> None:
    """A packed and a compact context of one model take turns to be loaded, by Python and by C."""
    model = classic_models.light(FORMS_MODEL).path
    contexts = {
        form: tool.generate(
            WORK / f"load_{form}", model, "data_0=1,3,224,224", "none", None, options.device, form
        ).context
        for form in WEIGHTS
    }
    inputs = _ones(read_header(contexts[WEIGHTS[0]]).graphs[0])
    program = compiled("gputune-run", [native.FOLDER / "main.c", *SOURCES], FLAGS)
    loads: dict[tuple[str, str], list[int]] = {}
    for _ in range(options.rounds):
        for form, path in contexts.items():
            by_python = tool.net_run(WORK / "load_run", path, inputs, 1, quiet=True).summary["load_ns"]
            loads.setdefault((form, "Python"), []).append(int(by_python))
            loads.setdefault((form, "C"), []).append(_loaded_by_c(program, path, inputs))
    rows = [
        (f"{form}, {language}", f"{tool.milliseconds(statistics.median(times))} ms, spread {spread(times):.1%}")
        for (form, language), times in loads.items()
    ]
    rows += [(f"{form}, file", f"{path.stat().st_size:,} bytes") for form, path in contexts.items()]
    print("\n" + tool.table([f"load of {FORMS_MODEL}, model of {model.stat().st_size:,} bytes", "result"], rows))
    if options.json is not None:
        told = {f"{form} {language}": times for (form, language), times in loads.items()}
        options.json.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")


def _loaded_by_c(program: Path, context: Path, inputs: Path) -> int:
    """The ns that gputune-run takes to load a context."""
    command: list[str | Path] = [
        program,
        "--context_binary",
        context,
        "--input_list",
        inputs,
        "--output_dir",
        WORK / "load_run_c",
    ]
    environment = {**opencl_library(), "POCL_AFFINITY": "1", **os.environ}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found = re.search(r"load ([0-9.]+) ms", ran.stdout)
    assert found is not None, ran.stdout
    return round(float(found[1]) * 1e6)


def _generated(device: str | None) -> Path:
    """A context of some fifty kernels, from default configurations."""
    model = classic_models.mobilenet_v2(0.5, 160)
    return tool.generate(WORK / "load", model.path, "x=1,3,160,160", "none", None, device).context
