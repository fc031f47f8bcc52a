"""Test inverted residual blocks: the reference compared with onnxruntime, the space, refusals, and costs."""

import random
from dataclasses import replace

import numpy as np
import pytest

from gputune.kernels.catalogue import family_of
from gputune.kernels.ops.inverted_residual import FAMILY, InvertedResidualProblem

from .inverted_residual_problems import INVERTED, REAL
from .onnx_conv import run_convolution
from .problems import CPU, DEVICES, GPU, RESIDUAL, random_inputs
from .test_separable import depthwise_of


@pytest.mark.parametrize("name", INVERTED)
def test_reference_agrees_with_onnxruntime_and_numpy(name: str) -> None:
    problem = INVERTED[name]
    inputs = random_inputs("InvertedResidual", problem)
    nothing = np.zeros(1, np.float32)
    expanded = inputs["input"] @ inputs["expand_weight"] + inputs.get("expand_bias", nothing)
    first = {"input": problem.expand_epilogue.apply(expanded), "weight": inputs["depthwise_weight"]}
    if problem.depthwise_bias:
        first["bias"] = inputs["depthwise_bias"]
    middle = run_convolution(depthwise_of(problem.separable), first, problem.channels)
    middle = problem.depthwise_epilogue.apply(middle).astype(np.float64)
    want = middle @ inputs["weight"] + inputs.get("bias", nothing)
    want = problem.epilogue.apply_to(want, inputs)
    got = FAMILY.reference(problem, inputs)
    assert got.dtype == np.float32
    assert got.shape == FAMILY.output(problem).shape
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5 * np.abs(want).max())


def test_problem_refuses_what_has_no_meaning() -> None:
    fine = INVERTED["batch-residual"]
    for wrong, said in (
        ({"in_channels": 0}, "positive input channels"),
        ({"out_channels": 0}, "positive batch and channels"),
        ({"layout": "NCHW"}, "NCHW"),
        ({"expand_epilogue": RESIDUAL}, "expansion without operands"),
        ({"depthwise_epilogue": RESIDUAL}, "depthwise epilogue without operands"),
        ({"height": 1, "pads": (0, 0, 0, 0)}, "does not fit"),
    ):
        with pytest.raises(ValueError, match=said):
            replace(fine, **wrong)


def test_work_is_that_of_the_parts_without_the_tensor_between_them() -> None:
    problem = INVERTED["strided"]
    parts = [family_of("MatMul").work(problem.expansion), family_of("SeparableConv").work(problem.separable)]
    assert FAMILY.work(problem).flops == sum(work.flops for work in parts)
    assert FAMILY.work(problem).bytes == sum(work.bytes for work in parts) - 2 * 4 * 11 * 12 * 24


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", [*INVERTED, *REAL])
def test_guesses_are_valid_and_launches_fit(name: str, device: str) -> None:
    problem, limits = (INVERTED | REAL)[name], DEVICES[device]
    space = FAMILY.space(problem, limits)
    default, starters = FAMILY.default(problem, limits), FAMILY.starters(problem, limits)
    assert all(space.violations(one) == [] for one in (default, *starters))
    assert default not in starters
    every = list(space.configurations())
    rows = problem.separable.window.output[0]
    for configuration in [default, *starters, *random.Random(1).sample(every, min(20, len(every)))]:
        instance = FAMILY.render(problem, configuration)
        (across, down), local = instance.main.global_size, instance.main.local_size
        assert across == local[0] <= min(limits.max_work_group_size, limits.max_work_item_sizes[0])
        strips = down // problem.batch
        assert strips * problem.batch == down
        assert (strips - 1) * configuration["ROWS"] < rows <= strips * configuration["ROWS"]
        constants = {spec.name for spec in FAMILY.inputs(problem) if spec.constant}
        for launch in instance.prepare:
            assert {each for each in launch.arguments if isinstance(each, str)} <= constants | instance.packed.keys()
        assert {name for launch in instance.prepare for name in launch.arguments} >= constants
    if device == "cpu" and name in REAL:
        assert len(starters) >= 2
        assert space.size >= 200


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
