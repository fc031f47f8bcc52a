"""Say which numpy arrays hold the elements of a tensor: the one place that knows what numpy calls an element type."""

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def array_type(dtype: str) -> np.dtype[Any]:
    """Return the type of arrays that hold elements of a type."""
    return np.dtype(dtype)


def is_of(array: Array, dtype: str) -> bool:
    """Return whether an array holds elements of a type."""
    return bool(array.dtype == array_type(dtype))


def numbers(array: Array, dtype: str) -> Array:
    """Return elements of a type, which the array may hold as bits, as numbers that numpy computes with."""
    return array if array.dtype == dtype else array.view(dtype)
