"""Test that families take the type of elements from the problem: a type of floats is a row of core/dtypes.py."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gputune.core.dtypes import FLOAT, HALF
from gputune.kernels.catalogue import family_of
from gputune.kernels.family import Tolerance
from tests.kernels.one_of_each import ONE_OF_EACH
from tests.kernels.problems import CPU

CONVERTED = "#define TYPE half\n#define SUM float\n#define CONVERTED\n"
AS_WHOLE_NUMBERS = "#define TYPE ushort\n#define SUM ushort\n"
MOVES = ("Concat", "Gather", "Resize", "Transpose")
"""The problems below that only move elements."""
OF_FLOATS = {op: problem for op, problem in ONE_OF_EACH.items() if vars(problem)["dtype"] == FLOAT}


@pytest.mark.parametrize(("op", "problem"), OF_FLOATS.items(), ids=OF_FLOATS)
def test_a_kernel_is_of_the_problems_type(op: str, problem: Any) -> None:
    family, other = family_of(op), replace(problem, dtype=HALF)
    configuration = family.default(problem, CPU)
    usual, instance = family.render(problem, configuration), family.render(other, configuration)
    seen = AS_WHOLE_NUMBERS if op in MOVES else CONVERTED
    for launch in (*instance.prepare, instance.main):
        assert launch.source.count(seen) == 1
    assert {name: 2 * nbytes for name, nbytes in instance.packed.items()} == usual.packed
    assert [kernel.needs for kernel in instance.main.sequence] == [kernel.needs for kernel in usual.main.sequence]
    assert all("TYPE half" not in launch.source for launch in (*usual.prepare, usual.main))


@pytest.mark.parametrize(("op", "problem"), OF_FLOATS.items(), ids=OF_FLOATS)
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
def test_tensors_and_the_reference_are_of_the_problems_type(op: str, problem: Any) -> None:
    family, other = family_of(op), replace(problem, dtype=HALF)
    specs = {spec.name: spec.dtype for spec in family.inputs(other)}
    assert specs == {spec.name: spec.dtype.replace(FLOAT, HALF) for spec in family.inputs(problem)}
    inputs = family.sample_inputs(other, np.random.default_rng(0))
    assert {name: str(value.dtype) for name, value in inputs.items()} == specs
    assert str(family.reference(other, inputs).dtype) == family.output(other).dtype


def test_a_tolerance_is_no_less_than_a_few_roundings() -> None:
    assert Tolerance.of(FLOAT, 1e-6, 1e-5) == Tolerance(1e-6, 1e-5)
    assert Tolerance.of("int8", 0.0, 0.0) == Tolerance(0.0, 0.0)
    assert 1e-3 < Tolerance.of(HALF, 1e-6, 1e-5).relative < 3e-3
