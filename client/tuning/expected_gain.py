"""Estimate which task should get the next batch: the task where a batch is expected to save most time of an inference.

A task can gain its distance from the roofline of Williams, Waterman, Patterson: Roofline: An Insightful Visual
Performance Model (2009). The roofline is drawn by the best rates that any task of this generation has reached, so the
peaks of the device need not be known. The expected gain of a batch halves with every batch in a row that brought
nothing.

A model of the inference says how much of that gain counts, because it knows which tasks are alternatives. A fused task
that would not be used even at its roofline saves nothing. Neither does a part of a fused task that is used.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from gputune.kernels.family import Work

HALVED = 0.5
"""What another batch may gain, by that of one before which brought nothing."""

FLOPS_PER_BYTE = 10
"""About where the two slopes of a roofline meet, on CPUs as on GPUs."""

GUESSED_FLOPS_PER_NS = 10.0
"""The rate that a task is taken to run at before any is measured; only shares of an inference follow from it."""

FAR_FROM_ROOFLINE = 2.0
"""How many times as long as the roofline a task is taken to need before it is measured."""

Inference = Callable[[Mapping[int, float]], float]
"""The time of an inference by the times of all tasks, which are given by their places; in nanoseconds."""


@dataclass(frozen=True)
class Standing:
    """How far the tuning of a task has come.

    best_ns: its fastest time, None where nothing has worked; fruitless: batches in a row that brought nothing; gained:
    the share of its baseline's time that it has gained so far; doubt: how far off a ratio of its last batch may be,
    None where that is not known.
    """

    work: Work
    best_ns: float | None
    fruitless: int
    gained: float = 0.0
    doubt: float | None = None


@dataclass(frozen=True)
class Rates:
    """The best rates reached: floating-point operations and bytes per nanosecond, 0 where nothing was measured."""

    flops_per_ns: float
    bytes_per_ns: float

    def roofline_ns(self, work: Work) -> float:
        """Return what the work takes at these rates."""
        flops_ns = work.flops / self.flops_per_ns if self.flops_per_ns else 0.0
        bytes_ns = work.bytes / self.bytes_per_ns if self.bytes_per_ns else 0.0
        return max(flops_ns, bytes_ns)


def rates_of(standings: Iterable[Standing]) -> Rates:
    """Return the best rates that any of the tasks has reached."""
    measured = [(standing.work, standing.best_ns) for standing in standings if standing.best_ns]
    return Rates(
        max((work.flops / best_ns for work, best_ns in measured), default=0.0),
        max((work.bytes / best_ns for work, best_ns in measured), default=0.0),
    )


def times_of(standings: Mapping[int, Standing]) -> dict[int, float]:
    """Return the best time of each task, by its place; one that has none yet is guessed by its work."""
    rates = rates_of(standings.values())
    return {place: one.best_ns or _guess_ns(one.work, rates) for place, one in standings.items()}


def expected_gain_ns(place: int, standings: Mapping[int, Standing], inference: Inference, least: float) -> float:
    """Return what the next batch of a task may save of an inference, in nanoseconds; infinite where nothing has worked.

    least: the share of its time that any task may gain, for the roofline is drawn by tasks that are not at their best
    either, and on a device whose speed changes, a task may seem to be at it by chance.
    """
    if (best_ns := standings[place].best_ns) is None:
        return float("inf")
    times = times_of(standings)
    return inference(times) - inference({**times, place: best_ns - _gap_ns(place, standings, least)})


def gain_share(place: int, standings: Mapping[int, Standing], least: float) -> float:
    """Return the largest share of its own time that a task may gain by its next batch, all of it where nothing has
    worked. least: as for `expected_gain_ns`.

    A task that has gained much may gain as much again, however near to the roofline it seems, which it may have drawn
    itself; and as with any other gain less with every batch that brought nothing.
    """
    standing = standings[place]
    if standing.best_ns is None:
        return 1.0
    gap = _gap_ns(place, standings, least) / standing.best_ns
    return max(gap, standing.gained * HALVED**standing.fruitless)


def _gap_ns(place: int, standings: Mapping[int, Standing], least: float) -> float:
    standing = standings[place]
    assert standing.best_ns is not None
    gap_ns = standing.best_ns - rates_of(standings.values()).roofline_ns(standing.work)
    return max(gap_ns, least * standing.best_ns) * HALVED**standing.fruitless


def most_promising(
    candidates: Iterable[int], standings: Mapping[int, Standing], inference: Inference, least: float, worth: float
) -> int | None:
    """Return the candidate whose next batch is expected to gain most; None when none is worth it.

    standings: of all tasks of the generation, by place. least: as for `expected_gain_ns`. worth: the share of the time
    of an inference that a batch must be expected to gain.
    """
    gains = {place: expected_gain_ns(place, standings, inference, least) for place in candidates}
    if not gains:
        return None
    place = max(gains, key=gains.__getitem__)
    return place if gains[place] > 0 and gains[place] >= worth * inference(times_of(standings)) else None


def largest_first(works: Sequence[tuple[int, Work]]) -> list[int]:
    """In which order tasks, each a weight and its work, are begun: what is likely to take most of an inference first,
    so that a budget that runs out is spent on that. A byte counts as much as FLOPS_PER_BYTE operations."""
    guesses = [weight * _guess_ns(work, Rates(0.0, 0.0)) for weight, work in works]
    return sorted(range(len(works)), key=lambda place: -guesses[place])


def _guess_ns(work: Work, rates: Rates) -> float:
    """Return what a task may take that was not measured."""
    roofline_ns = rates.roofline_ns(work)
    return FAR_FROM_ROOFLINE * roofline_ns or max(work.flops, FLOPS_PER_BYTE * work.bytes) / GUESSED_FLOPS_PER_NS
