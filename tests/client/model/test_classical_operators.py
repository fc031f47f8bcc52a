"""Compare the numeric operators of ai.onnx.ml with onnxruntime."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from gputune.client.errors import UnsupportedNodes
from tests.client.models import Array
from tests.client.plans import Lowered, assert_agrees, assert_whole

RANDOM = np.random.default_rng(7)
FLOATS = RANDOM.standard_normal((6, 4)).astype(np.float32)
HOLED = np.where(RANDOM.random((6, 4)) < 0.4, np.nan, FLOATS).astype(np.float32)
WHOLE = RANDOM.integers(-3, 4, (6, 4))
ROW = [0.5, -1.0, 2.0, 1e-3]
LINES = RANDOM.standard_normal(12).tolist()
TABLE = {"keys_int64s": [-2, 0, 1, 3], "values_int64s": [7, -9, 1 << 40, 4], "default_int64": 11}
NAMES = [b"no", b"yes", b"maybe"]

CASES: dict[str, tuple[str, Array, dict[str, Any], Sequence[str]]] = {
    "Scaler": ("Scaler", FLOATS, {"offset": ROW, "scale": ROW[::-1]}, "y"),
    "Scaler by one number": ("Scaler", FLOATS, {"offset": [0.5], "scale": [3.0]}, "y"),
    "Scaler of whole numbers": ("Scaler", WHOLE, {"offset": ROW, "scale": ROW}, "y"),
    **{f"Normalizer, {norm}": ("Normalizer", np.abs(FLOATS), {"norm": norm}, "y") for norm in ("MAX", "L1", "L2")},
    "Normalizer of signs": ("Normalizer", FLOATS, {"norm": "L2"}, "y"),
    "Normalizer of zeros": ("Normalizer", FLOATS * (np.arange(6) % 2)[:, None].astype(np.float32), {"norm": "L1"}, "y"),
    "Imputer of NaN": ("Imputer", HOLED, {"imputed_value_floats": ROW, "replaced_value_float": np.nan}, "y"),
    "Imputer of a number": (
        "Imputer", WHOLE.astype(np.float32), {"imputed_value_floats": [0.25], "replaced_value_float": 2.0}, "y",
    ),
    "Imputer of whole numbers": (
        "Imputer", WHOLE, {"imputed_value_int64s": [8, 9, 10, 11], "replaced_value_int64": 2}, "y",
    ),
    "Binarizer": ("Binarizer", FLOATS, {"threshold": 0.3}, "y"),
    "LabelEncoder": ("LabelEncoder", WHOLE, TABLE, "y"),
    "LabelEncoder to floats": (
        "LabelEncoder", WHOLE, {"keys_int64s": [-2, 0, 1], "values_floats": [0.5, -0.25, 1e9], "default_float": 2.5},
        "y",
    ),
    "LabelEncoder of floats": (
        "LabelEncoder", WHOLE.astype(np.float32), {"keys_floats": [-2.0, 0.0], "values_floats": [5.0, 6.0]}, "y",
    ),
    "LinearRegressor": ("LinearRegressor", FLOATS, {"coefficients": ROW, "intercepts": [0.3]}, "y"),
    "LinearRegressor of three": (
        "LinearRegressor", FLOATS, {"coefficients": LINES, "intercepts": [0.3, 1.0, 2.0], "targets": 3}, "y",
    ),
    **{f"LinearClassifier, {kind}": (
        "LinearClassifier", FLOATS,
        {"coefficients": LINES, "intercepts": [0.3, 0.1, -0.2], "classlabels_ints": [4, 5, -6], "post_transform": kind},
        ["label", "z"],
    ) for kind in ("NONE", "LOGISTIC", "SOFTMAX")},
    **{f"LinearClassifier of two, {kind}": (
        "LinearClassifier", FLOATS,
        {"coefficients": ROW, "intercepts": [0.1], "classlabels_ints": [3, 8], "post_transform": kind}, ["label", "z"],
    ) for kind in ("NONE", "LOGISTIC")},
}  # fmt: skip
REFUSED: dict[str, tuple[str, Array, dict[str, Any], Sequence[str]]] = {
    "its keys are no int64": ("LabelEncoder", WHOLE, {"keys_strings": NAMES, "values_int64s": [1, 2, 3]}, "y"),
    "its labels are strings": (
        "LinearClassifier", FLOATS, {"coefficients": LINES, "intercepts": [0.0] * 3, "classlabels_strings": NAMES},
        ["label", "z"],
    ),
    "its post_transform is PROBIT": (
        "LinearRegressor", FLOATS, {"coefficients": ROW, "post_transform": "PROBIT"}, "y",
    ),
    "there are no kernels for ai.onnx.ml.SVMRegressor": (
        "SVMRegressor", FLOATS, {"coefficients": [1.0], "support_vectors": ROW, "n_supports": 1, "rho": [0.0]}, "y",
    ),
}  # fmt: skip


def model_of(op: str, value: Array, attributes: dict[str, Any], outputs: Sequence[str]) -> onnx.ModelProto:
    node = helper.make_node(op, ["x"], list(outputs), "node", domain="ai.onnx.ml", **attributes)
    infos = [helper.make_empty_tensor_value_info(name) for name in outputs if name]
    kind = helper.np_dtype_to_tensor_dtype(value.dtype)
    graph = helper.make_graph([node], "one", [helper.make_tensor_value_info("x", kind, value.shape)], infos)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.mark.parametrize(("op", "value", "attributes", "outputs"), CASES.values(), ids=CASES)
def test_operators_compute_what_onnxruntime_does(
    lowered: Lowered, op: str, value: Array, attributes: dict[str, Any], outputs: Sequence[str]
) -> None:
    model = model_of(op, value, attributes, outputs)
    plan = lowered(model)
    assert_whole(plan)
    assert_agrees(model, plan, {"x": value})


@pytest.mark.parametrize("says", REFUSED)
def test_other_uses_are_refused_with_the_reason(lowered: Lowered, says: str) -> None:
    with pytest.raises(UnsupportedNodes, match=says):
        lowered(model_of(*REFUSED[says]))


def test_tables_may_be_tensors(lowered: Lowered) -> None:
    """As exporters write them since operator set 4 of ai.onnx.ml."""
    attributes = {
        "keys_tensor": numpy_helper.from_array(np.array([-2, 0, 1])),
        "values_tensor": numpy_helper.from_array(np.array([0.5, 1.5, 2.5], np.float32)),
        "default_tensor": numpy_helper.from_array(np.array([9.0], np.float32)),
    }
    model = model_of("LabelEncoder", WHOLE, attributes, "y")
    model.opset_import[1].version = 4
    assert_agrees(model, lowered(model), {"x": WHOLE})
