"""Compare Pooling kernels with the reference over windows, pads and channels that do not fit the vectors."""

import math
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
    PoolProblem("average", 1, 7, 6, 5, (3, 3), (2, 2), (0, 1, 2, 1), (4, 3), True),
    PoolProblem("average", 1, 6, 7, 5, (3, 3), (2, 2), (1, 0, 1, 2), (3, 4), True),
    PoolProblem("average", 3, 7, 5, 37, (7, 5), (1, 1), (0, 0, 0, 0), (1, 1)),
    PoolProblem("average", 2, 15, 13, 19, (13, 11), (2, 3), (4, 3, 4, 1), (6, 3), True, CHAIN),
    PoolProblem("lp", 1, 12, 11, 3, (12, 11), (1, 1), (0, 0, 0, 0), (1, 1), norm=2),
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


AVERAGES = {
    "whole": PoolProblem("average", 1, 1024, 1024, 1, (1024, 1024), (1, 1), (0, 0, 0, 0), (1, 1)),
    "whole-of-channels": PoolProblem("average", 1, 150, 200, 5, (150, 200), (1, 1), (0, 0, 0, 0), (1, 1)),
    "windows": PoolProblem("average", 1, 400, 500, 3, (300, 480), (90, 7), (0, 3, 2, 0), (2, 4)),
    "dilated": PoolProblem("average", 1, 300, 301, 2, (150, 101), (2, 1), (0, 0, 0, 0), (1, 101), dilations=(2, 2)),
}


@pytest.mark.parametrize("name", AVERAGES)
def test_averages_of_many_keep_their_digits(bench: Any, name: str) -> None:
    """Within a few units of the last place, of one value and of a ramp, however many accumulators there are."""
    problem = AVERAGES[name]
    ramp = np.linspace(0, 1, math.prod(problem.input_shape), dtype=np.float32).reshape(problem.input_shape)
    maps = [np.full(problem.input_shape, value, np.float32) for value in (0.1, 7.3)]
    default = FAMILY.default(problem, bench.limits)
    for value in (*maps, ramp):
        want = FAMILY.reference(problem, {"input": value})
        for count in (1, 4):
            got, _ = bench.run(FAMILY, problem, default | {"ACC": count}, {"input": value})
            assert np.max(np.abs(got - want) / np.spacing(want)) <= 6


@pytest.mark.parametrize("hard", [np.inf, -np.inf, np.nan])
def test_long_sums_keep_nan_and_infinities(bench: Any, hard: float) -> None:
    problem = PoolProblem("average", 1, 40, 50, 5, (40, 50), (1, 1), (0, 0, 0, 0), (1, 1))
    value = np.ones(problem.input_shape, np.float32)
    value[0, 3, 4, 1], value[0, 0, 0, 2], value[0, 39, 49, 2] = hard, hard, -hard
    got, _ = bench.run(FAMILY, problem, FAMILY.default(problem, bench.limits), {"input": value})
    np.testing.assert_array_equal(got.ravel(), [1, hard, np.nan, 1, 1])


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
