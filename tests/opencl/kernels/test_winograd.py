"""Test Winograd convolutions on the device: each algorithm on shapes that divide nothing, and its accuracy."""

import random
from typing import Any

import numpy as np
import pytest

from gputune.kernels.chain import EMPTY
from gputune.kernels.ops.conv import FAMILY, ConvProblem
from gputune.kernels.template import BASE_OPTIONS, template
from tests.kernels.problems import GATED, GPU, RELU, RESIDUAL, random_inputs

SAME = (1, 1, 1, 1)
PROBLEMS = {
    "odd-channels-and-pads": ConvProblem(2, 9, 11, 17, 23, (3, 3), (1, 1), (0, 1, 2, 1), bias=True, epilogue=GATED),
    "odd-channels-strided": ConvProblem(2, 12, 9, 21, 37, (3, 3), (2, 2), (2, 0, 1, 2), epilogue=RESIDUAL),
    "no-pads-strided": ConvProblem(1, 11, 10, 32, 16, (3, 3), (2, 2), bias=True),
    "one-tile": ConvProblem(1, 4, 4, 16, 40, (3, 3), pads=SAME, epilogue=RELU),
    "map-in-the-padding": ConvProblem(3, 1, 2, 16, 16, (3, 3), pads=(3, 4, 5, 4), bias=True),
    "channel-chunks": ConvProblem(1, 7, 5, 144, 48, (3, 3), pads=SAME, bias=True, epilogue=EMPTY),
}


def run(bench: Any, problem: ConvProblem, configuration: dict[str, int], inputs: dict[str, Any]) -> Any:
    got, damage = bench.run(FAMILY, problem, configuration, inputs)
    assert not damage, f"{configuration}: {damage}"
    return got


@pytest.mark.parametrize("name", PROBLEMS)
def test_every_algorithm_computes_the_reference(bench: Any, name: str) -> None:
    problem, dice = PROBLEMS[name], random.Random(name)
    chosen = {one["ALG"]: one for one in reversed(FAMILY.starters(problem, bench.limits))}
    del chosen[0]
    assert set(chosen) == ({2, 4} if problem.strides == (1, 1) else {2})
    others = [one for one in FAMILY.space(problem, GPU).configurations() if one["ALG"]]
    bench.compare(FAMILY, problem, [*chosen.values(), dice.choice(others)], random_inputs("Conv", problem))


@pytest.mark.parametrize("channels", [16, 512])
def test_transforms_cost_less_than_half_of_what_is_tolerated(bench: Any, channels: int) -> None:
    """By how much larger tiles are less exact, as the module says it: well within what direct sums are allowed."""
    problem = ConvProblem(1, 8, 8, channels, 32, (3, 3), pads=SAME)
    inputs = FAMILY.sample_inputs(problem, np.random.default_rng(0))
    want = FAMILY.reference(problem, inputs)
    starters = {one["ALG"]: one for one in FAMILY.starters(problem, bench.limits)}
    errors = {
        alg: np.abs(run(bench, problem, starters[alg], inputs) - want).max() / np.abs(want).max() for alg in (2, 4)
    }
    assert errors[2] < 2e-6
    assert errors[2] < errors[4] < 2e-5
    assert errors[4] < FAMILY.tolerance(problem).relative / 2


@pytest.mark.parametrize("name", ["conv_winograd.cl", "pack_winograd.cl"])
def test_the_template_compiles_alone(bench: Any, name: str) -> None:
    bench.backend.build(template(name), BASE_OPTIONS)
