"""Test products of few rows: which work-groups there are, what the default fills, and what the estimate likes."""

import math
from dataclasses import replace

import pytest

from gputune.core.launches import Launch, Stage
from gputune.kernels.algorithms import ALG
from gputune.kernels.family import DeviceLimits
from gputune.kernels.ops.matmul import FAMILY, SKINNY, MatMulProblem
from gputune.kernels.tiling.estimate import UNIT_BYTES
from gputune.kernels.tiling.skinny import MOST_ROWS, Skinny
from tests.kernels.problems import CPU, GPU

H100 = replace(
    GPU,
    max_work_group_size=1024,
    max_work_item_sizes=(1024, 1024, 64),
    local_memory_bytes=48 << 10,
    max_allocation_bytes=1 << 34,
    compute_units=132,
)
MOST_CONFIGURATIONS = 3000


def groups(kernel: Stage | Launch) -> int:
    return math.prod(kernel.global_size) // math.prod(kernel.local_size)


@pytest.mark.parametrize(("rows", "reduction", "columns"), [(1, 4096, 4096), (4, 4096, 4096), (16, 4096, 11008)])
def test_the_default_reads_large_weights_with_all_of_the_device(rows: int, reduction: int, columns: int) -> None:
    problem = MatMulProblem(rows, reduction, columns)
    default = FAMILY.default(problem, H100)
    assert (default[ALG], default["VW"]) == (SKINNY, 4)
    instance = FAMILY.render(problem, default)
    reading = instance.main.sequence[0]
    assert reading.entry == "matmul_skinny"
    assert groups(reading) >= 2 * H100.compute_units
    assert default["LM"] * default["KU"] * default["SPLIT"] <= reduction
    assert ("shares" in instance.scratch) == (default["SPLIT"] > 1)


def test_a_row_needs_no_second_launch_if_its_columns_make_enough_groups() -> None:
    for columns in (1000, 4096):
        assert FAMILY.default(MatMulProblem(1, 4096, columns), H100)["SPLIT"] == 1
    few = FAMILY.default(MatMulProblem(1, 1 << 16, 64), H100)
    assert few["SPLIT"] > 1, "64 columns make few groups"


@pytest.mark.parametrize("rows", range(1, MOST_ROWS + 1))
def test_there_are_not_too_many_configurations(rows: int) -> None:
    space = Skinny(rows, 4096, 4096, 4).space(H100)
    every = list(space.configurations())
    assert 0 < len(every) <= MOST_CONFIGURATIONS
    assert {one["SPLIT"] for one in every} == {1, 2, 4, 8, 16, 32}
    assert all(one["MR"] >= rows / 2 for one in every)


def test_it_is_for_few_rows_on_gpus() -> None:
    def algorithms(problem: MatMulProblem, limits: DeviceLimits) -> tuple[int, ...]:
        values = {each.name: each.values for each in FAMILY.space(problem, limits).parameters}
        return values.get(ALG, ())

    assert SKINNY in algorithms(MatMulProblem(MOST_ROWS, 64, 64), GPU)
    assert SKINNY not in algorithms(MatMulProblem(MOST_ROWS + 1, 64, 64), GPU)
    assert algorithms(MatMulProblem(1, 64, 64), CPU) == ()


LEGAL = {"MR": 4, "NV": 1, "VW": 4, "KU": 4, "LM": 8, "LN": 16, "SPLIT": 2}


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({}, ""),
        ({"MR": 1}, "MR covers the 4 rows, or half of them: weights are read for each tile"),
        ({"MR": 8}, "MR covers the 4 rows, or half of them: weights are read for each tile"),
        ({"VW": 1}, "VW is at least 2: elements one by one are read too slowly"),
        ({"NV": 2, "VW": 2}, "several vectors are as wide as they can be, VW 4"),
        ({"LN": 64}, "NV*VW*LN must stay below twice the 100 columns; more would have nothing to do"),
        ({"LN": 4}, "LM*LN must reach 64 if the reduction is long enough, or lanes stay idle"),
        ({"LM": 64}, "a work-group has at most 512 work-items"),
        ({"SPLIT": 16}, "KU*LM*SPLIT must not exceed the 300 steps of the reduction"),
    ],
)
def test_a_person_reads_why_a_configuration_is_not_legal(changed: dict[str, int], reason: str) -> None:
    violations = Skinny(4, 100, 300, 4).space(H100).violations(LEGAL | changed)
    assert reason in violations if reason else violations == []


def test_a_device_with_little_local_memory_has_small_groups() -> None:
    little = replace(H100, local_memory_bytes=2 << 10)
    wrong = Skinny(4, 4096, 4096, 4).space(little).violations(LEGAL | {"LM": 16})
    assert wrong == [
        "the sums of a work-group's work-items along the reduction: "
        "the kernel needs 16384 of the device's 2048 bytes of local memory"
    ]


def test_sums_of_many_rows_are_added_in_turns() -> None:
    """A group of 256 work-items with 16 rows of 4 columns has 64 KiB of sums."""
    (kernel,) = FAMILY.render(
        MatMulProblem(16, 4096, 4096), configured(MatMulProblem(16, 4096, 4096), MR=16, LM=16, LN=16)
    ).main.sequence
    assert kernel.needs is not None
    assert kernel.needs.local_bytes == 16 << 10


def configured(problem: MatMulProblem, **values: int) -> dict[str, int]:
    own = {"MR": 1, "NV": 1, "VW": 4, "KU": 4, "LM": 8, "LN": 32, "SPLIT": 1} | values
    return FAMILY.tiling(problem).fill(H100)(SKINNY, own)


def test_the_estimate_wants_many_vectors_under_way() -> None:
    problem = MatMulProblem(1, 4096, 4096)
    estimate = FAMILY.estimate(problem, H100)
    assert estimate is not None
    few, many = configured(problem, KU=1, LM=2), configured(problem, KU=8, LM=8)
    assert estimate(many) < estimate(few)
    shared = configured(problem, KU=8, LM=8, SPLIT=8)
    assert estimate(shared) < estimate(many), "32 groups leave units idle"
    bytes_in_clocks = 4 * 4096 * 4096 / (132 * UNIT_BYTES)
    assert bytes_in_clocks < estimate(FAMILY.default(problem, H100)) < 1.1 * bytes_in_clocks
