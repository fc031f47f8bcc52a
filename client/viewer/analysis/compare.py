"""Find what is slower or faster in one profile than in another, with intervals and without false alarms.

The whole device may be faster or slower in one run, because of its clock or other load. The median of the ratios of all
operations is taken as this common scale. An operation has changed if its own ratio certainly differs from the scale,
and the whole if its ratio certainly differs from 1. The operation that changed most is removed from the scale first,
and so on, because it would distort the scale if there are few operations.

Certain means: in comparisons of two equal profiles, at most one in two hundred names anything, however many operations
there are. This uses Bonferroni's correction and intervals that assume no normal distribution, so that outliers have
little effect.
"""

from __future__ import annotations

import math
import statistics
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from gputune.client.errors import ConfigError
from gputune.client.pages.scales import time_words
from gputune.client.tuning.measuring.intervals import Interval, median_ratio, ratio_interval
from gputune.client.viewer.analysis.texts import cut
from gputune.client.viewer.profile import GraphProfile, Profile
from gputune.core.errors import shortened

FALSE_ALARMS = 0.005
"""How often anything at all may be named although nothing has changed, at most."""
LEAST_FOR_SCALE = 3
"""Of fewer operations the median ratio would be what has changed; their scale is taken to be 1."""
LEAST_GROWTH = 0.001
"""An operation fails nothing by what is less than this share of an inference."""
MEDIAN_OF_NORMAL = math.pi / 2
"""The variance of the median of n samples by that of their mean, for normally distributed ones."""

Direction = Literal["slower", "faster", "same", "unknown"]


@dataclass(frozen=True)
class Difference:
    """Of an operation, or of whole inferences where `operation` is empty. now_ns, was_ns: medians; ratio: of these;
    low, high: its interval, which holds with `confidence`, 0.95 if there were enough inferences; scale: by which all
    operations differ; direction: beside that, unknown where there are too few inferences to be certain of anything;
    failed: whether it is for certain slower by more than was allowed."""

    graph: str
    operation: str
    op: str
    now_ns: float
    was_ns: float
    ratio: float
    low: float
    high: float
    confidence: float
    scale: float
    direction: Direction
    failed: bool

    @property
    def name(self) -> str:
        return f"{self.graph}: {self.operation or 'whole inferences'}"


@dataclass(frozen=True)
class Compared:
    """wholes: by graph; operations: those that both profiles have. added, removed: names of those that only the first
    or only the other one has. fail_over: as it was given; notes: what people have to know when they read it."""

    wholes: tuple[Difference, ...]
    operations: tuple[Difference, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    fail_over: float | None
    notes: tuple[str, ...] = ()

    @property
    def failed(self) -> tuple[Difference, ...]:
        """What is slower by more than was allowed, wholes first."""
        return tuple(one for one in (*self.wholes, *self.operations) if one.failed)

    @property
    def changed(self) -> tuple[Difference, ...]:
        """The operations that have changed for certain, those with the largest change of an inference first."""
        found = [one for one in self.operations if one.direction in ("slower", "faster")]
        return tuple(sorted(found, key=lambda one: -abs(one.now_ns - one.was_ns * one.scale)))

    @property
    def lines(self) -> list[str]:
        """For people, of at most 80 columns."""
        return list(_lines(self))


def compare(profile: Profile, other: Profile, fail_over: float | None = None) -> Compared:
    """Return how the profile differs from the other one, which is the earlier of both.

    Graphs are those with the same launches, else of the same name. Their operations are those of the same name, and of
    the same op where the launches differ and both schematics know it. fail_over: by which share of its time whatever
    is for certain slower fails, an operation beside the common scale and not where it is faster all the same; None:
    nothing fails.

    Raises ConfigError where there is nothing to compare.
    """
    pairs = list(_matched(_samples(profile), _samples(other)))
    if not pairs:
        names = [shortened(sorted({graph.graph.name for graph in each.graphs})) for each in (profile, other)]
        raise ConfigError(f"--compare: no graph has inferences in both logs: {names[0]} here, {names[1]} in the other")
    count = sum(1 + len(_shared(now, was)) for now, was in pairs)
    wanted = 1 - FALSE_ALARMS / count
    wholes, added, removed = [], [], []
    operations: list[Difference] = []
    notes: list[str] = []
    for now, was in pairs:
        wholes.append(_whole(now, was, wanted, fail_over))
        operations += _operations(now, was, wanted, fail_over)
        shared = _shared(now, was)
        added += [f"{now.name}: {name}" for name in now.operations if name not in shared]
        removed += [f"{now.name}: {name}" for name in was.operations if name not in shared]
        notes += _notes(now, was)
    return Compared(tuple(wholes), tuple(operations), tuple(added), tuple(removed), fail_over, tuple(notes))


@dataclass
class _Operation:
    op: str
    times_ns: list[int] = field(default_factory=list)


@dataclass
class _Samples:
    """All inferences of a graph in one profile, which several logs may have."""

    name: str
    digest: str
    elapsed_ns: list[int] = field(default_factory=list)
    forms: set[str] = field(default_factory=set)
    operations: dict[str, _Operation] = field(default_factory=dict)

    def add(self, graph: GraphProfile) -> None:
        self.elapsed_ns += [max(1, one.elapsed_ns) for one in graph.inferences]
        self.forms |= {one.form for one in graph.inferences}
        ops = {name: plan.op for name, plan in graph.plans.items()}
        if graph.timed:
            for one in graph.operations:
                operation = self.operations.setdefault(one.name, _Operation(ops.get(one.name, "")))
                operation.times_ns += np.maximum(one.times_ns, 1).tolist()  # a clock may be too coarse for it


def _samples(profile: Profile) -> list[_Samples]:
    found: dict[tuple[str, str], _Samples] = {}
    for graph in profile.graphs:
        if graph.inferences:
            key = graph.graph.name, graph.graph.digest
            found.setdefault(key, _Samples(*key)).add(graph)
    return list(found.values())


def _matched(these: Sequence[_Samples], others: Sequence[_Samples]) -> Iterator[tuple[_Samples, _Samples]]:
    """Graphs of both, each at most once: first those that are the same, then by digest, then by name."""
    left, right = list(these), list(others)
    keys: tuple[Callable[[_Samples], object], ...] = (
        lambda one: (one.name, one.digest),
        lambda one: one.digest,
        lambda one: one.name,
    )
    for key in keys:
        for now in list(left):
            if (was := next((one for one in right if key(one) == key(now)), None)) is not None:
                left.remove(now)
                right.remove(was)
                yield now, was


def _shared(now: _Samples, was: _Samples) -> list[str]:
    """Return the names of operations that both have, in order."""
    return [name for name, one in now.operations.items() if name in was.operations and _same(now, was, one, name)]


def _same(now: _Samples, was: _Samples, one: _Operation, name: str) -> bool:
    ops = {one.op, was.operations[name].op} - {""}
    return now.digest == was.digest or len(ops) < 2


def _whole(now: _Samples, was: _Samples, wanted: float, fail_over: float | None) -> Difference:
    shown, certain = (ratio_interval(now.elapsed_ns, was.elapsed_ns, each) for each in (0.95, wanted))
    direction = _direction(certain, wanted)
    failed = fail_over is not None and direction == "slower" and certain.low > 1 + fail_over
    return _difference(now.name, "", "", (now.elapsed_ns, was.elapsed_ns), shown, 1.0, direction, failed)


@dataclass(frozen=True)
class _Ratio:
    """Of an operation. shown: with 0.95; certain: with what is needed to name it."""

    name: str
    times_ns: tuple[Sequence[int], Sequence[int]]
    ratio: float
    shown: Interval
    certain: Interval

    @property
    def grown_ns(self) -> float:
        """By how much its median has become longer."""
        return statistics.median(self.times_ns[0]) - statistics.median(self.times_ns[1])

    def beside(self, scale: _Scale) -> Interval:
        """Return the certain interval by the scale, widened by the scale's own doubt."""
        ends = (self.certain.low, self.certain.high)
        low, high = (self.ratio * (end / self.ratio) ** scale.wider / scale.value for end in ends)
        return Interval(low, high, self.certain.confidence)


@dataclass(frozen=True)
class _Scale:
    """By which all operations differ. wider: how much wider the interval of a ratio is that is divided by it."""

    value: float
    wider: float


def _operations(now: _Samples, was: _Samples, wanted: float, fail_over: float | None) -> Iterator[Difference]:
    """Of a graph, beside their common scale."""
    ratios = []
    for name in _shared(now, was):
        both = now.operations[name].times_ns, was.operations[name].times_ns
        ratios.append(_Ratio(name, both, median_ratio(*both), ratio_interval(*both), ratio_interval(*both, wanted)))
    scale = _common_scale(ratios, wanted)
    for one in ratios:
        certain = one.beside(scale)
        direction, op = _direction(certain, wanted), now.operations[one.name].op
        allowed = fail_over is None or certain.low <= 1 + fail_over or one.shown.low <= 1
        failed = (
            direction == "slower" and not allowed and one.grown_ns > LEAST_GROWTH * statistics.median(now.elapsed_ns)
        )
        yield _difference(now.name, one.name, op, one.times_ns, one.shown, scale.value, direction, failed)


def _common_scale(ratios: Sequence[_Ratio], wanted: float) -> _Scale:
    """Return the median ratio of those that have not changed, which are more than half of all."""
    if len(ratios) < LEAST_FOR_SCALE:
        return _Scale(1.0, 1.0)
    left = list(ratios)
    while True:
        scale = _Scale(statistics.median(one.ratio for one in left), math.sqrt(1 + MEDIAN_OF_NORMAL / len(left)))
        changed = [one for one in left if _direction(one.beside(scale), wanted) in ("slower", "faster")]
        if not changed or 2 * (len(left) - 1) <= len(ratios):
            return scale
        left.remove(max(changed, key=lambda one: abs(math.log(one.ratio / scale.value))))


def _direction(certain: Interval, wanted: float) -> Direction:
    if certain.confidence < wanted:
        return "unknown"
    return "slower" if certain.low > 1 else "faster" if certain.high < 1 else "same"


def _difference(
    graph: str,
    operation: str,
    op: str,
    times_ns: tuple[Sequence[int], Sequence[int]],
    shown: Interval,
    scale: float,
    direction: Direction,
    failed: bool,
) -> Difference:
    return Difference(
        graph=graph,
        operation=operation,
        op=op,
        now_ns=float(statistics.median(times_ns[0])),
        was_ns=float(statistics.median(times_ns[1])),
        ratio=median_ratio(*times_ns),
        low=shown.low,
        high=shown.high,
        confidence=shown.confidence,
        scale=scale,
        direction=direction,
        failed=failed,
    )


def _notes(now: _Samples, was: _Samples) -> Iterator[str]:
    if now.digest != was.digest:
        yield f"{now.name}: the launches differ; operations were matched by their names"
    if now.forms != was.forms:
        forms = [" and ".join(sorted(each.forms)) for each in (now, was)]
        yield f"{now.name}: ran by {forms[0]}, was {forms[1]}"
    if not _shared(now, was):
        yield f"{now.name}: no operation has timestamps in both logs; only whole inferences were compared"


def _lines(compared: Compared) -> Iterator[str]:
    changed = compared.changed
    for whole in compared.wholes:
        yield f"{cut(whole.graph, 26)}: {_told(whole)}"
        operations = [one for one in compared.operations if one.graph == whole.graph]
        if operations:
            yield f"  {len(operations)} operations, all of them by a common scale of {operations[0].scale:.3f}"
        unknown = sum(one.direction == "unknown" for one in operations)
        if unknown:
            yield f"  too few inferences to be certain of {unknown} of them"
        yield from (f"  {cut(one.operation, 24)}: {_told(one)}" for one in changed if one.graph == whole.graph)
    for names, what in ((compared.added, "only here"), (compared.removed, "only in the other log")):
        yield from (f"{what}: {cut(name, 50)}" for name in names)
    yield from (line for note in compared.notes for line in textwrap.wrap(note, 80, subsequent_indent="  "))
    if compared.fail_over is not None:
        yield from _verdict(compared, compared.fail_over)


def _verdict(compared: Compared, fail_over: float) -> Iterator[str]:
    for one in compared.failed:
        yield f"slower by more than {100 * fail_over:g} %: {cut(one.name, 48)}"
    if not compared.failed:
        yield f"nothing is for certain slower by more than {100 * fail_over:g} %"


def _told(one: Difference) -> str:
    times = f"{time_words(one.now_ns)}, was {time_words(one.was_ns)}"
    return f"{times}, x{one.ratio:.3f} ({one.low:.3f}-{one.high:.3f}) {one.direction}"
