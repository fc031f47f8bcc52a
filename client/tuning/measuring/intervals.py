"""Compute confidence intervals of a median from order statistics, without assumptions on the distribution of times."""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from gputune.runtime.measuring.successive_halving import paired

WANTED = 0.95
PAIRED = 64
"""Samples on either side of a ratio at most: pairs grow with the square."""
EXACT = 1000
"""Samples up to which coin tosses are counted one by one; of many more, the numbers would be too large."""


@dataclass(frozen=True)
class Interval:
    """From low to high, both included. `confidence`, a share of 1, is how often such an interval holds the true value:
    0.95 and more, or less where there were too few samples for that."""

    low: float
    high: float
    confidence: float


def median_interval(samples: Sequence[float], wanted: float = WANTED) -> Interval:
    """Return the narrowest symmetric pair of order statistics that holds the median with `wanted`, smallest to largest
    sample where none does. Raises ValueError without samples.

    The k-th smallest of n is above the true median when fewer than k of n coin tosses fall below it.
    """
    ordered = sorted(samples)
    count = len(ordered)
    if not count:
        raise ValueError("an interval of no samples")
    tail, k = _tossed(count, wanted) if count <= EXACT else _tossed_often(count, wanted)
    return Interval(ordered[k - 1], ordered[count - k], max(0.0, 1 - 2 * tail))


@dataclass(frozen=True)
class Ratio:
    """How many times as long one takes as another: the median of pairs that took turns, and its interval."""

    median: float
    low: float
    high: float
    confidence: float

    @property
    def certain(self) -> bool:
        """Return whether the one differs from the other for certain."""
        return self.confidence >= WANTED and not self.low <= 1 <= self.high


def paired_ratio(over: Sequence[float], under: Sequence[float]) -> Ratio:
    """Return the time of one by that of another, which took turns. Raises ValueError without samples."""
    ratios = paired(over, under)
    interval = median_interval(ratios)
    return Ratio(statistics.median(ratios), interval.low, interval.high, interval.confidence)


def paired_interval(over: Sequence[float], under: Sequence[float]) -> Interval:
    """Of the time of one by that of another, which took turns. Raises ValueError without samples."""
    return median_interval(paired(over, under))


def ratio_interval(over: Sequence[float], under: Sequence[float], wanted: float = WANTED) -> Interval:
    """Of the median of `over` by that of `under`: Hodges' and Lehmann's interval, order statistics of the ratios of all
    pairs. It takes both to spread alike but for that factor, and an outlier moves it little. It is widened to the ratio
    of the medians where that lies outside, as it may with few samples. Raises ValueError without samples.

    The k-th smallest ratio is above the true factor when fewer than k of all pairs have a ratio below it, which is how
    Mann's and Whitney's U is distributed when both are scaled to be alike.
    """
    first, second = _spread(over), _spread(under)
    ratios = sorted(a / b for a in first for b in second)
    ways = _ways(len(first), len(second))
    total = sum(ways)
    tail, k = ways[0], 1
    while 2 * (k + 1) <= len(ratios) and 1 - 2 * (tail + ways[k]) / total >= wanted:
        tail, k = tail + ways[k], k + 1
    ratio = median_ratio(over, under)
    low, high = min(ratios[k - 1], ratio), max(ratios[-k], ratio)
    return Interval(low, high, max(0.0, 1 - 2 * tail / total))


def median_ratio(over: Sequence[float], under: Sequence[float]) -> float:
    """Return the median of `over` by that of `under`. Raises ValueError without samples."""
    return statistics.median(over) / statistics.median(under)


def _tossed(count: int, wanted: float) -> tuple[float, int]:
    """Return the largest k of which fewer heads among so many tosses are rare enough, and how rare they are; 1 at
    least."""
    tail, k = 0.5**count, 1
    while 2 * (k + 1) <= count and 1 - 2 * (further := tail + math.comb(count, k) * 0.5**count) >= wanted:
        tail, k = further, k + 1
    return tail, k


def _tossed_often(count: int, wanted: float) -> tuple[float, int]:
    """Return the same by the normal distribution, in which half a toss corrects for whole numbers."""
    heads = NormalDist(count / 2, math.sqrt(count) / 2)
    k = math.floor(heads.inv_cdf((1 - wanted) / 2) + 0.5)
    return heads.cdf(k - 0.5), k


def _spread(samples: Sequence[float]) -> Sequence[float]:
    """Return all samples, or as many as are paired at most, evenly taken from them."""
    return samples if len(samples) <= PAIRED else samples[:: -(-len(samples) // PAIRED)]


@functools.lru_cache(maxsize=16)
def _ways(first: int, second: int) -> tuple[int, ...]:
    """In how many orders of so many samples just u pairs are the other way round, by u: the coefficients of a Gaussian
    binomial, the product of (1 - q^(second + i)) / (1 - q^i)."""
    ways = [1] + [0] * (first * second)
    for i in range(1, first + 1):
        for u in range(len(ways) - 1, second + i - 1, -1):
            ways[u] -= ways[u - second - i]
        for u in range(i, len(ways)):
            ways[u] += ways[u - i]
    return tuple(ways)
