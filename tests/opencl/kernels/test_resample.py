"""Compare resampling kernels with their reference: few taps and many, positions that point outside."""

from typing import Any

import numpy as np
import pytest

from gputune.kernels.chain import Chain, Step
from gputune.kernels.ops.resample import FAMILY, ResampleProblem
from gputune.kernels.template import BASE_OPTIONS, template

CHAIN = Chain((Step("add", operand=0), Step("relu")))

PROBLEMS = {
    "linear": ResampleProblem(2, 5, 7, 19, (10, 13), (2, 2), epilogue=CHAIN),
    "cubic line": ResampleProblem(3, 1, 11, 1, (1, 17), (1, 4)),
    "many taps": ResampleProblem(1, 29, 31, 3, (3, 5), (7, 9), outside=2.5),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_resample_is_right(bench: Any, name: str) -> None:
    bench.check(FAMILY, PROBLEMS[name], sampled=0)


def test_what_weights_lack_to_one_comes_from_outside_and_no_place_does(bench: Any) -> None:
    problem = ResampleProblem(1, 1, 3, 1, (1, 4), (1, 2), outside=-8.0)
    inputs = {
        "input": np.array([1, 2, 4], np.float32),
        "rows": np.array([-7], np.int32),
        "row_weights": np.array([1], np.float32),
        "columns": np.array([0, 1, 2, 9, -5, 2, 1, 1], np.int32),
        "column_weights": np.array([0.5, 0.5, 0, 1, 0.25, 0.25, 0, 0], np.float32),
    }
    shaped = {spec.name: inputs[spec.name].reshape(spec.shape) for spec in FAMILY.inputs(problem)}
    got, damage = bench.run(FAMILY, problem, FAMILY.default(problem, bench.limits), shaped)
    assert got.ravel().tolist() == [1.5, 4, 1.25 - 4, -8]
    assert FAMILY.reference(problem, shaped).ravel().tolist() == [1.5, 4, 1.25 - 4, -8]
    assert not damage


def test_the_template_compiles_alone(bench: Any) -> None:
    bench.backend.build(template("resample_taps.cl"), BASE_OPTIONS)
