"""Test TopK's reference."""

import numpy as np
import pytest

from gputune.kernels.ops.top import FAMILY, TopProblem


@pytest.mark.parametrize("largest", [True, False])
def test_equal_elements_keep_their_order_and_nan_is_the_largest(largest: bool) -> None:
    row = np.array([1, 3, np.nan, 3, -np.inf, 1, np.nan, -0.0, 0.0], np.float32)
    places = FAMILY.reference(TopProblem(1, 9, 1, 9, largest), {"input": row.reshape(1, 9, 1)})
    falling, rising = [2, 6, 1, 3, 0, 5, 7, 8, 4], [4, 7, 8, 0, 5, 1, 3, 2, 6]
    assert places.ravel().tolist() == (falling if largest else rising)
