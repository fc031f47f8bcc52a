"""Compare windows over maps with depth, folded into windows over maps, with onnxruntime."""

from typing import Any

import numpy as np
import onnxruntime
import pytest

from gputune.client.errors import ModelError
from gputune.client.model.reference import evaluate
from tests.client.models import build

from .test_lowering import Lowered, assert_agrees, lowered, ops

__all__ = ["lowered"]

MAPS = "(float[2,6,7,5,6] x) => (float[a,b,c,d,e] y)"


@pytest.mark.parametrize(
    "body",
    [
        "MaxPool<kernel_shape=[2,3,1]>",
        "MaxPool<kernel_shape=[3,2,2], strides=[2,1,3], pads=[1,0,1,2,1,0], dilations=[2,1,1], ceil_mode=1>",
        "AveragePool<kernel_shape=[3,2,2], strides=[2,2,1], pads=[1,0,1,2,1,0], ceil_mode=1>",
        "AveragePool<kernel_shape=[3,3,2], pads=[2,1,1,0,2,0], count_include_pad=1>",
        'AveragePool<kernel_shape=[3,3,2], auto_pad="SAME_UPPER", strides=[2,1,2]>',
        'MaxPool<kernel_shape=[2,4,2], auto_pad="SAME_LOWER">',
        "LpPool<kernel_shape=[2,3,2], p=3, pads=[1,0,0,0,1,1]>",
        "GlobalAveragePool",
        "GlobalMaxPool",
    ],
)
def test_poolings(lowered: Lowered, body: str) -> None:
    model = build(MAPS, f"y = {body}(x)", opset=22, ir_version=10)
    assert_agrees(model, lowered(model))


@pytest.mark.parametrize(
    ("attributes", "weight"),
    [
        ("group=1", (5, 6, 1, 1, 1)),
        ("pads=[1,2,0,2,0,1], strides=[2,1,3], dilations=[2,1,2]", (5, 6, 3, 2, 2)),
        ("group=3, pads=[1,1,1,1,1,1]", (9, 2, 3, 3, 3)),
        ("group=6", (6, 1, 2, 1, 3)),
        ('auto_pad="SAME_UPPER", strides=[3,2,1]', (4, 6, 2, 3, 2)),
        ('auto_pad="SAME_LOWER"', (4, 6, 4, 2, 3)),
    ],
)
def test_convolutions(lowered: Lowered, attributes: str, weight: tuple[int, ...]) -> None:
    model = build(MAPS, f"c = Conv<{attributes}>(x, w, b) y = Relu(c)", {"w": weight, "b": weight[:1]})
    assert_agrees(model, lowered(model))


@pytest.mark.parametrize(
    ("attributes", "weight"),
    [
        ("group=1", (6, 5, 2, 3, 1)),
        ("strides=[2,3,1], pads=[1,0,1,0,1,1], output_padding=[1,2,0]", (6, 4, 3, 3, 2)),
        ("group=3, strides=[3,2,2], dilations=[2,1,2], pads=[0,1,0,2,1,1]", (6, 3, 2, 3, 2)),
        ('auto_pad="NOTSET", strides=[3,1,1]', (6, 2, 2, 2, 2)),
    ],
)
def test_transposed_convolutions(lowered: Lowered, attributes: str, weight: tuple[int, ...]) -> None:
    groups = 3 if "group=3" in attributes else 1
    bias = (weight[1] * groups,)
    model = build(MAPS, f"c = ConvTranspose<{attributes}>(x, w, b) y = Relu(c)", {"w": weight, "b": bias})
    assert_agrees(model, lowered(model))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("y = Conv(x, x)", "its weight 'x' is computed at run time"),
        ("y = ConvTranspose<output_shape=[9,9,9]>(x, w)", "it must have pads"),
    ],
)
def test_what_cannot_be_known_is_refused(lowered: Lowered, body: str, said: str) -> None:
    model = build("(float[2,2,3,3,3] x) => (float[a,b,c,d,e] y)", body, {"w": (2, 2, 3, 3, 3)})
    with pytest.raises(ModelError, match=said):
        lowered(model)


def test_a_convolution_of_any_depth_is_one_task(lowered: Lowered) -> None:
    plan = lowered(build(MAPS, "y = Conv<pads=[1,1,1,1,1,1]>(x, w)", {"w": (4, 6, 3, 3, 3)}))
    (conv,) = (operation.task.problem for operation in plan.operations if operation.task.op == "Conv")
    assert (conv.batch, conv.in_channels) == (2 * 7, 6 * 3)


@pytest.mark.parametrize("kind", ["uint8", "int8"])
def test_bytes_are_pooled_as_floats(lowered: Lowered, kind: str) -> None:
    model = build(f"({kind}[1,2,5,5] x) => ({kind}[a,b,c,d] y)", "y = MaxPool<kernel_shape=[3,2], pads=[1,0,1,1]>(x)")
    plan = lowered(model)
    assert "Pool" in ops(plan)
    limits = np.iinfo(kind)
    x: Any = np.random.default_rng(2).integers(limits.min, limits.max + 1, (1, 2, 5, 5)).astype(kind)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    got = evaluate(plan, {"x": x})["y"]
    assert got.dtype == kind
    assert np.array_equal(got, session.run(None, {"x": x})[0])
