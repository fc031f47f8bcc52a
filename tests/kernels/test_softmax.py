"""Test softmax: the reference compared with onnxruntime, also if exponentials would overflow."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputune.kernels.family import DeviceLimits
from gputune.kernels.ops.softmax import FAMILY, SoftmaxProblem

LIMITS = DeviceLimits(256, (256, 256, 64), 4096, 1 << 30, 2, "gpu", 1)


@pytest.mark.parametrize("shape", [(1, 4, 1), (3, 7, 5), (2, 1, 3), (1, 1000, 1)])
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_the_reference_is_onnxruntime(run_node: Callable[..., Any], shape: tuple[int, int, int], scale: float) -> None:
    value = (np.random.default_rng(3).standard_normal(shape) * scale).astype(np.float32)
    got = FAMILY.reference(SoftmaxProblem(*shape), {"input": value})
    np.testing.assert_allclose(got, run_node("Softmax", [value], axis=1), rtol=1e-5, atol=1e-7)
    assert got.dtype == np.float32


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_the_logarithm_is_onnxruntime(run_node: Callable[..., Any], scale: float) -> None:
    value = (np.random.default_rng(3).standard_normal((3, 7, 5)) * scale).astype(np.float32)
    got = FAMILY.reference(SoftmaxProblem(3, 7, 5, log=True), {"input": value})
    np.testing.assert_allclose(got, run_node("LogSoftmax", [value], axis=1), rtol=1e-5, atol=1e-6)


def test_a_logarithm_keeps_no_exponentials() -> None:
    space = FAMILY.space(SoftmaxProblem(3, 7, 5, log=True), LIMITS)
    assert {one["KEEP"] for one in space.configurations()} == {0}


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 40), st.floats(-1e4, 1e4))
def test_a_softmax_sums_to_one_and_does_not_mind_a_shift(outer: int, axis: int, inner: int, shift: float) -> None:
    problem = SoftmaxProblem(outer, axis, inner)
    value = np.random.default_rng(outer * axis + inner).standard_normal(problem.shape)
    got = FAMILY.reference(problem, {"input": value})
    np.testing.assert_allclose(got.sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(FAMILY.reference(problem, {"input": value + shift}), got, rtol=1e-4)


@pytest.mark.parametrize("shape", [(2, 7, 1), (2, 3, 5)])
def test_a_masked_row_is_zeros_and_others_are_as_ever(shape: tuple[int, int, int]) -> None:
    value = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
    value[0, 1:] = -np.inf
    want = FAMILY.reference(SoftmaxProblem(*shape), {"input": value})
    got = FAMILY.reference(SoftmaxProblem(*shape, masked=True), {"input": value})
    np.testing.assert_array_equal(got, want)
    value[0] = -np.inf
    got = FAMILY.reference(SoftmaxProblem(*shape, masked=True), {"input": value})
    assert not got[0].any()
    np.testing.assert_array_equal(got[1], want[1])


def test_local_memory_bounds_the_lanes_of_a_row() -> None:
    space = FAMILY.space(SoftmaxProblem(64, 4096, 64), LIMITS)
    wide = {"VW": 16, "LANES": 64, "DIMY": 2, "KEEP": 1, "EXP": 0}
    assert any("4096 bytes of local memory" in reason for reason in space.violations(wide))
    assert not space.violations(wide | {"DIMY": 1})
    assert not space.violations(wide | {"LANES": 1, "DIMY": 128})
