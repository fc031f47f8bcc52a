"""Make up inputs for graphs when no others are given: the same each time."""

from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class TensorLike(Protocol):
    """A tensor of a plan or of a context."""

    @property
    def name(self) -> str: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> str: ...


def random_inputs(tensors: Iterable[TensorLike]) -> dict[str, Array]:
    """By name, arrays that mean something to most models: normal numbers; whole ones are 0 or 1."""
    generator = np.random.default_rng(0)
    return {tensor.name: _values(tensor, generator) for tensor in tensors}


def _values(tensor: TensorLike, generator: np.random.Generator) -> Array:
    if np.issubdtype(tensor.dtype, np.floating):
        return generator.standard_normal(tensor.shape, dtype=np.float32).astype(tensor.dtype, copy=False)
    return generator.integers(0, 2, tensor.shape).astype(tensor.dtype)
