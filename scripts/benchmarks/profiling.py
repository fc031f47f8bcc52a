"""Measure the cost of recording inferences at each level, in turns with unrecorded inferences, and check that every
nanosecond has a name."""

import argparse
import io
import statistics
from dataclasses import dataclass
from typing import Any

import numpy as np

import tool
from benchmarks.options import add_options
from benchmarks.result import Result
from gputune.client.tuning.measuring.intervals import paired_ratio
from gputune.client.viewer.account import device_rows
from gputune.client.viewer.profile import GraphProfile, profile_of
from gputune.runtime import Executor, load
from gputune.runtime.profiling.levels import LEVELS, Level
from gputune.runtime.profiling.log import read_log_of
from gputune.runtime.profiling.profiler import Profiler
from models import material
from models.tune_models import demo

MARKS = {"basic": 0.01, "detailed": 0.08, "qhas": 0.15}
"""What recording may add to an inference, by level."""
LEAST_REST, BOUND_NS = 0.01, 20_000
WARM_UP = 5


@dataclass(frozen=True)
class Found:
    """Of one level. cost: of pairs, recorded by not recorded, with its interval; behind_ns: what comes behind the end
    of an inference; rest: the share without a name that 99 % of inferences stay below; kernels: the share of kernels;
    bound_ns: of the clocks' fit, the largest; outside: launches that lie outside of their inference by more than that;
    event_bytes: of the log, per launch."""

    cost: tuple[float, float, float]
    behind_ns: float
    rest: float
    kernels: float
    bound_ns: int
    outside: int
    event_bytes: float


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    add_options(command, rounds=300, device=None)


def run(options: argparse.Namespace) -> Result:
    """Measure the page-orientation model without tuning. Raises DeviceOrContextError."""
    folder = options.work / "profiling" / (options.device or "default")
    device = None if options.device == "waiting" else options.device
    model = demo()
    made = tool.generate(folder, model.path, model.shapes, "none", device=device)
    x = np.random.default_rng(1).random(material.ORIENTATION_SHAPE, np.float32)
    with load(made.context, options.device) as executor:
        found = {level: _measured(executor, level, x, options.rounds) for level in LEVELS}
        title = f"{executor.device.name} ({executor.device.platform}), {len(executor.graph.launches)} launches"
    figures = {level: vars(one) for level, one in found.items()}
    return Result(figures, [(("what", "result", "mark"), [("device", title, ""), *_rows(found)])])


def _measured(executor: Executor, level: Level, x: Any, rounds: int) -> Found:
    usual = executor.persistent_kernels
    log = io.BytesIO()
    executor.persistent_kernels = usual and level == "basic"
    recorded_ns: list[int] = []
    plain_ns: list[int] = []
    with Profiler(log, level) as profiler:
        recorder = profiler.recorder(executor)

        def turn(times_ns: list[int], recorded: bool) -> None:
            executor.recorder = recorder if recorded else None
            times_ns.append(executor.run_timed({"x": x})[1])
            executor.recorder = None

        for number in range(rounds + WARM_UP):
            for recorded in (True, False) if number % 2 else (False, True):
                turn(recorded_ns if recorded else plain_ns, recorded)
    executor.persistent_kernels = usual
    (graph,) = profile_of([read_log_of(io.BytesIO(log.getvalue()), "the log")], None).graphs
    return _found(graph, recorded_ns[WARM_UP:], plain_ns[WARM_UP:], len(log.getvalue()))


def _found(graph: GraphProfile, recorded_ns: list[int], plain_ns: list[int], nbytes: int) -> Found:
    cost = paired_ratio(recorded_ns, plain_ns)
    outside, bounds = 0, [0]
    for one in graph.timed:
        assert one.clock is not None
        rows = device_rows(one)
        bounds.append(one.clock.bound_ns)
        low, high = one.begun_ns - one.clock.bound_ns, one.ended_ns + one.clock.bound_ns
        outside += int(((rows[:, 0] < low) | (rows[:, 1] > high)).sum())
    events = max(1, len(graph.inferences) * len(graph.graph.launches))
    return Found(
        cost=(cost.median, cost.low, cost.high),
        behind_ns=statistics.median(one.profiler_ns for one in graph.inferences),
        rest=float(np.quantile([abs(one.rest_ns) / one.elapsed_ns for one in graph.accounts[WARM_UP:]], 0.99)),
        kernels=graph.account.kernels_ns / graph.account.elapsed_ns,
        bound_ns=max(bounds),
        outside=outside,
        event_bytes=nbytes / events,
    )


def _rows(found: dict[Level, Found]) -> list[tuple[str, str, str]]:
    rows: list[tuple[str, str, str]] = []
    for level, one in found.items():
        median, low, high = (ratio - 1 for ratio in one.cost)
        timed = level != "basic"
        rows += [
            (f"{level}: adds", f"{median:+.1%} ({low:+.1%} to {high:+.1%})", f"at most {MARKS[level]:.0%}"),
            (f"{level}: behind the end", f"{one.behind_ns / 1e3:.0f} us", ""),
            (f"{level}: without a name, 99 % of inferences", f"{one.rest:.2%}", f"at most {LEAST_REST:.0%}"),
        ]
        if timed:
            rows += [
                (f"{level}: kernels' share", f"{one.kernels:.1%}", ""),
                (f"{level}: clocks fitted within", f"{one.bound_ns / 1e3:.1f} us", f"at most {BOUND_NS // 1000} us"),
                (f"{level}: launches outside of their inference", str(one.outside), "none"),
                (f"{level}: log per launch", f"{one.event_bytes:.1f} bytes", "at most 64"),
            ]
    return rows
