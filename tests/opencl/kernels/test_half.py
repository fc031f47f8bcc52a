"""Test every family on tensors of half, stored on devices that compute in float32."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gputune.core.dtypes import FLOAT, HALF, HALF_EXTENSION
from gputune.kernels.algorithms import FACTORS
from gputune.kernels.catalogue import family_of
from gputune.kernels.indexing.moving import Loop
from gputune.kernels.ops.conv import ConvProblem
from gputune.kernels.ops.matmul import MatMulProblem
from gputune.kernels.ops.move import move
from gputune.kernels.ops.scatter import at_points
from tests.kernels.batched_problems import BATCHED
from tests.kernels.drawing import drawn
from tests.kernels.one_of_each import ONE_OF_EACH
from tests.kernels.problems import CASE_NAMES, CASES, CPU, GPU, RELU, RESIDUAL, random_inputs

OF_FLOATS = {op: problem for op, problem in ONE_OF_EACH.items() if vars(problem)["dtype"] == FLOAT}

MOVES = [
    *((op, ONE_OF_EACH[op]) for op in ("Concat", "Gather", "Resize", "Transpose")),
    ("Scatter", at_points((4, 3, 19), (6, 2))),
    ("Move", move(35 * 7, 0, [Loop(9, 35, 1, 7), Loop(35, 1)], fill=-0.3)),
    ("Move", move(20, 0, [Loop(19, 5, 3, 4), Loop(5, 1, 1, 3)], "reflect")),
]
TILED = [
    ("Conv", ConvProblem(2, 9, 11, 16, 20, (3, 3), pads=(1, 1, 1, 1), bias=True, epilogue=RESIDUAL)),
    ("MatMul", MatMulProblem(7, 260, 40, bias=True, epilogue=RELU, parts=(128, 132))),
    ("BatchedMatMul", BATCHED["heads-merged"]),
]


@pytest.mark.parametrize(("op", "problem"), OF_FLOATS.items(), ids=OF_FLOATS)
def test_configurations_compute_the_reference(bench: Any, op: str, problem: Any) -> None:
    bench.check(family_of(op), replace(problem, dtype=HALF), sampled=1, turn=len(op))


@pytest.mark.slow
@pytest.mark.parametrize(("op", "name", "problem"), CASES, ids=CASE_NAMES)
def test_difficult_shapes(bench: Any, op: str, name: str, problem: Any) -> None:
    bench.check(family_of(op), replace(problem, dtype=HALF), sampled=1, turn=len(name))


@pytest.mark.parametrize(("op", "problem"), TILED, ids=[op for op, _ in TILED])
def test_each_algorithm_of_gpus_computes_the_reference(bench: Any, op: str, problem: Any) -> None:
    """As a GPU gets it: with pointers to vectors, and tiles in local memory."""
    family, problem = family_of(op), replace(problem, dtype=HALF)
    gpu = replace(bench, limits=replace(bench.limits, device_type="gpu", preferred_float_width=1))
    gpu.compare(family, problem, drawn(family, problem, GPU, 60), random_inputs(op, problem))


@pytest.mark.parametrize(("op", "problem"), TILED, ids=[op for op, _ in TILED])
@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_products_are_multiplied_in_half(bench: Any, kind: str, op: str, problem: Any) -> None:
    if HALF_EXTENSION not in bench.limits.extensions:
        pytest.skip(f"the driver does not offer {HALF_EXTENSION}; Intel's runtime for CPUs does")
    family, problem = family_of(op), replace(problem, dtype=HALF, factors=HALF)
    able = replace(bench, limits=replace(bench.limits, device_type=kind))
    limits = replace(GPU if kind == "gpu" else CPU, extensions=frozenset({HALF_EXTENSION}))
    halves = [one for one in drawn(family, problem, limits, 200) if one[FACTORS]]
    assert len(halves) >= 6
    able.compare(family, problem, halves, random_inputs(op, problem))
    default = family.default(problem, limits) | {FACTORS: 1}
    able.compare(family, problem, [default], family.sample_inputs(problem, np.random.default_rng(1)))


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


@pytest.mark.parametrize("name", ["planes-strided", "one-plane", "planes-in-the-padding"])
def test_planes_of_float32_for_maps_of_half(bench: Any, name: str) -> None:
    """A model's input is read as it is given."""
    problem: Any = next(problem for op, case, problem in CASES if (op, case) == ("Conv", name))
    bench.check(family_of("Conv"), replace(problem, dtype=HALF, planes_dtype=FLOAT))


def test_other_planes_than_of_float32_for_half_are_refused() -> None:
    for dtype, layout in ((FLOAT, "NCHW"), (HALF, "NHWC")):
        with pytest.raises(ValueError, match="Conv reads planes of float32 for maps of float16"):
            ConvProblem(1, 5, 5, 3, 4, (3, 3), layout=layout, dtype=dtype, planes_dtype=FLOAT)
