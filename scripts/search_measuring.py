"""Replays raw samples through the race: how many runs it takes, and how much slower its pick is than the best.

A recording's samples are dealt into two halves that share nothing: one picks, the other judges. In recorded order these
are the 1st, 3rd, 5th ... and the 2nd, 4th, 6th ... sample, so that both halves saw the same clocks and the rounds meet
the cold first samples as they came. With shuffled rounds, samples that were taken equally late stay in one round, as in
an interleaved race, where a change of clocks hits all alike; with shuffled samples each configuration's are dealt at
random by themselves, so that boosted and throttled ones meet in one round.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gputune.runtime import racing
from search_spaces import Recording

Samples = npt.NDArray[np.float64]
"""[configurations, samples] in nanoseconds."""


@dataclass(frozen=True)
class Measured:
    """What a race cost, and its pick's regret in percent by the samples that judge.

    `regret` is against the configuration whose median over all samples is least, so it is negative where a pick does
    better in the judging half; `regret_of_least` is against the least of all judging medians, which chance lowers too.
    """

    runs: float
    regret: float
    regret_of_least: float


def samples_of(recording: Recording) -> Samples:
    """The samples of all configurations that worked and have as many as most."""
    worked = [values for values in recording.samples_ns.values() if values]
    count = int(np.median([len(values) for values in worked]))
    return np.array([values[:count] for values in worked if len(values) >= count])


def race(samples: Samples) -> tuple[int, float]:
    """(the row that wins, runs per configuration) of one race among all rows."""
    drawn: list[list[float]] = [[] for _ in samples]
    running, runs = list(range(len(samples))), 0
    for number, wanted in enumerate(racing.ROUNDS):
        for row in running:
            more = samples[row, len(drawn[row]) : wanted].tolist()
            drawn[row] += more
            runs += len(more)
        if number + 1 == len(racing.ROUNDS) or racing.settled(drawn, running):
            break
        running = racing.staying(drawn, running)
    return min(running, key=lambda row: float(np.median(drawn[row]))), runs / len(samples)


def judged(samples: Samples, picks: Samples, judges: Samples) -> Measured:
    pick, runs = race(picks)
    medians = np.median(judges, axis=1)
    best = int(np.argmin(np.median(samples, axis=1)))
    return Measured(
        runs, 100 * float(medians[pick] / medians[best] - 1), 100 * float(medians[pick] / medians.min() - 1)
    )


def in_order(recording: Recording) -> Measured:
    """The samples as they were recorded."""
    samples = samples_of(recording)
    return judged(samples, samples[:, 0::2], samples[:, 1::2])


def shuffled(recording: Recording, seeds: int, rounds: bool) -> list[Measured]:
    """The samples dealt at random, once for each seed: whole rounds of all configurations, or each one's by itself."""
    samples, found = samples_of(recording), []
    half = samples.shape[1] // 2
    for seed in range(1, seeds + 1):
        chance = np.random.default_rng(seed)
        dealt = chance.permutation(samples, axis=1) if rounds else chance.permuted(samples, axis=1)
        found.append(judged(samples, dealt[:, :half], dealt[:, half:]))
    return found
