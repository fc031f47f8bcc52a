"""Make up inputs for graphs when no others are given: the same each time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from gputune.core.dtypes import is_float
from gputune.runtime.arrays import array_type

Array = npt.NDArray[Any]


class TensorLike(Protocol):
    """A tensor of a plan or of a context."""

    @property
    def name(self) -> str: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> str: ...


RANGES: tuple[tuple[float, float] | None, ...] = (None, (0.0, 1.0), (1.0, 2.0), (1.0, 100.0))
"""The ways to draw floats: from a normal distribution, or above the first number up to the second. Logarithms, roots
and powers of negative numbers are NaN."""


def random_inputs(tensors: Iterable[TensorLike], draw: int = 0) -> dict[str, Array]:
    """By name, arrays that mean something to most models: normal numbers; whole ones are 0 or 1. draw: the place of
    another way in RANGES."""
    generator = np.random.default_rng(0)
    return {tensor.name: _values(tensor, generator, RANGES[draw]) for tensor in tensors}


def telling_draw(outputs_of: Callable[[int], Mapping[str, Array]]) -> int:
    """Return the first draw that makes all outputs finite, or else the one that leaves the fewest of them NaN or
    infinite, those of the worst output before those of all. outputs_of: computes them of the inputs of a draw."""
    found: list[tuple[float, float, int]] = []
    for draw in range(len(RANGES)):
        shares = [_blank_share(array) for array in outputs_of(draw).values()]
        found.append((max(shares, default=0.0), sum(shares), draw))
        if not found[-1][0]:
            break
    return min(found)[2]


def _blank_share(array: Array) -> float:
    """Return how many of its values are NaN or infinite."""
    return float(1 - np.isfinite(array).mean()) if is_float(array.dtype.name) and array.size else 0.0


def _values(tensor: TensorLike, generator: np.random.Generator, ends: tuple[float, float] | None) -> Array:
    kind = array_type(tensor.dtype)
    if not is_float(tensor.dtype):
        return generator.integers(0, 2, tensor.shape).astype(kind)
    if ends is None:
        return generator.standard_normal(tensor.shape, dtype=np.float32).astype(kind, copy=False)
    low, high = ends
    return (high - (high - low) * generator.random(tensor.shape, dtype=np.float32)).astype(kind, copy=False)
