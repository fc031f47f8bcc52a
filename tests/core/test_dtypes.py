"""Test what is known of the element types: sizes as numpy has them, and which types an op refuses."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from gputune.core.dtypes import ELEMENT_TYPES, FLOATS, ElementType, check_dtype, is_float


@pytest.mark.parametrize("known", ELEMENT_TYPES.values(), ids=ELEMENT_TYPES)
def test_a_type_is_what_numpy_says(known: ElementType) -> None:
    dtype = np.dtype(known.name)
    assert (known.nbytes, known.is_float) == (dtype.itemsize, known.name in FLOATS)
    assert is_float(dtype.name) == known.is_float
    finfo: Any = ml_dtypes.finfo
    info = finfo(dtype) if known.is_float else None
    assert known.resolution == (float(info.eps) / 2 if info else 0)
    assert known.largest == (float(info.max) if info else 0)
    assert known.sum_bytes == (4 if known.is_float else known.nbytes)


def test_an_unknown_type_is_refused_by_name() -> None:
    check_dtype("Some", "int8", "bool")
    with pytest.raises(ValueError, match=r"^Some knows dtype float32, .*, bool, not float64$"):
        check_dtype("Some", "int8", "float64")


def test_sums_may_be_wider_than_elements() -> None:
    assert ElementType("int8", "char", 1, arithmetic="int", sums="long").sum_bytes == 8
