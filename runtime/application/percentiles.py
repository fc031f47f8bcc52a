"""Compute percentiles of inference times."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

PERCENTILES = (50.0, 90.0, 99.0, 99.9)
METHOD: Final = "linear"
"""Between two values that lie next to each other, as numpy.percentile does by default."""


def percentiles_ns(took_ns: Sequence[int]) -> dict[str, float]:
    """p50, p90, p99 and p99.9 of durations in ns, of which there is at least one: numpy.percentile of all of them."""
    values = np.percentile(np.asarray(took_ns, np.int64), PERCENTILES, method=METHOD)
    return {f"p{percent:g}": float(value) for percent, value in zip(PERCENTILES, values, strict=True)}


def in_words(percentiles: Mapping[str, float]) -> str:
    """For people: "p50 1.20 ms, p90 1.31 ms, ..."."""
    return ", ".join(f"{name} {ns / 1e6:.2f} ms" for name, ns in percentiles.items())
