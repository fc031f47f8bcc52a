"""How long a launch takes: warm up by time, then samples in interleaved rounds. Nothing here compiles.

A sample is a batch of launches whose device time adds up to at least sample_ns; its value is the mean of one
launch. All variants get ROUNDS_FOR_ALL samples, round by round, so that a drift of the clocks meets all of
them alike. Then the best quarter, at least FINALISTS_AT_LEAST of them, and the first variant, which is what
the others are compared with, get the rest. A variant for which the device's clock stands still or runs
backwards is measured by the host's.

A baseline is raced from the first round to the last, so that its samples tell whether the device has changed
meanwhile, or since another race. Little is enqueued at a time: some drivers stall or give up on a full queue.
"""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from gputune.runtime.backends import Backend, Bound, Timing
from gputune.runtime.errors import LaunchFailed

MEASURING_VERSION = 1
ROUNDS_FOR_ALL = 3
FINALISTS_AT_LEAST = 4
FINALISTS_SHARE = 4
SLOW_FACTOR = 20  # a variant this much slower than the best so far gets one sample
LAUNCHES_AT_MOST = 4096  # in one sample, so that it ends when a device's clock stands still
LAUNCHES_ENQUEUED = 256  # at most, and no more than should take ENQUEUED_NS
ENQUEUED_NS = 100_000_000.0
LONG_FACTOR = 20  # a baseline whose launch lasts this many samples is raced in three rounds only


@dataclass(frozen=True)
class Protocol:
    """How to measure: samples of a finalist, the least duration of a sample, and of the warm-up."""

    samples: int = 7
    sample_ns: float = 1_000_000
    warm_up_ns: float = 20_000_000


@dataclass(eq=False)
class Runner:
    """A verified variant in the race. `estimate_ns` is the shortest launch seen so far."""

    index: int
    bound: Bound
    estimate_ns: float
    samples_ns: list[float] = field(default_factory=list)
    wall_ns: list[float] = field(default_factory=list)
    launches: int = 0
    timing: Literal["event", "wall"] = "event"

    def passed_ns(self, timing: Timing) -> int:
        """What these launches took: by the device's clock, or by the host's, also for all samples before, once the
        device's has failed. Raises LaunchFailed when that stands still too."""
        if self.timing == "event" and timing.event_ns <= 0:
            self.timing = "wall"
            self.samples_ns = list(self.wall_ns)
            self.estimate_ns = math.inf
        passed_ns = timing.event_ns if self.timing == "event" else timing.wall_ns
        if passed_ns <= 0:
            raise LaunchFailed(f"{timing.launches} launches took no time, by the device's clock and by the host's")
        self.estimate_ns = min(self.estimate_ns, passed_ns / timing.launches)
        return passed_ns

    @property
    def median_ns(self) -> float:
        return statistics.median(self.samples_ns) if self.samples_ns else math.inf


def enqueued_at_once(wanted: int, launch_ns: float) -> int:
    """How many of the wanted launches may be enqueued at once."""
    return max(1, min(wanted, LAUNCHES_ENQUEUED, int(ENQUEUED_NS / max(launch_ns, 1.0))))


def warm_up(backend: Backend, bound: Bound, warm_up_ns: float, go_on: Callable[[], None] = lambda: None) -> None:
    """Launches until warm_up_ns of the host's time have passed, so that clocks and threads are up. `go_on` is called
    each time before some are enqueued; what it raises ends the warm-up."""
    passed, launches = 0.0, 1
    while passed < warm_up_ns:
        go_on()
        timing = backend.time(bound, launches)
        passed += max(timing.wall_ns, 1)
        launch_ns = max(timing.wall_ns / launches, 1)
        left = math.ceil((warm_up_ns - passed) / launch_ns)
        launches = enqueued_at_once(min(2 * launches, left), launch_ns)


def sample(backend: Backend, runner: Runner, sample_ns: float) -> None:
    """Adds one sample to the runner."""
    launches, passed_ns, wall_ns = 0, 0, 0
    while launches == 0 or (passed_ns < sample_ns and launches < LAUNCHES_AT_MOST):
        wanted = math.ceil((sample_ns - passed_ns) / max(runner.estimate_ns, 1))
        wanted = min(wanted, LAUNCHES_AT_MOST - launches)
        timing = backend.time(runner.bound, enqueued_at_once(wanted, runner.estimate_ns))
        launches += timing.launches
        wall_ns += timing.wall_ns
        passed_ns += runner.passed_ns(timing)
        if runner.timing == "wall":
            passed_ns = wall_ns
    runner.samples_ns.append(passed_ns / launches)
    runner.wall_ns.append(wall_ns / launches)
    runner.launches = launches


def race(
    backend: Backend,
    runners: Sequence[Runner],
    protocol: Protocol,
    failed: Callable[[Runner, Exception], None],
    baseline: Runner | None = None,
    announce: Callable[[Runner], None] = lambda runner: None,
) -> list[Runner]:
    """Samples the runners in place and returns those that finished, fastest median first (ties: lower index).

    A runner whose launch raises leaves the race through `failed`. `baseline` may be one of the runners or another.
    `announce` is called before each sample; what it raises ends the race.
    """
    running = list(runners)
    if baseline is not None and baseline not in running:
        running.append(baseline)

    def round_of(number: int, chosen: Sequence[Runner]) -> None:
        for runner in list(running):
            if runner in chosen or (runner is baseline and _is_due(runner, number, protocol)):
                announce(runner)
                try:
                    sample(backend, runner, protocol.sample_ns)
                except Exception as error:
                    running.remove(runner)
                    failed(runner, error)

    def fast_enough(among: Sequence[Runner]) -> list[Runner]:
        best_ns = min((runner.estimate_ns for runner in running), default=0.0)
        return [runner for runner in among if runner.estimate_ns <= SLOW_FACTOR * best_ns]

    for number in range(min(ROUNDS_FOR_ALL, protocol.samples)):
        round_of(number, fast_enough(running) if number else running)
    ranked = sorted((runner for runner in runners if runner in running), key=_rank)
    finalists = ranked[: max(FINALISTS_AT_LEAST, math.ceil(len(ranked) / FINALISTS_SHARE))]
    finalists += [runner for runner in ranked if runner.index == 0 and runner not in finalists]
    finalists = fast_enough(finalists)
    for number in range(ROUNDS_FOR_ALL, protocol.samples):
        round_of(number, finalists)
    return sorted((runner for runner in runners if runner in running), key=_rank)


def _is_due(baseline: Runner, number: int, protocol: Protocol) -> bool:
    """Whether a baseline takes part in this round: in all, or first, last and one between when it takes long."""
    short = baseline.estimate_ns <= LONG_FACTOR * protocol.sample_ns
    return short or number in (0, ROUNDS_FOR_ALL - 1, protocol.samples - 1)


def how_measured(runner: Runner, protocol: Protocol) -> dict[str, Any]:
    """How the samples of a runner were taken, for the record."""
    return {
        "protocol": MEASURING_VERSION,
        "timing": runner.timing,
        "samples": len(runner.samples_ns),
        "sample_ns": protocol.sample_ns,
        "launches_per_sample": runner.launches,
        "warm_up_ns": protocol.warm_up_ns,
        "affinity": os.environ.get("POCL_AFFINITY", ""),
    }


def _rank(runner: Runner) -> tuple[float, int]:
    return runner.median_ns, runner.index
