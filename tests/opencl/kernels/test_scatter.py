"""Compare Scatter kernels with their reference: the order of updates, and indices that point outside."""

from typing import Any

import numpy as np
import pytest

from gputune.kernels.ops.scatter import FAMILY, along, at_points
from gputune.kernels.template import BASE_OPTIONS, template
from tests.kernels.problems import CPU, GPU

PROBLEMS = {
    "lines": along((3, 5, 7), (2, 4, 3), 1, reduction="add"),
    "rows": along((40, 19), (83, 17), 0, reduction="add"),
    "last-axis": along((3, 4, 5), (2, 3, 60), 2, reduction="mul"),
    "maps": along((2, 5, 3, 7), (2, 9, 3, 7), 1, reduction="max"),
    "points": at_points((4, 3, 19), (6, 2), dtype="int32"),
    "points-of-many": at_points((37, 21), (200, 1), reduction="add"),
    "a-line": at_points((257,), (1000, 1), reduction="add"),
    "few-updates": at_points((1000, 3), (2, 1), reduction="min"),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_scatter_is_right(bench: Any, name: str) -> None:
    bench.check(FAMILY, PROBLEMS[name], sampled=1)


@pytest.mark.parametrize(("reduction", "want"), [("none", 3), ("add", 9), ("mul", 24), ("max", 4), ("min", 2)])
def test_updates_come_in_their_order_and_none_from_outside(bench: Any, reduction: str, want: float) -> None:
    problem = at_points((3,), (5, 1), reduction=reduction)
    inputs = {
        "data": np.array([10, 2, 7], np.float32),
        "indices": np.array([1, 3, -2, -4, -(2**63)]),
        "updates": np.array([4, 99, 3, 99, 99], np.float32),
    }
    got, damage = bench.run(FAMILY, problem, FAMILY.default(problem, bench.limits), inputs)
    assert got.tolist() == FAMILY.reference(problem, inputs).tolist() == [10, want, 7]
    assert not damage


def test_an_index_outside_of_its_axis_is_nowhere_even_where_the_place_is_inside(bench: Any) -> None:
    problem = at_points((4, 3), (4, 2))
    inputs = {
        "data": np.zeros(12, np.float32),
        "indices": np.array([0, 5, 1, -4, -5, 2, 2, -1]),
        "updates": np.array([1, 2, 3, 4], np.float32),
    }
    got, damage = bench.run(FAMILY, problem, FAMILY.default(problem, bench.limits), inputs)
    assert got.tolist() == FAMILY.reference(problem, inputs).tolist() == [0] * 8 + [4] + [0] * 3
    assert not damage


@pytest.mark.parametrize("parts", [1, 4, 16, 256])
def test_sums_are_those_of_updates_in_their_order(bench: Any, parts: int) -> None:
    """To the last bit, however many work-items share a line: no order of these gives the same sum."""
    problem = at_points((256,), (4096, 1), reduction="add")
    numbers = np.random.default_rng(7)
    inputs = FAMILY.sample_inputs(problem, numbers)
    inputs["updates"] = (10.0 ** numbers.uniform(-6, 6, 4096)).astype(np.float32)
    want = inputs["data"].copy()
    for index, update in zip(inputs["indices"], inputs["updates"], strict=True):
        want[index] += update
    configuration = FAMILY.default(problem, bench.limits) | {"PARTS": parts, "DIMX": 1, "DIMY": 1}
    got, _ = bench.run(FAMILY, problem, configuration, inputs)
    np.testing.assert_array_equal(got, want)


def test_by_default_updates_are_looked_at_once_where_there_are_many(bench: Any) -> None:
    for problem in (along((200, 128), (1600, 128), 0), at_points((1000,), (100_000, 1))):
        assert FAMILY.default(problem, CPU)["PARTS"] == 1
        assert 1 < FAMILY.default(problem, GPU)["PARTS"] <= 64 * GPU.compute_units
    assert FAMILY.default(at_points((4096, 64), (4, 1)), CPU)["PARTS"] > 1


def test_the_template_compiles_alone(bench: Any) -> None:
    bench.backend.build(template("scatter_rows.cl"), BASE_OPTIONS)
