"""Test the pass that recognises spelt-out normalisations: every spelling becomes one operation and stays right."""

from collections.abc import Mapping
from typing import Any

import onnx
import pytest

from tests.client.models import build, integers, numbers

from .test_lowering import Lowered, assert_agrees, lowered, ops

__all__ = ["lowered"]

MEAN = "m = ReduceMean<axes=[-1]>(x) "
SUB = "d = Sub(x, m) "
POW = "q = Pow(d, two) "
VARIANCE = "v = ReduceMean<axes=[-1]>(q) e = Add(v, eps) "
ROOT = "s = Sqrt(e) "
SCALED = "n = Mul(z, scale) y = Add(n, bias)"
# Add(eps, v) only where onnxruntime does not see a normalisation: it would take another epsilon
SPELLINGS = {
    "torch": MEAN + SUB + POW + VARIANCE + ROOT + "z = Div(d, s) " + SCALED,
    "two-subtractions": MEAN + SUB + "u = Sub(x, m) q = Mul(u, u) " + VARIANCE + ROOT + "z = Div(d, s) " + SCALED,
    "two-means": MEAN + SUB + "o = ReduceMean<axes=[2]>(x) u = Sub(x, o) q = Mul(u, d) " + VARIANCE + ROOT
    + "z = Div(u, s) " + SCALED,
    "reciprocal": MEAN + SUB + "q = Mul(d, d) " + VARIANCE + ROOT + "r = Reciprocal(s) z = Mul(r, d) " + SCALED,
    "one-divided": MEAN + SUB + POW + VARIANCE + ROOT
    + "r = Div(one, s) z = Mul(d, r) n = Mul(scale, z) y = Add(bias, n)",
    "power": MEAN + SUB + POW + "v = ReduceMean<axes=[-1]>(q) e = Add(eps, v) r = Pow(e, minus) z = Mul(d, r) "
    + SCALED,
    "root-as-power": MEAN + SUB + POW + VARIANCE + "s = Pow(e, half) z = Div(d, s) " + SCALED,
    "tensorflow": MEAN + "u = Sub(x, m) q = Mul(u, u) " + VARIANCE + ROOT
    + "r = Reciprocal(s) g = Mul(r, scale) a = Mul(x, g) b = Mul(m, g) c = Sub(bias, b) y = Add(a, c)",
    "flax": "t = ReduceSum<axes=[2], keepdims=0>(x) m = Mul(t, fifth) j = Mul(x, x)"
    + " k = ReduceSum<axes=[2], keepdims=0>(j)"
    + " l = Mul(k, fifth) p = Mul(m, m) u = Sub(l, p) v = Max(zero, u) f = Reshape(v, kept) e = Add(f, eps)"
    + " s = Sqrt(e) r = Reciprocal(s) g = Mul(r, scale) h = Reshape(m, kept) d = Sub(x, h)"
    + " n = Mul(d, g) y = Add(n, bias)",
    "divided-sums": "t = ReduceSum<axes=[2]>(x) m = Div(t, five) " + SUB + POW
    + "w = ReduceSum<axes=[2]>(q) v = Div(w, five) e = Add(v, eps) " + ROOT + "z = Div(d, s) " + SCALED,
    "no-parameters": MEAN + SUB + POW + VARIANCE + ROOT + "y = Div(d, s)",
    "no-scale": MEAN + SUB + POW + VARIANCE + ROOT + "z = Div(d, s) y = Add(z, bias)",
    "root-mean-square": "q = Pow(x, two) " + VARIANCE + ROOT + "r = Reciprocal(s) z = Mul(x, r) y = Mul(scale, z)",
}  # fmt: skip
VALUES: dict[str, Any] = {
    "two": numbers(2), "one": numbers(1), "half": numbers(0.5), "minus": numbers(-0.5), "eps": numbers(1e-3),
    "zero": numbers(0), "five": numbers(5), "fifth": numbers(0.2), "kept": integers(2, 3, 1),
    "scale": (5,), "bias": (5,),
}  # fmt: skip


def spelt(body: str, signature: str = "(float[2,3,5] x) => (float[2,3,5] y)", **more: Any) -> onnx.ModelProto:
    return build(signature, body, {**VALUES, **more}, opset=12)


@pytest.mark.parametrize("name", SPELLINGS)
def test_every_spelling_is_one_operation(lowered: Lowered, name: str) -> None:
    proto = spelt(SPELLINGS[name])
    for node in proto.graph.node:
        node.name = f"the {node.output[0]}"
    plan = lowered(proto)
    assert ops(plan) == ["Normalise"]
    assert set(plan.operations[0].nodes) == {node.name for node in proto.graph.node}
    problem = plan.operations[0].task.problem
    assert problem.kind == ("rms" if name == "root-mean-square" else "deviation")
    assert (problem.scale, problem.bias) == ("scale" in SPELLINGS[name], "bias" in SPELLINGS[name])
    assert_agrees(proto, plan)


@pytest.mark.parametrize("convolved", [False, True])
def test_channels_of_maps_are_normalised_where_they_lie(lowered: Lowered, convolved: bool) -> None:
    body = SPELLINGS["torch"].replace("axes=[-1]", "axes=[1]")
    if convolved:
        body = "x = Conv(i, w) " + body
    given = "i" if convolved else "x"
    weights: Mapping[str, Any] = {"scale": (5, 1, 1), "bias": (5, 1, 1), "w": (5, 5, 2, 2)}
    size = (5, 6) if convolved else (4, 5)
    signature = f"(float[2,5,{size[0]},{size[1]}] {given}) => (float[2,5,4,5] y)"
    proto = spelt(body, signature, **weights)
    plan = lowered(proto)
    assert [op for op in ops(plan) if op != "Transpose"] == (["Conv", "Normalise"] if convolved else ["Normalise"])
    assert_agrees(proto, plan)


def test_what_others_read_stays(lowered: Lowered) -> None:
    """The mean is an output, and the unscaled result is read twice."""
    body = MEAN + SUB + POW + VARIANCE + ROOT + "z = Div(d, s) n = Mul(z, scale) y = Add(n, z)"
    proto = spelt(body, "(float[2,3,5] x) => (float[2,3,5] y, float[2,3,1] m)")
    plan = lowered(proto)
    assert sorted(ops(plan)) == ["Elementwise", "Normalise", "Reduce"]
    assert_agrees(proto, plan)


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("v = ReduceMean<axes=[-1]>", "v = ReduceMean<axes=[0, -1]>"),  # another mean's variance
        ("Pow(d, two)", "Pow(d, one)"),
        ("Pow(d, two)", "Pow(d, three)"),
        ("Add(v, eps)", "Add(v, far)"),  # not a number
        ("Sqrt(e)", "Exp(e)"),
        ("Div(d, s)", "Div(s, d)"),
        ("v = ReduceMean<axes=[-1]>(q)", "w = ReduceSum<axes=[-1]>(q) v = Mul(w, half)"),  # no mean
        ("Div(d, s)", "Div(x, s)"),  # not less the mean
        ("Sub(x, m)", "Sub(m, x)"),
    ],
)
def test_what_only_looks_like_one_is_none(lowered: Lowered, was: str, now: str) -> None:
    body = SPELLINGS["torch"].replace(was, now)
    assert body != SPELLINGS["torch"]
    proto = spelt(body, three=numbers(3), far=numbers(9, 8, 7).reshape(3, 1))
    plan = lowered(proto)
    kinds = {task.problem.kind for task in plan.tasks if task.op == "Normalise"}
    assert kinds == ({"rms"} if "Sub(m, x)" in body or "[0, -1]" in body else set())


def test_a_deviation_that_meets_other_elements_is_none(lowered: Lowered) -> None:
    """Without its axes it is divided by along the axis that is left. onnxruntime does not see that behind a Sqrt."""
    body = SPELLINGS["root-as-power"].replace("v = ReduceMean<axes=[-1]>", "v = ReduceMean<axes=[-1], keepdims=0>")
    proto = spelt(body, "(float[5,5] x) => (float[5,5] y)")
    plan = lowered(proto)
    assert "Normalise" not in ops(plan)
    assert_agrees(proto, plan)
