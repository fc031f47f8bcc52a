"""Test batched products on the device: difficult shapes and steps, packed and in place, alone and in work-groups."""

import random
from itertools import islice
from typing import Any

import pytest

from gputune.kernels.ops.batched_matmul import FAMILY, BatchedMatMulProblem
from gputune.kernels.template import BASE_OPTIONS, template
from tests.kernels.batched_problems import BATCHED
from tests.kernels.problems import GPU, random_inputs

LARGE = BatchedMatMulProblem((3,), 41, 33, 70, (1353, 33, 1), (2310, 70, 1), (2870, 70, 1), (4059, 6930))
TURNED = BatchedMatMulProblem((3,), 41, 33, 70, (1353, 1, 41), (2310, 1, 33), (2870, 70, 1), (4059, 6930))


@pytest.mark.parametrize("name", BATCHED)
def test_configurations_compute_the_reference(bench: Any, name: str) -> None:
    problem, dice = BATCHED[name], random.Random(name)
    every = [list(islice(FAMILY.space(problem, limits).configurations(), 5000)) for limits in (bench.limits, GPU)]
    chosen = [FAMILY.default(problem, bench.limits), *(dice.choice(some) for some in every)]
    bench.compare(FAMILY, problem, chosen, random_inputs("BatchedMatMul", problem))


@pytest.mark.parametrize("problem", [LARGE, TURNED], ids=["rows", "turned"])
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
    chosen = [tile | {"PACK": packs} for packs in ((1, 0) if problem is LARGE else (1,))]
    bench.compare(FAMILY, problem, chosen, random_inputs("BatchedMatMul", problem))


def test_the_template_compiles_alone(bench: Any) -> None:
    bench.backend.build(template("batched_matmul_tiled.cl"), BASE_OPTIONS)
