"""Test Reduce, ArgMax and Scan: references compared with onnxruntime, and shared rows."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputune.kernels.catalogue import family_of
from gputune.kernels.ops.arg import ArgProblem
from gputune.kernels.ops.reduce import KINDS, ReduceProblem
from gputune.kernels.ops.scan import ScanProblem
from tests.kernels.problems import DEVICES, GPU

SPELLINGS = {
    "sum": "ReduceSum",
    "mean": "ReduceMean",
    "max": "ReduceMax",
    "min": "ReduceMin",
    "prod": "ReduceProd",
    "l1": "ReduceL1",
    "l2": "ReduceL2",
    "sum_square": "ReduceSumSquare",
    "log_sum": "ReduceLogSum",
    "log_sum_exp": "ReduceLogSumExp",
}


@pytest.mark.parametrize("kind", SPELLINGS)
def test_every_kind_is_onnxruntimes(run_node: Callable[..., Any], kind: str) -> None:
    problem = ReduceProblem(kind, (3, 4, 5), (0, 1, 2))
    value = family_of("Reduce").sample_inputs(problem, np.random.default_rng(3))["input"]
    got = family_of("Reduce").reference(problem, {"input": value})
    want = run_node(SPELLINGS[kind], [value], keepdims=0)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    assert got.dtype == np.float32


def test_variance_is_the_mean_of_squared_distances() -> None:
    value = np.array([[1, 3], [5, 9]], np.float32)
    assert list(family_of("Reduce").reference(ReduceProblem("variance", (2, 2), (1,)), {"input": value})) == [1, 4]


@pytest.mark.parametrize("kind", ["log_sum_exp", "max"])
def test_infinities_stay(kind: str) -> None:
    value = np.array([[-np.inf, -np.inf], [np.inf, 1], [-np.inf, 2]], np.float32)
    got = family_of("Reduce").reference(ReduceProblem(kind, (3, 2), (1,)), {"input": value})
    np.testing.assert_array_equal(got, [-np.inf, np.inf, 2])


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8"])
def test_whole_numbers_stay_exact_and_wrap_as_their_type_does(dtype: str) -> None:
    big = np.iinfo(dtype).max
    value = np.array([[big, 2, 3]], dtype)
    got = family_of("Reduce").reference(ReduceProblem("sum", (1, 3), (1,), dtype), {"input": value})
    assert got.dtype == dtype
    assert int(got[0]) == (big + 5) % (big + 1) + (np.iinfo(dtype).min if dtype != "uint8" else 0)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
def test_of_equal_elements_the_first_or_the_last_is_found(op: str, last: bool) -> None:
    value = np.array([[1, 5, 5, 1], [np.nan, 2, 2, np.nan], [-np.inf] * 4], np.float32)
    problem = ArgProblem(3, 4, 1, op == "ArgMax", last)
    got = family_of("ArgMax").reference(problem, {"input": value.reshape(3, 4, 1)})
    first = [1, 0, 0] if op == "ArgMax" else [0, 0, 0]  # NaN is the extreme of both, as for numpy
    end = [2, 3, 3] if op == "ArgMax" else [3, 3, 3]
    assert got.reshape(-1).tolist() == (end if last else first)


def test_hardmax_puts_a_one_there(run_node: Callable[..., Any]) -> None:
    value = np.random.default_rng(2).integers(0, 3, (2, 5, 3)).astype(np.float32)
    got = family_of("ArgMax").reference(ArgProblem(2, 5, 3, one_hot=True), {"input": value})
    np.testing.assert_array_equal(got, run_node("Hardmax", [value], axis=1))


@given(st.booleans(), st.booleans(), st.booleans())
def test_running_sums_are_what_loops_give(product: bool, exclusive: bool, reverse: bool) -> None:
    value = np.random.default_rng(1).integers(-3, 4, (2, 5, 3))
    problem = ScanProblem(2, 5, 3, product, exclusive, reverse, "int64")
    got = family_of("Scan").reference(problem, {"input": value})
    order = range(4, -1, -1) if reverse else range(5)
    total = np.full((2, 3), int(product))
    for a in order:
        before, total = total, total * value[:, a] if product else total + value[:, a]
        assert (got[:, a] == (before if exclusive else total)).all()


def test_long_rows_are_shared_on_a_gpu_only() -> None:
    problem = ReduceProblem("sum", (4, 100_000), (1,))
    assert family_of("Reduce").default(problem, GPU)["LANES"] > 1
    assert family_of("Reduce").default(problem, DEVICES["cpu"])["LANES"] == 1


@settings(max_examples=15)
@given(st.sampled_from(sorted(KINDS)), st.integers(1, 300))
def test_sample_inputs_have_finite_results(kind: str, size: int) -> None:
    problem = ReduceProblem(kind, (2, size), (1,))
    inputs = family_of("Reduce").sample_inputs(problem, np.random.default_rng(size))
    assert np.isfinite(family_of("Reduce").reference(problem, inputs)).all()
