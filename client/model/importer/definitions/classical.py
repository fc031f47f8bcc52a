"""Define the numeric operators of ai.onnx.ml: scaling, normalising, imputing, labels of numbers, and linear models."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from onnx import TensorProto, numpy_helper

from gputune.client.model.graph import Array
from gputune.client.model.importer.definitions.use import NotDefined, Use

DOMAIN = "ai.onnx.ml"
MOST_LABELS = 1024
"""How many keys a LabelEncoder may have: each value is compared with all of them."""


def _floats(use: Use) -> str:
    """Write the first input as float32."""
    return use.cast("i0", TensorProto.FLOAT) if use.type(0) != TensorProto.FLOAT else "i0"


def _row(use: Use, values: Sequence[float]) -> str:
    """Write numbers for the columns of an input, or one for all."""
    return use.let(f"Constant<value_floats = {[float(value) for value in values]}>()")


def _scaler(use: Use) -> str:
    value = _floats(use)
    if offset := use.attributes.get("offset"):
        value = use.let(f"Sub({value}, {_row(use, offset)})")
    if scale := use.attributes.get("scale"):
        value = use.let(f"Mul({value}, {_row(use, scale)})")
    return f"y = Identity({value})"


def _normalizer(use: Use) -> str:
    kind = use.attributes.get("norm", b"MAX").decode()
    reduce = {"MAX": "ReduceMax", "L1": "ReduceL1", "L2": "ReduceL2"}.get(kind)
    if reduce is None:
        raise NotDefined(f"its norm is {kind!r}")
    value = _floats(use)
    size = use.let(f"{reduce}({value}, {use.ints(len(use.shape(0)) - 1)})")
    none = use.let(f"Equal({size}, {_row(use, [0])})")
    return f"y = Div({value}, {use.let(f'Where({none}, {_row(use, [1])}, {size})')})"


def _imputer(use: Use) -> str:
    if "imputed_value_floats" in use.attributes:
        wrong, values = use.attributes.get("replaced_value_float", 0.0), use.attributes["imputed_value_floats"]
        put = _row(use, values)
        missing = use.let("IsNaN(i0)") if np.isnan(wrong) else use.let(f"Equal(i0, {_row(use, [wrong])})")
    else:
        wrong, values = use.attributes.get("replaced_value_int64", 0), use.attributes.get("imputed_value_int64s", ())
        put, missing = use.ints(*values), use.let(f"Equal(i0, {use.ints(wrong)})")
    return f"y = Where({missing}, {put}, i0)"


def _binarizer(use: Use) -> str:
    above = use.let(f"Greater(i0, {_row(use, [use.attributes.get('threshold', 0.0)])})")
    return f"y = {f'Cast<to = {use.type(0)}>({above})'}"


def _labels(use: Use) -> str:
    """Compare each value with all keys, and add up the label of the one that is equal."""
    keys, values = (_numbers(use, side) for side in ("keys", "values"))
    if len(keys) > MOST_LABELS or np.isnan(keys).any():
        raise NotDefined(f"it has {len(keys)} keys, or NaN as a key; {MOST_LABELS} numbers are supported")
    whole = values.dtype.kind == "i"
    default = use.attributes.get("default_int64" if whole else "default_float", -1 if whole else -0.0)
    if "default_tensor" in use.attributes:
        default = numpy_helper.to_array(use.attributes["default_tensor"]).item()
    apart = use.let(f"Unsqueeze(i0, {use.ints(len(use.shape(0)))})")
    equal = use.let(f"Equal({apart}, {_vector(use, keys)})")
    zero, axis = _vector(use, values[:1] * 0), use.ints(len(use.shape(0)))
    labels = use.let(f"ReduceSum<keepdims = 0>({use.let(f'Where({equal}, {_vector(use, values)}, {zero})')}, {axis})")
    count = use.let(f"ReduceSum<keepdims = 0>({use.cast(equal, TensorProto.INT64)}, {axis})")
    missing = use.let(f"Equal({count}, {use.integer(0)})")
    return f"y = Where({missing}, {_vector(use, np.array([default], values.dtype))}, {labels})"


def _numbers(use: Use, side: str) -> Array:
    """Return the keys or the values of a LabelEncoder. Raises NotDefined for strings."""
    for name, dtype in (("int64s", np.int64), ("floats", np.float32)):
        if f"{side}_{name}" in use.attributes:
            return np.array(use.attributes[f"{side}_{name}"], dtype)
    if f"{side}_tensor" in use.attributes:
        found = numpy_helper.to_array(use.attributes[f"{side}_tensor"])
        if found.dtype in (np.int64, np.float32):
            return found
    raise NotDefined(f"its {side} are no int64 and no float32")


def _vector(use: Use, values: Array) -> str:
    return use.ints(*values.tolist()) if values.dtype.kind == "i" else _row(use, values.tolist())


def _scores(use: Use, rows: int) -> str:
    """Write x times the transposed coefficients, plus the intercepts: [N, rows]."""
    columns = use.shape(0)[-1]
    value = _floats(use)
    if len(use.shape(0)) == 1:
        value = use.reshaped(value, 1, columns)
    weights = use.turned(use.reshaped(_row(use, use.attributes["coefficients"]), rows, columns), 1, 0)
    product = use.let(f"MatMul({value}, {weights})")
    intercepts = use.attributes.get("intercepts")
    return use.let(f"Add({product}, {_row(use, intercepts)})") if intercepts else product


def _transformed(use: Use, scores: str) -> str:
    kind = use.attributes.get("post_transform", b"NONE").decode()
    forms = {"NONE": "Identity", "LOGISTIC": "Sigmoid", "SOFTMAX": "Softmax<axis = -1>"}
    if kind not in forms:
        raise NotDefined(f"its post_transform is {kind}; {', '.join(forms)} are supported")
    return use.let(f"{forms[kind]}({scores})")


def _regressor(use: Use) -> str:
    return f"y = Identity({_transformed(use, _scores(use, use.attributes.get('targets', 1)))})"


def _classifier(use: Use) -> str:
    """Write the label of the largest score, and the scores; one row of coefficients decides between two labels."""
    labels = use.attributes.get("classlabels_ints")
    if labels is None:
        raise NotDefined("its labels are strings")
    rows = len(use.attributes["coefficients"]) // use.shape(0)[-1]
    scores = _scores(use, rows)
    if rows > 1 or len(labels) != 2:
        result = _transformed(use, scores)
    else:
        kind, turned = use.attributes.get("post_transform", b"NONE").decode(), use.let(f"Neg({scores})")
        if kind not in ("NONE", "LOGISTIC"):
            raise NotDefined(f"its post_transform is {kind} for two labels; NONE and LOGISTIC are supported")
        other = use.let(f"Sub({_row(use, [1])}, {scores})") if kind == "NONE" else turned
        result = _transformed(use, use.let(f"Concat<axis = 1>({other}, {scores})"))
        scores = use.let(f"Concat<axis = 1>({turned}, {scores})")
    best = use.let(f"ArgMax<axis = 1, keepdims = 0>({scores})")
    return f"label = Gather({use.ints(*labels)}, {best}) z = Identity({result})"


OUTPUTS: Mapping[str, tuple[str, ...]] = {"LinearClassifier": ("label", "z")}

CLASSICAL: Mapping[str, Callable[[Use], str]] = {
    "Binarizer": _binarizer,
    "Imputer": _imputer,
    "LabelEncoder": _labels,
    "LinearClassifier": _classifier,
    "LinearRegressor": _regressor,
    "Normalizer": _normalizer,
    "Scaler": _scaler,
}
