"""Say which numpy arrays hold the elements of a tensor: the one place that knows what numpy calls an element type.

numpy has no bfloat16. The package ml_dtypes, which onnx brings along, adds it. A device need not have that package:
there arrays hold the bits of such elements as uint16. Applications may give bits everywhere.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from gputune.core.dtypes import BFLOAT

Array = npt.NDArray[Any]
_BITS = np.dtype(np.uint16)


def array_type(dtype: str) -> np.dtype[Any]:
    """Return the type of arrays that hold elements of a type."""
    if dtype != BFLOAT:
        return np.dtype(dtype)
    try:
        import ml_dtypes
    except ImportError:
        return _BITS
    kind: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return kind


def is_of(array: Array, dtype: str) -> bool:
    """Return whether an array holds elements of a type, or their bits."""
    return array.dtype == array_type(dtype) or (dtype == BFLOAT and array.dtype == _BITS)


def as_saved(array: Array) -> Array:
    """Return an array as files keep it that every numpy reads: with the bits of elements that numpy has no type for."""
    return array.view(_BITS) if array.dtype.name == BFLOAT else array


def numbers(array: Array, dtype: str) -> Array:
    """Return elements of a type as numbers that numpy computes with."""
    if dtype != BFLOAT:
        return array
    return (array.view(_BITS).astype(np.uint32) << 16).view(np.float32)
