"""Test kernels of several families on inputs that are large enough to contain hard values."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gputune.core.dtypes import FLOATS
from gputune.kernels.catalogue import family_of
from gputune.kernels.ops.move import MoveProblem
from gputune.kernels.ops.pool import PoolProblem
from gputune.kernels.ops.reduce import ReduceProblem
from gputune.kernels.ops.softmax import SoftmaxProblem

PROBLEMS = [
    ("Move", MoveProblem(4095, 0, (63, 65), (1, 63), (0, 0), (63, 65))),
    ("Pool", PoolProblem("average", 1, 18, 18, 11, (3, 3), (1, 1), (1, 1, 1, 1), (18, 18))),
    ("Reduce", ReduceProblem("log_sum_exp", (3, 5, 1100), (1,))),
    ("Softmax", SoftmaxProblem(3, 5, 1100, log=True)),
]


@pytest.mark.parametrize(("op", "problem"), PROBLEMS, ids=[op for op, _ in PROBLEMS])
@pytest.mark.parametrize("dtype", FLOATS)
def test_hard_values_survive(bench: Any, op: str, problem: Any, dtype: str) -> None:
    family, problem = family_of(op), replace(problem, dtype=dtype)
    inputs = family.sample_inputs(problem, np.random.default_rng(1))
    assert np.isnan(inputs["input"]).any() and np.isinf(inputs["input"]).any()
    bench.compare(family, problem, [family.default(problem, bench.limits)], inputs)
