"""Compare recorded queues with launches one by one, network by network (`scripts/bench recorded`)."""

import argparse
import json
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt

import tool
from gputune.client.tuning.measuring.intervals import Ratio, paired_ratio
from gputune.core.quirks import OTHER
from gputune.runtime import Executor, load
from gputune.runtime.execution.recorded import RecordedRuns
from gputune.runtime.queues import choice
from models.zoo_models import ENTRIES, sample, untuned_context

WARM_UP = 3
"""Inferences in each form before those that count."""
SECONDS = 1.0
LEAST = 21
"""For so long, but in at least so many turns, a network is measured."""

Outputs = dict[str, npt.NDArray[Any]]


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    command.add_argument("models", nargs="*", metavar="NAME", help=f"of {', '.join(ENTRIES)} (default: all)")
    command.add_argument(
        "--turns", type=int, help=f"inferences in each form (default: {SECONDS:g} s, at least {LEAST})"
    )
    command.add_argument("--device", help="the device to use, as gputune's --device")
    command.add_argument("--json", type=Path, help="write the numbers to this file as well")


def run(options: argparse.Namespace) -> None:
    """Compare recorded queues with launches one by one, network by network: the bits of outputs, and the time of
    inferences in turns. Contexts are untuned and run without persistent kernels. Drivers that leak are measured, too,
    though contexts do not use their recorded queues. The exit code is 1 if outputs differ."""
    rows, results = [], []
    for name in options.models or ENTRIES:
        with mock.patch.object(choice, "quirks_of", lambda identity: OTHER):
            executor = load(untuned_context(name, options.device), options.device)
        with executor:
            found = _compared(name, executor, options.turns)
        results.append(found)
        rows.append(_row(found))
        print(*rows[-1], sep=", ", flush=True)
    print("\n" + tool.table(["model", "launches", "one by one", "recorded/one by one", "outputs"], rows), flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    sys.exit(0 if all(each["equal"] for each in results) else 1)


def _row(found: dict[str, Any]) -> tuple[str, ...]:
    if "ratio" not in found:
        return found["model"], str(found["launches"]), "", found["reason"], ""
    ratio = "{median:.3f} ({low:.3f} to {high:.3f})".format(**found["ratio"])
    equal = "equal" if found["equal"] else "different"
    return found["model"], str(found["launches"]), f"{found['launches_ns'] / 1e6:.3f} ms", ratio, equal


def _compared(name: str, executor: Executor, turns: int | None) -> dict[str, Any]:
    executor.persistent_kernels = False
    numbers = np.random.default_rng(0)
    inputs = {
        one.name: np.ascontiguousarray(sample(ENTRIES[name], one.name, one.shape, one.dtype, numbers))
        for one in executor.graph.inputs
    }
    said: dict[str, Any] = {"model": name, "launches": len(executor.one_by_one()), "device": executor.device.name}
    runs = executor._recorded
    if runs is None:
        return said | {"equal": True, "reason": str(executor.backend.recorded_queue())}
    wanted, got = (_warmed(executor, runs, recorded, inputs) for recorded in (False, True))
    times_ns: tuple[list[int], list[int]] = ([], [])
    for number in _turns(turns, times_ns):
        for recorded in (False, True) if number % 2 else (True, False):
            runs.decided = recorded
            times_ns[recorded].append(executor.run_timed(inputs)[1])
    if executor.last_form not in ("launches", "recorded") or not runs.runs.recorded:
        raise RuntimeError(f"{name}: nothing was recorded: {executor.warnings}")
    ratio: Ratio = paired_ratio(times_ns[True], times_ns[False])
    return said | {
        "equal": all(wanted[each].tobytes() == got[each].tobytes() for each in wanted),
        "launches_ns": statistics.median(times_ns[False]),
        "recorded_ns": statistics.median(times_ns[True]),
        "ratio": {"median": ratio.median, "low": ratio.low, "high": ratio.high},
    }


def _warmed(executor: Executor, runs: RecordedRuns, recorded: bool, inputs: Outputs) -> Outputs:
    """What inferences in a form give."""
    runs.decided = recorded
    for _ in range(WARM_UP):
        outputs = executor.run(inputs)
    return outputs


def _turns(wanted: int | None, times_ns: tuple[list[int], list[int]]) -> Iterator[int]:
    number = 0
    while number < wanted if wanted else number < LEAST or sum(map(sum, times_ns)) < SECONDS * 1e9:
        yield number
        number += 1
