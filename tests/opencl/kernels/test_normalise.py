"""Compare Normalise and LRN kernels with the reference: along and across rows, in groups, with shared rows."""

from typing import Any

import numpy as np
import pytest

from gputune.kernels.catalogue import family_of
from gputune.kernels.chain import Chain, Step
from gputune.kernels.ops.lrn import LrnProblem
from gputune.kernels.ops.normalise import NormaliseProblem
from gputune.kernels.template import BASE_OPTIONS, template

CHAIN = Chain((Step("mul", operand=0), Step("relu")))
PROBLEMS: dict[str, tuple[str, Any]] = {
    "rows": ("Normalise", NormaliseProblem("deviation", (5, 37), (1,), (1,), True, True, 1e-5, CHAIN)),
    "channels": ("Normalise", NormaliseProblem("deviation", (2, 33, 19), (1,), (2,), True, True, 1e-5, CHAIN)),
    "channels-first": ("Normalise", NormaliseProblem("rms", (2, 7, 35), (2,), (1,), True)),
    "groups": ("Normalise", NormaliseProblem("deviation", (2, 9, 3, 5), (1, 3), (2, 3), True, True, 1e-5)),
    "norm": ("Normalise", NormaliseProblem("l1", (1, 1), (0,))),
    "response": ("LRN", LrnProblem(3, 19, 1, 5, 0.5, 0.75, 2.0)),
    "response-across": ("LRN", LrnProblem(2, 5, 7, 4, 0.5, 0.7, 2.0)),
    "response-of-few": ("LRN", LrnProblem(2, 3, 1, 9)),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_kernels_are_right(bench: Any, name: str) -> None:
    op, problem = PROBLEMS[name]
    bench.check(family_of(op), problem, sampled=1)


@pytest.mark.parametrize(
    ("problem", "width"),
    [
        (NormaliseProblem("deviation", (3, 1003), (1,), (1,), True, True), 8),
        (NormaliseProblem("l2", (3, 101, 7), (1,)), 4),
    ],
)
def test_work_items_share_a_row(bench: Any, problem: NormaliseProblem, width: int) -> None:
    family = family_of("Normalise")
    configuration = {"VW": width, "ACC": 1, "LANES": 8, "DIMY": 2}
    if family.space(problem, bench.limits).violations(configuration):
        pytest.skip("the device has no work-groups of 16")
    inputs = family.sample_inputs(problem, np.random.default_rng(5))
    got, damage = bench.run(family, problem, configuration, inputs)
    np.testing.assert_allclose(got, family.reference(problem, inputs), rtol=1e-5, atol=2e-6)
    assert not damage


def test_a_large_mean_leaves_the_variance_its_digits(bench: Any) -> None:
    problem = NormaliseProblem("deviation", (2, 64), (1,))
    value = (1000 + np.random.default_rng(1).standard_normal(problem.shape)).astype(np.float32)
    got, _ = bench.run(family_of("Normalise"), problem, {"VW": 4, "ACC": 1, "LANES": 1, "DIMY": 1}, {"input": value})
    np.testing.assert_allclose(got, family_of("Normalise").reference(problem, {"input": value}), atol=1e-3)


ROWS = {
    "along": NormaliseProblem("deviation", (3, 37), (1,), (1,), True, True, 1e-5),
    "across": NormaliseProblem("deviation", (2, 33, 19), (1,), (2,), True, True, 1e-5),
    "groups": NormaliseProblem("deviation", (2, 9, 3, 5), (1, 3), (2, 3), True, True, 1e-5),
    "small-epsilon": NormaliseProblem("deviation", (3, 100), (1,), (1,), True, True, 1e-18),
}


@pytest.mark.parametrize("value", [1234.1, 7.3, 0.1, -8e6])
@pytest.mark.parametrize("name", ROWS)
def test_rows_of_one_value_are_the_bias(bench: Any, name: str, value: float) -> None:
    family, problem = family_of("Normalise"), ROWS[name]
    inputs = family.sample_inputs(problem, np.random.default_rng(3))
    inputs["input"] = np.full(problem.shape, value, np.float32)
    bias = inputs["bias"].reshape([size if axis in problem.varies else 1 for axis, size in enumerate(problem.shape)])
    for configuration in [family.default(problem, bench.limits), *family.starters(problem, bench.limits)[:2]]:
        got, _ = bench.run(family, problem, configuration, inputs)
        np.testing.assert_array_equal(got, np.broadcast_to(bias, problem.shape))


@pytest.mark.parametrize("shape", [(2, 16), (2, 257), (2, 50, 3)], ids=str)
def test_rows_that_lie_close_together_keep_their_digits(bench: Any, shape: tuple[int, ...]) -> None:
    family, problem = family_of("Normalise"), NormaliseProblem("deviation", shape, (1,), epsilon=1e-5)
    row = 1000 + np.arange(shape[1]).reshape(-1, *(1 for _ in shape[2:])) * 1e-3
    inputs = {"input": np.broadcast_to(row, shape).astype(np.float32)}
    got, _ = bench.run(family, problem, family.default(problem, bench.limits), inputs)
    np.testing.assert_allclose(got, family.reference(problem, inputs), atol=1e-5)


@pytest.mark.parametrize("hard", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 5, 36])
def test_rows_that_are_not_finite_are_nan_and_leave_others_alone(bench: Any, hard: float, place: int) -> None:
    family, problem = family_of("Normalise"), ROWS["along"]
    inputs = family.sample_inputs(problem, np.random.default_rng(3))
    inputs["input"][1, place] = hard
    got, _ = bench.run(family, problem, family.default(problem, bench.limits), inputs)
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(got, family.reference(problem, inputs), rtol=1e-5, atol=1e-6)
    assert np.isnan(got[1]).all()


@pytest.mark.parametrize("beta", [0.25, 1.0, 1.5, 4.0])
def test_powers_are_products_of_roots(bench: Any, beta: float) -> None:
    family, problem = family_of("LRN"), LrnProblem(1, 5, 1, 3, 0.5, beta, 2.0)
    inputs = family.sample_inputs(problem, np.random.default_rng(5))
    assert "pow(" not in family.render(problem, {"VW": 4, "DIMX": 1}).main.source
    got, _ = bench.run(family, problem, {"VW": 4, "DIMX": 1}, inputs)
    np.testing.assert_allclose(got, family.reference(problem, inputs), rtol=1e-5)


@pytest.mark.parametrize("name", ["normalise_rows.cl", "lrn_channels.cl"])
def test_templates_compile_alone(bench: Any, name: str) -> None:
    bench.backend.build(template(name), BASE_OPTIONS)
