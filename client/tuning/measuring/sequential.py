"""Compute confidence intervals of a median that you may look at as often as you like while samples still arrive.

Suppose you look at an interval of 95 % after every round and stop when it excludes 1. You then find a difference that
does not exist far more often than once in twenty times. The interval here holds at every moment at once: the chance
that it ever leaves out the true median, from the first sample to the last, is at most 1 - SURE. A comparison may
therefore stop as soon as it is certain, continue for as long as it is not, and be resumed on another day.

Of n samples, as many lie below the true median as heads fall in n tosses of a coin. For h heads, M = 2^n B(h + a, n - h
+ a) / B(a, a) says how much likelier they are with a coin of unknown bias than with a fair coin. For a fair coin, M is
a martingale of mean 1, so it ever exceeds 1/c with a chance of at most c. The interval ends at the h that is so small,
or so large, that M exceeds 1 / (1 - SURE).

Sources: Ville 1939; Robbins, Statistical methods related to the law of the iterated logarithm, 1970; for quantiles
Howard and Ramdas, Sequential estimation of quantiles with applications to A/B testing and best-arm identification,
2022.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

SURE = 0.995
"""The share of comparisons whose interval always holds the true ratio, however often one looks."""

PRIOR = 2.0
"""The a above: a large one is a coin that is nearly fair, so that small differences are found sooner and large ones
later."""

NARROW = 0.01
"""An interval that ends no farther than this from its median needs no more rounds."""


@dataclass(frozen=True)
class Gain:
    """How many times as fast something is as something else: the median of the ratios of `rounds` rounds in which both
    took turns, and the interval that holds the true ratio with SURE, whenever you look. Without enough rounds for an
    interval low is 0 and high infinite."""

    median: float
    low: float
    high: float
    rounds: int

    @property
    def certain(self) -> bool:
        """Whether there is a difference for certain: the interval does not hold 1."""
        return self.low > 1 or self.high < 1

    @property
    def settled(self) -> bool:
        """Return whether more rounds would tell nothing that matters: the interval is narrow."""
        return self.low >= self.median * (1 - NARROW) and self.high <= self.median * (1 + NARROW)

    @property
    def words(self) -> str:
        """What is told of it, such as "1.35 times as fast (1.28–1.42)"."""
        if not self.low:
            return f"not known after {self.rounds} round{'s' * (self.rounds != 1)}"
        interval = f"({_digits(self.low)}–{_digits(self.high)})"
        return f"{_digits(self.median)} times as fast {interval}" if self.certain else f"no difference found {interval}"

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values; both ends are null while there is no interval."""
        known = self.low > 0
        ends = {"low": self.low if known else None, "high": self.high if known else None}
        return {"median": self.median, **ends, "rounds": self.rounds}


def gain_of(ratios: Sequence[float], sure: float = SURE) -> Gain:
    """Return the gain of paired rounds: the other's time by one's own in each of them. Raises ValueError without
    rounds."""
    ordered = sorted(ratios)
    if not ordered:
        raise ValueError("a gain of no rounds")
    outside = _rejected(len(ordered), sure)
    low, high = (ordered[outside], ordered[-1 - outside]) if outside >= 0 else (0.0, math.inf)
    return Gain(statistics.median(ordered), low, high, len(ordered))


def least_rounds(sure: float = SURE) -> int:
    """Return the number of rounds from which on there is an interval."""
    count = 1
    while _rejected(count, sure) < 0:
        count += 1
    return count


def _digits(ratio: float) -> str:
    """Return a ratio with two decimals, or as many as show on which side of 1 it lies."""
    decimals = 2
    while ratio != 1 and decimals < 5 and float(f"{ratio:.{decimals}f}") == 1:
        decimals += 1
    return f"{ratio:.{decimals}f}"


@functools.lru_cache(maxsize=4096)
def _rejected(count: int, sure: float) -> int:
    """Return the largest number of heads among so many tosses that is too small for a fair coin; -1 where none is."""
    wanted = -math.log(1 - sure) + _log_beta(PRIOR, PRIOR) - count * math.log(2)
    low, high = -1, count // 2  # too small (or none), and not: M falls up to the middle
    while high - low > 1:
        middle = (low + high) // 2
        if _log_beta(middle + PRIOR, count - middle + PRIOR) >= wanted:
            low = middle
        else:
            high = middle
    return low


def _log_beta(first: float, second: float) -> float:
    return math.lgamma(first) + math.lgamma(second) - math.lgamma(first + second)
