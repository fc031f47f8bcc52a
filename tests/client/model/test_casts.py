"""Test that casts to and from float16 and bfloat16 round and overflow as ONNX's reference has it, wherever they stand,
and are free if they change nothing."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.reference
import onnx.shape_inference
import pytest
from onnx import helper

from gputune.client.model.graph import Precision
from gputune.client.model.importer import read_model
from gputune.client.model.lowering import Plan, lower
from gputune.client.model.parts import cut_model
from gputune.client.model.reference import evaluate
from gputune.core.dtypes import BFLOAT, ELEMENT_TYPES, FLOATS, HALF
from gputune.core.precision import PRECISION_MODES
from gputune.kernels.ops.elementwise import ElementwiseProblem
from tests.client.models import Array, build, save

ODD = np.array([1 / 3, 1e5, -7e4, 1e-8, 65519, 65520, 2049, 2051, 3e-5], np.float32)
COARSE = np.array([257, 259, 1 / 3, -1000.5, 1 + 2**-8, 3.4e38, 1e-4, -np.inf], np.float32)
WHOLE = np.array([2049, 4099, 10001, -20001, 0, 7, 1, 2, 3], np.int32)
MODES = ("", *PRECISION_MODES)

# What is computed of x, and x.
CASES: dict[str, tuple[str, Array]] = {
    "there and back": ("c = Cast<to=10>(x) y = Cast<to=1>(c)", ODD),
    "the rest": ("c = Cast<to=10>(x) d = Cast<to=1>(c) y = Sub(x, d)", ODD[[0, 3, 6, 7, 8]]),
    "to whole numbers": ("c = Cast<to=10>(x) y = Cast<to=6>(c)", ODD[[0, 4, 6, 7, 8]]),
    "to bool": ("c = Cast<to=10>(x) y = Cast<to=9>(c)", ODD),
    "of whole numbers": ("c = Cast<to=10>(x) y = Cast<to=1>(c)", np.append(WHOLE, [70000]).astype(np.int32)),
    "of large whole numbers": ("c = Cast<to=10>(x) y = Cast<to=1>(c)", WHOLE.astype(np.int64)),
    "of bytes": ("c = Cast<to=10>(x) y = Cast<to=1>(c)", np.array([-128, 127, 3], np.int8)),
    "like another": ("c = CastLike(x, h) y = CastLike(c, x)", ODD),
    "whole numbers like another": ("c = CastLike(x, h) y = CastLike(c, x)", WHOLE),
    "an output": ("y = Cast<to=10>(x)", ODD),
    "twice": ("c = Cast<to=10>(x) d = Cast<to=1>(c) e = Cast<to=10>(d) y = Cast<to=1>(e)", ODD),
    "behind a move": ("c = Cast<to=10>(x) d = Neg(c) e = Cast<to=1>(d) y = Sub(e, x)", ODD[[0, 3, 6]]),
    "before a product": ("c = Cast<to=10>(x) d = Mul(c, c) y = Cast<to=1>(d)", np.array([2049, 3, 0.5], np.float32)),
    "of a sum": ("s = Add(x, x) c = Cast<to=10>(s) y = Cast<to=1>(c)", ODD),
    "of a sum in float16": ("s = Add(x, x) y = Cast<to=1>(s)", np.array([40000, 0.3, 2049], HALF)),
    "of a sum in float16 to whole numbers": ("s = Add(x, x) y = Cast<to=6>(s)", np.array([0.3, 1025, 3], HALF)),
    "of a square in float16": ("s = Mul(x, x) y = Cast<to=1>(s)", np.array([300, 0.3, 3], HALF)),
    "of a square in float16 to whole numbers": ("s = Mul(x, x) y = Cast<to=6>(s)", np.array([99, 0.3, 3], HALF)),
    "to bfloat16 and back": ("c = Cast<to=16>(x) y = Cast<to=1>(c)", COARSE),
    "what bfloat16 leaves": ("c = Cast<to=16>(x) d = Cast<to=1>(c) y = Sub(x, d)", COARSE[:5]),
    "bfloat16 to whole numbers": ("c = Cast<to=16>(x) y = Cast<to=6>(c)", COARSE[:5]),
    "whole numbers to bfloat16": ("c = Cast<to=16>(x) y = Cast<to=1>(c)", WHOLE),
    "an output in bfloat16": ("y = Cast<to=16>(x)", COARSE),
    "of a sum in bfloat16": ("s = Add(x, x) y = Cast<to=1>(s)", COARSE[:5].astype(BFLOAT)),
    "of a sum in bfloat16 to whole numbers": ("s = Add(x, x) y = Cast<to=6>(s)", COARSE[:5].astype(BFLOAT)),
    "by float16 to bfloat16": ("c = Cast<to=10>(x) d = Cast<to=16>(c) y = Cast<to=1>(d)", ODD),
    "by bfloat16 to float16": ("c = Cast<to=16>(x) d = Cast<to=10>(c) y = Cast<to=1>(d)", ODD),
    "from float16 to bfloat16": ("c = Cast<to=16>(x) y = Cast<to=1>(c)", np.array([0.3, 2049, 65504], HALF)),
    "with two readers": ("c = Cast<to=10>(x) d = Cast<to=1>(c) e = Relu(d) y = Add(e, d)", ODD),
    "compared": ("c = Cast<to=10>(x) d = Cast<to=1>(c) y = Equal(d, x)", ODD),
    "chosen": ("c = Cast<to=10>(x) g = Greater(x, x) y = Where(g, c, c)", ODD),
}  # fmt: skip


def seeded(shape: tuple[int, ...]) -> Array:
    return np.random.default_rng(5).standard_normal(shape, dtype=np.float32)


def model_of(body: str, x: Array) -> onnx.ModelProto:
    """Return a model of x, which computes y, of whatever type that has."""
    model = build(f"(float[{x.size}] x) => (float[n] y)", body, {"h": np.zeros(1, HALF)}, opset=19, ir_version=9)
    model.graph.input[0].type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(x.dtype)
    model.graph.output[0].ClearField("type")
    model.graph.output[0].CopyFrom(onnx.shape_inference.infer_shapes(model).graph.output[0])
    return model


def node_by_node(model: onnx.ModelProto, x: Array) -> Array:
    """Return the output as onnx's reference computes it; onnxruntime leaves out some casts."""
    with np.errstate(all="ignore"):
        results: Any = onnx.reference.ReferenceEvaluator(model).run(None, {"x": x})
    return np.asarray(results[0])


def planned(model: onnx.ModelProto, folder: Path, mode: str = "") -> Plan:
    return lower(replace(read_model(save(model, folder)), precision=Precision(mode)))


def computed(plan: Plan, x: Array) -> Array:
    with np.errstate(all="ignore"):
        return evaluate(plan, {"x": x})["y"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", CASES)
def test_casts_round_and_overflow(tmp_path: Path, name: str, mode: str) -> None:
    body, x = CASES[name]
    model = model_of(body, x)
    got, want = computed(planned(model, tmp_path, mode), x), node_by_node(model, x)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


def test_a_product_is_rounded_as_it_is_where_it_is_an_output(tmp_path: Path) -> None:
    """Its inputs are not, though only a cast reads it."""
    numbers = seeded((7, 40))
    model = build(
        "(float[7,40] x) => (float[7,9] p, float[7,9] y)",
        "p = MatMul(x, w) q = MatMul(x, w) c = Cast<to=10>(q) y = Cast<to=1>(c)",
        {"w": (40, 9)},
        opset=19,
        ir_version=9,
    )
    found = evaluate(planned(model, tmp_path), {"x": numbers})
    np.testing.assert_array_equal(found["y"], found["p"].astype(HALF).astype(np.float32))


@pytest.mark.parametrize(
    ("body", "shape", "weights"),
    [
        ("y = LSTM<hidden_size=4>(x, w, r)", (5, 1, 3), {"w": (1, 16, 3), "r": (1, 16, 4)}),
        ("y = Conv(x, w)", (1, 1, 4, 6, 6), {"w": (2, 1, 3, 3, 3)}),
        ("y = Mean(x, w, r)", (2, 3), {"w": (2, 3), "r": (2, 3)}),
    ],
    ids=["LSTM", "Conv of a volume", "Mean"],
)
def test_a_cast_elsewhere_leaves_nodes_of_float32_alone(
    tmp_path: Path, body: str, shape: tuple[int, ...], weights: dict[str, tuple[int, ...]]
) -> None:
    """Also the parts of which a node is made here."""
    size = ",".join(map(str, shape))
    signature = f"(float[{size}] x) => (float[{','.join('abcde'[: 4 if 'LSTM' in body else len(shape)])}] y"
    alone = build(f"{signature})", body, weights, opset=19, ir_version=9)
    beside = build(f"{signature}, float16[{size}] c)", f"{body} c = Cast<to=10>(x)", weights, opset=19, ir_version=9)
    for weight, other in zip(alone.graph.initializer, beside.graph.initializer, strict=True):
        other.CopyFrom(weight)
    inputs = {"x": seeded(shape)}
    want = evaluate(planned(alone, tmp_path), inputs)["y"]
    np.testing.assert_array_equal(evaluate(planned(beside, tmp_path), inputs)["y"], want)


def test_nodes_on_the_host_get_what_is_rounded(tmp_path: Path) -> None:
    numbers = np.array([1 / 3, 1e-8, 5, 65520], np.float32)
    body = "c = Cast<to=10>(x) d = Cast<to=1>(c) y = NonZero(d)"
    (part,) = cut_model(save(build("(float[4] x) => (int64[1,n] y)", body), tmp_path), {}).parts
    (name,) = part.graph.outputs
    got = evaluate(lower(part.graph), {"x": numbers})[name]
    np.testing.assert_array_equal(got, np.array([numbers[0].astype(HALF), 0, 5, np.inf], got.dtype))


def ops(plan: Plan) -> list[str]:
    """The operations, with the type that they store; Elementwise ones by their steps."""
    found = []
    for each in plan.operations:
        problem = each.task.problem
        steps = [step.function for step in problem.chain.steps] if isinstance(problem, ElementwiseProblem) else []
        found.append(f"{'+'.join(steps) or each.task.op} {plan.tensors[each.output].dtype}")
    return found


FREE = {
    "an output in float16": ("(float[4,8] x) => (float16[4,8] y)", "y = Cast<to=10>(x)", ["Typed float16"]),
    "read in float32": ("(float16[4,8] x) => (float[4,8] y)", "c = Cast<to=1>(x) y = Exp(c)",
                        ["Typed float32", "exp float32"]),
    "there, back and there": (
        "(float16[4,8] x) => (float16[4,8] y)", "c = Cast<to=1>(x) d = Cast<to=10>(c) y = Tanh(d)", ["tanh float16"]),
    "moved between": (
        "(float16[4,8] x) => (float16[8,4] y)",
        "c = Cast<to=1>(x) t = Transpose(c) d = Cast<to=10>(t) y = Tanh(d)", ["Move float16"]),
    "a part in float32": (
        "(float16[4,8] x) => (float16[4,5] y)",
        "a = Relu(x) c = Cast<to=1>(a) s = Softmax(c) d = Cast<to=10>(s) y = MatMul(d, w)",
        ["relu float16", "Softmax float16", "MatMul float16"]),
    "numbers of several steps": (
        "(float16[4,8] x) => (float16[4,5] y)",
        "c = Cast<to=1>(x) e = Exp(c) t = Tanh(e) d = Cast<to=10>(t) y = MatMul(d, w)",
        ["exp+tanh float16", "MatMul float16"]),
    "of whole numbers": (
        "(int32[4,8] x) => (float16[4,5] y)", "c = Cast<to=10>(x) y = MatMul(c, w)",
        ["Typed float16", "MatMul float16"]),
    "the end of a network": (
        "(float16[4,8] x) => (float[4,5] y)", "p = MatMul(x, w) y = Cast<to=1>(p)",
        ["MatMul float16", "Typed float32"]),
}  # fmt: skip


@pytest.mark.parametrize("name", FREE)
def test_casts_that_change_nothing_are_free(tmp_path: Path, name: str) -> None:
    signature, body, want = FREE[name]
    weights = {"w": seeded((8, 5)).astype(HALF)}
    plan = planned(build(signature, body, weights, opset=19, ir_version=9), tmp_path)
    assert ops(plan) == want


@pytest.mark.parametrize("dtype", [name for name in ELEMENT_TYPES if name not in FLOATS])
@pytest.mark.parametrize("mode", MODES)
def test_the_largest_whole_numbers_become_the_same_halves(tmp_path: Path, dtype: str, mode: str) -> None:
    most = 1 if dtype == "bool" else np.iinfo(dtype).max
    x = np.array([0, 1, most, most // 3, min(most, 2049)], dtype)
    model = model_of("c = Cast<to=10>(x) y = Cast<to=1>(c)", x)
    np.testing.assert_array_equal(computed(planned(model, tmp_path, mode), x), node_by_node(model, x))
