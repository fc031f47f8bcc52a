"""Measure how much the host adds to an inference, per launch and per run (`scripts/bench executor`)."""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import tool
from gputune.runtime.backends import Backend, Bound, open_backend
from gputune.runtime.devices.discovery import find, wanted_device

EMPTY = "__kernel void empty(__global float *data) {}"
CHAINS = (1, 50, 200)  # launches
TENSOR_BYTES = 3 * 224 * 224 * 4
RESULT_BYTES = 4000


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    command.add_argument("--rounds", type=int, default=200, help="runs of each chain (default: %(default)s)")
    command.add_argument("--device", help="the device to use, as gputune's --device")
    command.add_argument("--json", type=Path, help="write the numbers to this file as well")


def run(options: argparse.Namespace) -> None:
    """Measure how much the host adds to an inference, per launch and per run. Chains of empty kernels run as an
    executor runs them: write an input, enqueue, read an output. The extra time of a longer chain is the cost per
    launch."""
    report = find(wanted_device(options.device)).report
    backend = open_backend(report, profiling=False)
    runs = {length: _chain(backend, length) for length in (0, *CHAINS)}
    for _ in range(3):
        for one in runs.values():
            one()
    times_ns: dict[int, list[int]] = {length: [] for length in runs}
    for _ in range(options.rounds):
        for length, one in runs.items():
            start = time.perf_counter_ns()
            one()
            times_ns[length].append(time.perf_counter_ns() - start)
    quickest = {length: min(values) for length, values in times_ns.items()}
    median = {length: statistics.median(values) for length, values in times_ns.items()}
    longest = CHAINS[-1]

    def per_launch(of: dict[int, float]) -> float:
        return (of[longest] - of[0]) / longest

    usual_ns, least_ns = per_launch(dict(median)), per_launch(dict(quickest))
    result = {"device": report.title, "run_ns": median, "per_launch_ns": usual_ns, "least_per_launch_ns": least_ns}
    rows = [
        ("device", report.title),
        (f"write {TENSOR_BYTES} bytes, read {RESULT_BYTES}", f"{median[0] / 1e3:.1f} us"),
        *((f"with {length} empty launches between", f"{median[length] / 1e3:.1f} us") for length in CHAINS),
        ("per launch, median", f"{usual_ns / 1e3:.2f} us"),
        ("per launch, at least", f"{least_ns / 1e3:.2f} us"),
    ]
    print("\n" + tool.table(["what", "result"], rows), flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def _chain(backend: Backend, launches: int) -> Callable[[], None]:
    """One run of so many empty kernels."""
    program = backend.build(EMPTY, "")
    tensor, result = backend.allocate(TENSOR_BYTES), backend.allocate(RESULT_BYTES)
    bounds: list[Bound] = [backend.bind(program, "empty", (4,), (1,), [tensor]) for _ in range(launches)]
    start = backend.in_order(bounds)
    given, got = np.zeros(TENSOR_BYTES, np.uint8), np.empty(RESULT_BYTES, np.uint8)

    def once() -> None:
        written = backend.begin_write(tensor, given)
        start()
        backend.read(result, into=got)
        del written

    return once
