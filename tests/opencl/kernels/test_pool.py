"""Pooling kernels against the reference over windows, pads and channels that do not fit the vectors."""

from typing import Any

import numpy as np
import pytest

from gputune.kernels.chain import Chain, Step
from gputune.kernels.ops import pool_indices
from gputune.kernels.ops.pool import FAMILY, PoolProblem
from gputune.kernels.ops.pool_indices import PoolIndicesProblem
from gputune.kernels.template import BASE_OPTIONS, template

CHAIN = Chain((Step("add", operand=0), Step("hard_swish"), Step("mul", operand=1)))

PROBLEMS = [
    PoolProblem("max", 1, 1, 1, 1, (1, 1), (1, 1), (0, 0, 0, 0), (1, 1)),
    PoolProblem("max", 1, 14, 14, 32, (2, 2), (2, 2), (0, 0, 0, 0), (7, 7)),
    PoolProblem("max", 2, 13, 17, 19, (3, 5), (2, 3), (1, 2, 1, 1), (7, 6)),
    PoolProblem("average", 2, 13, 17, 3, (3, 5), (2, 3), (1, 2, 1, 1), (7, 6), True, CHAIN),
    PoolProblem("average", 1, 7, 10, 17, (3, 4), (3, 3), (0, 1, 0, 2), (3, 4)),
    PoolProblem("average", 1, 6, 6, 5, (3, 3), (2, 2), (1, 1, 1, 1), (4, 4), True),
    PoolProblem("average", 3, 7, 5, 37, (7, 5), (1, 1), (0, 0, 0, 0), (1, 1)),
    PoolProblem("max", 1, 31, 1, 8, (31, 1), (1, 1), (0, 0, 0, 0), (1, 1), epilogue=CHAIN),
    PoolProblem("max", 2, 11, 17, 7, (3, 4), (2, 3), (1, 2, 1, 1), (4, 4), dilations=(3, 2)),
    PoolProblem("average", 1, 9, 13, 19, (3, 5), (1, 2), (2, 1, 2, 3), (9, 4), True, CHAIN, (2, 3)),
    PoolProblem("average", 1, 1, 23, 5, (1, 3), (1, 4), (0, 2, 0, 2), (1, 6), dilations=(1, 5)),
    PoolProblem("lp", 2, 7, 9, 17, (3, 2), (2, 2), (1, 0, 1, 1), (4, 5), norm=1),
    PoolProblem("lp", 1, 8, 7, 3, (4, 3), (1, 2), (1, 1, 0, 1), (6, 4), epilogue=CHAIN, norm=2),
    PoolProblem("lp", 1, 5, 7, 33, (5, 7), (1, 1), (0, 0, 0, 0), (1, 1), norm=3),
]


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: f"{p.kind}-{p.height}x{p.width}x{p.channels}")
def test_pooling_is_right(bench: Any, problem: PoolProblem) -> None:
    bench.check(FAMILY, problem)


@pytest.mark.parametrize(("width", "accumulators"), [(1, 1), (8, 2)])
def test_the_maximum_keeps_nan_and_infinities(bench: Any, width: int, accumulators: int) -> None:
    problem = PoolProblem("max", 1, 9, 8, 19, (3, 5), (2, 2), (0, 1, 1, 1), (4, 3))
    value = np.random.default_rng(0).standard_normal(problem.input_shape).astype(np.float32)
    chosen = np.random.default_rng(1).random(value.shape)
    value[chosen < 0.1], value[chosen < 0.06], value[chosen < 0.03] = np.inf, -np.inf, np.nan
    inputs = {"input": value}
    configuration = FAMILY.default(problem, bench.limits) | {"VW": width, "ACC": accumulators, "DIMX": 1, "DIMY": 1}
    got, damage = bench.run(FAMILY, problem, configuration, inputs)
    want = FAMILY.reference(problem, inputs)
    assert 40 < np.isnan(want).sum() < want.size - 40
    np.testing.assert_array_equal(got, want)
    assert not damage
    windows = problem.kernel, problem.strides, problem.pads, problem.output
    places = PoolIndicesProblem(1, 9, 8, 19, *windows)
    got, damage = bench.run(pool_indices.FAMILY, places, pool_indices.FAMILY.default(places, bench.limits), inputs)
    np.testing.assert_array_equal(got, pool_indices.FAMILY.reference(places, inputs))
    assert not damage


INDICES = [
    PoolIndicesProblem(2, 7, 5, 19, (3, 2), (2, 1), (1, 1, 2, 0), (4, 5)),
    PoolIndicesProblem(1, 11, 9, 3, (2, 3), (3, 2), (1, 2, 1, 1), (4, 4), (3, 2), by_columns=True),
]


@pytest.mark.parametrize("problem", INDICES, ids=["rows", "columns"])
def test_places_of_maxima_are_right(bench: Any, problem: PoolIndicesProblem) -> None:
    bench.check(pool_indices.FAMILY, problem, sampled=1)


@pytest.mark.parametrize("name", ["pool_window.cl", "pool_indices.cl"])
def test_the_template_compiles_alone(bench: Any, name: str) -> None:
    bench.backend.build(template(name), BASE_OPTIONS)
