"""Test inverted residual blocks: what they cost, their space and their source."""

from dataclasses import replace

from gputune.kernels.catalogue import family_of
from gputune.kernels.ops.inverted_residual import FAMILY, InvertedResidualProblem

from .inverted_residual_problems import INVERTED, REAL
from .problems import CPU, GPU


def test_work_is_that_of_the_parts_without_the_tensor_between_them() -> None:
    problem = INVERTED["strided"]
    parts = [family_of("MatMul").work(problem.expansion), family_of("SeparableConv").work(problem.separable)]
    assert FAMILY.work(problem).flops == sum(work.flops for work in parts)
    assert FAMILY.work(problem).bytes == sum(work.bytes for work in parts) - 2 * 4 * 11 * 12 * 24


def test_a_strip_is_kept_where_it_fits() -> None:
    problem = REAL["10x10x32-192-32"]  # a row sees three rows of ten pixels, and has ten of 192 channels
    shared = {"ROWS": 1, "STEP": 1, "MR": 5, "NV": 1, "VW": 4, "KU": 1, "PF": 0, "LN": 8}
    needed = 4 * (3 * 10 * 4 + 10 * 192)
    exactly = FAMILY.space(problem, replace(GPU, local_memory_bytes=needed))
    assert exactly.violations(shared) == []
    too_large = "a work-group's strip: the kernel needs {} of the device's 8160 bytes of local memory"
    assert exactly.violations(shared | {"ROWS": 2, "STEP": 2}) == [too_large.format(16000)]
    assert exactly.violations(shared | {"ROWS": 2}) == [too_large.format(30720)], "of all channels"
    steps = FAMILY.space(problem, replace(GPU, local_memory_bytes=4 * (3 * 10 * 192 + 10 * 192)))
    assert steps.violations(shared | {"ROWS": 10}) == []
    assert exactly.violations(shared | {"LN": 1}) == []
    assert exactly.violations(shared | {"ROWS": 8, "STEP": 3}) == [
        "STEP must be ROWS, or one of 1, 2, 4 below it",
        too_large.format(61440),
    ]
    assert exactly.violations(shared | {"LN": 1, "ROWS": 2, "STEP": 2}) == [
        "a work-item's own strip of several rows must not exceed 4096 bytes"
    ]
    assert FAMILY.space(problem, CPU).violations(shared | {"VW": 16, "PF": 64}) == [
        "on a CPU, LN must be 1: barriers cost more than they bring"
    ]


def test_epilogues_are_part_of_the_source_and_configurations_are_not() -> None:
    problem: InvertedResidualProblem = INVERTED["batch-residual"]
    configurations = list(FAMILY.space(problem, CPU).configurations())[:3]
    swapped = replace(problem, expand_epilogue=problem.depthwise_epilogue, depthwise_epilogue=problem.expand_epilogue)
    sources = {FAMILY.render(problem, each).main.source for each in configurations}
    assert len(sources) == 1
    assert FAMILY.render(swapped, configurations[0]).main.source not in sources
