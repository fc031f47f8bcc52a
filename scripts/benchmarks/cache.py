"""Measure a large performance cache (`scripts/bench cache`): opening it, finding a task, its size, storing a batch."""

import argparse
import shutil
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import tool
from benchmarks.peers.limits import spread
from gputune.cache import PerformanceCache, TaskKey, TrialRecord, WinnerRecord
from stress.made_up_cache import VALIDITY

WORK = tool.ROOT / "build" / "bench" / "cache"
TRIALS_OF_A_TASK = 500
BATCH = 8

MARKS = {"look-up of a task": 1e6, "opening": 50e6}
"""ns promised for a million trials."""


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    command.add_argument("--trials", type=int, default=1_000_000, help="in the file (default: %(default)s)")
    command.add_argument("--rounds", type=int, default=21, help="repetitions (default: %(default)s)")
    command.add_argument("--json", type=Path, help="write the numbers to this file as well")


def measure(trials: int, rounds: int) -> dict[str, Any]:
    """Fills a cache file and times what a generation does with it, in ns; `size_bytes` is without winners."""
    shutil.rmtree(WORK, ignore_errors=True)
    path = WORK / "made-up.sqlite"
    count = max(trials // TRIALS_OF_A_TASK, 1)
    begun = time.perf_counter()
    with PerformanceCache.open(path) as cache:
        for number in range(count):
            cache.store_trials(_task(number), VALIDITY, [_trial(number, k) for k in range(TRIALS_OF_A_TASK)])
    filled_seconds = time.perf_counter() - begun
    size = path.stat().st_size
    with PerformanceCache.open(path) as cache:
        for number in range(count):
            cache.conclude(_task(number), VALIDITY, _winner(number))
    times: dict[str, list[int]] = {}

    def take(name: str, action: Callable[[], Any]) -> None:
        start = time.perf_counter_ns()
        action()
        times.setdefault(name, []).append(time.perf_counter_ns() - start)

    for turn in range(rounds):
        take("opening", lambda: PerformanceCache.open(path).close())
        key, none = _task(turn * 7919 % count), _task(-1)
        batch = [_trial(turn, TRIALS_OF_A_TASK + k) for k in range(BATCH)]
        with PerformanceCache.open(path) as cache:
            take("look-up of a task", partial(cache.winner_of, key, VALIDITY))
            take("look-up of a task that is not there", partial(cache.winner_of, none, VALIDITY))
            take("all trials of a task", partial(cache.trials_of, key, VALIDITY))
            take("storing a batch", partial(cache.store_trials, key, VALIDITY, batch))
    return {
        "trials": count * TRIALS_OF_A_TASK,
        "tasks": count,
        "filled_seconds": filled_seconds,
        "size_bytes": size,
        "bytes_per_trial": size / (count * TRIALS_OF_A_TASK),
        "ns": times,
    }


def rows_of(result: dict[str, Any]) -> list[tuple[str, str]]:
    """The table, with what is promised."""
    rows = [
        ("trials", f"{result['trials']:,} of {result['tasks']:,} tasks, stored in {result['filled_seconds']:.0f} s"),
        ("size", f"{result['size_bytes'] / 1e6:.0f} MB, {result['bytes_per_trial']:.0f} bytes for each trial"),
    ]
    for name, samples in result["ns"].items():
        mark = f" (promised: {MARKS[name] / 1e6:g} ms)" if name in MARKS else ""
        median = statistics.median(samples) / 1e6
        rows.append((name, f"{median:.3f} ms, spread {spread(samples):.0%} of {len(samples)}{mark}"))
    return rows


def _task(number: int) -> TaskKey:
    problem = {"batch": 1, "height": 56 + number, "width": 56, "channels": 64, "bias": True, "dtype": "float32"}
    return TaskKey(op="Conv", problem=problem)


def _trial(number: int, place: int) -> TrialRecord:
    samples = [1e5 + 17 * place + number % 97 + step for step in range(7)]
    return TrialRecord(
        configuration={"MR": place % 16 + 1, "NV": place // 16 % 4 + 1, "VW": 16, "UNROLL": place // 64 + 1, "LM": 8},
        status="ok",
        samples_ns=samples,
        compile_ns=1.5e8,
        measured={"batch": place // BATCH, "rounds": [1, 3, 3], "sample_ns": 1e6, "drift": 1.0, "effort": "normal"},
        rendered_sha256="0123456789abcdef" * 4,
    )


def _winner(number: int) -> WinnerRecord:
    trial = _trial(number, 3)
    return WinnerRecord(trial.configuration, 1e5, 2e5, "normal", {"ok": TRIALS_OF_A_TASK}, "ab" * 32)
