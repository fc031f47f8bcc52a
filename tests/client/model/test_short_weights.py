"""Test that weights of few bits stay as short in plans, however models spell them, and mean what onnxruntime says."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from tests.client.models import Array
from tests.client.plans import Lowered, assert_agrees, assert_whole, ops

RANDOM = np.random.default_rng(5)
TABLE, ROWS = RANDOM.integers(-128, 128, (520, 128)).astype(np.int8), np.array([[3, 519, 0], [7, 7, 1]])
UNSIGNED = (TABLE.astype(np.int16) + 128).astype(np.uint8)
FEW = RANDOM.integers(-8, 8, (520, 128)).astype(np.int8)
WEIGHT = RANDOM.integers(-100, 101, (64, 48)).astype(np.int8)


def scales(*shape: int) -> Array:
    return RANDOM.uniform(0.001, 0.02, shape).astype(np.float32)


def byte(value: int) -> Array:
    return np.array(value, np.uint8)


PRODUCT, GATHER = "float[5, 64] x", "int64[2, 3] x"
BYTES, NIBBLES = {"b": ("int8", 64 * 48)}, {"b": ("uint8", 32 * 48)}
# fmt: off
SPELT: dict[str, tuple[str, str, dict[str, Array], dict[str, Any]]] = {
    "a cast and a factor": (
        PRODUCT, "w = Cast<to = 1>(q) v = Mul(w, s) y = MatMul(x, v)", {"q": WEIGHT, "s": scales(48)}, BYTES,
    ),
    "a factor for all, turned": (
        PRODUCT, "w = Cast<to = 1>(q) v = Mul(s, w) t = Transpose<perm = [1, 0]>(v) y = MatMul(x, t)",
        {"q": WEIGHT.T.copy(), "s": scales()}, BYTES,
    ),
    "a cast, a difference and a factor": (
        PRODUCT, "w = Cast<to = 1>(q) d = Sub(w, z) v = Mul(d, s) y = MatMul(x, v)",
        {"q": UNSIGNED[:64, :48].copy(), "z": np.array(131, np.float32), "s": scales(48)}, BYTES,
    ),
    "a difference in blocks and a factor": (
        PRODUCT, "w = Cast<to = 1>(q) d = Sub(w, z) v = Mul(d, s) y = MatMul(x, v)",
        {"q": UNSIGNED[:64, :48].copy(), "z": np.repeat(scales(4, 1) * 9000, 16, 0).round(), "s": scales(48)}, BYTES,
    ),
    "DequantizeLinear": (
        PRODUCT, "w = DequantizeLinear(q, s) y = MatMul(x, w)", {"q": WEIGHT, "s": scales(48)}, BYTES,
    ),
    "DequantizeLinear of rows, turned by a Gemm with a factor": (
        PRODUCT, "w = DequantizeLinear<axis = 0>(q, s, z) y = Gemm<alpha = 0.5, transB = 1>(x, w, c)",
        {"q": UNSIGNED[:48, :64].copy(), "s": scales(48), "z": np.full(48, 119, np.uint8), "c": scales(48)}, BYTES,
    ),
    "a factor behind the product": (
        PRODUCT, "w = DequantizeLinear(q, s) p = MatMul(x, w) y = Mul(p, f)",
        {"q": WEIGHT, "s": scales(48), "f": scales(48)}, BYTES,
    ),
    "few numbers": (
        PRODUCT, "w = DequantizeLinear(q, s) y = MatMul(x, w)", {"q": FEW[:64, :48].copy(), "s": scales(48)}, NIBBLES,
    ),
    "scales of rows": (
        PRODUCT, "w = DequantizeLinear<axis = 0>(q, s) y = MatMul(x, w)", {"q": WEIGHT, "s": scales(64)},
        {"b": ("float32", 4 * 64 * 48)},
    ),
    "whole numbers": (
        "uint8[5, 64] x", "p = MatMulInteger(x, q) y = Cast<to = 1>(p)", {"q": WEIGHT}, BYTES,
    ),
    "whole numbers of more than 8 bits": (
        "uint8[5, 64] x", "p = MatMulInteger(x, q, none, z) y = Cast<to = 1>(p)",
        {"q": UNSIGNED[:64, :48].copy(), "z": byte(60), "none": byte(0)}, BYTES | {"zeros": ("int8", 48)},
    ),
    "a gather of bytes": (
        GATHER, "t = DequantizeLinear(q, s) y = Gather(t, x)", {"q": TABLE, "s": scales()},
        {"input": ("int8", 520 * 128)},
    ),
    "a gather with a scale for each row": (
        GATHER, "t = DequantizeLinear<axis = 0>(q, s, z) y = Gather(t, x)",
        {"q": UNSIGNED, "s": scales(520), "z": RANDOM.integers(0, 256, 520).astype(np.uint8)},
        {"input": ("uint8", 520 * 128)},
    ),
    "a gather with a scale for each column": (
        GATHER, "f = Cast<to = 1>(q) t = Mul(f, s) y = Gather(t, x)", {"q": TABLE, "s": scales(128)},
        {"input": ("int8", 520 * 128)},
    ),
    "a gather of few numbers": (
        GATHER, "t = DequantizeLinear(q, s) y = Gather(t, x)", {"q": FEW, "s": scales()},
        {"input": ("uint8", 520 * 64)},
    ),
    "a gather from a small table": (
        GATHER, "t = DequantizeLinear(q, s) y = Gather(t, x)", {"q": np.resize(WEIGHT, (520, 48)), "s": scales()},
        {"input": ("float32", 4 * 520 * 48)},
    ),
}
FILTER, SEEN = RANDOM.integers(-128, 128, (16, 8, 3, 3)).astype(np.int8), "uint8[1, 8, 9, 7] x"
CONVOLUTIONS: dict[str, tuple[str, str, dict[str, Array], str, tuple[str, int]]] = {
    "3x3": (
        SEEN, "p = ConvInteger(x, q) y = Cast<to = 1>(p)", {"q": FILTER}, "1, 16, 7, 5", ("int8", 16 * 8 * 9),
    ),
    "3x3 with a zero point": (
        SEEN, "p = ConvInteger(x, q, none, z) y = Cast<to = 1>(p)",
        {"q": (FILTER.astype(np.int16) + 128).astype(np.uint8), "z": byte(128), "none": byte(3)},
        "1, 16, 7, 5", ("int8", 16 * 8 * 9),
    ),
    "3x3 of more than 8 bits": (
        SEEN, "p = ConvInteger(x, q, none, z) y = Cast<to = 1>(p)",
        {"q": (FILTER.astype(np.int16) + 128).astype(np.uint8), "z": byte(9), "none": byte(3)},
        "1, 16, 7, 5", ("float32", 4 * 16 * 8 * 9),
    ),
    "1x1": (
        SEEN, "p = ConvInteger(x, q) y = Cast<to = 1>(p)", {"q": FILTER[..., :1, :1].copy()}, "1, 16, 9, 7",
        ("int8", 16 * 8),
    ),
    "of lines": (
        "uint8[1, 8, 9] x", "p = ConvInteger(x, q) y = Cast<to = 1>(p)", {"q": FILTER[..., 0].copy()}, "1, 16, 7",
        ("int8", 16 * 8 * 3),
    ),
}
# fmt: on


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_filters_of_whole_numbers_stay_bytes(lowered: Lowered, name: str) -> None:
    given, body, constants, shape, wanted = CONVOLUTIONS[name]
    model = made(given, body, f"[{shape}]", constants)
    plan = lowered(model)
    assert_whole(plan)
    (operation,) = (one for one in plan.operations if one.task.op in ("Conv", "MatMul"))
    held = plan.constants[operation.inputs["b" if operation.task.op == "MatMul" else "weight"]]
    assert (str(held.dtype), held.nbytes) == wanted
    sizes = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    assert_agrees(model, plan, {"x": RANDOM.integers(0, 256, sizes).astype(np.uint8)}, tolerance=0)


def made(given: str, body: str, shape: str, constants: dict[str, Array]) -> onnx.ModelProto:
    """A model of an input x and an output y of this shape, checked."""
    text = f'<ir_version: 8, opset_import: ["" : 17]> one ({given}) => (float{shape} y) {{ {body} }}'
    model = parser.parse_model(text)
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(value), key) for key, value in constants.items())
    onnx.checker.check_model(model)
    return model


@pytest.mark.parametrize("name", SPELT)
def test_weights_stay_as_short_as_they_are(lowered: Lowered, name: str) -> None:
    given, body, constants, wanted = SPELT[name]
    shape = "[2, 3, 128]" if "Gather" in body else "[5, 48]"
    shape = "[2, 3, 48]" if name == "a gather from a small table" else shape
    model = made(given, body, shape, constants)
    plan = lowered(model)
    assert_whole(plan)
    (operation, *_) = (one for one in plan.operations if one.task.op in ("MatMul", "Gather"))
    held = {name: plan.constants[tensor] for name, tensor in operation.inputs.items() if tensor in plan.constants}
    assert {key: (str(held[key].dtype), held[key].nbytes) for key in wanted} == wanted
    if "uint8" in given:
        inputs: dict[str, Array] = {"x": UNSIGNED[:5, :64].copy()}
    else:
        inputs = {"x": ROWS if "Gather" in body else RANDOM.standard_normal((5, 64), dtype=np.float32)}
    assert_agrees(model, plan, inputs, tolerance=0 if "Gather" in body else 2e-6)


def test_what_follows_a_short_gather_is_few_launches(lowered: Lowered) -> None:
    given, body, constants, _ = SPELT["a gather of bytes"]
    assert ops(lowered(made(given, body, "[2, 3, 128]", constants))) == ["Gather", "Typed", "Elementwise"]
