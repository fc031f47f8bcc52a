"""Compare imported and lowered reductions, extremes, running sums and softmaxes with onnxruntime."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputune.client.errors import ModelError
from gputune.client.model.lowering import Plan
from gputune.client.model.reference import evaluate
from tests.client.models import build, integers

from .test_lowering import Lowered, lowered, ops

__all__ = ["lowered"]

REDUCTIONS = ["L1", "L2", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare"]
WEIGHTS: dict[str, Any] = {"w": (3, 3, 1, 1)}


def assert_same(model: onnx.ModelProto, plan: Plan) -> None:
    """The plan's outputs, their shapes and types are those of onnxruntime, for small whole numbers."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    generator = np.random.default_rng(1)
    inputs = {each.name: generator.integers(0, 5, each.shape).astype(each.dtype) for each in plan.inputs}
    got = evaluate(plan, inputs)
    for output, want in zip(session.get_outputs(), session.run(None, inputs), strict=True):
        result = got[output.name]
        assert (result.shape, result.dtype) == (want.shape, want.dtype)
        np.testing.assert_allclose(result, want, rtol=1e-5, atol=1e-5 * np.abs(want).max(initial=1e-6))


@st.composite
def reductions(draw: st.DrawFn) -> onnx.ModelProto:
    """A reduction of a tensor as it was given or, where it is a map, as a convolution left it."""
    shape = draw(st.lists(st.integers(1, 4), min_size=0, max_size=5))
    axes = [axis - draw(st.sampled_from([0, len(shape)])) for axis in range(len(shape)) if draw(st.booleans())]
    op, opset = f"Reduce{draw(st.sampled_from(REDUCTIONS))}", draw(st.sampled_from([11, 18]))
    kept = draw(st.booleans())
    attributes = [f"keepdims={int(kept)}"]
    noop = opset == 18 and not axes and shape and draw(st.booleans())
    attributes += ["noop_with_empty_axes=1"] if noop else []
    attributes += [f"axes={axes}"] if opset == 11 and axes else []
    given = ", axes" if opset == 18 and axes else ""
    body, weights = "r = Identity(x)", {"axes": integers(*axes) if len(axes) != 1 else np.array(axes)} if given else {}
    if len(shape) == 4:
        body, weights = "r = Conv(x, w)", weights | {"w": np.ones((shape[1], shape[1], 1, 1), np.float32)}
    body += f" y = {op}<{', '.join(attributes)}>(r{given})"
    reduced = {axis % len(shape) for axis in axes} or set(() if noop else range(len(shape)))
    result = [f"n{axis}" for axis in range(len(shape)) if kept or axis not in reduced]
    signature = "({}) => ({})".format(*map(_float, (map(str, shape), result), "xy"))
    return build(signature, body, weights, opset)


def _float(sizes: Iterable[str], name: str) -> str:
    """A tensor of a signature."""
    listed = ",".join(sizes)
    return f"float[{listed}] {name}" if listed else f"float {name}"


@settings(max_examples=60)
@given(model=reductions())
def test_reductions_of_all_kinds(lowered: Lowered, model: onnx.ModelProto) -> None:
    assert_same(model, lowered(model))


@pytest.mark.parametrize("body", ["ReduceMean<axes=[2,3]>(r)", "ReduceMax<axes=[1]>(r)", "ReduceSum<keepdims=0>(r, c)"])
def test_maps_are_reduced_as_they_lie(lowered: Lowered, body: str) -> None:
    model = build("(float[2,3,4,5] x) => (float[a,b,c1,d] y)", f"r = Conv(x, k) y = {body}", {"k": (3, 3, 2, 2)})
    if "c)" in body:
        model = build(
            "(float[2,3,4,5] x) => (float[a,b,c1] y)",
            f"r = Conv(x, k) y = {body}",
            {"k": (3, 3, 2, 2), "c": integers(1)},
        )
    plan = lowered(model)
    assert_same(model, plan)
    assert ops(plan)[:2] == ["Conv", "Reduce"]


def test_axes_that_come_out_in_another_order_are_read_in_onnx_order(lowered: Lowered) -> None:
    model = build(
        "(float[2,3,4,5] x) => (float[a,b,c] y)",
        "r = Conv(x, k) y = ReduceMax<axes=[2], keepdims=0>(r)",
        {"k": (3, 3, 2, 2)},
    )
    plan = lowered(model)
    assert_same(model, plan)
    assert ops(plan) == ["Conv", "Transpose", "Reduce"]


def test_what_follows_is_fused(lowered: Lowered) -> None:
    body = "m = ReduceMean<axes=[2,3]>(x) a = Add(m, v) y = Relu(a)"
    model = build("(float[2,3,4,5] x, float[2,3,1,1] v) => (float[2,3,1,1] y)", body)
    plan = lowered(model)
    assert_same(model, plan)
    assert ops(plan) == ["Reduce"]


def test_equal_walks_are_one_task(lowered: Lowered) -> None:
    body = "a = ReduceMean<axes=[2,3]>(x) b = ReduceMean<axes=[1]>(v)"
    plan = lowered(build("(float[2,3,4,5] x, float[6,20] v) => (float[2,3,1,1] a, float[6,1] b)", body))
    assert [(task.op, task.weight) for task in plan.tasks] == [("Reduce", 2)]


@pytest.mark.parametrize("axis", range(-4, 4))
def test_places_sums_and_softmaxes_along_any_axis(lowered: Lowered, axis: int) -> None:
    body = f"""r = Conv(x, w)
        a = ArgMax<axis={axis}>(r)
        b = ArgMin<axis={axis}, keepdims=0, select_last_index=1>(r)
        c = CumSum<exclusive=1>(r, k)
        d = CumSum<reverse=1>(r, k)
        e = LogSoftmax<axis={axis}>(r)
        f = Hardmax<axis={axis}>(r)"""
    outputs = "int64[n1,n2,n3,n4] a, int64[m1,m2,m3] b, " + ", ".join(f"float[2,3,4,5] {name}" for name in "cdef")
    weights = {"w": np.ones((3, 3, 1, 1), np.float32), "k": np.array([axis])}
    model = build(f"(float[2,3,4,5] x) => ({outputs})", body, weights)
    assert_same(model, lowered(model))


def test_axes_behind_the_first_count_as_one_in_old_operator_sets(lowered: Lowered) -> None:
    body = "r = Conv(x, w) a = LogSoftmax<axis=2>(r) b = Hardmax<axis=1>(r)"
    weights = {"w": np.ones((3, 3, 1, 1), np.float32)}
    model = build("(float[2,3,4,5] x) => (float[2,3,4,5] a, float[2,3,4,5] b)", body, weights, opset=11)
    assert_same(model, lowered(model))


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8", "int8", "bool"])
def test_whole_numbers_and_bools(lowered: Lowered, dtype: str) -> None:
    body = "a = ReduceMax<keepdims=0>(x, k) b = ReduceMin(x)"
    outputs = f"{dtype}[2,4] a, {dtype}[1,1,1] b"
    if dtype.endswith(("64", "32")):
        body += " c = ReduceSum(x, k) d = ReduceProd(x, k) e = CumSum(x, k) f = ArgMax<axis=1>(x)"
        outputs += f", {dtype}[2,1,4] c, {dtype}[2,1,4] d, {dtype}[2,3,4] e, int64[2,1,4] f"
    opset = 20 if dtype == "bool" else 18
    model = build(f"({dtype}[2,3,4] x) => ({outputs})", body, {"k": np.array([1])}, opset, ir_version=9)
    if dtype == "int64":
        onnx.checker.check_model(model)
    plan = lowered(model)
    assert all(op in ("Reduce", "Scan", "ArgMax") for op in ops(plan))
    values = {"x": np.random.default_rng(1).integers(0, 2 if dtype == "bool" else 5, (2, 3, 4)).astype(dtype)}
    got, value = evaluate(plan, values), values["x"]
    wanted = {"a": value.max(1), "b": value.min(keepdims=True), "f": value.argmax(1)[:, np.newaxis]}
    wanted |= {"c": value.sum(1, dtype, keepdims=True), "d": value.prod(1, dtype, keepdims=True)} if "c" in got else {}
    wanted |= {"e": value.cumsum(1, dtype)} if "e" in got else {}
    for name, result in got.items():
        np.testing.assert_array_equal(result, wanted[name])
        assert result.dtype == wanted[name].dtype


@pytest.mark.parametrize(
    ("signature", "body", "said"),
    [
        ("(float[2,3] x, int64[1] k) => (float[a,b] y)", "y = ReduceSum(x, k)", "depends on 'k'"),
        ("(float[2,3] x, int64 k) => (float[2,3] y)", "y = CumSum(x, k)", "axis 'k' is computed at run time"),
        ("(int32[2,3] x) => (int32[a,b] y)", "y = ReduceLogSumExp(x)", "no log_sum_exp of int32"),
    ],
)
def test_what_is_not_supported_is_said(lowered: Lowered, signature: str, body: str, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        lowered(build(signature, body))
