"""Measure cases in which contenders take turns with blocks of the device's limits."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import tool
from gputune.client.compare.turns import Contender, Process
from gputune.client.context.verifying.distance import distance
from gputune.client.errors import DeviceOrContextError
from gputune.client.tuning.measuring.intervals import Ratio, paired_ratio

TUNED, DEFAULTS = "tuned", "defaults"
PEER, OPENVINO, MNN = "onnxruntime", "OpenVINO", "MNN"
PEER_MODULES = {OPENVINO: "openvino", MNN: "MNN"}
"""What is installed for them."""
ENGINES = (PEER, *PEER_MODULES)
"""With a thread for each core; the best of them, case by case, is the one to be faster than."""
FMA, MEMORY = "multiply-adds", "copies of memory"
"""The device's limits."""
SETTLED = 0.03
"""Half an interval, as a share of its ratio, with which that is measured."""
PROGRAM = "benchmarks.peers.contenders"


@dataclass(frozen=True)
class Settings:
    """How long and how often each contender runs: so many rounds, and then on until the case is settled, at most
    most_rounds."""

    rounds: int
    most_rounds: int
    seconds: float
    effort: str
    device: str | None
    with_limits: bool = True


@dataclass(frozen=True)
class Entry:
    """A contender to be started: `engine` is one of contenders.KINDS, `arguments` are what that takes, as JSON has
    them. environment: what its process has beside this one's. may_fail: the others go on without it where it cannot
    start, as an engine does not that cannot read a model."""

    name: str
    engine: str
    arguments: Mapping[str, Any]
    environment: Mapping[str, str] = field(default_factory=dict)
    may_fail: bool = False


@dataclass(frozen=True)
class Case:
    """One thing that all contenders do. `flops` are those of its tasks by their definition; `weight` is how often it
    counts in the mean of its group."""

    name: str
    group: str
    entries: Sequence[Entry]
    flops: int
    weight: int = 1


@dataclass
class Measured:
    """Hold the result of a case: by contender the median time of each round in ns, and how far its outputs are from
    onnxruntime's, max|a-b| / max|b|. limits: what a launch of each limit does, in operations or bytes."""

    name: str
    rounds: dict[str, list[float]] = field(default_factory=dict)
    deviations: dict[str, float] = field(default_factory=dict)
    limits: dict[str, float] = field(default_factory=dict)

    @property
    def best(self) -> str:
        """The engine that is fastest beside the tuned context."""
        speeds = {name: self.speed(TUNED, name) for name in ENGINES}
        return min((name for name in ENGINES if speeds[name]), key=lambda name: speeds[name].median)  # type: ignore[union-attr]

    @property
    def settled(self) -> bool:
        """Whether it is known well enough how many times as fast the tuned context is as the best engine."""
        return is_settled(self.speed(TUNED, self.best))

    def median_ns(self, contender: str) -> float:
        """The median of the rounds' medians."""
        return statistics.median(self.rounds[contender])

    def speed(self, contender: str, other: str) -> Ratio | None:
        """How many times as fast a contender is as another one, by the rounds that both were in; None where one of them
        did not take part."""
        if contender not in self.rounds or other not in self.rounds:
            return None
        return paired_ratio(self.rounds[other], self.rounds[contender])

    def rates(self, limit: str) -> list[float]:
        """Return what a limit reached in each round, in operations or bytes for a ns."""
        return [self.limits[limit] / time_ns for time_ns in self.rounds.get(limit, ())]

    def share_of_limit(self, flops: int) -> Ratio | None:
        """Return the tuned context's share of the multiply-adds that the device can do, round by round beside the block
        of the limit; None if the limit did not take part."""
        if FMA not in self.rounds:
            return None
        allowed_ns = [flops / rate for rate in self.rates(FMA)]
        return paired_ratio(allowed_ns, self.rounds[TUNED])


def is_settled(ratio: Ratio | None) -> bool:
    """Return whether a ratio is known well enough, or there is none to be known."""
    return ratio is None or (ratio.high - ratio.low) / 2 <= SETTLED * ratio.median


def measure_all(cases: Sequence[Case], settings: Settings) -> list[Measured]:
    """Measure every case. Raises DeviceOrContextError."""
    arguments = {"device": settings.device}
    limits = [Entry(FMA, "fma", arguments), Entry(MEMORY, "memory", arguments)] if settings.with_limits else []
    with running(limits) as blocks:
        found = []
        for number, case in enumerate(cases, 1):
            print(f"[{number}/{len(cases)}] {case.name}", flush=True)
            with running(case.entries) as contenders:
                found.append(measure(case.name, [*contenders, *blocks], settings))
        return found


@contextmanager
def running(entries: Sequence[Entry]) -> Iterator[list[Contender]]:
    """Start all entries that can be started, each in a process of its own. Raises DeviceOrContextError."""
    with ExitStack() as stack:
        found = []
        for each in entries:
            try:
                process = stack.enter_context(Process(PROGRAM, environment_of(each)))
                found.append(Contender(each.name, process, each.engine, each.arguments))
            except DeviceOrContextError as error:
                if not each.may_fail:
                    raise
                print(f"goes on without {each.name}: {str(error).splitlines()[-1]}", flush=True)
        yield found


def environment_of(entry: Entry) -> dict[str, str]:
    """Return what a contender's process has beside this one's: the folder of the scripts, and the entry's own."""
    return {**tool.environment(), **entry.environment}


def measure(name: str, contenders: Sequence[Contender], settings: Settings) -> Measured:
    """Measure one case, in rounds there and back. Raises DeviceOrContextError."""
    measured = Measured(name, limits={each.name: each.facts["amount"] for each in contenders if "amount" in each.facts})
    outputs = {each.name: each.outputs() for each in contenders if each.facts.get("computes", True)}
    want = outputs.pop(PEER)
    for other, got in outputs.items():
        measured.deviations[other] = max(distance(got[output], want[output]) for output in want)
    for number in range(max(settings.rounds, settings.most_rounds)):
        if number >= settings.rounds and measured.settled:
            break
        for each in contenders if number % 2 == 0 else reversed(contenders):
            time_ns = statistics.median(each.block_ns(settings.seconds))
            measured.rounds.setdefault(each.name, []).append(time_ns)
    return measured
