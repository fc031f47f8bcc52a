"""Test batched products: the reference compared with numpy, and what may be read in place."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from gputune.kernels.family import DeviceLimits
from gputune.kernels.ops.matmul import FAMILY, LOCAL, TILED, MatMulProblem
from gputune.kernels.tiling.estimate import Card, groups_at_once
from gputune.kernels.tiling.local_tiles import ROOM, LocalTiles

from .batched_problems import BATCHED, TILES, batched
from .problems import DEVICES, GPU, random_inputs

PLAIN = BATCHED["primes"]
LARGE = replace(
    GPU, max_work_group_size=1024, max_work_item_sizes=(1024, 1024, 64), local_memory_bytes=48 << 10, compute_units=132
)
TILE = {
    "ALG": LOCAL,
    "MR": 4,
    "NV": 1,
    "VW": 4,
    "KU": 8,
    "LM": 8,
    "LN": 8,
    "BK": 8,
    "STAGES": 2,
    "PAD": 4,
    "SA": 1,
    "SB": 1,
}


def products(count: int, m: int, k: int, n: int) -> MatMulProblem:
    """So many, of which all matrices lie row by row and one after the other."""
    steps = ((m * k, k, 1), (k * n, n, 1), (m * n, n, 1))
    return batched((count,), m, k, n, *steps, (count * m * k, count * k * n))


@pytest.mark.parametrize("name", BATCHED)
def test_the_reference_is_a_sum_over_steps(name: str) -> None:
    """Element by element, with nothing but the steps."""
    problem = BATCHED[name]
    inputs = random_inputs("MatMul", problem)
    got = FAMILY.reference(problem, inputs)
    assert got.dtype == np.float32
    assert got.shape == FAMILY.output(problem).shape
    generator = np.random.default_rng(2)
    for _ in range(20):
        *batch, row, column = (int(generator.integers(size)) for size in problem.shape)

        def at(steps: tuple[int, ...], *matrix: int, outer: tuple[int, ...] = tuple(batch)) -> int:
            return sum(step * index for step, index in zip(steps, (*outer, *matrix), strict=True))

        total = np.float64(0)
        for k in range(problem.k):
            a = inputs["a"].flat[problem.lies.starts[0] + at(problem.lies.a_steps, row, k)]
            b = inputs["b"].flat[problem.lies.starts[1] + at(problem.lies.b_steps, k, column)]
            total += np.float64(a) * np.float64(b)
        operands = [inputs[f"operand{i}"][at(steps, row, column)] for i, steps in enumerate(problem.lies.operand_steps)]
        want = problem.epilogue.apply(np.asarray(total), [np.asarray(value) for value in operands])
        assert got.flat[at(problem.lies.output_steps, row, column)] == pytest.approx(want, rel=1e-5, abs=1e-6)


def test_only_whole_rows_are_read_in_place() -> None:
    def widths(problem: MatMulProblem, limits: DeviceLimits) -> set[int]:
        return {one["VW"] for one in FAMILY.space(problem, limits).configurations() if not one["PACK"]}

    assert widths(BATCHED["right-turned"], GPU) == set()
    assert widths(BATCHED["primes"], GPU) == {1, 2, 4, 8}
    assert 16 not in widths(replace(PLAIN, n=9, places=replace(PLAIN.lies, output_steps=(63, 9, 1))), DEVICES["cpu"])


def test_shared_matrices_are_packed_once() -> None:
    problem = BATCHED["broadcast"]
    configuration = FAMILY.default(problem, DEVICES["cpu"]) | {"PACK": 1, "NV": 1, "VW": 4, "LN": 1, "LM": 1}
    assert FAMILY.render(problem, configuration).scratch == {"packed": 4 * 3 * 9 * 20}


def test_tensors_have_the_shape_in_which_they_lie() -> None:
    assert [spec.shape for spec in FAMILY.inputs(BATCHED["heads"])] == [(2, 10, 3, 8), (2, 18, 3, 8), (36,)]
    assert [spec.shape for spec in FAMILY.inputs(BATCHED["thirds"])] == [(210,), (210,)]
    assert [spec.shape for spec in FAMILY.inputs(BATCHED["broadcast"])][:2] == [(4, 6, 9), (3, 9, 20)]
    assert FAMILY.output(BATCHED["heads-merged"]).shape == (2, 10, 3, 8)
    assert FAMILY.output(BATCHED["batch-innermost"]).shape == (6, 9, 5)


def test_what_is_packed_must_fit_and_is_counted_once() -> None:
    """A hundred products by one matrix need the room of one."""
    shared = batched((100, 2), 8, 64, 64, (1024, 512, 64, 1), (0, 4096, 1, 64), (1024, 512, 64, 1), (102400, 8192))
    small = replace(DEVICES["cpu"], max_allocation_bytes=4 * 2 * 65 * 64)
    assert FAMILY.space(shared, small).violations(FAMILY.default(shared, small)) == []
    with pytest.raises(ValueError, match="packed weights"):
        FAMILY.default(shared, replace(small, max_allocation_bytes=4 * 64 * 64))


def test_work_counts_what_is_read_and_every_product() -> None:
    work = FAMILY.work(BATCHED["thirds"])
    assert work.flops == 2 * 7 * 7 * 2 * 5
    assert work.bytes == 4 * (2 * 7 * 5 + 2 * 5 * 7 + 2 * 7 * 7)
    masked = BATCHED["heads"]
    assert FAMILY.work(masked).bytes == 4 * (2 * 3 * (10 * 8 + 8 * 18 + 10 * 18) + 2 * 18)


@pytest.mark.parametrize(
    ("name", "left", "right"),
    [
        ("odd", (1, 1), (2, 0)),
        ("odd-turned", (1, 0), (1, 1)),
        ("wide", (4, 0), (4, 0)),
        ("scores", (4, 1), (4, 1)),
        ("shared", (2, 1), (2, 0)),
        ("by-columns", (4, 1), (4, 0)),
    ],
)
def test_vectors_lie_along_the_axis_of_neighbours(name: str, left: tuple[int, int], right: tuple[int, int]) -> None:
    """They begin at multiples of their width, so all that is read is aligned."""
    launch = FAMILY.render(TILES[name], TILE | {"SPLIT": 1, "BAND": 1}).main
    for side, (width, deep) in {"LEFT": left, "RIGHT": right}.items():
        assert {f"-D{side}_WIDTH={width}", f"-D{side}_DEEP={deep}"} <= set(launch.options.split())
    assert launch.aligned


@pytest.mark.parametrize(("name", "widest"), [("odd", 2), ("wide", 4), ("scores", 1), ("by-columns", 0)])
def test_outputs_are_stored_in_vectors_if_they_are_aligned(name: str, widest: int) -> None:
    for width in (2, 4):
        launch = FAMILY.render(TILES[name], TILE | {"VW": width, "SPLIT": 1, "BAND": 1}).main
        assert f"-DOUT_VECTORS={int(width <= widest)}" in launch.options


def test_columns_that_lie_apart_go_through_local_memory() -> None:
    def direct(name: str) -> set[int]:
        space = FAMILY.tiling(TILES[name]).ways[LOCAL].space(GPU)
        return {one["VW"] for one in space.configurations() if not one["SB"]}

    assert direct("wide") == {2, 4}
    assert direct("shared") == {2}
    assert direct("odd-turned") == direct("scores") == set()


def test_shares_of_all_products_are_added_by_a_second_launch() -> None:
    instance = FAMILY.render(TILES["scores"], TILE | {"SPLIT": 2, "BAND": 1})
    (stage,), main = instance.main.stages, instance.main
    assert instance.scratch == {"shares": 2 * 6 * 37 * 35 * 4}
    assert (stage.entry, stage.arguments) == ("matmul_local", ("a", "b", "shares"))
    assert (main.entry, main.arguments) == ("add_shares", ("shares", "output", "operand0"))
    assert stage.global_size[1:] == (2, 6)
    assert main.global_size[2] == 6


def test_packing_on_a_gpu_needs_a_reason() -> None:
    """The first right side lies by columns, the second in rows, the third in rows that are not aligned."""
    apart = batched((), 32, 32, 32, (32, 1), (33, 1), (32, 1), (1024, 1055))
    for problem, widths in ((TILES["scores"], {1, 2, 4}), (products(2, 32, 32, 32), set()), (apart, {2, 4})):
        space = FAMILY.space(problem, GPU)
        assert {one["VW"] for one in space.configurations() if one["ALG"] == TILED and one["PACK"]} >= widths
        assert widths or not any(one["PACK"] for one in space.configurations() if one["ALG"] == TILED)


@pytest.mark.parametrize("sizes", [(12, 197, 64, 197), (12, 128, 32, 128), (8, 1024, 64, 1024), (1, 512, 512, 512)])
def test_a_gpu_has_a_space_that_can_be_searched(sizes: tuple[int, int, int, int]) -> None:
    problem = products(*sizes)
    default = FAMILY.default(problem, LARGE)
    assert FAMILY.space(problem, LARGE).size <= 20_000
    assert default["ALG"] == LOCAL
    estimate = FAMILY.estimate(problem, LARGE)
    assert estimate is not None
    tiles, card = FAMILY.tiling(problem).ways[LOCAL], Card.of(LARGE)
    assert isinstance(tiles, LocalTiles)

    def has_room(one: Mapping[str, int]) -> bool:
        return one["ALG"] == LOCAL and groups_at_once(tiles.tile(one), card) * one["LM"] * one["LN"] >= ROOM

    roomy = [one for one in FAMILY.starters(problem, LARGE) if has_room(one)]
    assert has_room(default) and all(estimate(default) <= estimate(one) for one in roomy)


def test_a_cpu_has_tiles_in_registers_only() -> None:
    assert "ALG" not in FAMILY.default(TILES["wide"], DEVICES["cpu"])
    assert FAMILY.estimate(TILES["wide"], DEVICES["cpu"]) is None
