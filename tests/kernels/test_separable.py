"""Test separable convolution: the reference compared with its two parts, its space, refusals, and costs."""

import random
from dataclasses import replace

import numpy as np
import pytest

from gputune.kernels.catalogue import family_of
from gputune.kernels.chain import Chain, Step
from gputune.kernels.ops.depthwise import DepthwiseProblem
from gputune.kernels.ops.matmul import MatMulProblem
from gputune.kernels.ops.separable import FAMILY, SeparableProblem

from .onnx_conv import run_convolution
from .problems import CPU, DEVICES, GPU, RELU, RESIDUAL, SMALL, random_inputs
from .separable_problems import REAL, SEPARABLE


def depthwise_of(problem: SeparableProblem) -> DepthwiseProblem:
    return DepthwiseProblem(
        problem.batch, problem.height, problem.width, problem.channels, problem.kernel, problem.strides, problem.pads,
        problem.dilations, problem.depthwise_bias, problem.depthwise_epilogue,
    )  # fmt: skip


@pytest.mark.parametrize("name", SEPARABLE)
def test_reference_agrees_with_onnxruntime_and_numpy(name: str) -> None:
    problem = SEPARABLE[name]
    inputs = random_inputs("SeparableConv", problem)
    first = {"input": inputs["input"], "weight": inputs["depthwise_weight"]}
    if problem.depthwise_bias:
        first["bias"] = inputs["depthwise_bias"]
    middle = problem.depthwise_epilogue.apply(run_convolution(depthwise_of(problem), first, problem.channels))
    want = middle.astype(np.float64) @ inputs["weight"]
    if problem.bias:
        want += inputs["bias"]
    want = problem.epilogue.apply_to(want, inputs)
    got = FAMILY.reference(problem, inputs)
    assert got.dtype == np.float32
    assert got.shape == FAMILY.output(problem).shape
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5 * np.abs(want).max())


def test_problem_refuses_what_has_no_meaning() -> None:
    with pytest.raises(ValueError, match="positive batch and channels"):
        SeparableProblem(1, 4, 4, 8, 0, (3, 3))
    with pytest.raises(ValueError, match="NCHW"):
        SeparableProblem(1, 4, 4, 8, 8, (3, 3), layout="NCHW")
    with pytest.raises(ValueError, match="does not fit"):
        SeparableProblem(1, 2, 4, 8, 8, (3, 3))
    for chain in (RESIDUAL, Chain((Step("sqrt"),))):
        with pytest.raises(ValueError, match="without operands that is defined everywhere"):
            SeparableProblem(1, 4, 4, 8, 8, (3, 3), depthwise_epilogue=chain)


def test_work_is_that_of_both_without_the_tensor_between_them() -> None:
    problem = SEPARABLE["strided"]
    parts = family_of("DepthwiseConv"), family_of("MatMul")
    first, second = depthwise_of(problem), MatMulProblem(8 * 9, 24, 20, bias=True)
    works = [family.work(part) for family, part in zip(parts, (first, second), strict=True)]
    assert FAMILY.work(problem).flops == sum(work.flops for work in works)
    assert FAMILY.work(problem).bytes == sum(work.bytes for work in works) - 2 * 4 * 8 * 9 * 24


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", [*SEPARABLE, *REAL])
def test_guesses_are_valid_and_launches_fit(name: str, device: str) -> None:
    problem, limits = (SEPARABLE | REAL)[name], DEVICES[device]
    space = FAMILY.space(problem, limits)
    default, starters = FAMILY.default(problem, limits), FAMILY.starters(problem, limits)
    assert all(space.violations(one) == [] for one in (default, *starters))
    assert default not in starters
    if device != "small" and name in REAL:
        assert len(starters) >= 3
    every = list(space.configurations())
    for configuration in [default, *starters, *random.Random(1).sample(every, min(20, len(every)))]:
        instance = FAMILY.render(problem, configuration)
        (across, down), local = instance.main.global_size, instance.main.local_size
        assert across % local[0] == 0
        assert local[0] <= min(limits.max_work_group_size, limits.max_work_item_sizes[0])
        rows, columns = problem.window.output
        tiles = problem.batch * rows * -(-columns // configuration["MR"])
        assert (down - 1) * configuration["RT"] < tiles <= down * configuration["RT"]
        for launch in instance.prepare:
            names = {each for each in launch.arguments if isinstance(each, str)}
            constants = {spec.name for spec in FAMILY.inputs(problem) if spec.constant}
            assert names <= constants | instance.packed.keys()
    assert len({FAMILY.render(problem, configuration).main.source for configuration in every[:3]}) == 1


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
