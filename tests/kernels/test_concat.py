"""Test Concat: the reference compared with onnxruntime, vectors that fit, and what is refused."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gputune.kernels.ops.concat import FAMILY, ConcatProblem

from .problems import CPU, DEVICES


def test_the_reference_is_onnxruntime(run_node: Callable[..., Any]) -> None:
    numbers = np.random.default_rng(0)
    parts = [numbers.standard_normal((2, 3, size, 5), dtype=np.float32) for size in (4, 1, 7)]
    problem = ConcatProblem(6, (20, 5, 35))
    inputs = {f"input{k}": part.reshape(6, -1) for k, part in enumerate(parts)}
    want = run_node("Concat", parts, axis=2)
    np.testing.assert_array_equal(FAMILY.reference(problem, inputs).reshape(want.shape), want)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("parts", [(1,), (1, 1, 1), (24, 24), (3, 64, 1), (5,) * 64, (100_000, 7)], ids=str)
@pytest.mark.parametrize("rows", [1, 9, 400])
def test_default_and_starters_are_legal(device: str, parts: tuple[int, ...], rows: int) -> None:
    problem, limits = ConcatProblem(rows, parts), DEVICES[device]
    space = FAMILY.space(problem, limits)
    for configuration in (FAMILY.default(problem, limits), *FAMILY.starters(problem, limits)):
        assert space.violations(configuration) == []


def test_the_default_takes_whole_vectors_where_they_are_not_short() -> None:
    assert FAMILY.default(ConcatProblem(100, (24, 40)), CPU)["VW"] == 8
    assert FAMILY.default(ConcatProblem(100, (24, 41)), CPU)["VW"] == 16


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ((0, (1, 2)), "positive sizes"),
        ((1, ()), "positive sizes"),
        ((1, (1, 0)), "positive sizes"),
        ((1, (1,) * 65), "up to 64 tensors, not 65"),
        ((1 << 20, (1 << 10, 1 << 10)), "32 bits"),
        ((1, (1, 2), "float64"), "float64"),
    ],
)
def test_a_wrong_problem_says_what_is_wrong(fields: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ConcatProblem(*fields)
