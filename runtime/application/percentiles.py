"""Compute percentiles of inference times."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

FEW = 10
"""Inferences of which the rarer percentiles say nothing but the slowest one's time."""
PERCENTILES = (50.0, 90.0, 99.0, 99.9)
METHOD: Final = "linear"
"""Between two values that lie next to each other, as numpy.percentile does by default."""


def percentiles_ns(took_ns: Sequence[int]) -> dict[str, float]:
    """p50, p90, p99 and p99.9 of durations in ns, of which there is at least one: numpy.percentile of all of them."""
    values = np.percentile(np.asarray(took_ns, np.int64), PERCENTILES, method=METHOD)
    return {f"p{percent:g}": float(value) for percent, value in zip(PERCENTILES, values, strict=True)}


def in_words(percentiles: Mapping[str, float], count: int) -> str:
    """For people: "p50 1.20 ms, p90 1.31 ms, ..."; of fewer than FEW inferences their median alone."""
    if count < FEW:
        return f"{'median ' if count > 1 else ''}{percentiles['p50'] / 1e6:.2f} ms"
    return ", ".join(f"{name} {ns / 1e6:.2f} ms" for name, ns in percentiles.items())


def inferences(count: int) -> str:
    """For people: "1 inference", "2 inferences"."""
    return f"{count} inference{'' if count == 1 else 's'}"
