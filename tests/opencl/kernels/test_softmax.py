"""Softmax kernels against the reference: along and across rows, ragged ends, large values."""

from typing import Any

import numpy as np
import pytest

from gputune.kernels.ops.softmax import FAMILY, SoftmaxProblem
from gputune.kernels.template import BASE_OPTIONS, template

SHAPES = [(1, 1, 1), (1, 4, 1), (3, 1000, 1), (17, 37, 1), (2, 1, 5), (2, 13, 19), (3, 100, 2), (1, 5, 64)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_softmax_is_right(bench: Any, shape: tuple[int, int, int]) -> None:
    bench.check(FAMILY, SoftmaxProblem(*shape), sampled=3)


@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize(("shape", "width"), [((3, 101, 1), 8), ((3, 21, 7), 4)])
def test_work_items_share_a_row(bench: Any, shape: tuple[int, int, int], width: int, keep: int) -> None:
    problem = SoftmaxProblem(*shape)
    configuration = {"VW": width, "LANES": 8, "DIMY": 2, "KEEP": keep}
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


def test_the_template_compiles_alone(bench: Any) -> None:
    bench.backend.build(template("softmax_rows.cl"), BASE_OPTIONS)
