"""Test products and convolutions: infinite factors stay in their place, half, accuracy, sums in turns."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gputune.core.dtypes import FLOAT, HALF, HALF_EXTENSION
from gputune.kernels.algorithms import ALG, FACTORS
from gputune.kernels.catalogue import family_of
from gputune.kernels.ops.conv import ConvProblem
from gputune.kernels.ops.depthwise import DepthwiseProblem
from gputune.kernels.ops.matmul import LOCAL, MatMulProblem
from gputune.kernels.tiling.local_tiles import LocalTiles
from tests.kernels.batched_problems import BATCHED, TILES
from tests.kernels.difficult import FEW_ROWS, LOCAL_CONVS, LOCAL_MATMULS, SAME
from tests.kernels.drawing import drawn, shared_out
from tests.kernels.problems import CONVS, CPU, GPU, RESIDUAL, random_inputs
from tests.kernels.test_skinny import configured
from tests.opencl.conftest import KernelBench

MATMUL, CONV = (family_of(op) for op in ("MatMul", "Conv"))
TILE_NAMES = ("MR", "NV", "VW", "LM", "LN", "BK", "STAGES", "PAD", "SA", "SB", "SPLIT", "BAND")
LOCAL_TILES = (
    (4, 1, 4, 8, 8, 8, 2, 4, 1, 1, 1, 1),
    (2, 2, 2, 8, 8, 8, 1, 4, 1, 0, 3, 1),
    (1, 1, 4, 16, 4, 16, 2, 0, 0, 1, 1, 2),
    (8, 1, 1, 2, 32, 32, 1, 0, 1, 1, 2, 4),
    (4, 2, 4, 4, 4, 8, 1, 0, 0, 0, 2, 1),
)
"""Each with another choice of what goes through local memory, of stages, shares and bands. Some are in no space: the
kernel knows more tiles than pay."""
IN_HALF = [
    ("Conv", ConvProblem(2, 9, 11, 16, 20, (3, 3), pads=SAME, bias=True, epilogue=RESIDUAL)),
    ("MatMul", FEW_ROWS["two-parts"]),
    ("MatMul", BATCHED["heads-merged"]),
]


@pytest.mark.parametrize("name", TILES)
def test_several_tiles_in_local_memory_compute_the_reference(bench: KernelBench, name: str) -> None:
    """Where columns are not read in vectors of VW, SB is 1."""
    problem, chosen = TILES[name], []
    tiles = MATMUL.tiling(problem).ways[LOCAL]  # type: ignore[attr-defined]
    assert isinstance(tiles, LocalTiles)
    for values in LOCAL_TILES:
        tile = {ALG: LOCAL, "KU": 8} | dict(zip(TILE_NAMES, values, strict=True))
        apart = tiles.right_deep or tiles.right_vector(tile["VW"]) != tile["VW"]
        chosen.append(tile | ({"SB": 1} if apart else {}))
    bench.compare(MATMUL, problem, chosen, MATMUL.sample_inputs(problem, np.random.default_rng(1)))


@pytest.mark.parametrize(("group", "width"), [(g, w) for g in (2, 4, 8) for w in (2, 4, 8, 16) if g <= w])
def test_vectors_of_groups(bench: KernelBench, group: int, width: int) -> None:
    """Of every width, with a last vector that starts earlier; what is infinite in a group stays in it."""
    family = family_of("DepthwiseConv")
    problem = DepthwiseProblem(1, 6, 9, 40, (3, 2), (2, 1), (1, 0, 1, 1), bias=True, group=group)
    tried = [{"MR": 4, "VW": width, "REUSE": reuse, "LM": 2, "LN": 2, "ORDER": 0} for reuse in (0, 1)]
    inputs = random_inputs("DepthwiseConv", problem)
    bench.compare(family, problem, tried, inputs)
    inputs["input"][..., 16] = np.inf
    for configuration in tried:
        got, _ = bench.run(family, problem, configuration, inputs)
        assert sorted(set(np.argwhere(~np.isfinite(got))[:, -1])) == list(range(16, 16 + group))


@pytest.mark.parametrize(
    ("op", "problem", "names"),
    [
        ("MatMul", LOCAL_MATMULS["larger-primes"], ("a", "b")),
        ("Conv", LOCAL_CONVS["seven-by-seven"], ("input", "weight")),
    ],
    ids=["MatMul", "Conv"],
)
def test_nothing_comes_from_beyond_the_reduction(
    bench: KernelBench, op: str, problem: Any, names: tuple[str, str]
) -> None:
    """Blocks end with zeros behind the last step: weights that are infinite there make no NaN of sums."""
    family, inputs, numbers = family_of(op), random_inputs(op, problem), np.random.default_rng(3)
    flat = inputs[names[1]].reshape(-1)
    flat[numbers.choice(flat.size, 5, replace=False)] = np.inf
    inputs[names[0]] = np.abs(inputs[names[0]]) + 0.5
    with np.errstate(invalid="ignore"):
        want = family.reference(problem, inputs)
    chosen = [one for _, one in shared_out(family, {"": problem}, {"gpu": (GPU,)})[""] if one[ALG] == LOCAL]
    for configuration in chosen[:2]:  # they differ in all that they can
        got, damage = bench.run(family, problem, configuration, inputs)
        assert not damage
        assert np.array_equal(np.isnan(got), np.isnan(want)), configuration
        assert np.array_equal(np.isinf(got), np.isinf(want)), configuration


@pytest.mark.parametrize(("op", "problem"), IN_HALF, ids=[op for op, _ in IN_HALF])
@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_products_are_multiplied_in_half(bench: KernelBench, kind: str, op: str, problem: Any) -> None:
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


@pytest.mark.parametrize("name", ["planes-strided", "one-plane", "planes-in-the-padding"])
def test_planes_of_float32_for_maps_of_half(bench: KernelBench, name: str) -> None:
    """A model's input is read as it is given."""
    problem = replace(CONVS[name], dtype=HALF, planes_dtype=FLOAT)
    tried = [CONV.default(problem, bench.limits), *CONV.starters(problem, bench.limits)[:3]]
    bench.compare(CONV, problem, tried, CONV.sample_inputs(problem, np.random.default_rng(1)))


@pytest.mark.parametrize("channels", [16, 512])
def test_transforms_cost_less_than_half_of_what_is_tolerated(shipped: KernelBench, channels: int) -> None:
    """By how much larger tiles are less exact, as the module says it: well within what direct sums are allowed."""
    problem = ConvProblem(1, 8, 8, channels, 32, (3, 3), pads=SAME)
    inputs = CONV.sample_inputs(problem, np.random.default_rng(0))
    want = CONV.reference(problem, inputs)
    starters = {one[ALG]: one for one in CONV.starters(problem, shipped.limits)}
    errors = {}
    for algorithm in (2, 4):
        got, damage = shipped.run(CONV, problem, starters[algorithm], inputs)
        assert not damage
        errors[algorithm] = np.abs(got - want).max() / np.abs(want).max()
    assert errors[2] < 2e-6
    assert errors[2] < errors[4] < 2e-5
    assert errors[4] < CONV.tolerance(problem).relative / 2


def test_sums_that_do_not_fit_local_memory_at_once_are_added_in_turns(bench: KernelBench) -> None:
    """What one turn reads is what the next turn overwrites."""
    problem = MatMulProblem(4, 67, 96, bias=True)
    chosen = configured(problem, MR=4, NV=2, KU=1, LM=16, LN=16)
    assert "-DSUMMED=2 " in MATMUL.render(problem, chosen).main.options
    bench.compare(MATMUL, problem, [chosen], MATMUL.sample_inputs(problem, np.random.default_rng(5)))


def test_no_order_of_work_groups_changes_a_bit(bench: KernelBench) -> None:
    problem = MatMulProblem(4, 4096, 64)
    inputs = MATMUL.sample_inputs(problem, np.random.default_rng(3))
    chosen = configured(problem, MR=4, LM=16, LN=16, SPLIT=8)
    results = {bench.run(MATMUL, problem, chosen, inputs)[0].tobytes() for _ in range(3)}
    assert len(results) == 1
