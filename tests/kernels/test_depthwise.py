"""Test depthwise convolution: what it costs, its key, and its vectors."""

from dataclasses import replace

import pytest

from gputune.client.report.problems import problem_of
from gputune.kernels.family import DeviceLimits, problem_to_dict
from gputune.kernels.ops.depthwise import FAMILY, DepthwiseProblem

from .problems import CPU, GPU


def test_work_counts_every_tap_and_every_byte_once() -> None:
    work = FAMILY.work(DepthwiseProblem(1, 8, 8, 4, (3, 3), (2, 2), (1, 1, 1, 1), bias=True))
    assert work.flops == 16 * 4 * (2 * 9 + 1)
    assert work.bytes == 4 * (64 * 4 + 4 * 9 + 4 + 16 * 4)


def test_problems_of_one_channel_a_group_are_known_as_before_there_were_groups() -> None:
    depthwise = DepthwiseProblem(1, 8, 8, 4, (3, 3))
    grouped = replace(depthwise, group=2)
    assert "group" not in problem_to_dict(depthwise)
    assert problem_to_dict(grouped) == {**problem_to_dict(depthwise), "group": 2}
    assert [problem_of("DepthwiseConv", problem_to_dict(each)) for each in (depthwise, grouped)] == [depthwise, grouped]


def test_work_counts_every_channel_of_a_group() -> None:
    work = FAMILY.work(DepthwiseProblem(1, 8, 8, 4, (3, 3), group=2))
    assert work.flops == 36 * 4 * 2 * 2 * 9
    assert work.bytes == 4 * (64 * 4 + 4 * 2 * 9 + 36 * 4)


@pytest.mark.parametrize("limits", [CPU, GPU], ids=["cpu", "gpu"])
def test_vectors_hold_whole_groups(limits: DeviceLimits) -> None:
    problem = DepthwiseProblem(1, 8, 8, 24, (3, 3), group=8)
    space = FAMILY.space(problem, limits)
    assert {configuration["VW"] for configuration in space.configurations()} == {8, 16}
    for configuration in (FAMILY.default(problem, limits), *FAMILY.guesses(problem, limits)):
        assert space.violations(configuration) == []


def test_a_row_is_reused_only_while_it_fits_the_registers() -> None:
    space = FAMILY.space(DepthwiseProblem(1, 64, 64, 32, (3, 3), (4, 4)), GPU)
    wide = {"MR": 16, "VW": 4, "REUSE": 1, "LM": 8, "LN": 4, "ORDER": 0}
    assert space.violations(wide) == ["REUSE must not load more than 48 vectors at once"]
    assert space.violations(wide | {"REUSE": 0}) == []
