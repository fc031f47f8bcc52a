"""Test nearest-neighbour resizing: the reference compared with onnxruntime, its borders, and its chain."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gputune.kernels.ops.resize import FAMILY, ResizeProblem

from .problems import RESIDUAL

PROBLEMS = {
    "twice": ResizeProblem(2, 3, 5, 7, (6, 10), (1, 1), (2, 2)),
    "half": ResizeProblem(2, 6, 8, 3, (3, 4), (2, 2), (1, 1)),
    "three-halves": ResizeProblem(1, 4, 6, 3, (6, 9), (2, 2), (3, 3)),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_reference_is_onnxruntime(run_node: Callable[..., Any], name: str) -> None:
    problem = PROBLEMS[name]
    value = np.random.default_rng(0).standard_normal(problem.input_shape, dtype=np.float32)
    scales = [1, 1, *(divisor / step for divisor, step in zip(problem.divisors, problem.steps, strict=True))]
    modes = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    want = run_node("Resize", [value.transpose(0, 3, 1, 2), None, scales], **modes)
    got = FAMILY.reference(problem, {"input": value})
    assert got.shape == FAMILY.output(problem).shape
    np.testing.assert_array_equal(got, want.transpose(0, 2, 3, 1))


def test_places_are_rounded_down_and_cut_to_the_map() -> None:
    problem = ResizeProblem(1, 1, 4, 1, (1, 6), (1, 3), (1, 2), (0, -4))  # -2, -0.5, 1, 2.5, 4, 5.5
    got = FAMILY.reference(problem, {"input": np.arange(4, dtype=np.float32).reshape(1, 1, 4, 1)})
    assert got.ravel().tolist() == [0, 0, 1, 2, 3, 3]


def test_the_chain_reads_operands_of_the_outputs_size() -> None:
    problem = ResizeProblem(1, 1, 1, 2, (1, 2), (1, 1), (1, 2), epilogue=RESIDUAL)
    inputs = {"input": np.array([1, -9], np.float32), "operand0": np.array([1, 2, 3, 14], np.float32)}
    got = FAMILY.reference(problem, {name: value.reshape(1, 1, -1, 2) for name, value in inputs.items()})
    assert got.ravel().tolist() == [2, 0, 4, 5]
