"""Test importing and lowering normalisations, compared with onnxruntime."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx
import pytest

from gputune.client.errors import ModelError
from gputune.client.model.importer import import_model
from gputune.client.model.lowering import lower
from tests.client.models import build

from .test_lowering import Lowered, assert_agrees, lowered, ops

__all__ = ["lowered"]

SIGNATURE = "(float[2,6,4,5] x) => (float[2,6,4,5] y)"
SOURCES = {"given": "r = Identity(x)", "convolved": "r = Conv(x, w)"}
"""What a map lies like: as the model has it, and as a kernel left it."""


def model(source: str, body: str, weights: Mapping[str, Any], opset: int) -> onnx.ModelProto:
    used = {"w": (6, 6, 1, 1)} if source == "convolved" else {}
    return build(SIGNATURE, f"{SOURCES[source]} {body}", {**used, **weights}, opset, ir_version=10)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(
    ("body", "weights", "opset"),
    [
        ("y = LayerNormalization(r, s, t)", {"s": (5,), "t": (5,)}, 17),
        ("y = LayerNormalization<axis=1, epsilon=0.01>(r, s)", {"s": (6, 4, 5)}, 17),
        ("y = LayerNormalization<axis=-2>(r, s, t)", {"s": (4, 5), "t": (5,)}, 17),
        ("y = RMSNormalization<axis=-2>(r, s)", {"s": (4, 5)}, 23),
        ("y = InstanceNormalization(r, s, t)", {"s": (6,), "t": (6,)}, 17),
        ("y = GroupNormalization<num_groups=2, epsilon=0.1>(r, s, t)", {"s": (6,), "t": (6,)}, 21),
        ("y = LpNormalization<axis=1, p=1>(r)", {}, 17),
        ("y = LpNormalization(r)", {}, 17),
        ("y = MeanVarianceNormalization(r)", {}, 13),
        ("y = MeanVarianceNormalization<axes=[1, 3]>(r)", {}, 13),
        ("y = LRN<size=3, alpha=0.5, beta=1.5, bias=2.0>(r)", {}, 17),
    ],
)
def test_maps_are_normalised_as_they_lie(
    lowered: Lowered, source: str, body: str, weights: Mapping[str, Any], opset: int
) -> None:
    proto = model(source, body, weights, opset)
    plan = lowered(proto)
    op = "LRN" if "LRN" in body else "Normalise"
    assert ops(plan) == ([op] if source == "given" else ["Transpose", "MatMul", op, "Transpose"])
    assert_agrees(proto, plan)


def test_a_group_may_have_one_scale() -> None:
    """The meaning of GroupNormalization in operator sets 18 to 20, which onnx's checker does not let pass."""
    body = "y = GroupNormalization<num_groups=3>(r, s, t)"
    proto = model("convolved", body, {"s": (3,), "t": (3,)}, 18)
    assert_agrees(proto, lower(import_model(proto, Path("old.onnx"), {})))


def test_what_follows_is_fused(lowered: Lowered) -> None:
    body = "a = LayerNormalization(x, s, t) b = Add(a, x) y = Relu(b)"
    proto = build("(float[2,3,5] x) => (float[2,3,5] y)", body, {"s": (5,), "t": (5,)}, opset=17)
    plan = lowered(proto)
    assert ops(plan) == ["Normalise"]
    assert_agrees(proto, plan)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_statistics_are_there_where_they_are_read(lowered: Lowered, axis: int) -> None:
    shape = (2, 3, 5)[axis:]
    sizes = [1 if number >= axis % 3 else size for number, size in enumerate((2, 3, 5))]
    listed = ",".join(map(str, sizes))
    proto = build(
        f"(float[2,3,5] x) => (float[2,3,5] y, float[{listed}] m, float[{listed}] d)",
        f"y, m, d = LayerNormalization<axis={axis}>(x, s)",
        {"s": shape},
        opset=17,
    )
    plan = lowered(proto)
    assert ops(plan) == ["Normalise", "Reduce", "Reduce"]
    assert_agrees(proto, plan)


def test_computed_scales_are_read_as_well(lowered: Lowered) -> None:
    body = "u = Exp(s) y = LayerNormalization(x, u, t)"
    proto = build("(float[2,3] x, float[3] s, float[3] t) => (float[2,3] y)", body, opset=17)
    assert_agrees(proto, lowered(proto))


@pytest.mark.parametrize(
    ("body", "opset", "said"),
    [
        ("y = LayerNormalization<stash_type=11>(x, s)", 17, "computes in type 11; 1, float32"),
        ("y = LayerNormalization(x, s, t)", 17, "scale and bias have the shapes [(1, 1, 3), (1, 1, 1)]"),
        ("y = GroupNormalization<num_groups=2>(x, s, s)", 21, "3 channels cannot be divided into 2 groups"),
        ("y = InstanceNormalization(x, s, t)", 17, "have {1, 3} elements, there are 3 channels"),
    ],
)
def test_what_is_not_supported_is_said(lowered: Lowered, body: str, opset: int, said: str) -> None:
    proto = build("(float[2,3,3] x, float[3] s, float[1] t) => (float[2,3,3] y)", body, opset=opset)
    with pytest.raises(ModelError, match=re.escape(said)):
        lowered(proto)
