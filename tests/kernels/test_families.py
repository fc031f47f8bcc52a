"""Test every family without a device: what is legal fits the device, and every name in a launch means something."""

import json
import math
import random
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputune.kernels.catalogue import families, family_of
from gputune.kernels.chain import Chain, Step
from gputune.kernels.family import DeviceLimits, KernelFamily, Launch, Stage
from gputune.kernels.indexing.moving import Loop
from gputune.kernels.ops.arg import ArgProblem
from gputune.kernels.ops.concat import ConcatProblem
from gputune.kernels.ops.elementwise import ElementwiseProblem
from gputune.kernels.ops.gather import GatherProblem
from gputune.kernels.ops.lrn import LrnProblem
from gputune.kernels.ops.move import move
from gputune.kernels.ops.normalise import NormaliseProblem
from gputune.kernels.ops.pool import PoolProblem
from gputune.kernels.ops.reduce import ReduceProblem
from gputune.kernels.ops.resample import ResampleProblem
from gputune.kernels.ops.resize import ResizeProblem
from gputune.kernels.ops.scatter import along, at_points
from gputune.kernels.ops.softmax import SoftmaxProblem
from gputune.kernels.ops.transpose import TransposeProblem
from gputune.kernels.space import ChoiceSpace, Configuration, configuration_key

from . import attention_problems, inverted_residual_problems, separable_problems
from .difficult import ADD, DIFFICULT
from .one_of_each import ONE_OF_EACH
from .problems import DEVICES

LARGE: list[tuple[str, Any]] = [
    ("ArgMax", ArgProblem(2, 30_000, 1)),
    *(("Attention", problem) for problem in attention_problems.REAL.values()),
    ("Concat", ConcatProblem(400, (100_000, 7))),
    ("Concat", ConcatProblem(9, (5,) * 64)),
    ("Elementwise", ElementwiseProblem((1, 28, 28, 96), ((1, 1, 1, 96),), (1, 28, 28, 96), ADD)),
    ("Gather", GatherProblem(3_052 * 384, 128, (128,), (0,), (1,), (3_052,), (384,), 384)),
    *(("InvertedResidual", problem) for problem in inverted_residual_problems.REAL.values()),
    ("LRN", LrnProblem(1, 96, 1, 5)),
    ("Move", move(7 * 640, 0, [Loop(640, 7), Loop(7, 1)])),
    ("Move", move(20, 0, [Loop(1000, 5, 3, 4), Loop(5, 1, 1, 3)], "reflect")),
    ("Normalise", NormaliseProblem("deviation", (128, 384), (1,), (1,), True, True, 1e-5)),
    ("Pool", PoolProblem("max", 1, 56, 56, 64, (3, 3), (2, 2), (1, 1, 1, 1), (28, 28))),
    ("Reduce", ReduceProblem("variance", (3, 49, 1280), (1,), epilogue=Chain((Step("add", operand=0),)))),
    ("Resample", ResampleProblem(1, 20, 20, 96, (40, 40), (2, 2))),
    ("Resize", ResizeProblem(1, 20, 20, 96, (640, 640), (1, 1), (2, 2))),
    ("Scatter", along((200, 128), (1600, 128), 0, reduction="add")),
    ("Scatter", at_points((1 << 16,), (5, 1))),
    *(("SeparableConv", problem) for problem in separable_problems.REAL.values()),
    ("Softmax", SoftmaxProblem(1, 1000, 1)),
    ("Transpose", TransposeProblem(1, 3, 224, 224, "NCHW", "NHWC")),
]
"""Problems of real sizes."""
PROBLEMS = [
    *ONE_OF_EACH.items(),
    *LARGE,
    *((op, problem) for op, problems in DIFFICULT.items() for problem in problems.values()),
]
NAMES = [f"{op}-{number}" for number, (op, _) in enumerate(PROBLEMS)]
STREAMING = [op for op, family in families().items() if not family.heavy]
SAMPLED = 8
WITHOUT = ("ALG", "LOCAL", "PACK")
"""Parameters that choose among kernels, or the address space of a buffer, and are no macros."""


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


def check(op: str, problem: Any, limits: DeviceLimits, sampled: int = 0) -> None:
    """Render the default, the starters, which are legal and differ, and some of all configurations."""
    family = family_of(op)
    space = family.space(problem, limits)
    tried = [family.default(problem, limits), *family.starters(problem, limits)]
    assert len({configuration_key(one) for one in tried}) == len(tried)
    assert not any(space.violations(one) for one in tried)
    if sampled:
        every = list(space.configurations())
        tried += random.Random(1).sample(every, min(sampled, len(every)))
    launches = {}
    for configuration in tried:
        check_instance(family, problem, configuration, limits)
        launches[configuration_key(configuration)] = family.render(problem, configuration).main
    sources = {(json.loads(key).get("ALG"), launch.source) for key, launch in launches.items()}
    assert len(sources) == len(dict(sources)), "only options differ between configurations"
    different = {(launch.source, launch.options, launch.global_size, launch.local_size) for launch in launches.values()}
    assert family.heavy or len(different) == len(launches)


def check_instance(family: KernelFamily, problem: Any, configuration: Configuration, limits: DeviceLimits) -> None:
    """Grids are whole work-groups that the device allows, every name means something, and options are integers."""
    instance, specs = family.render(problem, configuration), family.inputs(problem)
    constants = {spec.name for spec in specs if spec.constant}
    activations = {spec.name for spec in specs} - constants
    allowed = {"output", *instance.packed, *instance.scratch, *activations, *constants}
    for kernel in instance.main.sequence:
        check_launch(kernel, instance.main.source, allowed, limits)
    given_names = {name for kernel in instance.main.sequence for name in kernel.arguments if isinstance(name, str)}
    assert given_names >= {"output", *activations}
    for launch in instance.prepare:
        check_launch(launch, launch.source, {*instance.packed, *constants}, limits)
    assert all(0 < nbytes <= limits.max_allocation_bytes for nbytes in instance.packed.values())
    idle = idle_of(family, problem, configuration, limits)
    wanted = {name: str(value) for name, value in configuration.items() if name not in {*idle, *WITHOUT}}
    assert macros(instance.main).items() >= wanted.items()
    assert not any(re.search(r"[^-\d]", value) for value in macros(instance.main).values())


def check_launch(launch: Launch | Stage, source: str, names: set[str], limits: DeviceLimits) -> None:
    assert f"void {launch.entry}(" in source
    for whole, part, most in zip(launch.global_size, launch.local_size, limits.max_work_item_sizes, strict=False):
        assert whole % part == 0
        assert 1 <= part <= most
    assert len(launch.global_size) == len(launch.local_size)
    assert math.prod(launch.local_size) <= limits.max_work_group_size
    assert all(isinstance(argument, int) or argument in names for argument in launch.arguments)


def idle_of(family: KernelFamily, problem: Any, configuration: Configuration, limits: DeviceLimits) -> set[str]:
    """The parameter that chooses a way to compute, and those of other ways."""
    space = family.space(problem, limits)
    if not isinstance(space, ChoiceSpace):
        return set()
    return set(configuration) - {each.name for each in space.spaces[configuration["ALG"]].parameters}


def macros(launch: Launch) -> Mapping[str, str]:
    """The -D options of a launch."""
    options = [option for option in launch.options.split() if option.startswith("-D")]
    return {option[2:].split("=")[0]: option.split("=")[1] for option in options}


@pytest.mark.parametrize(("op", "problem"), PROBLEMS, ids=NAMES)
def test_what_is_legal_fits_problem_and_device(op: str, problem: Any) -> None:
    """The default and starters fit each device; any other configuration one of them, another for each problem."""
    sampled = list(DEVICES)[PROBLEMS.index((op, problem)) % len(DEVICES)]
    for device, limits in DEVICES.items():
        check(op, problem, limits, SAMPLED if device == sampled else 0)


@pytest.mark.parametrize("op", STREAMING)
@settings(max_examples=10)
@given(limits=devices(), data=st.data())
def test_the_default_and_the_starters_are_legal_on_any_device(
    op: str, limits: DeviceLimits, data: st.DataObject
) -> None:
    check(op, data.draw(st.sampled_from([problem for each, problem in PROBLEMS if each == op])), limits)


@pytest.mark.parametrize(("op", "problem"), PROBLEMS, ids=NAMES)
def test_samples_and_references_are_what_is_declared(op: str, problem: Any) -> None:
    family = family_of(op)
    inputs = family.sample_inputs(problem, np.random.default_rng(0))
    assert {name: (value.shape, value.dtype.name) for name, value in inputs.items()} == {
        spec.name: (spec.shape, spec.dtype) for spec in family.inputs(problem)
    }
    output, got = family.output(problem), np.asarray(family.reference(problem, inputs))
    assert (got.shape, got.dtype.name) == (output.shape, output.dtype)


@pytest.mark.parametrize("op", ("ArgMax", "LRN", "Normalise", "Reduce", "Scan"))
def test_spaces_of_rows_are_no_larger_than_they_must_be(op: str) -> None:
    for each, problem in PROBLEMS:
        assert each != op or family_of(op).space(problem, DEVICES["cpu"]).size <= 2000, problem


@pytest.mark.parametrize("op", ONE_OF_EACH)
def test_a_template_documents_its_parameters(op: str) -> None:
    """Each parameter has a default in the template, so that it compiles alone, and a word about it."""
    family, problem = family_of(op), ONE_OF_EACH[op]
    sources = "".join(
        family.render(problem, one).main.source
        for one in [family.default(problem, DEVICES["gpu"]), *family.starters(problem, DEVICES["gpu"])]
    )
    for parameter in family.space(problem, DEVICES["gpu"]).parameters:
        assert len(parameter.values) == 1 or parameter.name in WITHOUT or f"#define {parameter.name} " in sources
        assert parameter.meaning
