"""Test separable convolution: what it costs, its space and its source."""

from dataclasses import replace

from gputune.kernels.catalogue import family_of
from gputune.kernels.ops.depthwise import DepthwiseProblem
from gputune.kernels.ops.matmul import MatMulProblem
from gputune.kernels.ops.separable import FAMILY, SeparableProblem

from .problems import CPU, GPU, RELU, SMALL
from .separable_problems import REAL, SEPARABLE


def depthwise_of(problem: SeparableProblem) -> DepthwiseProblem:
    return DepthwiseProblem(
        problem.batch, problem.height, problem.width, problem.channels, problem.kernel, problem.strides, problem.pads,
        problem.dilations, problem.depthwise_bias, problem.depthwise_epilogue,
    )  # fmt: skip


def test_work_is_that_of_both_without_the_tensor_between_them() -> None:
    problem = SEPARABLE["strided"]
    parts = family_of("DepthwiseConv"), family_of("MatMul")
    first, second = depthwise_of(problem), MatMulProblem(8 * 9, 24, 20, bias=True)
    works = [family.work(part) for family, part in zip(parts, (first, second), strict=True)]
    assert FAMILY.work(problem).flops == sum(work.flops for work in works)
    assert FAMILY.work(problem).bytes == sum(work.bytes for work in works) - 2 * 4 * 8 * 9 * 24


def test_a_strip_is_kept_where_it_fits() -> None:
    problem = REAL["7x7x960-320"]  # a pixel of the middle takes 3840 bytes
    shared = {"MR": 7, "RT": 1, "NV": 1, "VW": 4, "KU": 1, "PF": 0, "LN": 8, "SPLIT": 1}
    assert FAMILY.space(problem, GPU).violations(shared) == []
    less = FAMILY.space(problem, replace(GPU, local_memory_bytes=26879))
    assert less.violations(shared) == [
        "a work-group's strip of MR*RT*3840 bytes: the kernel needs 26880 of the device's 26879 bytes of local memory"
    ]
    assert less.violations(shared | {"LN": 1}) == [
        "a work-item's own strip, MR*RT*3840 bytes, must not exceed 4096 bytes"
    ]
    assert less.violations(shared | {"LN": 1, "MR": 1}) == []
    assert FAMILY.space(problem, SMALL).violations(FAMILY.default(problem, SMALL)) == []
    own = {"MR": 7, "RT": 4, "NV": 1, "VW": 16, "KU": 1, "PF": 64, "LN": 1, "SPLIT": 1}
    assert FAMILY.space(problem, CPU).violations(own) == []
    assert FAMILY.space(problem, CPU).violations(own | {"LN": 2}) == [
        "on a CPU, LN must be 1: barriers cost more than they bring"
    ]


def test_real_tasks_have_room_to_tune() -> None:
    for problem in REAL.values():
        space = FAMILY.space(problem, CPU)
        assert space.size >= 200
        assert len({(c["MR"], c["NV"], c["VW"]) for c in space.configurations()}) >= 20


def test_the_depthwise_epilogue_is_part_of_the_source() -> None:
    problem = SEPARABLE["one-pixel"]
    other = replace(problem, depthwise_epilogue=RELU)
    default = FAMILY.default(problem, CPU)
    assert FAMILY.render(problem, default).main.source != FAMILY.render(other, default).main.source
