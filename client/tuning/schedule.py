"""Which task the next batch belongs to: the one where it is expected to save most time of an inference.

What a task may still gain is its distance from the roofline of Williams, Waterman, Patterson: Roofline: An Insightful
Visual Performance Model (2009), drawn by the best rates that any task of this generation has reached: nobody has to
know the device's peaks. What a batch may gain of that halves with every batch in a row that brought nothing.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gputune.kernels.family import Work

LEAST_SHARE = 0.05
"""So much of a task's time may always be to gain: the roofline is drawn by tasks that are not at their best either."""

HALVED = 0.5
"""What another batch may gain, by that of one before which brought nothing."""


@dataclass(frozen=True)
class Standing:
    """How far the tuning of a task has come.

    weight: how often an inference runs it; best_ns: its fastest time, None where nothing has worked; fruitless: batches
    in a row that brought nothing.
    """

    weight: int
    work: Work
    best_ns: float | None
    fruitless: int


@dataclass(frozen=True)
class Rates:
    """The best rates reached: floating-point operations and bytes per nanosecond, 0 where nothing was measured."""

    flops_per_ns: float
    bytes_per_ns: float

    def roofline_ns(self, work: Work) -> float:
        """What the work takes at these rates."""
        flops_ns = work.flops / self.flops_per_ns if self.flops_per_ns else 0.0
        bytes_ns = work.bytes / self.bytes_per_ns if self.bytes_per_ns else 0.0
        return max(flops_ns, bytes_ns)


def rates_of(standings: Iterable[Standing]) -> Rates:
    """The best rates that any of the tasks has reached."""
    measured = [(standing.work, standing.best_ns) for standing in standings if standing.best_ns]
    return Rates(
        max((work.flops / best_ns for work, best_ns in measured), default=0.0),
        max((work.bytes / best_ns for work, best_ns in measured), default=0.0),
    )


def expected_gain_ns(standing: Standing, rates: Rates) -> float:
    """What the next batch may save of an inference, in nanoseconds; infinite where nothing has worked so far."""
    if standing.best_ns is None:
        return float("inf")
    gap_ns = max(standing.best_ns - rates.roofline_ns(standing.work), LEAST_SHARE * standing.best_ns)
    return standing.weight * gap_ns * HALVED**standing.fruitless


def most_promising(candidates: Sequence[Standing], everything: Sequence[Standing], worth: float) -> int | None:
    """The place of the candidate whose next batch is expected to gain most; None when none is worth it.

    everything: all tasks of the generation, by whose best rates and times it is judged. worth: the share of the time of
    an inference that a batch must be expected to gain.
    """
    rates = rates_of(everything)
    inference_ns = sum(standing.weight * (standing.best_ns or 0.0) for standing in everything)
    gains = [expected_gain_ns(standing, rates) for standing in candidates]
    place = max(range(len(gains)), key=gains.__getitem__, default=None)
    return place if place is not None and gains[place] >= worth * inference_ns else None


def first_first(works: Sequence[tuple[int, Work]]) -> list[int]:
    """In which order tasks, each a weight and its work, are begun: what is likely to take most of an inference first,
    so that a budget that runs out is spent on that. A byte counts as much as FLOPS_PER_BYTE operations."""
    guesses = [weight * max(work.flops, FLOPS_PER_BYTE * work.bytes) for weight, work in works]
    return sorted(range(len(works)), key=lambda place: -guesses[place])


FLOPS_PER_BYTE = 10
"""About where the two slopes of a roofline meet, on CPUs as on GPUs."""
