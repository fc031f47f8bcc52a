"""Test transposed convolution: the reference compared with onnxruntime, phases and taps, and what is refused."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gputune.kernels.ops.conv_transpose import FAMILY, ConvTransposeProblem

from .problems import DEVICES, RELU, random_inputs

# With the pads (bottom, right) that the output's size follows from, and the output padding.
CASES = {
    "kernel-as-strides": (ConvTransposeProblem(2, 3, 5, 4, 6, (2, 2), (2, 2), (6, 10), bias=True), (0, 0), (0, 0)),
    "padded": (ConvTransposeProblem(1, 5, 4, 3, 2, (3, 3), (2, 2), (9, 7), (1, 1)), (1, 1), (0, 0)),
    "output-padding": (ConvTransposeProblem(1, 5, 4, 3, 2, (3, 3), (2, 2), (10, 8), (1, 1)), (1, 1), (1, 1)),
    "asymmetric": (ConvTransposeProblem(1, 4, 5, 3, 7, (3, 4), (1, 3), (4, 13), (2, 1)), (0, 2), (0, 0)),
    "dilated": (ConvTransposeProblem(1, 4, 3, 2, 3, (3, 2), (2, 3), (11, 10), (0, 0), (2, 3)), (0, 0), (0, 0)),
    "strides-beyond-the-kernel": (ConvTransposeProblem(1, 3, 3, 4, 5, (2, 1), (3, 2), (8, 5)), (0, 0), (0, 0)),
    "groups": (
        ConvTransposeProblem(2, 4, 5, 6, 21, (3, 4), (2, 1), (7, 6), (1, 1), groups=3, bias=True),
        (1, 1),
        (0, 0),
    ),
    "depthwise": (ConvTransposeProblem(1, 3, 5, 7, 7, (4, 4), (2, 2), (6, 10), (1, 1), groups=7), (1, 1), (0, 0)),
}


@pytest.mark.parametrize("name", CASES)
def test_the_reference_is_onnxruntime(run_node: Callable[..., Any], name: str) -> None:
    problem, ends, added = CASES[name]
    inputs = random_inputs("ConvTranspose", problem)
    given = [inputs["input"].transpose(0, 3, 1, 2), inputs["weight"], *([inputs["bias"]] if problem.bias else [])]
    want = run_node(
        "ConvTranspose",
        given,
        strides=problem.strides,
        dilations=problem.dilations,
        pads=[*problem.pads, *ends],
        output_padding=added,
        group=problem.groups,
    )
    got = FAMILY.reference(problem, inputs)
    assert got.shape == FAMILY.output(problem).shape
    np.testing.assert_allclose(got, want.transpose(0, 2, 3, 1), rtol=1e-4, atol=1e-5)


def test_a_kernel_as_large_as_the_strides_is_one_tap() -> None:
    problem = ConvTransposeProblem(1, 160, 160, 24, 1, (2, 2), (2, 2), (320, 320), epilogue=RELU)
    assert (problem.positions, problem.taps, problem.columns) == ((160, 160), (1, 1), 4)


def test_positions_cover_all_output_pixels_and_no_more_than_that() -> None:
    padded = ConvTransposeProblem(1, 5, 5, 3, 2, (4, 3), (2, 2), (10, 9), (1, 2))
    assert (padded.positions, padded.taps) == ((6, 5), (2, 2))  # rows 1 to 10 and columns 2 to 10, in twos
    dilated = ConvTransposeProblem(1, 5, 5, 3, 2, (3, 3), (1, 3), (9, 17), dilations=(2, 2))
    assert dilated.taps == (5, 2)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", CASES)
def test_default_and_starters_are_legal(device: str, name: str) -> None:
    problem, limits = CASES[name][0], DEVICES[device]
    space = FAMILY.space(problem, limits)
    for configuration in (FAMILY.default(problem, limits), *FAMILY.starters(problem, limits)):
        assert space.violations(configuration) == []
        instance = FAMILY.render(problem, configuration)
        for launch in (*instance.prepare, instance.main):
            pairs = zip(launch.global_size, launch.local_size, strict=True)
            assert all(size % local == 0 for size, local in pairs)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"in_channels": 0}, "positive sizes"),
        ({"groups": 3}, "3 groups do not divide 8"),
        ({"pads": (0, -1)}, "not negative"),
        ({"strides": (0, 2)}, "positive sizes"),
        ({"dtype": "int8"}, "int8"),
        ({"layout": "NCHW"}, "NCHW"),
        ({"out_channels": 1 << 25}, "32 bits"),
    ],
)
def test_a_wrong_problem_says_what_is_wrong(changed: dict[str, Any], message: str) -> None:
    fields = {"batch": 1, "height": 4, "width": 4, "in_channels": 8, "out_channels": 8}
    windows = {"kernel": (2, 2), "strides": (2, 2), "output": (8, 8)}
    with pytest.raises(ValueError, match=message):
        ConvTransposeProblem(**(fields | windows | changed))
