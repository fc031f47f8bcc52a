"""Estimate how well a batch can separate variants at all.

A variant is ranked by the median of its samples relative to the baseline's samples of the same passes. The scatter of
those ratios says how far such a median may be off with the number of samples that the effort allows. If that is more
than a task may still gain, its ranking is a lottery, and more trials only draw more lots.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence

from gputune.runtime.measuring.successive_halving import ENOUGH, paired, standard_error

TELLING = 0.05
"""Less doubt than this ends no search, for what a batch may gain is a guess. With PoCL on two cores that 11 other
programs kept busy, kernels of 10 us were told apart within 0.1 to 0.5 %, those of 2 to 24 ms within 9 to 22 %: these
are interrupted in every launch, the others only in some."""


def doubt_of(variants: Iterable[Sequence[float]], baseline: Sequence[float], most: int) -> float | None:
    """Return the standard error of a variant's time over the baseline's with `most` samples, as a share of it: the
    median over those variants of a batch that got enough samples. None where none did.

    variants, baseline: samples of the same passes; the baseline itself may be among the variants, and says nothing.
    """
    found = []
    for samples in variants:
        ratios = paired(samples, baseline)
        if len(ratios) >= ENOUGH and tuple(samples) != tuple(baseline[: len(samples)]):
            found.append(standard_error(ratios) / statistics.median(ratios) * math.sqrt(len(ratios) / most))
    return statistics.median(found) if found else None


def is_blind(doubt: float | None, gain: float) -> bool:
    """Return whether another batch would decide nothing. gain: the share of its time that a task may gain by it."""
    return doubt is not None and doubt > max(TELLING, gain)
