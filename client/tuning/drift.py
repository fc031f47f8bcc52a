"""Whether the device is still as fast as when a task was begun: every batch measures the same baseline, too."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

LIMIT = 0.03
"""A device that takes this share more or less time than before has drifted, when nearly every sample says so."""

STRAYS = 0.1
"""The share of the samples that may say otherwise: of few samples none, of many the one that something disturbed."""


class Drift:
    """One task's. While the device stays as fast as it is, it is on a level. A batch that does not fit to the level is
    in doubt and measured again: when it fits then, it was disturbed; when not, the device has come to another level.

    Ratios are times of the baseline by those on the first level: 1.05 is 5 % slower.
    """

    def __init__(self, first: Sequence[float] = ()) -> None:
        """first: the baseline's samples on the first level, in nanoseconds, where an earlier run has taken some."""
        self.in_doubt = False
        """Whether the batch that was heard of last is to be measured again."""
        self.measured_again = 0
        """Variants that were measured once more."""
        self.kept: float | None = None
        """Of the levels on which something was kept, the ratio furthest from 1."""
        self.furthest = 1.0
        """The ratio furthest from 1 of all that was measured."""
        self._first = self._level = list(first)  # samples of all batches that were accepted on these levels
        self._ratio = 1.0

    @property
    def first_ns(self) -> float | None:
        """The baseline's time on the first level; None before it was measured."""
        return statistics.median(self._first) if self._first else None

    @property
    def level(self) -> float:
        """The ratio of the level that the device is on."""
        return self._ratio

    @property
    def beyond(self) -> bool:
        """Whether something was kept from a level other than the first."""
        return self.kept is not None and _distance(self.kept) > 1 + LIMIT

    def ratio(self, samples: Sequence[float]) -> float | None:
        """Takes in the baseline's samples in the batch now, in nanoseconds, none where it was not raced. The ratio of
        what was measured beside it; None where nothing is known of that."""
        if not samples:
            return self._ratio if self._first else None
        if not self._first:
            self._first.extend(samples)
        elif _differs(samples, statistics.median(self._level)):
            ratio = statistics.median(samples) / statistics.median(self._first)
            self.furthest = max(self.furthest, ratio, key=_distance)
            if not self.in_doubt:
                self.in_doubt = True
                return ratio
            self._level, self._ratio = list(samples), ratio
        else:
            self._level.extend(samples)
        self.in_doubt = False
        self.kept = max(self.kept or 1.0, self._ratio, key=_distance)
        return self._ratio


def _differs(samples: Sequence[float], reference: float) -> bool:
    """Whether nearly all samples lie beyond the limit, on the same side."""
    ranked, strays = sorted(samples), int(STRAYS * len(samples))
    return ranked[strays] > (1 + LIMIT) * reference or ranked[-1 - strays] < reference / (1 + LIMIT)


def _distance(ratio: float) -> float:
    """How far a ratio is from 1, twice as fast being as far as half as fast."""
    return max(ratio, 1 / ratio)
