"""Compare products of keys and values that heads share with onnxruntime, and test that nothing is repeated."""

import numpy as np
import pytest

from gputune.client.model.plan import Plan
from tests.client.models import build
from tests.client.plans import Lowered, assert_agrees, assert_whole

HEADS, GROUPS, SIZE, KEYS = 6, 2, 8, 7
SHARED = "float[{b},2,7,8] k, float[{b},2,7,8] v"
REPEATED = """
    k1 = Unsqueeze(k, axis) k2 = Expand(k1, wide) keys = Reshape(k2, whole)
    v1 = Unsqueeze(v, axis) v2 = Expand(v1, wide) values = Reshape(v2, whole)"""
ATTENDED = """turned = Transpose<perm = [0,1,3,2]>(keys) p = MatMul(q, turned) {scores}
    shares = Softmax<axis = -1>(scores) y = MatMul(shares, values)"""
MASKS = {
    "none": ("", "scores = Mul(p, scale)"),
    "of rows": (", float[{s},7] m", "scaled = Mul(p, scale) scores = Add(scaled, m)"),
    "of batches": (", float[{b},1,{s},7] m", "scaled = Div(p, scale) scores = Add(m, scaled)"),
    "of heads": (", float[{b},6,{s},7] m", "scaled = Mul(p, scale) scores = Add(scaled, m)"),
    "capped": ("", "bent = Tanh(p) scores = Mul(bent, scale)"),
}


def moves(plan: Plan) -> int:
    return sum(operation.task.op == "Move" for operation in plan.operations)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("batch", "rows"), [(1, 1), (1, 5), (2, 1), (2, 5)])
def test_shared_heads_are_not_repeated(lowered: Lowered, batch: int, rows: int, mask: str) -> None:
    given, scores = MASKS[mask]
    sizes = {"b": batch, "s": rows}
    model = build(
        f"(float[{batch},6,{rows},8] q, {SHARED}{given}) => (float[{batch},6,{rows},8] y)".format(**sizes),
        REPEATED + ATTENDED.format(scores=scores),
        {
            "axis": np.array([2]), "wide": np.array([batch, GROUPS, HEADS // GROUPS, KEYS, SIZE]),
            "whole": np.array([batch, HEADS, KEYS, SIZE]), "scale": np.array(0.3, np.float32),
        },
        opset=17,
    )  # fmt: skip
    plan = lowered(model)
    assert_whole(plan)
    assert_agrees(model, plan)
    assert moves(plan) == 0
    assert [operation.task.op for operation in plan.operations].count("MatMul") == 2


OTHERS = {
    "the left factor": "p = MatMul(keys, right) y = Identity(p)",
    "both factors": "t = Transpose<perm = [0,1,3,2]>(values) y = MatMul(keys, t)",
    "a contracted axis": "t = Transpose<perm = [0,2,1,3]>(keys) r = Reshape(t, rows) y = MatMul(r, column)",
    "and read elsewhere": "t = Transpose<perm = [0,1,3,2]>(keys) p = MatMul(q, t) s = ReduceSum<keepdims = 0>(keys)"
    " y = Add(p, s)",
}  # fmt: skip


@pytest.mark.parametrize("body", OTHERS.values(), ids=OTHERS)
def test_other_products_of_repeated_tensors_are_right(lowered: Lowered, body: str) -> None:
    model = build(
        "(float[1,6,3,8] q, float[1,6,8,4] right, float[1,2,7,8] k, float[1,2,7,8] v) => (float y)",
        REPEATED + body,
        {
            "axis": np.array([2]), "wide": np.array([1, 2, 3, 7, 8]), "whole": np.array([1, 6, 7, 8]),
            "rows": np.array([7, 48]), "column": (48, 5),
        },
        opset=17,
    )  # fmt: skip
    plan = lowered(model)
    assert_whole(plan)
    assert_agrees(model, plan)
