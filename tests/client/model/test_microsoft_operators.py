"""Compare the quantising operators of com.microsoft with onnxruntime, in every element of bytes."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from gputune.client.errors import ModelError
from gputune.client.model.reference import evaluate
from tests.client.models import Array
from tests.client.plans import Lowered, assert_whole, computed_by_onnxruntime

FLOAT, BYTES, SIGNED = np.float32, np.uint8, np.int8
RANDOM = np.random.default_rng(11)
ADDED = [(0.02, 119, 0.03, 128, 0.04, 120), (0.5, 3, 0.25, 7, 0.5, 9), (0.0117, 0, 0.0231, 0, 0.0317, 0)]


def pairs(dtype: Any) -> tuple[Array, Array]:
    """All pairs of two bytes."""
    every = np.arange(256, dtype=BYTES).view(dtype)
    return np.repeat(every, 256), np.tile(every, 256)


def several(dtype: Any, *shape: int) -> Array:
    return RANDOM.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, shape).astype(dtype)


def binary(dtype: Any, sa: float, za: int, sb: float, zb: int, sc: float, zc: int) -> list[Any]:
    a, b = pairs(dtype)
    below = 0 if dtype == BYTES else 128
    return [a, FLOAT(sa), dtype(za - below), b, FLOAT(sb), dtype(zb - below), FLOAT(sc), dtype(zc - below)]


MAPS = several(BYTES, 2, 8, 9, 11)
MATRIX, ROWS = several(BYTES, 40, 24), several(BYTES, 5, 40)
S24 = (RANDOM.random(24) * 0.01 + 0.001).astype(FLOAT)
BIAS = RANDOM.integers(-9000, 9000, 24).astype(np.int32)
FLOATS = RANDOM.standard_normal((5, 40)).astype(FLOAT)
S72 = (RANDOM.random(72) * 0.01 + 0.001).astype(FLOAT)
SIGNED_QKV = RANDOM.integers(-60, 60, (24, 72)).astype(SIGNED)
ATTENTION = [
    several(BYTES, 2, 5, 24), several(BYTES, 24, 72), RANDOM.standard_normal(72).astype(FLOAT), FLOAT(0.02),
    FLOAT(0.009), None, BYTES(121), BYTES(127),
]  # fmt: skip
EMBEDDING = [
    RANDOM.integers(0, 40, (2, 5)).astype(np.int32), RANDOM.integers(0, 2, (2, 5)).astype(np.int32),
    *(several(BYTES, rows, 24) for rows in (40, 9, 2)), *(several(BYTES, 24) for _ in "gb"), None,
    *map(FLOAT, (0.02, 0.03, 0.01, 0.05, 0.04)), *map(BYTES, (128, 120, 127, 3, 130)),
]  # fmt: skip
S, Z, SY, ZY = FLOAT(0.05), BYTES(119), FLOAT(0.013), BYTES(4)

CASES: dict[str, tuple[str, list[Any], dict[str, Any]]] = {
    **{f"QLinearAdd of {np.dtype(dtype)}, {each[0]}": ("QLinearAdd", binary(dtype, *each), {})
       for each in ADDED for dtype in (BYTES, SIGNED)},
    **{f"QLinearMul of {np.dtype(dtype)}, {each[0]}": ("QLinearMul", binary(dtype, *each[:4], each[4] / 3, each[5]), {})
       for each in ADDED for dtype in (BYTES, SIGNED)},
    "QLinearAdd of rows": ("QLinearAdd", [MAPS, S, Z, MAPS[:1, :, :1, :1].copy(), S, ZY, S, Z], {}),
    "QLinearSigmoid": ("QLinearSigmoid", [np.arange(256, dtype=BYTES), S, Z, FLOAT(1 / 256), BYTES(0)], {}),
    "QLinearSigmoid of int8": (
        "QLinearSigmoid", [np.arange(-128, 128, dtype=SIGNED), S, SIGNED(7), FLOAT(1 / 256), SIGNED(-128)], {},
    ),
    "QLinearLeakyRelu": ("QLinearLeakyRelu", [np.arange(256, dtype=BYTES), S, Z, FLOAT(0.017), Z], {"alpha": 0.13}),
    "QLinearGlobalAveragePool": (
        "QLinearGlobalAveragePool", [MAPS, FLOAT(0.02), BYTES(9), SY, ZY], {"channels_last": 0},
    ),
    "QLinearAveragePool of other scales": (
        "QLinearAveragePool", [MAPS, S, Z, FLOAT(0.031), ZY], {"kernel_shape": [2, 3], "strides": [1, 2]},
    ),
    "QLinearAveragePool": (
        "QLinearAveragePool", [MAPS, S, Z, S, Z],
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
    ),
    "QLinearConcat": ("QLinearConcat", [S, Z, MAPS, S, Z, MAPS[:, :3].copy(), FLOAT(0.07), ZY], {"axis": 1}),
    "QLinearSoftmax": ("QLinearSoftmax", [ROWS, S, Z, FLOAT(1 / 256), BYTES(0)], {"axis": -1, "opset": 13}),
    "QLinearWhere": ("QLinearWhere", [ROWS > 99, ROWS, S, Z, ROWS[::-1].copy(), FLOAT(0.03), ZY, FLOAT(0.06), Z], {}),
    "QGemm": ("QGemm", [ROWS, S, Z, MATRIX, FLOAT(0.01), BYTES(130), BIAS, FLOAT(0.4), ZY], {}),
    "QGemm of channels": (
        "QGemm", [ROWS, S, Z, MATRIX.T.copy(), S24, np.full(24, 128, BYTES), BIAS, FLOAT(0.4), ZY], {"transB": 1},
    ),
    "QGemm to floats": ("QGemm", [ROWS, S, Z, MATRIX, FLOAT(0.01), BYTES(130), BIAS], {}),
    "DynamicQuantizeMatMul": ("DynamicQuantizeMatMul", [FLOATS, MATRIX, FLOAT(0.01), BYTES(130), S24], {}),
    "DynamicQuantizeMatMul without bias": ("DynamicQuantizeMatMul", [FLOATS, MATRIX, S24], {}),
    "MatMulIntegerToFloat": (
        "MatMulIntegerToFloat", [ROWS, MATRIX, S, S24, Z, np.full(24, 130, BYTES), S24 * 100], {},
    ),
    "QAttention": ("QAttention", ATTENTION, {"num_heads": 4}),
    "QAttention of int8 columns": (
        "QAttention", [*ATTENTION[:1], SIGNED_QKV, *ATTENTION[2:4], S72, None, BYTES(121), np.zeros(72, SIGNED)],
        {"num_heads": 3, "unidirectional": 1},
    ),
    "QAttention with a mask": (
        "QAttention", [*ATTENTION[:5], np.array([[1, 1, 1, 0, 0], [1, 0, 1, 1, 1]], np.int32), *ATTENTION[6:]],
        {"num_heads": 2},
    ),
    "QAttention with counts": (
        "QAttention", [*ATTENTION[:5], np.array([3, 5], np.int32), *ATTENTION[6:]], {"num_heads": 2},
    ),
    "QEmbedLayerNormalization": ("QEmbedLayerNormalization", EMBEDDING, {"epsilon": 1e-6}),
    "QEmbedLayerNormalization with a mask": (
        "QEmbedLayerNormalization",
        [*EMBEDDING[:7], np.array([[1, 1, 1, 0, 0], [1] * 5], np.int32), *EMBEDDING[8:]], {},
    ),
    "QEmbedLayerNormalization of one segment": (
        "QEmbedLayerNormalization",
        [None if k in (1, 4, 10, 15) else value for k, value in enumerate(EMBEDDING)], {},
    ),
}  # fmt: skip
FLOATS_APART = {"QAttention": 3e-6}
"""Of the largest value, where floats follow a softmax: it multiplies the rounding of a score by the score."""
ON_DEVICES = ("QLinearAdd", "QLinearMul", "QLinearConcat", "QLinearWhere")
"""Of these the second value is computed, too."""


def model_of(
    op: str, inputs: list[Any], attributes: dict[str, Any], opset: int
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """The operator, with the values that lie in memory as inputs, and numbers and weights as constants."""
    values = {f"i{k}": np.asarray(value) for k, value in enumerate(inputs) if value is not None}
    large = [name for name, value in values.items() if value.ndim and value.size > 24]
    given = ["i0"] if op == "QEmbedLayerNormalization" else large if op in ON_DEVICES else large[:1]
    names = [f"i{k}" if value is not None else "" for k, value in enumerate(inputs)]
    results = ["y", "count"] if op == "QEmbedLayerNormalization" else ["y"]
    outputs = [helper.make_empty_tensor_value_info(name) for name in results]
    graph = helper.make_graph(
        [helper.make_node(op, names, results, "node", domain="com.microsoft", **attributes)],
        "one",
        [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(values[name].dtype), values[name].shape)
         for name in given],
        outputs,
        [numpy_helper.from_array(value, name) for name, value in values.items() if name not in given],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8), {name: values[name] for name in given}


@pytest.mark.parametrize("opset", [13, 17])
@pytest.mark.parametrize(("op", "inputs", "attributes"), CASES.values(), ids=CASES)
def test_operators_compute_what_onnxruntime_does(
    lowered: Lowered, op: str, inputs: list[Any], attributes: dict[str, Any], opset: int
) -> None:
    model, given = model_of(op, inputs, attributes, opset)
    plan = lowered(model)
    assert_whole(plan)
    (want, *counts), computed = computed_by_onnxruntime(model, given).values(), evaluate(plan, given)
    got = computed["y"]
    assert not counts or (computed["count"] == counts[0]).all()
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    apart = np.abs(got.astype(np.float64) - want)
    assert apart.max() <= (FLOATS_APART.get(op, 1e-6) * np.abs(want).max() if want.dtype == FLOAT else 0), np.mean(
        apart > 0
    )
    assert len(np.unique(want)) > 5


@pytest.mark.parametrize("keep", [0, 1])
def test_means_are_those_of_whole_numbers(lowered: Lowered, keep: int) -> None:
    """onnxruntime knows QLinearReduceMean by name only."""
    model, given = model_of(
        "QLinearReduceMean", [MAPS, FLOAT(0.02), BYTES(9), SY, ZY], {"axes": [-1, 1], "keepdims": keep}, 13
    )
    total = (MAPS.astype(np.int64) - 9).sum(axis=(1, 3), keepdims=bool(keep))
    factor = FLOAT(FLOAT(0.02) / (SY * FLOAT(8 * 11)))
    want = np.clip(np.rint(total.astype(FLOAT) * factor) + int(ZY), 0, 255)
    np.testing.assert_array_equal(evaluate(lowered(model), given)["y"], want)


@pytest.mark.parametrize(
    ("name", "attributes", "why"),
    [
        ("QLinearAveragePool", {"channels_last": 1}, "its channels are last"),
        ("QGemm", {"alpha": 0.5}, "its alpha is 0.5; 1 is supported"),
        ("QLinearSoftmax", {"opset": 11}, "it is that of operator set 11"),
        ("QAttention", {"do_rotary": 1}, "it has rotary embeddings"),
    ],
)
def test_other_uses_are_refused_with_their_reason(
    lowered: Lowered, name: str, attributes: dict[str, Any], why: str
) -> None:
    op, inputs, usual = CASES[name]
    with pytest.raises(ModelError, match=rf"com\.microsoft\.{name} node 'node' is not supported: {why}"):
        lowered(model_of(op, inputs, usual | attributes, 13)[0])
