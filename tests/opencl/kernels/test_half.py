"""Test every family on tensors of half, stored on devices that compute in float32."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gputune.core.dtypes import FLOAT, HALF
from gputune.kernels.catalogue import family_of
from gputune.kernels.indexing.moving import Loop
from gputune.kernels.ops.move import move
from gputune.kernels.ops.scatter import at_points
from tests.kernels.one_of_each import ONE_OF_EACH
from tests.kernels.problems import CASE_NAMES, CASES

OF_FLOATS = {op: problem for op, problem in ONE_OF_EACH.items() if vars(problem)["dtype"] == FLOAT}

MOVES = [
    *((op, ONE_OF_EACH[op]) for op in ("Concat", "Gather", "Resize", "Transpose")),
    ("Scatter", at_points((4, 3, 19), (6, 2))),
    ("Move", move(35 * 7, 0, [Loop(9, 35, 1, 7), Loop(35, 1)], fill=-0.3)),
    ("Move", move(20, 0, [Loop(19, 5, 3, 4), Loop(5, 1, 1, 3)], "reflect")),
]


@pytest.mark.parametrize(("op", "problem"), OF_FLOATS.items(), ids=OF_FLOATS)
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
def test_configurations_compute_the_reference(bench: Any, op: str, problem: Any) -> None:
    bench.check(family_of(op), replace(problem, dtype=HALF))


@pytest.mark.parametrize(("op", "name", "problem"), CASES, ids=CASE_NAMES)
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
def test_difficult_shapes(bench: Any, op: str, name: str, problem: Any) -> None:
    bench.check(family_of(op), replace(problem, dtype=HALF), sampled=1, turn=len(name))


@pytest.mark.parametrize(("op", "problem"), MOVES, ids=[op for op, _ in MOVES])
def test_moves_keep_every_bit(bench: Any, op: str, problem: Any) -> None:
    """Also those of each NaN, which conversions change."""
    family, problem = family_of(op), replace(problem, dtype=HALF)
    generator = np.random.default_rng(1)
    inputs = family.sample_inputs(problem, generator)
    inputs |= {
        name: generator.integers(0, 1 << 16, value.shape, np.uint16).view(HALF)
        for name, value in inputs.items()
        if value.dtype == HALF
    }
    want = family.reference(problem, inputs)
    for configuration in (family.default(problem, bench.limits), *family.starters(problem, bench.limits)):
        got, damage = bench.run(family, problem, configuration, inputs)
        assert not damage
        np.testing.assert_array_equal(got.view(np.uint16), want.view(np.uint16))
