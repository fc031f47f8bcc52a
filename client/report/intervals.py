"""Where a median lies: intervals by order statistics, which assume nothing of how times are spread."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

WANTED = 0.95


@dataclass(frozen=True)
class Interval:
    """From low to high, both included. `confidence`, a share of 1, is how often such an interval holds the true value:
    0.95 and more, or less where there were too few samples for that."""

    low: float
    high: float
    confidence: float


def median_interval(samples: Sequence[float], wanted: float = WANTED) -> Interval:
    """The narrowest symmetric pair of order statistics that holds the median with `wanted`, smallest to largest sample
    where none does. Raises ValueError without samples.

    The k-th smallest of n is above the true median when fewer than k of n coin tosses fall below it.
    """
    ordered = sorted(samples)
    count = len(ordered)
    if not count:
        raise ValueError("an interval of no samples")
    tail, k = 0.5**count, 1  # of fewer than k tosses
    while 2 * (k + 1) <= count and 1 - 2 * (further := tail + math.comb(count, k) * 0.5**count) >= wanted:
        tail, k = further, k + 1
    return Interval(ordered[k - 1], ordered[count - k], max(0.0, 1 - 2 * tail))


def ratio_interval(over: Sequence[float], under: Sequence[float], wanted: float = WANTED) -> Interval:
    """Of the median of `over` by that of `under`: from the corners of both intervals, each made so sure that both hold
    at once with `wanted`. Rather too wide than too narrow. Raises ValueError without samples."""
    each = (1 + wanted) / 2
    first, second = median_interval(over, each), median_interval(under, each)
    confidence = max(0.0, first.confidence + second.confidence - 1)
    return Interval(first.low / second.high, first.high / second.low, confidence)


def median_ratio(over: Sequence[float], under: Sequence[float]) -> float:
    """The median of `over` by that of `under`. Raises ValueError without samples."""
    return statistics.median(over) / statistics.median(under)
