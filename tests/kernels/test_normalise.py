"""Test Normalise and LRN: references compared with onnxruntime."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputune.kernels.catalogue import family_of
from gputune.kernels.ops.lrn import LrnProblem
from gputune.kernels.ops.normalise import NormaliseProblem


def numbers(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("bias", [False, True])
def test_layer_normalization_is_onnxruntimes(run_node: Callable[..., Any], bias: bool) -> None:
    inputs = {"input": numbers(2, 3, 5), "scale": numbers(3, 5), "bias": numbers(3, 5)}
    if not bias:
        del inputs["bias"]
    problem = NormaliseProblem("deviation", (2, 3, 5), (1, 2), (1, 2), True, bias, 1e-3)
    want = run_node("LayerNormalization", list(inputs.values()), axis=1, epsilon=1e-3)
    np.testing.assert_allclose(family_of("Normalise").reference(problem, inputs), want, rtol=1e-5, atol=1e-6)


def test_a_scale_per_channel_is_an_instance_normalization(run_node: Callable[..., Any]) -> None:
    inputs = {"input": numbers(2, 3, 5), "scale": numbers(3), "bias": numbers(3)}
    problem = NormaliseProblem("deviation", (2, 3, 5), (2,), (1,), True, True, 1e-5)
    want = run_node("InstanceNormalization", list(inputs.values()))
    np.testing.assert_allclose(family_of("Normalise").reference(problem, inputs), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("p", [1, 2])
def test_norms_are_onnxruntimes_and_zeros_stay(run_node: Callable[..., Any], p: int) -> None:
    value = numbers(2, 5, 3)
    value[1, :, 2] = 0
    got = family_of("Normalise").reference(NormaliseProblem(f"l{p}", (2, 5, 3), (1,)), {"input": value})
    np.testing.assert_allclose(got, run_node("LpNormalization", [value], axis=1, p=p), rtol=1e-5)
    assert not got[1, :, 2].any()


def test_the_mean_of_squares_alone_leaves_the_mean() -> None:
    problem = NormaliseProblem("rms", (1, 2), (1,), epsilon=0.5)
    got = family_of("Normalise").reference(problem, {"input": np.array([[3, 4]], np.float32)})
    np.testing.assert_allclose(got, np.array([[3, 4]], np.float32) / np.sqrt(13), rtol=1e-6)


@pytest.mark.parametrize(("shape", "size"), [((2, 7, 3), 3), ((1, 5, 1), 5), ((2, 2, 3), 9), ((1, 3, 2), 1)])
def test_local_response_is_onnxruntimes(run_node: Callable[..., Any], shape: tuple[int, ...], size: int) -> None:
    value = numbers(*shape)
    outer, axis, inner = shape
    problem = LrnProblem(outer, axis, inner, size, 0.5, 1.25, 2.0)
    want = run_node("LRN", [value.reshape(*shape, 1)], size=size, alpha=0.5, beta=1.25, bias=2.0)
    got = family_of("LRN").reference(problem, {"input": value})
    np.testing.assert_allclose(got, want.reshape(shape), rtol=1e-5, atol=1e-6)


@settings(max_examples=15)
@given(st.integers(1, 9), st.integers(1, 6))
def test_an_even_window_has_one_more_behind_than_before(axis: int, size: int) -> None:
    value = numbers(1, axis, 1)
    got = family_of("LRN").reference(LrnProblem(1, axis, 1, size, float(size), 1.0, 1.0), {"input": value})
    for a in range(axis):
        first = a - (size - 1) // 2
        total = sum(float(value[0, b, 0]) ** 2 for b in range(max(first, 0), min(first + size, axis)))
        assert got[0, a, 0] == pytest.approx(value[0, a, 0] / (1 + total), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("beta", [0.25, 1.0, 1.5, 4.0])
def test_powers_are_products_of_roots(beta: float) -> None:
    problem = LrnProblem(1, 5, 1, 3, 0.5, beta, 2.0)
    assert "pow(" not in family_of("LRN").render(problem, {"VW": 4, "DIMX": 1}).main.source
