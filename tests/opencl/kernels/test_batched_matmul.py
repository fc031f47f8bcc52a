"""Test batched products on the device: difficult shapes and steps, packed and in place, alone and in work-groups, in
registers and in local memory."""

import random
from itertools import islice
from typing import Any

import numpy as np
import pytest

from gputune.kernels.ops.batched_matmul import FAMILY, LOCAL, BatchedMatMulProblem
from gputune.kernels.template import BASE_OPTIONS, template
from gputune.kernels.tiling.local_tiles import LocalTiles
from tests.kernels.batched_problems import BATCHED, TILES
from tests.kernels.problems import GPU, random_inputs

NAMES = ["MR", "NV", "VW", "LM", "LN", "BK", "STAGES", "PAD", "SA", "SB", "SPLIT", "BAND"]
LOCAL_TILES = tuple(
    dict(zip(NAMES, values, strict=True))
    for values in (
        (4, 1, 4, 8, 8, 8, 2, 4, 1, 1, 1, 1),
        (2, 2, 2, 8, 8, 8, 1, 4, 1, 0, 3, 1),
        (1, 1, 4, 16, 4, 16, 2, 0, 0, 1, 1, 2),
        (8, 1, 1, 2, 32, 32, 1, 0, 1, 1, 2, 4),
        (4, 2, 4, 4, 4, 8, 1, 0, 0, 0, 2, 1),
    )
)
"""Each with another choice of what goes through local memory, of stages, shares and bands. Some are in no space: the
kernel knows more tiles than pay."""


def local(problem: BatchedMatMulProblem, tile: dict[str, int]) -> dict[str, int]:
    """A configuration with tiles in local memory. Where columns are not read in vectors of VW, SB is 1."""
    tiles = FAMILY.tiling(problem).ways[LOCAL]
    assert isinstance(tiles, LocalTiles)
    apart = tiles.right_deep or tiles.right_vector(tile["VW"]) != tile["VW"]
    return {"ALG": LOCAL, "KU": 8} | tile | {"SB": 1 if apart else tile["SB"]}


@pytest.mark.parametrize("name", BATCHED)
def test_configurations_compute_the_reference(bench: Any, name: str) -> None:
    problem, dice = BATCHED[name], random.Random(name)
    every = [list(islice(FAMILY.space(problem, limits).configurations(), 5000)) for limits in (bench.limits, GPU)]
    chosen = [FAMILY.default(problem, bench.limits), *(dice.choice(some) for some in every)]
    bench.compare(FAMILY, problem, chosen, random_inputs("BatchedMatMul", problem))


@pytest.mark.parametrize(("number", "name"), list(enumerate(BATCHED)))
def test_tiles_in_local_memory_compute_the_reference(bench: Any, number: int, name: str) -> None:
    """Hard values are among the inputs."""
    problem = BATCHED[name]
    chosen = local(problem, LOCAL_TILES[number % len(LOCAL_TILES)])
    bench.compare(FAMILY, problem, [chosen], FAMILY.sample_inputs(problem, np.random.default_rng(1)))


@pytest.mark.parametrize("name", TILES)
def test_several_tiles_in_local_memory_compute_the_reference(bench: Any, name: str) -> None:
    problem = TILES[name]
    chosen = [local(problem, tile) for tile in LOCAL_TILES]
    bench.compare(FAMILY, problem, chosen, FAMILY.sample_inputs(problem, np.random.default_rng(1)))


@pytest.mark.parametrize("problem", [TILES["odd"], TILES["odd-turned"]], ids=["rows", "turned"])
@pytest.mark.parametrize(
    "tile",
    [
        {"MR": 7, "NV": 3, "VW": 16, "KU": 4, "LM": 4, "LN": 2, "ORDER": 1},
        {"MR": 16, "NV": 1, "VW": 1, "KU": 2, "LM": 2, "LN": 32, "ORDER": 0},
        {"MR": 4, "NV": 2, "VW": 8, "KU": 8, "LM": 1, "LN": 4, "ORDER": 0},
    ],
    ids=["wide", "scalar", "even"],
)
def test_tiles_and_groups_that_divide_nothing(bench: Any, problem: BatchedMatMulProblem, tile: dict[str, int]) -> None:
    chosen = [tile | {"PACK": packs} for packs in ((1, 0) if problem is TILES["odd"] else (1,))]
    bench.compare(FAMILY, problem, chosen, random_inputs("BatchedMatMul", problem))


@pytest.mark.parametrize("name", ["batched_matmul_tiled.cl", "batched_local.cl"])
def test_the_templates_compile_alone(bench: Any, name: str) -> None:
    bench.backend.build(template(name), BASE_OPTIONS)
