"""Compare Gather kernels with their reference, and test indices that point outside."""

from typing import Any

import numpy as np
import pytest

from gputune.kernels.ops.gather import FAMILY, GatherProblem
from gputune.kernels.template import BASE_OPTIONS, template

PROBLEMS = {
    "rows": GatherProblem(7 * 33, 5, (5,), (0,), (1,), (7,), (33,), 33),
    "inside": GatherProblem(3 * 7 * 5, 6, (3, 6), (35, 0), (0, 1), (7,), (5,), 5, "int32", "int8"),
    "pairs": GatherProblem(2 * 4 * 3 * 17, 2 * 6 * 2, (2, 6), (204, 0), (12, 2), (4, 3), (51, 17), 17),
    "elements": GatherProblem(60, 24, (2, 4, 3), (20, 5, 1), (12, 3, 1), (3,), (1,), 1, dtype="int64"),
    "one": GatherProblem(1, 1, (1,), (0,), (0,), (1,), (1,), 1, dtype="bool"),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_gather_is_right(bench: Any, name: str) -> None:
    bench.check(FAMILY, PROBLEMS[name], sampled=0)


def test_no_index_reads_outside_of_the_input(bench: Any) -> None:
    problem = GatherProblem(4, 6, (6,), (0,), (1,), (4,), (1,), 1)
    far = np.array([-(2**63), -5, -4, 3, 4, 2**63 - 1])
    inputs = {"input": np.arange(4, dtype=np.float32), "indices": far}
    got, damage = bench.run(FAMILY, problem, FAMILY.default(problem, bench.limits), inputs)
    assert got.ravel().tolist() == [0, 0, 0, 3, 3, 3]
    assert not damage


def test_the_template_compiles_alone(bench: Any) -> None:
    bench.backend.build(template("gather_rows.cl"), BASE_OPTIONS)
