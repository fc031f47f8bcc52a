"""Test separable convolution on the device: every difficult shape, with private and shared strips of a work-item."""

import random
from typing import Any

import pytest

from gputune.kernels.ops.separable import FAMILY
from gputune.kernels.template import BASE_OPTIONS, template
from tests.kernels.problems import GPU, random_inputs
from tests.kernels.separable_problems import SEPARABLE


@pytest.mark.parametrize("name", SEPARABLE)
def test_configurations_compute_the_reference(bench: Any, name: str) -> None:
    problem, dice = SEPARABLE[name], random.Random(name)
    chosen = [FAMILY.default(problem, bench.limits)]
    spaces = [list(FAMILY.space(problem, limits).configurations()) for limits in (bench.limits, GPU)]
    for space in (spaces[0], [each for each in spaces[1] if each["LN"] > 1]):
        chosen += dice.sample(space, min(1, len(space)))
    bench.compare(FAMILY, problem, chosen, random_inputs("SeparableConv", problem))


def test_the_template_compiles_alone(bench: Any) -> None:
    bench.backend.build(template("separable_strips.cl"), BASE_OPTIONS)
