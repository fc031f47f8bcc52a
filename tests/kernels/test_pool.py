"""Test pooling: the reference compared with onnxruntime, and by windows."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gputune.kernels.chain import Chain, Step
from gputune.kernels.family import DeviceLimits
from gputune.kernels.ops.pool import FAMILY, PoolProblem

RANDOM = np.random.default_rng(7)
LIMITS = DeviceLimits(256, (256, 256, 64), 32768, 1 << 30, 2, "cpu", 8)


def positions(size: int, kernel: int, stride: int, pads: int, ceil: bool) -> int:
    """How many windows ONNX fits on an axis: rounded up, less one that would begin behind map and left pads."""
    return (size + pads - kernel + (stride - 1 if ceil else 0)) // stride + 1


def pool(kind: str, shape: tuple[int, int, int, int], **fields: Any) -> PoolProblem:
    batch, height, width, channels = shape
    return PoolProblem(kind, batch, height, width, channels, **fields)


@pytest.mark.parametrize("kind", ["max", "average"])
@pytest.mark.parametrize(
    ("size", "kernel", "strides", "pads", "ceil"),
    [
        ((8, 8), (2, 2), (2, 2), (0, 0, 0, 0), 0),
        ((13, 9), (3, 2), (2, 3), (1, 0, 2, 1), 0),
        ((6, 6), (3, 3), (2, 2), (1, 1, 1, 1), 1),
        ((7, 10), (3, 4), (3, 3), (0, 1, 0, 2), 1),
        ((5, 1), (5, 1), (1, 1), (0, 0, 0, 0), 0),
    ],
)
@pytest.mark.parametrize("include", [0, 1])
def test_the_reference_is_onnxruntime(
    run_node: Callable[..., Any],
    kind: str,
    size: tuple[int, int],
    kernel: tuple[int, int],
    strides: tuple[int, int],
    pads: tuple[int, int, int, int],
    ceil: int,
    include: int,
) -> None:
    value = RANDOM.standard_normal((2, *size, 3)).astype(np.float32)
    attributes = {"kernel_shape": kernel, "strides": strides, "pads": pads, "ceil_mode": ceil}
    op = "MaxPool"
    if kind == "average":
        op, attributes["count_include_pad"] = "AveragePool", include
    want = run_node(op, [value.transpose(0, 3, 1, 2)], **attributes).transpose(0, 2, 3, 1)
    rows, columns = (positions(size[a], kernel[a], strides[a], pads[a] + pads[a + 2], bool(ceil)) for a in (0, 1))
    problem = pool(
        kind,
        (2, *size, 3),
        kernel=kernel,
        strides=strides,
        pads=pads,
        output=(rows, columns),
        count_include_pad=bool(include),
    )
    got = FAMILY.reference(problem, {"input": value})
    assert got.shape == want.shape == FAMILY.output(problem).shape
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("kind", "op"), [("max", "GlobalMaxPool"), ("average", "GlobalAveragePool")])
def test_a_window_as_large_as_the_map_is_global_pooling(run_node: Callable[..., Any], kind: str, op: str) -> None:
    value = RANDOM.standard_normal((3, 5, 7, 11)).astype(np.float32)
    problem = pool(kind, (3, 5, 7, 11), kernel=(5, 7), strides=(1, 1), pads=(0, 0, 0, 0), output=(1, 1))
    assert problem.is_global
    want = run_node(op, [value.transpose(0, 3, 1, 2)]).transpose(0, 2, 3, 1)
    np.testing.assert_allclose(FAMILY.reference(problem, {"input": value}), want, rtol=1e-5, atol=1e-6)


def test_the_epilogue_reads_output_shaped_operands() -> None:
    chain = Chain((Step("add", operand=0), Step("relu")))
    problem = pool("max", (1, 2, 2, 1), kernel=(2, 2), strides=(2, 2), pads=(0, 0, 0, 0), output=(1, 1), epilogue=chain)
    assert [spec.shape for spec in FAMILY.inputs(problem)] == [(1, 2, 2, 1), (1, 1, 1, 1)]
    value = np.array([[1, 2], [3, 4]], np.float32).reshape(1, 2, 2, 1)
    for operand, want in ((-1.5, 2.5), (-7, 0)):
        inputs = {"input": value, "operand0": np.full((1, 1, 1, 1), operand, np.float32)}
        assert FAMILY.reference(problem, inputs).item() == want
    assert FAMILY.render(problem, FAMILY.default(problem, LIMITS)).main.arguments == ("input", "output", "operand0")


@settings(max_examples=60)
@given(data=st.data())
def test_padding_and_strides_do_not_move_the_window(data: st.DataObject) -> None:
    """Every output is the maximum over exactly the positions that the formula names."""
    size, kernel, stride = (tuple(data.draw(st.integers(1, most)) for _ in range(2)) for most in (9, 4, 3))
    pads = tuple(data.draw(st.integers(0, kernel[a % 2] - 1)) for a in range(4))
    output = tuple(positions(size[a], kernel[a], stride[a], pads[a] + pads[a + 2], False) for a in (0, 1))
    assume(min(output) >= 1)
    fields = {"kernel": kernel, "strides": stride, "pads": pads, "output": output}
    try:
        problem = pool("max", (1, *size, 1), **fields)  # type: ignore[arg-type]
    except ValueError:
        last = [(output[a] - 1) * stride[a] - pads[a] for a in (0, 1)]
        assert any(first >= size[a] for a, first in enumerate(last))
        return
    value = RANDOM.permutation(np.arange(size[0] * size[1])).reshape(1, *size, 1).astype(np.float32)
    got = FAMILY.reference(problem, {"input": value})
    for y in range(output[0]):
        for x in range(output[1]):
            top, left = y * stride[0] - pads[0], x * stride[1] - pads[1]
            seen = value[0, max(top, 0) : top + kernel[0], max(left, 0) : left + kernel[1], 0]
            assert got[0, y, x, 0] == seen.max()
