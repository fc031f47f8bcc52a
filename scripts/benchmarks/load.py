"""`scripts/bench load`: what a fresh process pays before its first result, with every compiler's cache switched off."""

import argparse
import json
import os
import statistics
from pathlib import Path
from typing import Any

import numpy as np

import tool
from benchmarks.peers.limits import spread
from gputune.runtime.context.format import read_header
from models import classic_models

WORK = tool.ROOT / "build" / "bench"
LARGEST_MS = 100.0  # promised for a context of some fifty kernels
INFERENCES = 50


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    command.add_argument("--rounds", type=int, default=5, help="fresh processes (default: %(default)s)")
    command.add_argument("--context", type=Path, help="a context binary, by default MobileNetV2-0.5 160 of defaults")
    command.add_argument("--device", help="the device to use, as gputune's --device")
    command.add_argument("--json", type=Path, help="write the numbers to this file as well")


def run(options: argparse.Namespace) -> None:
    """What a fresh process pays until its first result. A context is loaded in fresh processes: the time from after the
    imports and the opening of the device until the first inference is done, less what an inference takes anyway.
    Nothing is in any compiler's cache."""
    os.environ.update(POCL_KERNEL_CACHE="0", PYOPENCL_NO_CACHE="1")
    path = options.context or _generated(options.device)
    graph = read_header(path).graphs[0]
    inputs = WORK / "load.txt"
    named: list[str] = []
    for tensor in graph.inputs:
        ones = WORK / f"ones.{len(named)}.raw"
        np.ones(tensor.shape, tensor.dtype).tofile(ones)
        named.append(f"{tensor.name}:={ones}")
    inputs.write_text(" ".join(named) + "\n", encoding="utf-8")
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


def _generated(device: str | None) -> Path:
    """A context of some fifty kernels, from default configurations."""
    model = classic_models.mobilenet_v2(0.5, 160)
    return tool.generate(WORK / "load", model.path, "x=1,3,160,160", "none", None, device).context
