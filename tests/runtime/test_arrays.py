"""Test which arrays hold elements of a type, with and without the package that brings numpy bfloat16."""

import sys

import ml_dtypes
import numpy as np
import pytest

from gputune.core.dtypes import BFLOAT, ELEMENT_TYPES
from gputune.runtime.arrays import array_type, as_saved, is_of, numbers
from gputune.runtime.backends.answers import compared
from gputune.runtime.measuring.verification import reference_of, what_is_wrong

VALUES = np.array([1, -2.5, 3.3895e38, 2.0**-133, np.inf, np.nan], ml_dtypes.bfloat16)
BITS = VALUES.view(np.uint16)


@pytest.mark.parametrize("dtype", ELEMENT_TYPES)
def test_arrays_have_the_name_of_their_elements(dtype: str) -> None:
    array = np.zeros(3, array_type(dtype))
    assert array.dtype.name == dtype and is_of(array, dtype)
    assert np.array_equal(numbers(array, dtype), array) and as_saved(array).nbytes == array.nbytes


@pytest.mark.parametrize("array", [VALUES, BITS], ids=["numbers", "bits"])
@pytest.mark.parametrize("installed", [True, False])
def test_bfloat16_is_given_as_numbers_or_bits(
    monkeypatch: pytest.MonkeyPatch, installed: bool, array: np.ndarray
) -> None:
    if not installed:
        monkeypatch.setitem(sys.modules, "ml_dtypes", None)
        assert array_type(BFLOAT) == np.uint16
    assert is_of(array, BFLOAT) == (installed or array is BITS)
    assert not is_of(array.view(np.float16), BFLOAT) and not is_of(array.view(np.int16), BFLOAT)
    np.testing.assert_array_equal(numbers(array, BFLOAT), VALUES.astype(np.float32))
    reference = reference_of(array, 2.0**-6, 0.0, BFLOAT)
    for first, wrong in ((1 + 2.0**-7, ""), (1.5, "1 of 6 elements are wrong, first at 0: 1.5 instead of 1")):
        got = VALUES.copy()
        got[0] = first
        assert what_is_wrong(compared(got.view(array.dtype), reference), reference).partition(";")[0] == wrong


def test_files_hold_bits() -> None:
    assert as_saved(VALUES).dtype == np.uint16 and as_saved(BITS) is BITS
