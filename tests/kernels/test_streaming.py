"""Test what the families that stream memory promise on any device, from one work-item to a large GPU."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputune.kernels.catalogue import family_of
from gputune.kernels.chain import Chain, Step
from gputune.kernels.family import DeviceLimits, KernelFamily
from gputune.kernels.ops.elementwise import ElementwiseProblem
from gputune.kernels.ops.pool import PoolProblem
from gputune.kernels.ops.softmax import SoftmaxProblem
from gputune.kernels.ops.transpose import TransposeProblem
from gputune.kernels.tiling.streaming import (
    busy,
    ceil_div,
    default_width,
    power_at_least,
    power_at_most,
    round_up,
    whole_width,
)

ADD = Chain((Step("add", operand=0),))
PROBLEMS: list[tuple[str, Any]] = [
    ("Pool", PoolProblem("max", 1, 56, 56, 64, (3, 3), (2, 2), (1, 1, 1, 1), (28, 28))),
    ("Pool", PoolProblem("average", 1, 7, 7, 1, (7, 7), (1, 1), (0, 0, 0, 0), (1, 1), epilogue=ADD)),
    ("Elementwise", ElementwiseProblem((1, 28, 28, 96), ((1, 1, 1, 96),), (1, 28, 28, 96), ADD)),
    ("Elementwise", ElementwiseProblem((), ((),), (), ADD)),
    ("Elementwise", ElementwiseProblem((7, 3), ((3,),), (7, 1), ADD)),
    ("Softmax", SoftmaxProblem(1, 1000, 1)),
    ("Softmax", SoftmaxProblem(2, 5, 33)),
    ("Softmax", SoftmaxProblem(1, 1, 1)),
    ("Transpose", TransposeProblem(1, 3, 224, 224, "NCHW", "NHWC")),
    ("Transpose", TransposeProblem(2, 1, 1, 1, "NHWC", "NCHW")),
]


@st.composite
def devices(draw: st.DrawFn) -> DeviceLimits:
    return DeviceLimits(
        max_work_group_size=draw(st.sampled_from([1, 2, 100, 256, 4096])),
        max_work_item_sizes=draw(st.sampled_from([(1, 1, 1), (1, 4096, 64), (256, 1, 64), (4096, 4096, 4096)])),
        local_memory_bytes=draw(st.sampled_from([1024, 32768, 1 << 20])),
        max_allocation_bytes=1 << 30,
        compute_units=draw(st.integers(1, 128)),
        device_type=draw(st.sampled_from(["cpu", "gpu", "accelerator"])),
        preferred_float_width=draw(st.sampled_from([1, 4, 8, 16])),
    )


@pytest.mark.parametrize(("op", "problem"), PROBLEMS)
@settings(max_examples=30)
@given(limits=devices())
def test_the_default_and_the_starters_are_valid_on_any_device(op: str, problem: Any, limits: DeviceLimits) -> None:
    check_default_and_starters(op, problem, limits)


def check_default_and_starters(op: str, problem: Any, limits: DeviceLimits) -> None:
    family = family_of(op)
    space = family.space(problem, limits)
    default = family.default(problem, limits)
    starters = family.starters(problem, limits)
    for configuration in [default, *starters]:
        assert space.violations(configuration) == []
        check_launch(family, problem, configuration, limits)
    assert default not in starters
    assert all(configuration not in starters[:i] for i, configuration in enumerate(starters))


def check_launch(family: KernelFamily, problem: Any, configuration: dict[str, int], limits: DeviceLimits) -> None:
    """The grid is whole work-groups that the device allows, and every name means something."""
    launch = family.render(problem, configuration).main
    product = 1
    for items, group, most in zip(launch.global_size, launch.local_size, limits.max_work_item_sizes, strict=False):
        assert items % group == 0
        assert 1 <= group <= most
        product *= group
    assert product <= limits.max_work_group_size
    assert len(launch.global_size) == len(launch.local_size)
    names = [spec.name for spec in family.inputs(problem)]
    assert sorted(launch.arguments, key=str) == sorted([*names, "output"])
    for name in configuration:
        assert f"-D{name}={configuration[name]} " in launch.options + " "
    assert f"{launch.entry}(" in launch.source


@pytest.mark.parametrize(("op", "problem"), PROBLEMS)
def test_configurations_differ_in_their_options_only(op: str, problem: Any) -> None:
    """One source text per task travels once; options hold nothing but integers."""
    family = family_of(op)
    limits = DeviceLimits(256, (256, 256, 64), 32768, 1 << 30, 2, "gpu", 4)
    launches = [
        family.render(problem, configuration).main
        for configuration, _ in zip(family.space(problem, limits).configurations(), range(50), strict=False)
    ]
    assert {launch.source for launch in launches} == {launches[0].source}
    assert len({(launch.options, launch.global_size, launch.local_size) for launch in launches}) == len(launches)
    for option in launches[0].options.split()[1:]:
        int(option.split("=")[1])


@pytest.mark.parametrize("op", sorted({op for op, _ in PROBLEMS}))
def test_a_template_documents_its_parameters(op: str) -> None:
    """Each parameter has a default in the template, so that it compiles alone, and a word about it."""
    family, problem = family_of(op), dict(PROBLEMS)[op]
    limits = DeviceLimits(256, (256, 256, 64), 32768, 1 << 30, 2, "gpu", 4)
    text = family.render(problem, family.default(problem, limits)).main.source
    for parameter in family.space(problem, limits).parameters:
        assert f"#define {parameter.name} " in text
        assert parameter.meaning


@given(st.integers(1, 10**6), st.integers(1, 10**4))
def test_rounding(size: int, step: int) -> None:
    assert (ceil_div(size, step) - 1) * step < size <= ceil_div(size, step) * step == round_up(size, step)
    assert power_at_most(size) <= size <= power_at_least(size) < 2 * size
    assert power_at_least(size) in (power_at_most(size), 2 * power_at_most(size))


@pytest.mark.parametrize("extent", [1, 2, 5, 8, 33])
def test_nothing_is_busy_with_nothing(extent: int) -> None:
    """Of the pieces that parameters cut an axis into together, the half of them is not enough."""
    rule = busy(("VW", "DIMX"), extent, "the axis")
    for width in (1, 2, 4, 8):
        for across in (2, 4, 8, 16):
            assert rule.holds(width, across) == (width * across // 2 < extent), (width, across)
        assert rule.holds(width, 1), "one is always allowed"


@pytest.mark.parametrize(
    ("extent", "others", "preferred", "width"),
    [
        (32, (), 8, 8),
        (12, (), 8, 4),  # 8 does not divide 12
        (32, (20,), 16, 4),
        (32, (48,), 16, 16),
        (6, (), 8, 4),  # 2 does, and is too narrow
        (32, (2,), 8, 8),
        (3, (), 8, 2),
        (1, (), 8, 1),
        (64, (), 1, 4),
        (64, (), 32, 16),
    ],
)
def test_default_vectors_are_whole_where_they_need_not_be_narrow(
    extent: int, others: tuple[int, ...], preferred: int, width: int
) -> None:
    limits = DeviceLimits(256, (256, 256, 64), 32768, 1 << 30, 2, "gpu", preferred)
    assert whole_width(limits, extent, *others) == width
    assert default_width(limits, extent) >= width
