"""Test inverted residual blocks on the device: difficult shapes, private and shared strips, one step and several."""

import random
from typing import Any

import pytest

from gputune.kernels.ops.inverted_residual import FAMILY
from tests.kernels.inverted_residual_problems import INVERTED
from tests.kernels.problems import GPU, random_inputs


@pytest.mark.parametrize("name", INVERTED)
def test_configurations_compute_the_reference(bench: Any, name: str) -> None:
    problem, dice = INVERTED[name], random.Random(name)
    chosen = [FAMILY.default(problem, bench.limits)]
    spaces = [list(FAMILY.space(problem, limits).configurations()) for limits in (bench.limits, GPU)]
    for space in (spaces[0], [each for each in spaces[1] if each["LN"] > 1]):
        in_one_step = [each for each in space if each["STEP"] == each["ROWS"]]
        in_several = [each for each in space if each["STEP"] < each["ROWS"]]
        chosen += [dice.choice(some) for some in (in_one_step, in_several) if some]
    bench.compare(FAMILY, problem, chosen, random_inputs("InvertedResidual", problem))
