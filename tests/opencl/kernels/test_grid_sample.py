"""Compare GridSample kernels with their reference: every kind, every border, and grids that are no numbers."""

from typing import Any

import numpy as np
import pytest

from gputune.kernels.ops.grid_sample import FAMILY, PADDINGS, TAPS, GridSampleProblem
from gputune.kernels.template import BASE_OPTIONS, template


@pytest.mark.parametrize("kind", TAPS)
@pytest.mark.parametrize("padding", PADDINGS)
def test_grid_sample_is_right(bench: Any, kind: str, padding: str) -> None:
    problems = [GridSampleProblem(2, 5, 7, 3, (4, 3), kind, padding, aligned) for aligned in (False, True)]
    bench.build_together(FAMILY, [(problem, FAMILY.default(problem, bench.limits)) for problem in problems])
    for problem in problems:
        inputs = FAMILY.sample_inputs(problem, np.random.default_rng(2))
        got, damage = bench.run(FAMILY, problem, FAMILY.default(problem, bench.limits), inputs)
        np.testing.assert_allclose(got, FAMILY.reference(problem, inputs), rtol=0, atol=1e-4)
        assert not damage


def test_configurations_of_many_channels_are_right(bench: Any) -> None:
    bench.check(FAMILY, GridSampleProblem(1, 6, 5, 19, (7, 11)), sampled=1)


@pytest.mark.parametrize("padding", PADDINGS)
def test_no_grid_reads_outside_of_the_map(bench: Any, padding: str) -> None:
    problem = GridSampleProblem(1, 1, 1, 1, (1, 8), "cubic", padding, aligned=True)
    far = [np.nan, np.inf, -np.inf, 3e38, -3e38, 1e9, -1e9, 0]
    grid = np.array([[far, far]], np.float32).transpose(0, 2, 1).reshape(1, 1, 8, 2)
    inputs = {"input": np.full((1, 1, 1, 1), 3, np.float32), "grid": grid}
    got, damage = bench.run(FAMILY, problem, FAMILY.default(problem, bench.limits), inputs)
    assert set(got.ravel().round(5).tolist()) <= {0, 3}
    assert not damage


def test_the_template_compiles_alone(bench: Any) -> None:
    bench.backend.build(template("grid_sample_taps.cl"), BASE_OPTIONS)
