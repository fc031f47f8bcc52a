"""Which runners of a race get how many samples: the rounds of successive halving, and when the order is settled.

Pure: samples in, numbers out, no device. After Karnin, Koren, Somekh: Almost Optimal Exploration in Multi-Armed Bandits
(2013), with quarters for halves: a first look at everything, then ever more samples for ever fewer. Among 64 or more
runners that takes 1.9 samples each, less where the race is settled early.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Sequence

ROUNDS = (1, 3, 7, 16)
"""Samples that everybody who is still in the race has after each round."""

KEPT = 4
"""One in so many goes on to the next round."""

KEPT_AT_LEAST = 2
"""So many go on in any case: one alone has nobody to be compared with."""

CERTAIN = 3.0
"""Two medians differ for certain when they are so many standard errors apart."""

ENOUGH = 7
"""Fewer samples say too little about their own spread: two of three are often equal by chance."""

NORMAL_SHARE = 1.2533
"""Standard error of a median over that of a mean, for normal samples."""

NORMAL_MAD = 1.4826
"""Standard deviation over the median absolute deviation, for normal samples."""


def ranking(samples: Sequence[Sequence[float]]) -> list[int]:
    """Runners with samples, least median first; equal ones keep their order."""
    with_samples = [index for index, values in enumerate(samples) if values]
    return sorted(with_samples, key=lambda index: statistics.median(samples[index]))


def staying(samples: Sequence[Sequence[float]], running: Sequence[int], always: Collection[int] = ()) -> list[int]:
    """Those of `running` that take part in the next round: the best quarter by median, and those in `always`.

    `samples[runner]` are all its samples so far. The answer is in the order of the ranking; `always` holds runners that
    the others are compared with, such as the default configuration.
    """
    ranked = sorted(running, key=lambda index: statistics.median(samples[index]))
    kept = max(KEPT_AT_LEAST, math.ceil(len(ranked) / KEPT))
    return [runner for place, runner in enumerate(ranked) if place < kept or runner in always]


def standard_error(values: Sequence[float]) -> float:
    """How far the median of samples may be off; infinite below ENOUGH samples.

    By the median absolute deviation, which a few slow samples do not impress.
    """
    if len(values) < ENOUGH:
        return math.inf
    middle = statistics.median(values)
    spread = NORMAL_MAD * statistics.median(abs(value - middle) for value in values)
    return NORMAL_SHARE * spread / math.sqrt(len(values))


def settled(samples: Sequence[Sequence[float]], running: Sequence[int], tie: float = 0.0) -> bool:
    """Whether more samples would not change who wins: the best is ahead of each other one for certain, or what is left
    between them is certainly within `tie`, a share of the best's median.

    A race of one is settled.
    """
    ranked = sorted(running, key=lambda index: statistics.median(samples[index]))
    best = samples[ranked[0]]
    middle = statistics.median(best)
    for other in ranked[1:]:
        gap = statistics.median(samples[other]) - middle
        doubt = CERTAIN * math.hypot(standard_error(best), standard_error(samples[other]))
        if gap <= doubt and not gap + doubt <= tie * middle:
            return False
    return True
