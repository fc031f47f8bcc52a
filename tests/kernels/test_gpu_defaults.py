"""Test that the defaults for a GPU give it enough work-items and work-groups, as far as the problem has them."""

import math
from dataclasses import replace
from typing import Any

import pytest

from gputune.core.launches import Launch, Stage
from gputune.kernels.catalogue import family_of
from gputune.kernels.family import DeviceLimits
from gputune.kernels.ops.arg import ArgProblem
from gputune.kernels.ops.conv import ConvProblem
from gputune.kernels.ops.matmul import MatMulProblem
from gputune.kernels.ops.normalise import NormaliseProblem
from gputune.kernels.ops.reduce import ReduceProblem
from gputune.kernels.ops.softmax import SoftmaxProblem
from gputune.kernels.tiling.winograd import GPU_SUMS
from tests.kernels.batched_problems import batched
from tests.kernels.problems import CASES, GPU

LARGE = replace(GPU, max_work_group_size=1024, max_work_item_sizes=(1024, 1024, 64), compute_units=132)
SAME = (1, 1, 1, 1)
WAVE = 0.7
"""The share of compute units that have a tile in local memory: more and smaller tiles would take two turns."""


def kernels(op: str, problem: Any, configuration: dict[str, int]) -> tuple[Stage | Launch, ...]:
    return family_of(op).render(problem, configuration).main.sequence


def groups(kernel: Stage | Launch) -> int:
    return math.prod(kernel.global_size) // math.prod(kernel.local_size)


@pytest.mark.parametrize("units", [1, 8, 132, 512])
@pytest.mark.parametrize(("most", "local_bytes"), [(1024, 48 << 10), (256, 256), (1, 1 << 10)])
def test_no_default_for_a_gpu_is_illegal(units: int, most: int, local_bytes: int) -> None:
    limits = replace(
        LARGE,
        compute_units=units,
        max_work_group_size=most,
        max_work_item_sizes=(most, most, most),
        local_memory_bytes=local_bytes,
    )
    for op, name, problem in CASES:
        family = family_of(op)
        assert family.space(problem, limits).violations(family.default(problem, limits)) == [], (op, name)


@pytest.mark.parametrize(("op", "name", "problem"), CASES)
def test_the_parameters_of_a_work_group_make_its_size(op: str, name: str, problem: Any) -> None:
    """A search for a GPU begins with work-groups of likely sizes."""
    family = family_of(op)
    group = family.space(problem, LARGE).group
    for one in (family.default(problem, LARGE), *family.starters(problem, LARGE)[:4]):
        size = math.prod(one[name] for name in group)
        assert size in {math.prod(kernel.local_size) for kernel in kernels(op, problem, one)}, (name, one)


@pytest.mark.parametrize(
    ("op", "problem", "limits", "lanes", "down"),
    [
        ("Softmax", SoftmaxProblem(1, 1000, 1), LARGE, 256, 1),
        ("Softmax", SoftmaxProblem(1, 1000, 1), replace(LARGE, max_work_group_size=128), 128, 1),
        ("Softmax", SoftmaxProblem(1, 1000, 1), replace(LARGE, local_memory_bytes=256), 64, 1),
        ("Softmax", SoftmaxProblem(1536, 128, 1), LARGE, 32, 2),
        ("Softmax", SoftmaxProblem(100_000, 1000, 1), LARGE, 32, 2),  # enough rows for all work-items
        ("Softmax", SoftmaxProblem(100_000, 6, 1), LARGE, 2, 32),
        ("Softmax", SoftmaxProblem(1, 1000, 2048), LARGE, 32, 2),  # vectors across rows
        ("Softmax", SoftmaxProblem(64, 1000, 2048), LARGE, 1, 64),
        ("Normalise", NormaliseProblem("deviation", (197, 768), (1,), (1,), True, True, 1e-5), LARGE, 256, 1),
        ("Normalise", NormaliseProblem("deviation", (2, 32, 900), (2,)), LARGE, 256, 1),
        ("Reduce", ReduceProblem("mean", (1, 7, 7, 2048), (1, 2)), LARGE, 32, 2),
        ("Reduce", ReduceProblem("mean", (1, 7, 7, 2048), (1, 2)), replace(LARGE, compute_units=36), 8, 8),
        ("ArgMax", ArgProblem(1, 1000, 1), LARGE, 256, 1),
    ],
)
def test_few_rows_are_shared_by_work_items_until_the_device_is_filled(
    op: str, problem: Any, limits: DeviceLimits, lanes: int, down: int
) -> None:
    default = family_of(op).default(problem, limits)
    assert (default["VW"], default["LANES"], default["DIMY"]) == (4, lanes, down)


def scores(heads: int, tokens: int, width: int) -> MatMulProblem:
    whole, square = heads * width, tokens * tokens
    rows, turned = (width, whole, 1), (width, 1, whole)
    elements = (tokens * whole, tokens * whole)
    return batched((heads,), tokens, width, tokens, rows, turned, (square, tokens, 1), elements)


@pytest.mark.parametrize(
    ("op", "problem"),
    [
        ("Conv", ConvProblem(1, 14, 14, 256, 256, (3, 3), pads=SAME)),
        ("Conv", ConvProblem(1, 7, 7, 512, 512, (3, 3), pads=SAME)),
        ("MatMul", MatMulProblem(49, 2048, 512)),
        ("MatMul", scores(12, 128, 32)),
    ],
)
def test_tiles_and_work_groups_are_small_where_others_would_leave_units_idle(op: str, problem: Any) -> None:
    default = family_of(op).default(problem, LARGE)
    assert default["MR"] == 1 or default["ALG"] == 1
    assert default["LM"] * default["LN"] >= 32
    for kernel in kernels(op, problem, default):
        wave = WAVE if kernel.entry.endswith("_local") else 1
        assert groups(kernel) >= wave * LARGE.compute_units, kernel.entry


def test_a_large_product_has_large_tiles_and_a_small_device_too() -> None:
    assert family_of("MatMul").default(MatMulProblem(1024, 1024, 1024), LARGE)["MR"] == 8
    few = replace(LARGE, compute_units=12)
    default = family_of("Conv").default(ConvProblem(1, 28, 28, 128, 128, (3, 3), pads=SAME), few)
    assert default["MR"] * default["NV"] * default["VW"] >= 16


def test_work_groups_of_all_products_count() -> None:
    """Twelve grids of 7 x 4 tiles fill the device, so that no reduction is split."""
    problem = scores(12, 197, 64)
    (kernel,) = kernels("MatMul", problem, family_of("MatMul").default(problem, LARGE))
    assert groups(kernel) == 12 * 7 * 4


@pytest.mark.parametrize("algorithm", [2, 4])
def test_winograds_work_items_hold_little_and_are_many(algorithm: int) -> None:
    problem = ConvProblem(1, 14, 14, 256, 256, (3, 3), pads=SAME)
    starters = family_of("Conv").starters(problem, LARGE)
    chosen = next(one for one in starters if one["ALG"] == algorithm)
    assert (algorithm**2 + 1) * chosen["MR"] * chosen["NV"] * chosen["VW"] <= GPU_SUMS
    transform, _ = kernels("Conv", problem, chosen)
    tiles = math.ceil(14 / algorithm) ** 2
    assert math.prod(transform.global_size) >= tiles * 256 // 4
    assert math.prod(transform.local_size) == chosen["LM"] * chosen["LN"]


CAPPED = replace(LARGE, family="nvidia-hopper", register_cap="-cl-nv-maxrregcount=")


def test_a_bound_for_registers_is_a_parameter_where_the_driver_can_be_told() -> None:
    """Of tiles that may need more, and an option of the program, which is part of its identity."""
    family, problem = family_of("MatMul"), MatMulProblem(1024, 1024, 1024)
    assert "REGS" not in family.default(problem, LARGE)
    default, space = family.default(problem, CAPPED), family.space(problem, CAPPED)
    assert default["REGS"] == 0, "what it costs is not known"
    (refused,) = space.violations(default | {"REGS": 128})
    assert "needs no bound" in refused
    large = default | {"NV": 2, "LN": 16, "BK": 8, "REGS": 128}
    assert space.violations(large) == []
    free, bound = (family.rendered(problem, large | {"REGS": cap}, CAPPED).main for cap in (0, 128))
    assert bound == replace(free, options=f"{free.options} -cl-nv-maxrregcount=128")


def test_a_default_in_local_memory_leaves_room_for_other_work_groups() -> None:
    """So one computes while another waits for its block; ptxas gives twice as large a tile 130 and 154 registers."""
    default = family_of("MatMul").default(MatMulProblem(1024, 1024, 1024), CAPPED)
    assert (default["MR"] * default["NV"] * default["VW"], default["LM"] * default["LN"]) == (32, 256)
