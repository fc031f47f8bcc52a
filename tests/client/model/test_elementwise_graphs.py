"""Compare elementwise operators of all types with onnxruntime, in small models and in graphs from hypothesis."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from gputune.client.errors import ModelError
from gputune.client.model.importer import import_model
from gputune.client.model.lowering import Plan, lower
from gputune.client.model.reference import evaluate
from tests.client.models import Array, build, numbers


def plan_of(model: onnx.ModelProto) -> Plan:
    return lower(import_model(model, Path("model.onnx"), {}))


def random_inputs(plan: Plan) -> dict[str, Array]:
    """Normal numbers, small whole ones, and bools."""
    generator = np.random.default_rng(1)

    def values(dtype: str, shape: tuple[int, ...]) -> Array:
        if dtype == "float32":
            return generator.standard_normal(shape, dtype=np.float32)
        return generator.integers(0 if dtype[0] in "ub" else -9, 2 if dtype == "bool" else 10, shape).astype(dtype)

    return {tensor.name: values(tensor.dtype, tensor.shape) for tensor in plan.inputs}


def agreeing(model: onnx.ModelProto) -> Plan:
    """The plan of a model, which computes what onnxruntime does, or nothing that can be compared."""
    plan = plan_of(model)
    inputs = random_inputs(plan)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # which warns of constants that nobody reads
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    got = evaluate(plan, inputs)
    for output, want in zip(session.get_outputs(), session.run(None, inputs), strict=True):
        mine = got[output.name]
        assert (mine.shape, mine.dtype) == (want.shape, want.dtype)
        if want.dtype == np.float32:
            largest = np.abs(want).max(initial=0, where=np.isfinite(want))
            np.testing.assert_allclose(mine, want, rtol=1e-5, atol=2e-6 * max(largest, 1))
        else:
            np.testing.assert_array_equal(mine, want)
    return plan


def ops(plan: Plan) -> list[str]:
    return [operation.task.op for operation in plan.operations]


MODELS: dict[str, tuple[str, str, dict[str, Any], list[str] | None]] = {
    "masked softmax": (
        "(float[2,5] x, int32[2,5] mask) => (float[2,5] y)",
        "b = Cast<to=9>(mask) y = Where(b, x, least)",
        {"least": numbers(-1e4)},
        ["Typed", "Typed"],
    ),
    "maps that lie on the device": (
        "(float[1,3,4,5] x, bool[1,3,4,5] b) => (float[1,2,4,5] y, bool[1,2,4,5] m)",
        "c = Conv(x, w) z = Relu(c) m = Greater(z, t) k = Cast<to=1>(m) y = Mul(k, z)",
        {"w": (2, 3, 1, 1), "t": numbers(0.1)},
        ["Transpose", "MatMul", "Transpose", "Typed", "Typed", "Elementwise"],
    ),
    "whole numbers": (
        "(int32[3,7] a, int32[7] b, int64[3,1] c) => (int32[3,7] y, int64[3,1] z)",
        "t = Add(a, b) s = Add(t, a) m = Max(s, b, a) n = Min(m, s) i = Identity(n) y = Clip(i, lo, hi) z = Mod(c, c2)",
        {"lo": np.array(-4, np.int32), "hi": np.array(11, np.int32), "c2": np.array([-3], np.int64)},
        ["Typed"] * 8,
    ),
    "one bound": (
        "(int32[4] a, float[4] x, float u) => (int32[4] y, float[4] z)",
        "y = Clip(a, lo) z = Clip(x, , u)",
        {"lo": np.array(-4, np.int32)},
        ["Typed", "Elementwise"],
    ),
    "no bounds": ("(int64[4] a, float[4] x) => (int64[4] y, float[4] z)", "y = Clip(a) z = Clip(x)", {}, None),
    "casts": (
        "(float[4] x, float[4] z, int64[4] a) => (uint8[4] y, float[4] u, float[4] w, int64[4] v)",
        "s = Abs(x) y = Cast<to=2>(s) u = CastLike(a, x) t = CastLike(z, x) w = Relu(t) v = Cast<to=7>(a)",
        {},
        ["Elementwise", "Typed", "Typed", "Elementwise", "Typed"],
    ),
    "powers": (
        "(float[2,3] x, int64[3] n, int32[2,3] i) => (float[2,3] a, float[2,3] b, float[2,3] c, int32[2,3] d)",
        "a = Pow(x, two) p = Abs(n) b = Pow(x, p) c = Pow(half, x) d = Pow(i, two)",
        {"two": np.array(2, np.int64), "half": numbers(0.5)},
        None,
    ),
    "many of them": (
        "(float[2,1] x, float[3] y, float[1] z) => (float[2,3] a, float[2,3] b, float[2,3] c, float[2,1] d)",
        "a = Mean(x, y, z) b = Max(x, y, z) c = Min(z, y, x) d = Mean(x)",
        {},
        None,
    ),
    "slopes": (
        "(float[2,3,4,5] x) => (float[2,3,4,5] a, float[2,3,4,5] b)",
        "a = PRelu(x, s) c = Conv(x, w) b = PRelu(c, s)",
        {"s": (3, 1, 1), "w": (3, 3, 1, 1)},
        None,
    ),
    "statistics that are computed": (
        "(float[2,3,4,5] x, float[3] s, float[3] b, float[3] m, float[3] v) => (float[2,3,4,5] y)",
        "p = Exp(v) y = BatchNormalization<epsilon=0.1>(x, s, b, m, p)",
        {},
        None,
    ),
    "statistics in training": (
        "(float[4,3,5] x, float[3] s, float[3] b, float[3] m, float[3] v) => (float[4,3,5] y, float[3] n, float[3] w)",
        "p = Exp(v) y, n, w = BatchNormalization<training_mode=1, momentum=0.7>(x, s, b, m, p)",
        {},
        None,
    ),
    "a mask that keeps all": ("(float[2,3] x) => (float[2,3] y, bool[2,3] m)", "y, m = Dropout(x)", {}, None),
    "attributes": (
        "(float[2,9] x) => (float[2,9] y, float[2,9] z)",
        "a = Elu<alpha=0.3>(x) b = Selu(a) c = LeakyRelu(b) d = Celu<alpha=2.0>(c) e = HardSigmoid(d) y = Softplus(e)"
        ' z = Gelu<approximate="tanh">(x)',
        {},
        ["Elementwise", "Elementwise"],
    ),
    "a square has one value": (
        "(float[4,3] x) => (float[4,5] y, float[4,5] z)",
        "m = MatMul(x, w) y = Mul(m, m) n = MatMul(x, v) z = Add(n, n)",
        {"w": (3, 5), "v": (3, 5)},
        ["MatMul", "MatMul", "Elementwise"],
    ),
    "what jumps sees what was written": (
        "(float[4,3] x) => (float[4,5] y)",
        "m = MatMul(x, w) t = Tanh(m) f = Floor(t) n = Neg(f) s = Sign(n) y = Add(s, m)",
        {"w": (3, 5)},
        ["MatMul", "Elementwise", "Elementwise", "Elementwise"],
    ),
    "remainders": (
        "(float[4,3] x, float[3] y) => (float[4,3] a, float[4,3] b)",
        "a = Mod<fmod=1>(x, y) b = Mod<fmod=1>(k, x)",
        {"k": numbers(2.5)},
        ["Elementwise", "Elementwise"],
    ),
    "outputs that are views": (
        "(int64[2,3] a, bool[4] b) => (int64[6] y, bool[2,2] z)",
        "y = Reshape(a, six) z = Reshape(b, pairs)",
        {"six": np.array([6]), "pairs": np.array([2, 2])},
        ["Typed", "Typed"],
    ),
    "copies of whole numbers": ("(int8[3] a) => (int8[3] y)", "y = Identity(a)", {}, ["Typed"]),
}


@pytest.mark.parametrize("name", MODELS)
def test_models_of_all_types_agree(name: str) -> None:
    signature, body, weights, operations = MODELS[name]
    plan = agreeing(build(signature, body, weights, opset=20, ir_version=9))
    assert operations is None or ops(plan) == operations


def test_statistics_that_training_starts_with_may_be_constants() -> None:
    body = "y, n, w = BatchNormalization<training_mode=1>(x, s, s, s, s)"
    signature = "(float[4,3] x) => (float[4,3] y, float[3] n, float[3] w)"
    agreeing(build(signature, body, {"s": (3,)}, opset=20, ir_version=9))


@pytest.mark.parametrize(
    ("signature", "body", "said"),
    [
        ("(int32[3] x) => (int32[3] y)", "y = PRelu(x, x)", "'PRelu_0' is not supported: it is of int32; float32 is"),
        ("(float[2,3] x, float[3] b) => (float[2,3] y)", "y = Clip(x, b)", "several elements"),
        ("(float[3] x) => (bool[3] y)", "y = IsInf<detect_negative=0, detect_positive=0>(x)", "neither"),
        ("(float[3] x) => (float[3] y)", 'y = Gelu<approximate="half">(x)', "its approximation is 'half'"),
    ],
)
def test_what_is_refused_says_why(signature: str, body: str, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        plan_of(build(signature, body, opset=20, ir_version=9))


# Operators by the types of their inputs and of their result; "same" is that of the first input.
FLOATS = ("Abs", "Neg", "Relu", "Sigmoid", "Tanh", "Sin", "Erf", "Softsign", "Elu", "HardSwish", "Gelu", "Mish")
RULES: list[tuple[str, tuple[str, ...], str]] = [
    *((op, ("float32",), "same") for op in FLOATS),
    *((op, ("float32", "float32"), "same") for op in ("Add", "Sub", "Mul", "Max", "Min", "Sum", "Mean", "PRelu")),
    *((op, ("int32", "int32"), "same") for op in ("Add", "Sub", "Mul", "Max", "Min")),
    *((op, ("int32",), "same") for op in ("Abs", "Neg", "Sign")),
    *((op, ("int32", "int32"), "bool") for op in ("Equal", "Less", "GreaterOrEqual")),
    *((op, ("float32", "constant"), "bool") for op in ("Greater", "LessOrEqual")),
    *((op, ("bool", "bool"), "same") for op in ("And", "Or", "Xor")),
    ("Not", ("bool",), "same"),
    ("Where", ("bool", "float32", "float32"), "float32"),
    ("Where", ("bool", "int32", "int32"), "int32"),
    ("Cast", ("bool",), "float32"),
    ("Cast", ("int32",), "float32"),
    ("Cast", ("bool",), "int32"),
    ("IsNaN", ("float32",), "bool"),
]
SHAPES = ((2, 3, 4, 5), (3, 1, 5), (1,), (4, 1))


@st.composite
def graphs(draw: st.DrawFn) -> onnx.ModelProto:
    """Up to twelve nodes over inputs of three types and many shapes; maps may lie on the device."""
    pool: list[tuple[str, str, tuple[int, ...]]] = []
    for dtype in ("float32", "int32", "bool"):
        pool += [(f"{dtype}_{k}", dtype, draw(st.sampled_from(SHAPES))) for k in range(2)]
    inputs = [helper.make_tensor_value_info(name, _type(dtype), shape) for name, dtype, shape in pool]
    inputs.append(helper.make_tensor_value_info("map", TensorProto.FLOAT, (2, 2, 4, 5)))
    weight = np.random.default_rng(0).standard_normal((3, 2, 1, 1), dtype=np.float32)
    nodes = [helper.make_node("Conv", ["map", "weight"], ["conv"])]
    pool.append(("conv", "float32", (2, 3, 4, 5)))
    for number in range(draw(st.integers(1, 12))):
        op, takes, gives = draw(st.sampled_from(RULES))
        read = [draw(st.sampled_from([each for each in pool if each[1] == dtype or dtype == each[0]] or [pool[0]]))
                for dtype in takes if dtype != "constant"]  # fmt: skip
        names, shapes = [name for name, *_ in read], [shape for *_, shape in read]
        shape = np.broadcast_shapes(*shapes)
        if op == "PRelu" and shape != shapes[0]:
            continue
        dtype = read[0][1] if gives == "same" else gives
        attributes: dict[str, Any] = {"to": _type(dtype)} if op == "Cast" else {}
        nodes.append(helper.make_node(op, names + ["third"] * ("constant" in takes), [f"t{number}"], **attributes))
        pool.append((f"t{number}", dtype, shape))
    outputs = [
        helper.make_tensor_value_info(name, _type(dtype), shape) for name, dtype, shape in pool[-3:] if name[0] in "tc"
    ]
    constants = [numpy_helper.from_array(weight, "weight"), numpy_helper.from_array(numbers(0.3712), "third")]
    graph = helper.make_graph(nodes, "made_up", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def _type(dtype: str) -> int:
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


@pytest.mark.slow
@settings(max_examples=60)
@given(graphs())
def test_made_up_graphs_agree(model: Any) -> None:
    agreeing(model)
