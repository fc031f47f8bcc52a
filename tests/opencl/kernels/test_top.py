"""Compare TopK kernels with the reference: many equal elements, NaN, any type, along and across."""

from typing import Any

import numpy as np
import pytest

from gputune.kernels.ops.top import FAMILY, TopProblem

PROBLEMS = [
    TopProblem(1, 1, 1, 1),
    TopProblem(3, 101, 1, 7),
    TopProblem(2, 67, 5, 67, largest=False),
    TopProblem(2, 70, 3, 9, dtype="int8"),
    TopProblem(1, 33, 1, 33, largest=False, dtype="uint64"),
]


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_kernels_are_right(bench: Any, problem: TopProblem) -> None:
    numbers = np.random.default_rng(1)
    value = numbers.integers(-4 if problem.dtype[0] != "u" else 0, 5, problem.shape).astype(problem.dtype)
    if problem.dtype == "float32" and problem.axis > 1:
        value[numbers.random(problem.shape) < 0.1] = np.nan
    want = FAMILY.reference(problem, {"input": value})
    configurations = [FAMILY.default(problem, bench.limits), *FAMILY.starters(problem, bench.limits)]
    bench.build_together(FAMILY, [(problem, configuration) for configuration in configurations])
    for configuration in configurations:
        got, damage = bench.run(FAMILY, problem, configuration, {"input": value})
        assert not damage
        assert np.array_equal(got, want), configuration
