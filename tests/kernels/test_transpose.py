"""Test layout conversion: the reference compared with onnxruntime, both ways, and the limits of a block."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputune.kernels.family import DeviceLimits
from gputune.kernels.ops.transpose import FAMILY, TransposeProblem

LIMITS = DeviceLimits(256, (256, 256, 64), 4096, 1 << 30, 2, "gpu", 1)


@pytest.mark.parametrize(
    ("source", "target", "order"), [("NCHW", "NHWC", (0, 2, 3, 1)), ("NHWC", "NCHW", (0, 3, 1, 2))]
)
def test_the_reference_is_onnxruntime(
    run_node: Callable[..., Any], source: str, target: str, order: tuple[int, ...]
) -> None:
    problem = TransposeProblem(2, 3, 5, 7, source, target)
    value = np.arange(210, dtype=np.float32).reshape(problem.shape(source))
    got = FAMILY.reference(problem, {"input": value})
    assert got.flags.c_contiguous
    assert got.shape == FAMILY.output(problem).shape
    np.testing.assert_array_equal(got, run_node("Transpose", [value], perm=order))


@given(*[st.integers(1, 6)] * 4)
def test_there_and_back_is_the_same(batch: int, channels: int, height: int, width: int) -> None:
    there = TransposeProblem(batch, channels, height, width, "NCHW", "NHWC")
    back = TransposeProblem(batch, channels, height, width, "NHWC", "NCHW")
    assert there.matrix == back.matrix[::-1]
    value = np.arange(batch * channels * height * width, dtype=np.float32).reshape(there.shape("NCHW"))
    again = FAMILY.reference(back, {"input": FAMILY.reference(there, {"input": value})})
    np.testing.assert_array_equal(again, value)


def test_blocks_stay_in_registers_and_in_local_memory() -> None:
    space = FAMILY.space(TransposeProblem(1, 64, 64, 64, "NCHW", "NHWC"), LIMITS)
    legal = {"VR": 4, "VC": 4, "DIMX": 8, "DIMY": 8, "STAGED": 1, "PAD": 0}
    assert not space.violations(legal)  # 32 rows of 32 floats fill local memory exactly
    assert "4096 bytes of local memory" in space.violations(legal | {"PAD": 1})[0]
    assert "PAD is of use only with STAGED" in space.violations(legal | {"STAGED": 0, "PAD": 1})[0]
    assert "registers" in space.violations(legal | {"VR": 16, "VC": 16, "STAGED": 0, "DIMY": 4})[0]


@pytest.mark.parametrize(("channels", "width"), [(4, 34), (2, 58), (8, 17), (4, 2)])
def test_a_cpu_stores_what_a_pixel_has_of_several_groups_as_one_vector(channels: int, width: int) -> None:
    """As many columns of the matrix as that takes, and several pixels of a work-group."""
    limits = DeviceLimits(4096, (4096, 4096, 4096), 1 << 19, 1 << 30, 2, "cpu", 16)
    problem = TransposeProblem(784, channels, 1, width, "NCHW", "NHWC")
    default = FAMILY.default(problem, limits)
    assert not FAMILY.space(problem, limits).violations(default)
    launch = FAMILY.render(problem, default).main
    stored = channels * default["VC"]
    assert f"-DWHOLE={stored}" in launch.options and (stored == 16 or width < 16 // channels * 2)
    assert launch.local_size[0] * default["VC"] >= 2 * width or launch.local_size[0] >= 64
