"""Follow the speed of a device while a task is tuned: every batch measures the same baseline.

Times are divided by the baseline's times next to them, sample by sample. A busy machine changes its speed by a third
within seconds, but neighbours in a pass meet the same speed. The baseline is the default or, if that fails, the first
variant that works.

On two shared cores with PoCL, the same variants were measured four times, in batches of their own. Their spread
(standard deviation, median of ten tasks) was

    13 %     as measured
    6 %      divided by levels of the device that certainly differed
    3 %      divided by the median of the batch
    2.5 %    divided sample by sample

Such pairs also settle the order of variants, and whether a winner beats the default.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from gputune.runtime.measuring.successive_halving import paired

FEW = 3
"""Samples that do not tell by themselves what was a hiccup of the baseline."""

TOLD = 0.1
"""A device that takes this share more or less time than at first is worth a word."""


class Drift:
    """One task's. Ratios are times by those at first: 1.05 is 5 % slower."""

    def __init__(self, first_ns: float | None = None) -> None:
        """first_ns: the baseline's time at first, where an earlier run has taken it."""
        self.first_ns = first_ns
        """The baseline's time at first; None before it was measured."""
        self.level = 1.0
        """The ratio of the last batch."""
        self.furthest = 1.0
        """The ratio of the batch that was furthest from 1."""

    def hear(self, baseline: Sequence[float]) -> None:
        """Take in the baseline's samples in a batch, none where it was not measured."""
        if not baseline:
            return
        median = statistics.median(baseline)
        self.first_ns = self.first_ns or median
        self.level = median / self.first_ns
        self.furthest = max(self.furthest, self.level, key=_distance)

    def ratio(self, samples: Sequence[float], baseline: Sequence[float]) -> float | None:
        """Return the device's ratio while these samples of a variant were taken beside those of the baseline, of a
        batch that was heard of. Where there are none beside them the batch's; None where nothing is known of that.

        Of FEW samples a single hiccup of the baseline would make a variant seem fast that is not: they have at most the
        ratio of the batch.
        """
        if self.first_ns is None:
            return None
        if not samples or len(baseline) < len(samples):
            return self.level
        ratio = statistics.median(samples) / (self.first_ns * statistics.median(paired(samples, baseline)))
        return min(ratio, self.level) if len(samples) <= FEW else ratio

    @property
    def distance(self) -> float:
        """How far the furthest batch was from the first, at least 1."""
        return _distance(self.furthest)

    @property
    def notable(self) -> bool:
        """Whether the device has changed by more than anybody expects."""
        return self.distance > 1 + TOLD

    @property
    def words(self) -> str:
        """Such as "3.4 times as slow"."""
        return f"{self.distance:.1f} times as {'slow' if self.furthest > 1 else 'fast'}"


def _distance(ratio: float) -> float:
    """Return how far a ratio is from 1, twice as fast being as far as half as fast."""
    return max(ratio, 1 / ratio)
