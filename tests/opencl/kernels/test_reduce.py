"""Compare Reduce, ArgMax and Scan kernels with the reference: along and across rows, in several loops, shared rows."""

from typing import Any

import numpy as np
import pytest

from gputune.kernels.catalogue import family_of
from gputune.kernels.chain import Chain, Step
from gputune.kernels.ops.arg import ArgProblem
from gputune.kernels.ops.reduce import ReduceProblem
from gputune.kernels.ops.scan import ScanProblem
from gputune.kernels.template import BASE_OPTIONS, template

CHAIN = Chain((Step("mul", operand=0), Step("relu"), Step("add", (0.5,))))
PROBLEMS: dict[str, tuple[str, Any]] = {
    "one": ("Reduce", ReduceProblem("sum", (), ())),
    "rows": ("Reduce", ReduceProblem("l2", (17, 37), (1,), epilogue=CHAIN)),
    "across": ("Reduce", ReduceProblem("variance", (2, 49, 19), (1,), epilogue=CHAIN)),
    "two-rows": ("Reduce", ReduceProblem("log_sum_exp", (3, 5, 7, 13), (1, 3))),
    "two-rows-across": ("Reduce", ReduceProblem("max", (3, 5, 7, 3), (0, 2), "bool")),
    "whole-numbers": ("Reduce", ReduceProblem("l1", (3, 33), (1,), "int64")),
    "place": ("ArgMax", ArgProblem(3, 101, 1, dtype="int8")),
    "place-across": ("ArgMax", ArgProblem(2, 5, 7, largest=False, last=True, dtype="uint8")),
    "hardmax": ("ArgMax", ArgProblem(2, 5, 11, one_hot=True)),
    "scan": ("Scan", ScanProblem(2, 5, 7, exclusive=True, reverse=True)),
    "scan-line": ("Scan", ScanProblem(3, 6, 1, product=True, reverse=True, dtype="int32")),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_kernels_are_right(bench: Any, name: str) -> None:
    op, problem = PROBLEMS[name]
    bench.check(family_of(op), problem, sampled=1)


@pytest.mark.parametrize(
    ("op", "problem", "width"),
    [
        ("Reduce", ReduceProblem("variance", (3, 1003), (1,)), 8),
        ("Reduce", ReduceProblem("log_sum_exp", (3, 101, 7), (1,)), 4),
        ("ArgMax", ArgProblem(3, 1003, 1, last=True), 4),
        ("ArgMax", ArgProblem(3, 101, 7, one_hot=True), 4),
    ],
)
def test_work_items_share_a_row(bench: Any, op: str, problem: Any, width: int) -> None:
    family = family_of(op)
    configuration = {"VW": width, "ACC": 1, "LANES": 8, "DIMY": 2}
    if family.space(problem, bench.limits).violations(configuration):
        pytest.skip("the device has no work-groups of 16")
    value = np.random.default_rng(5).integers(-9, 9, problem.shape).astype(np.float32)
    got, damage = bench.run(family, problem, configuration, {"input": value})
    np.testing.assert_allclose(got, family.reference(problem, {"input": value}), rtol=1e-5)
    assert not damage


@pytest.mark.parametrize("shape", [(3, 37), (2, 49, 19)], ids=["along", "across"])
def test_rows_of_one_value_have_no_variance(bench: Any, shape: tuple[int, ...]) -> None:
    family, problem = family_of("Reduce"), ReduceProblem("variance", shape, (1,))
    for value in (1234.1, 7.3, 1e9):
        inputs = {"input": np.full(shape, value, np.float32)}
        got, _ = bench.run(family, problem, family.default(problem, bench.limits), inputs)
        assert not got.any()


@pytest.mark.parametrize("shape", [(70, 61), (61, 5, 7)], ids=["along", "across"])
@pytest.mark.parametrize("lanes", [1, 4])
def test_extremes_keep_nan_wherever_it_is(bench: Any, shape: tuple[int, ...], lanes: int) -> None:
    axis = int(len(shape) == 2)
    value = np.random.default_rng(3).integers(-9, 9, shape).astype(np.float32)
    rows = np.moveaxis(value, axis, -1).reshape(-1, 61).copy()
    rows[np.arange(len(rows)), np.arange(len(rows)) % 61] = np.nan
    rows[3], rows[5, 7:] = np.nan, np.nan
    rows[9] = 2  # a row without any
    value = np.moveaxis(rows.reshape(*np.delete(shape, axis), 61), -1, axis).copy()
    arg_shape = (70, 61, 1) if axis else (1, 61, 35)
    for op in ("Reduce", "ArgMax"):
        family, tried = family_of(op), []
        for largest in (True, False):
            problem: Any = ReduceProblem("max" if largest else "min", shape, (axis,))
            if op == "ArgMax":
                problem = ArgProblem(*arg_shape, largest, last=largest)
            tried.append((problem, {"VW": 4, "ACC": 1, "LANES": lanes, "DIMY": 1}))
            if family.space(problem, bench.limits).violations(tried[-1][1]):
                pytest.skip("the device has no work-groups of 4")
        bench.build_together(family, tried)
        for problem, configuration in tried:
            inputs = {"input": value.reshape(problem.shape)}
            want = family.reference(problem, inputs)
            got, damage = bench.run(family, problem, configuration, inputs)
            np.testing.assert_array_equal(got, want, err_msg=str(problem))
            assert not damage
            assert op == "ArgMax" or np.isnan(want).sum() == want.size - 1


def test_a_long_sum_loses_no_digits(bench: Any) -> None:
    """A million equal numbers, added one to another in one lane, would be off in the second digit."""
    problem = ReduceProblem("sum", (1 << 20,), (0,))
    value = np.full(problem.shape, 0.1, np.float32)
    configuration = {"VW": 1, "ACC": 1, "LANES": 1, "DIMY": 1}
    got, _ = bench.run(family_of("Reduce"), problem, configuration, {"input": value})
    np.testing.assert_allclose(got, (1 << 20) * 0.1, rtol=1e-5)


@pytest.mark.parametrize("name", ["reduce_rows.cl", "arg_rows.cl", "scan_axis.cl"])
def test_templates_compile_alone(bench: Any, name: str) -> None:
    bench.backend.build(template(name), BASE_OPTIONS)
