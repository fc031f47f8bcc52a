"""Replay raw samples through the server's successive halving: how many runs it takes, and how much slower its pick is
than the best.

A recording's samples are dealt into two parts that share nothing: three quarters pick, one quarter judges. In recorded
order every fourth sample judges, in four ways, beginning with the 1st, 2nd, 3rd or 4th, so that both parts saw the same
clocks and the rounds meet the cold first samples as they came. With shuffled rounds, samples that were taken equally
late stay in one round, as in interleaved passes, where a change of clocks hits all alike; with shuffled samples each
configuration's are dealt at random by themselves, so that boosted and throttled ones meet in one round.

Either all configurations are measured at once, or they come in batches, in random order, as a search sends them: each
with a baseline beside it and what is known to be the best so far; then the finalists are measured once more, with fresh
samples.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchmarks.search.spaces import Recording
from gputune.runtime.measuring.successive_halving import ROUNDS, SuccessiveHalving

Samples = npt.NDArray[np.float64]
"""[configurations, samples] in nanoseconds."""

JUDGING = 4
"""One sample in so many judges."""

IN_A_BATCH = 0.5
"""The share of the picking samples that a batch may take; the rest is left for the finalists."""

FINALISTS = 6
"""As many as tuning measures again at effort normal."""


@dataclass(frozen=True)
class Measured:
    """What a measurement cost, and its pick's regret in percent by the samples that judge.

    `regret` is against the configuration whose median over all samples is least, so it is negative where a pick does
    better in the judging part; `regret_of_least` is against the least of all judging medians, which chance lowers too.
    """

    runs: float
    regret: float
    regret_of_least: float


class Drawing:
    """Takes each configuration's samples one by one."""

    def __init__(self, samples: Samples) -> None:
        self._samples = samples
        self._taken = [0] * len(samples)
        self.runs = 0

    def draw(self, row: int) -> float:
        """The next sample of a configuration; after the last one, which only a baseline needs, the first."""
        taken = self._taken[row]
        self._taken[row] = taken + 1
        self.runs += 1
        return float(self._samples[row, taken % self._samples.shape[1]])

    def measure(self, rows: Iterable[int], most: int, known_ns: float = 0.0, baseline: int = 0) -> dict[int, float]:
        """The medians of one measurement, by row, its winner first. The baseline is in every pass, be it a row or
        not."""
        drawn: dict[int, list[float]] = {row: [] for row in rows}
        halving = SuccessiveHalving(drawn, most, {baseline}, known_ns)
        for running in halving.passes():
            for row in running:
                drawn[row].append(self.draw(row))
            if baseline not in drawn:
                self.draw(baseline)
        medians = {row: float(np.median(values)) for row, values in drawn.items()}
        return dict(sorted(medians.items(), key=lambda item: (item[0] not in halving.finalists, item[1])))


def samples_of(recording: Recording) -> Samples:
    """The samples of all configurations that worked and have as many as most."""
    worked = [values for values in recording.samples_ns.values() if values]
    count = int(np.median([len(values) for values in worked]))
    return np.array([values[:count] for values in worked if len(values) >= count])


def at_once(samples: Samples) -> tuple[int, float]:
    """(the row that wins, runs per configuration) of one measurement of all rows; the first is the baseline."""
    drawing = Drawing(samples)
    medians = drawing.measure(range(len(samples)), min(ROUNDS[-1], samples.shape[1]))
    return next(iter(medians)), drawing.runs / len(samples)


def in_batches(samples: Samples, size: int, chance: np.random.Generator) -> tuple[int, float]:
    """As at_once, in batches of so many in random order, and the best of all batches once more at the end."""
    drawing = Drawing(samples)
    most = max(1, int(IN_A_BATCH * samples.shape[1]))
    order = [0, *(1 + chance.permutation(len(samples) - 1)).tolist()]
    medians: dict[int, float] = {}
    for start in range(0, len(order), size):
        known_ns = min(medians.values(), default=0.0)
        medians |= drawing.measure(order[start : start + size], most, known_ns)
    finalists = sorted(medians, key=lambda row: medians[row])[:FINALISTS]
    final = drawing.measure(finalists, max(1, samples.shape[1] - most))
    return next(iter(final)), drawing.runs / len(samples)


def judged(samples: Samples, picks: Samples, judges: Samples, batch: int, seed: int) -> Measured:
    pick, runs = at_once(picks) if batch == 1 else in_batches(picks, batch, np.random.default_rng(seed))
    medians = np.median(judges, axis=1)
    best = int(np.argmin(np.median(samples, axis=1)))
    return Measured(
        runs, 100 * float(medians[pick] / medians[best] - 1), 100 * float(medians[pick] / medians.min() - 1)
    )


def in_order(recording: Recording, batch: int = 1) -> list[Measured]:
    """The samples as they were recorded. batch: configurations that are measured at once, 1 for all of them."""
    samples = samples_of(recording)
    judging = [np.arange(samples.shape[1]) % JUDGING == first for first in range(JUDGING)]
    return [judged(samples, samples[:, ~part], samples[:, part], batch, seed) for seed, part in enumerate(judging)]


def shuffled(recording: Recording, seeds: int, rounds: bool, batch: int = 1) -> list[Measured]:
    """The samples dealt at random, once for each seed: whole rounds of all configurations, or each one's by itself."""
    samples, found = samples_of(recording), []
    judges = samples.shape[1] // JUDGING
    for seed in range(1, seeds + 1):
        chance = np.random.default_rng(seed)
        dealt = chance.permutation(samples, axis=1) if rounds else chance.permuted(samples, axis=1)
        found.append(judged(samples, dealt[:, judges:], dealt[:, :judges], batch, seed))
    return found
