"""Test Concat: the reference compared with onnxruntime, and vectors that fit."""

from collections.abc import Callable
from typing import Any

import numpy as np

from gputune.kernels.ops.concat import FAMILY, ConcatProblem

from .problems import CPU


def test_the_reference_is_onnxruntime(run_node: Callable[..., Any]) -> None:
    numbers = np.random.default_rng(0)
    parts = [numbers.standard_normal((2, 3, size, 5), dtype=np.float32) for size in (4, 1, 7)]
    problem = ConcatProblem(6, (20, 5, 35))
    inputs = {f"input{k}": part.reshape(6, -1) for k, part in enumerate(parts)}
    want = run_node("Concat", parts, axis=2)
    np.testing.assert_array_equal(FAMILY.reference(problem, inputs).reshape(want.shape), want)


def test_the_default_takes_whole_vectors_where_they_are_not_short() -> None:
    assert FAMILY.default(ConcatProblem(100, (24, 40)), CPU)["VW"] == 8
    assert FAMILY.default(ConcatProblem(100, (24, 41)), CPU)["VW"] == 16
