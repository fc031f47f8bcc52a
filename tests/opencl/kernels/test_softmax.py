"""Test the exponentials of Softmax kernels over all of their range."""

import numpy as np
import pytest

from gputune.kernels.ops.softmax import FAMILY, SoftmaxProblem
from tests.opencl.conftest import KernelBench


@pytest.mark.parametrize("width", [1, 4, 16])
def test_exponentials_are_right_from_the_largest_to_none(bench: KernelBench, width: int) -> None:
    problem = SoftmaxProblem(1, 4096, 1)
    configuration = {"VW": width, "LANES": 1, "DIMY": 1, "KEEP": 1, "EXP": 1}
    value = np.linspace(-100, 3, 4096, dtype=np.float32).reshape(1, 4096, 1)
    value[0, 7], value[0, 8] = -np.inf, -1e30
    got, _ = bench.run(FAMILY, problem, configuration, {"input": value})
    below = value - np.float32(3)
    wanted = np.where(below < -87, 0, np.exp(below.astype(np.float64)))
    kept = wanted > 1e-34  # the others are not normal any more once they are shares of the sum
    np.testing.assert_allclose((got.astype(np.float64) / got.max())[kept], wanted[kept], rtol=3 * 2.0**-23)
    assert got[~kept].max() < 2e-34
    assert not got[below < -87].any()
    value[0, 9] = np.nan
    got, _ = bench.run(FAMILY, problem, configuration, {"input": value})
    assert np.isnan(got).all()
