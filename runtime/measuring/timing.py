"""Time launches: warm up until the clock is stable, then take samples in interleaved passes. Nothing compiles.

The warm-up goes by time, not by a count of launches. A sample is a batch of launches whose device time adds up to at
least sample_ns. Its value is the lower quartile of its launches, or their mean if only the host's clock is known. On
two cores next to other programs, the ratio of two equal kernels of 5 us had a standard deviation of 112 % by means of
batches. By their lower quartiles it was 21 %.

successive_halving.py decides how many samples each variant gets. Each pass goes through all runners that are left,
forward and backward in turns, so that a drift of the clocks affects all alike. A variant for which the device's clock
stands still or runs backwards is measured by the host's clock.

A cold sample flushes the device's caches before each launch, and only the device's clock can time it. An evicting
sample lets megabytes of other data pass before each launch. That is as in a network, where many weights have left the
caches before they are used again. On two cores a convolution of 512 channels over 7 x 7 pixels took
0.70 ms when it was repeated and 1.44 ms this way. Another plan took 1.04 and 1.15 ms.

A baseline is sampled from the first pass to the last, so its samples show whether the device has changed meanwhile, or
since another batch. Little is enqueued at a time: some drivers stall or give up on a full queue.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from gputune.core.errors import LaunchFailed
from gputune.runtime.backends import LAUNCHES_ENQUEUED, Backend, Batch, Bound, Timing
from gputune.runtime.measuring.successive_halving import ROUNDS, Stopped, SuccessiveHalving

MEASURING_VERSION = 4
LAUNCHES_AT_MOST = 4096  # in one sample, so that it ends when a device's clock stands still
COLD_LAUNCHES = 16  # in one cold or evicting sample: flushing takes much longer than a short launch
ENQUEUED_NS = 100_000_000.0  # as much work is enqueued at once, and no more than LAUNCHES_ENQUEUED
LONG_FACTOR = 20  # a baseline whose launch lasts this many samples is sampled in the first pass of a round only
BLOCKS = 8  # a warm-up of the least duration is so many blocks of launches
STABLE = 0.02  # the clock is stable when two blocks in a row differ by no more than this share
GROWTH = 4  # a pass of a warm-up has at most so many times the launches of each before it
WARM_UP_FACTOR = 5  # a warm-up may last so many times its least duration


@dataclass(frozen=True)
class Protocol:
    """Say how to measure: the most samples that a finalist gets, the least duration of a sample and of the warm-up,
    whether each launch finds the device's caches without its data, and how many bytes of others pass before each
    launch."""

    samples: int = 16
    sample_ns: float = 1_000_000
    warm_up_ns: float = 20_000_000
    cold: bool = False
    evict_bytes: int = 0

    @property
    def one_by_one(self) -> bool:
        """Return whether something is done to the caches between two launches."""
        return self.cold or self.evict_bytes > 0


@dataclass(eq=False)
class Runner:
    """Time a verified variant. `estimate_ns` is the shortest launch seen so far; `stopped` says why its samples
    ended."""

    index: int
    bound: Bound
    estimate_ns: float
    samples_ns: list[float] = field(default_factory=list)
    wall_ns: list[float] = field(default_factory=list)
    launches: int = 0
    timing: Literal["event", "wall"] = "event"
    stopped: Stopped = "all"

    def passed_ns(self, timing: Timing) -> int:
        """Return what these launches took: by the device's clock, or by the host's, also for all samples before, once
        the device's has failed. Raises LaunchFailed when that stands still too."""
        if self.timing == "event" and timing.event_ns <= 0:
            self.timing = "wall"
            self.samples_ns[:] = self.wall_ns
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
    """Return how many of the wanted launches may be enqueued at once."""
    return max(1, min(wanted, LAUNCHES_ENQUEUED, int(ENQUEUED_NS / max(launch_ns, 1.0))))


def warm_up(backend: Backend, bound: Bound, warm_up_ns: float, go_on: Callable[[], None] = lambda: None) -> bool:
    """Launch for at least warm_up_ns of the host's time, so that clocks and threads are up, and on until two blocks
    of launches in a row take the same time, WARM_UP_FACTOR times as long at most. Says whether they did.

    `go_on` is called each time before some are enqueued; what it raises ends the warm-up.
    """
    passed, before = 0.0, math.inf
    most, launch_ns = 1, math.inf
    while passed < WARM_UP_FACTOR * warm_up_ns:
        block = _Block()
        while (left_ns := warm_up_ns / BLOCKS - block.wall_ns) > 0:
            go_on()
            launches = max(1, min(GROWTH * most, math.ceil(left_ns / launch_ns)))
            for timing in backend.time_pass(_batches(bound, launches, launch_ns)):
                launch_ns = block.add(timing)
            most = max(most, launches)
        passed += block.wall_ns
        now = block.launch_ns
        if passed >= warm_up_ns and abs(now - before) <= STABLE * min(now, before):
            return True
        before = now
    return False


def _batches(bound: Bound, launches: int, launch_ns: float) -> list[Batch]:
    """Return so many launches, no more of them in a batch than may be enqueued at once."""
    whole, rest = divmod(launches, at_once := enqueued_at_once(launches, launch_ns))
    return [Batch(bound, at_once)] * whole + [Batch(bound, rest)] * bool(rest)


@dataclass
class _Block:
    """Count launches of a warm-up, and their time on both clocks."""

    launches: int = 0
    wall_ns: float = 0.0
    event_ns: float = 0.0

    def add(self, timing: Timing) -> float:
        """Count these launches too, and return what one of them took by the host's clock."""
        wall_ns = max(timing.wall_ns, 1)
        self.launches += timing.launches
        self.wall_ns += wall_ns
        self.event_ns += max(timing.event_ns, 0)
        return wall_ns / timing.launches

    @property
    def launch_ns(self) -> float:
        return (self.event_ns or self.wall_ns) / self.launches


def sample(backend: Backend, runner: Runner, protocol: Protocol) -> None:
    """Add one sample to the runner. Raises LaunchFailed when no clock tells what was asked for."""
    launches, passed_ns, wall_ns, quartiles_ns = 0, 0, 0, 0.0
    alone_ns: list[float] = []
    most = COLD_LAUNCHES if protocol.one_by_one else LAUNCHES_AT_MOST
    while launches == 0 or (passed_ns < protocol.sample_ns and launches < most):
        if protocol.one_by_one:
            # The backend knows when it is enough, but only by the device's clock.
            left = most - launches if runner.timing == "event" else 1
            batches = [Batch(runner.bound, evict_bytes=protocol.evict_bytes)] * left
            timings = backend.time_pass(batches, protocol.sample_ns - passed_ns)
            alone_ns += [timing.event_ns for timing in timings]
            if protocol.cold and timings[-1].event_ns <= 0:
                raise LaunchFailed("cold launches need the device's clock, which stands still: measure warm ones")
        else:
            wanted = math.ceil((protocol.sample_ns - passed_ns) / max(runner.estimate_ns, 1))
            wanted = min(wanted, LAUNCHES_AT_MOST - launches)
            timings = [backend.time(runner.bound, enqueued_at_once(wanted, runner.estimate_ns))]
        for timing in timings:
            launches += timing.launches
            wall_ns += timing.wall_ns
            passed_ns += runner.passed_ns(timing)
            quartiles_ns += timing.launches * timing.launch_ns
            if runner.timing == "wall":
                passed_ns, quartiles_ns = wall_ns, wall_ns
    if alone_ns and runner.timing == "event":
        quartiles_ns = launches * sorted(alone_ns)[launches // 4]
    runner.samples_ns.append(quartiles_ns / launches)
    runner.wall_ns.append(wall_ns / launches)
    runner.launches = launches


def sample_all(
    backend: Backend,
    runners: Sequence[Runner],
    protocol: Protocol,
    failed: Callable[[Runner, Exception], None],
    baseline: Runner | None = None,
    announce: Callable[[Runner], None] = lambda runner: None,
    known_ns: float = 0.0,
    warm: bool = True,
) -> list[Runner]:
    """Sample the runners in place and return those that did not fail, fastest median first (ties: lower index). What
    was eliminated early comes after the others: the few samples that it has may be from a faster clock.

    A runner whose launch raises is given to `failed` and takes no further part. `baseline` may be one of the runners or
    another; without one, the first runner is what the others are compared with. known_ns: the best time known before, 0
    when none is. warm: whether the clock was stable after the warm-up. `announce` is called before each sample; what it
    raises ends the measurement.
    """
    running = {runner.index: runner for runner in runners}
    compared = baseline.index if baseline is not None else min(running, default=0)
    companion = baseline if baseline is not None and baseline.index not in running else None
    samples = {index: runner.samples_ns for index, runner in running.items()}
    rounds = SuccessiveHalving(samples, protocol.samples, {compared}, known_ns, warm)

    def take(runner: Runner) -> bool:
        announce(runner)
        try:
            sample(backend, runner, protocol)
        except Exception as error:
            running.pop(runner.index, None)
            samples.pop(runner.index, None)
            failed(runner, error)
            return False
        return True

    for number, chosen in enumerate(rounds.passes()):
        for runner in [running[index] for index in chosen]:
            take(runner)
        if companion is not None and _is_due(companion, number, protocol) and not take(companion):
            companion = None
    for runner in running.values():
        runner.stopped = rounds.stopped.get(runner.index, rounds.ended)
    if companion is not None:
        companion.stopped = rounds.ended
    finalists = set(rounds.finalists)
    return sorted(running.values(), key=lambda runner: (runner.index not in finalists, runner.median_ns, runner.index))


def _is_due(baseline: Runner, number: int, protocol: Protocol) -> bool:
    """Return whether a baseline takes part in this pass: in all, or in the first of each round when it takes long."""
    return baseline.estimate_ns <= LONG_FACTOR * protocol.sample_ns or number in (0, *ROUNDS)


def how_measured(runner: Runner, protocol: Protocol) -> dict[str, Any]:
    """Return how the samples of a runner were taken, for the record."""
    return {
        "protocol": MEASURING_VERSION,
        "timing": runner.timing,
        "statistic": "lower quartile" if runner.timing == "event" else "mean",
        "samples": len(runner.samples_ns),
        "sample_ns": protocol.sample_ns,
        "launches_per_sample": runner.launches,
        "warm_up_ns": protocol.warm_up_ns,
        "cold": protocol.cold,
        "evict_bytes": protocol.evict_bytes,
        "stopped": runner.stopped,
    }
