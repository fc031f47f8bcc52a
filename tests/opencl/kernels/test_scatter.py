"""Scatter kernels against their reference, the order of updates, and indices that point outside."""

from typing import Any

import numpy as np
import pytest

from gputune.kernels.ops.scatter import FAMILY, ScatterProblem
from gputune.kernels.template import BASE_OPTIONS, template

LINES = ScatterProblem((3, 5, 7), 1, 4, (12, 0, 1), (0, 1, 0), (2, 5, 3), (5,), (1,), 3, 3, 24, 24, "add")
"""Updates [2, 4, 3] along axis 1 of data [3, 5, 7]."""

POINTS = ScatterProblem((12,), 19, 6, (0,), (1,), (12,), (4, 3), (3, 1), 2, 19, 12, 114, dtype="int32")
"""Six rows of 19 elements, put by pairs of indices into [4, 3, 19]."""


@pytest.mark.parametrize("problem", [LINES, POINTS], ids=["lines", "points"])
def test_scatter_is_right(bench: Any, problem: ScatterProblem) -> None:
    bench.check(FAMILY, problem, sampled=0)


@pytest.mark.parametrize(("reduction", "want"), [("none", 3), ("add", 9), ("mul", 24), ("max", 4), ("min", 2)])
def test_updates_come_in_their_order_and_none_from_outside(bench: Any, reduction: str, want: float) -> None:
    problem = ScatterProblem((3,), 1, 5, (0,), (1,), (3,), (3,), (1,), 1, 1, 5, 5, reduction)
    inputs = {
        "data": np.array([[10], [2], [7]], np.float32),
        "indices": np.array([1, 3, -2, -4, -(2**63)]),
        "updates": np.array([4, 99, 3, 99, 99], np.float32),
    }
    got, damage = bench.run(FAMILY, problem, FAMILY.default(problem, bench.limits), inputs)
    assert got.ravel().tolist() == FAMILY.reference(problem, inputs).ravel().tolist() == [10, want, 7]
    assert not damage


def test_the_template_compiles_alone(bench: Any) -> None:
    bench.backend.build(template("scatter_rows.cl"), BASE_OPTIONS)
