"""Test matrix product: its parts, what it costs, and how the reduction is split."""

from gputune.kernels.family import DeviceLimits
from gputune.kernels.ops.matmul import FAMILY, MatMulProblem

from .problems import CPU, GPU


def test_parts_are_inputs_of_their_own_and_change_nothing_else() -> None:
    whole, parted = MatMulProblem(5, 8, 7, bias=True), MatMulProblem(5, 8, 7, bias=True, parts=(3, 1, 4))
    names = {spec.name: spec.shape for spec in FAMILY.inputs(parted)}
    assert names == {"a0": (5, 3), "a1": (5, 1), "a2": (5, 4), "b": (8, 7), "bias": (7,)}
    assert FAMILY.work(parted) == FAMILY.work(whole)
    one, other = (FAMILY.render(problem, FAMILY.default(whole, CPU)) for problem in (whole, parted))
    assert (one.prepare, one.packed) == (other.prepare, other.packed)
    assert other.main.arguments == ("a0", "a1", "a2", "packed", "output")


def test_work_counts_every_product_and_every_byte_once() -> None:
    work = FAMILY.work(MatMulProblem(3, 5, 7, bias=True))
    assert work.flops == 3 * 7 * (2 * 5 + 1)
    assert work.bytes == 4 * (15 + 35 + 7 + 21)


def test_the_reduction_is_split_only_for_few_rows() -> None:
    def splits(rows: int) -> set[int]:
        space = FAMILY.space(MatMulProblem(rows, 256, 64), CPU)
        return {configuration["KA"] for configuration in space.configurations()}

    assert splits(1) == {1, 2, 3, 4, 6, 8}
    assert splits(64) == {1}


def test_only_cpus_prefetch_and_only_what_their_first_cache_cannot_hold() -> None:
    def ahead(problem: MatMulProblem, limits: DeviceLimits) -> set[int]:
        return {one["PF"] for one in FAMILY.space(problem, limits).configurations()}

    large, small = (
        MatMulProblem(8, 512, 16),
        MatMulProblem(8, 511, 16),
    )  # rows of 64 bytes, and the bias
    assert ahead(large, CPU) == {64}
    assert ahead(small, CPU) == {0}
    assert ahead(large, GPU) == {0}
