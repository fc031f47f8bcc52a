"""Test the pass that recognises spelt-out softmaxes: every spelling becomes one operation and stays right."""

import pytest

from tests.client.models import build, integers, numbers

from .test_lowering import Lowered, assert_agrees, lowered, ops

__all__ = ["lowered"]

SHIFTED = "m = ReduceMax<axes=[1]>(x) u = Sub(x, m) "
SPELLINGS = {
    "shifted": SHIFTED + "e = Exp(u) t = ReduceSum<axes=[1]>(e) y = Div(e, t)",
    "plain": "e = Exp(x) t = ReduceSum<axes=[-2]>(e) y = Div(e, t)",
    "two-axes": "e = Exp(x) t = ReduceSum<axes=[2, 1]>(e) y = Div(e, t)",
    "flax": "m = ReduceMax<axes=[1], keepdims=0>(x) f = Max(low, m) k = Reshape(f, kept) u = Sub(x, k) e = Exp(u)"
    " t = ReduceSum<axes=[1], keepdims=0>(e) r = Reshape(t, kept) y = Div(e, r)",
    "logarithm": SHIFTED + "e = Exp(u) t = ReduceSum<axes=[1]>(e) l = Log(t) y = Sub(u, l)",
}
VALUES = {"low": numbers(-float("inf")), "kept": integers(2, 1, 5), "far": numbers(1, 2, 3).reshape(3, 1)}


@pytest.mark.parametrize("name", SPELLINGS)
def test_every_spelling_is_one_operation(lowered: Lowered, name: str) -> None:
    model = build("(float[2,3,5] x) => (float[2,3,5] y)", SPELLINGS[name], VALUES, opset=12)
    plan = lowered(model)
    assert ops(plan) == ["Softmax"]
    assert plan.operations[0].task.problem.log == (name == "logarithm")
    assert_agrees(model, plan)


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("Div(e, t)", "Div(t, e)"),
        ("Div(e, t)", "Div(u, t)"),
        ("ReduceSum<axes=[1]>(e)", "ReduceMean<axes=[1]>(e)"),
        ("e = Exp(u)", "o = Exp(u) e = Sigmoid(o)"),
        ("t = ReduceSum<axes=[1]>(e)", "g = Exp(x) t = ReduceSum<axes=[1]>(g)"),
        ("ReduceSum<axes=[1]>(e)", "ReduceSum<axes=[0, 2]>(e)"),
    ],
)
def test_what_only_looks_like_one_is_none(lowered: Lowered, was: str, now: str) -> None:
    body = SPELLINGS["shifted"].replace(was, now)
    assert body != SPELLINGS["shifted"]
    model = build("(float[2,3,5] x) => (float[2,3,5] y)", body, opset=12)
    plan = lowered(model)
    assert "Softmax" not in ops(plan)
    assert_agrees(model, plan)


def test_a_shift_that_varies_along_the_axis_stays(lowered: Lowered) -> None:
    body = "u = Sub(x, far) e = Exp(u) t = ReduceSum<axes=[1]>(e) y = Div(e, t)"
    model = build("(float[2,3,5] x) => (float[2,3,5] y)", body, VALUES, opset=12)
    plan = lowered(model)
    assert ops(plan) == ["Elementwise", "Softmax"]
    assert_agrees(model, plan)


def test_what_others_read_stays(lowered: Lowered) -> None:
    model = build("(float[2,3,5] x) => (float[2,3,5] y, float[2,3,5] e)", SPELLINGS["shifted"], opset=12)
    plan = lowered(model)
    assert sorted(ops(plan)) == ["Elementwise", "Reduce", "Softmax"]
    assert_agrees(model, plan)
