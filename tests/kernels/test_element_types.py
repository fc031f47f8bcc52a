"""Test that families take the type of elements from the problem: a type of floats is a row of core/dtypes.py."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gputune.core.dtypes import BFLOAT, ELEMENT_TYPES, FLOAT, HALF, HALVES
from gputune.kernels.catalogue import family_of
from gputune.kernels.family import Tolerance
from gputune.kernels.ops.concat import ConcatProblem
from gputune.kernels.ops.matmul import MatMulProblem
from gputune.kernels.ops.softmax import SoftmaxProblem
from gputune.kernels.ops.transpose import TransposeProblem
from gputune.runtime.measuring.verification import mismatch
from tests.kernels.one_of_each import ONE_OF_EACH
from tests.kernels.problems import CPU, random_inputs
from tests.kernels.test_typed import in_onnxruntime

CONVERTED = {
    dtype: f"#define TYPE {ELEMENT_TYPES[dtype].storage}\n#define SUM float\n#define CONVERTED\n" for dtype in HALVES
}
AS_WHOLE_NUMBERS = "#define TYPE ushort\n#define SUM ushort\n"
MOVES = ("Concat", "Gather", "Resize", "Transpose")
"""The problems below that only move elements."""
OF_FLOATS = {op: problem for op, problem in ONE_OF_EACH.items() if vars(problem)["dtype"] == FLOAT}


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(("op", "problem"), OF_FLOATS.items(), ids=OF_FLOATS)
def test_a_kernel_is_of_the_problems_type(op: str, problem: Any, dtype: str) -> None:
    family, other = family_of(op), replace(problem, dtype=dtype)
    configuration = family.default(problem, CPU)
    usual, instance = family.render(problem, configuration), family.render(other, configuration)
    seen = AS_WHOLE_NUMBERS if op in MOVES else CONVERTED[dtype]
    for launch in (*instance.prepare, instance.main):
        assert launch.source.count(seen) == 1
    assert {name: 2 * nbytes for name, nbytes in instance.packed.items()} == usual.packed
    assert [kernel.needs for kernel in instance.main.sequence] == [kernel.needs for kernel in usual.main.sequence]
    assert all("#define CONVERTED" not in launch.source for launch in (*usual.prepare, usual.main))


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(("op", "problem"), OF_FLOATS.items(), ids=OF_FLOATS)
def test_tensors_and_the_reference_are_of_the_problems_type(op: str, problem: Any, dtype: str) -> None:
    family, other = family_of(op), replace(problem, dtype=dtype)
    specs = {spec.name: spec.dtype for spec in family.inputs(other)}
    assert specs == {spec.name: spec.dtype.replace(FLOAT, dtype) for spec in family.inputs(problem)}
    inputs = family.sample_inputs(other, np.random.default_rng(0))
    assert {name: str(value.dtype) for name, value in inputs.items()} == specs
    assert str(family.reference(other, inputs).dtype) == family.output(other).dtype


AS_ONNX = [
    ("Softmax", SoftmaxProblem(5, 37, 1), {"axis": 1}, ["input"]),
    ("MatMul", MatMulProblem(7, 60, 9), {}, ["a", "b"]),
    ("Transpose", TransposeProblem(2, 19, 7, 5, "NCHW", "NHWC"), {"perm": [0, 2, 3, 1]}, ["input"]),
    ("Concat", ConcatProblem(5, (4, 7)), {"axis": 1}, ["input0", "input1"]),
]


@pytest.mark.parametrize(("op", "problem", "attributes", "names"), AS_ONNX, ids=[op for op, *_ in AS_ONNX])
def test_the_reference_in_half_is_that_of_onnxruntime(
    op: str, problem: Any, attributes: dict[str, Any], names: list[str]
) -> None:
    family, problem = family_of(op), replace(problem, dtype=HALF)
    inputs = random_inputs(op, problem)
    want = in_onnxruntime(op, [inputs[name] for name in names], **attributes)
    got, tolerance = family.reference(problem, inputs), family.tolerance(problem)
    assert got.dtype == want.dtype == HALF
    assert not mismatch(got, want, tolerance.relative, tolerance.absolute)


def test_a_tolerance_is_no_less_than_a_few_roundings() -> None:
    assert Tolerance.of(FLOAT, 1e-6, 1e-5) == Tolerance(1e-6, 1e-5)
    assert Tolerance.of("int8", 0.0, 0.0) == Tolerance(0.0, 0.0)
    assert 1e-3 < Tolerance.of(HALF, 1e-6, 1e-5).relative < 3e-3
    assert 1e-2 < Tolerance.of(BFLOAT, 1e-6, 1e-5).relative < 2e-2
