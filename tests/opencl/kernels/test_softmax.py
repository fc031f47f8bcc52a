"""Compare Softmax kernels with the reference: along and across rows, ragged ends, large values."""

from typing import Any

import numpy as np
import pytest

from gputune.kernels.ops.softmax import FAMILY, SoftmaxProblem

SHAPES = [(1, 1, 1), (1, 4, 1), (3, 1000, 1), (17, 37, 1), (2, 1, 5), (2, 13, 19), (3, 100, 2), (1, 5, 64)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_softmax_is_right(bench: Any, shape: tuple[int, int, int]) -> None:
    bench.check(FAMILY, SoftmaxProblem(*shape), sampled=3)


@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize(("shape", "width"), [((3, 101, 1), 8), ((3, 21, 7), 4)])
def test_work_items_share_a_row(bench: Any, shape: tuple[int, int, int], width: int, keep: int) -> None:
    problem = SoftmaxProblem(*shape)
    configuration = {"VW": width, "LANES": 8, "DIMY": 2, "KEEP": keep, "EXP": keep}
    if FAMILY.space(problem, bench.limits).violations(configuration):
        pytest.skip("the device has no work-groups of 16")
    value = (np.random.default_rng(5).standard_normal(shape) * 1e4).astype(np.float32)
    got, damage = bench.run(FAMILY, problem, configuration, {"input": value})
    np.testing.assert_allclose(got, FAMILY.reference(problem, {"input": value}), rtol=1e-5, atol=1e-7)
    assert not damage


@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize("shape", [(3, 101, 1), (3, 21, 7)], ids=str)
def test_masked_rows_are_zeros(bench: Any, shape: tuple[int, int, int], keep: int) -> None:
    problem = SoftmaxProblem(*shape, masked=True)
    value = np.random.default_rng(5).standard_normal(shape).astype(np.float32)
    value[1], value[2, 1:] = -np.inf, -np.inf
    configuration = FAMILY.default(problem, bench.limits) | {"KEEP": keep}
    got, damage = bench.run(FAMILY, problem, configuration, {"input": value})
    np.testing.assert_allclose(got, FAMILY.reference(problem, {"input": value}), rtol=1e-5, atol=1e-7)
    assert not damage
    assert not got[1].any()


@pytest.mark.parametrize("shape", [(3, 101, 1), (2, 21, 7)], ids=str)
def test_the_lowest_numbers_have_a_maximum(bench: Any, shape: tuple[int, int, int]) -> None:
    problem = SoftmaxProblem(*shape)
    value = {"input": np.full(shape, -2e38, np.float32)}
    for configuration in [FAMILY.default(problem, bench.limits), *FAMILY.starters(problem, bench.limits)]:
        got, _ = bench.run(FAMILY, problem, configuration, value)
        np.testing.assert_allclose(got, np.full(shape, 1 / shape[1]), rtol=1e-6)


@pytest.mark.parametrize("width", [1, 4, 16])
def test_exponentials_are_right_from_the_largest_to_none(bench: Any, width: int) -> None:
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
