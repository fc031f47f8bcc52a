"""List where gputune computes something else than onnxruntime does, by operator, and why; docs/operators.md has the
list."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from tests.strategies.graphs.making import Array

Inputs = Sequence[Array | None]


@dataclass(frozen=True)
class Difference:
    """Nodes of some operators that compute something else than onnxruntime does. applies: tells whether a node with
    these attributes and inputs may; reason: why."""

    ops: tuple[str, ...]
    applies: Callable[[Mapping[str, Any], Inputs], bool]
    reason: str


def difference(node: onnx.NodeProto, known: Mapping[str, Array]) -> str:
    """Return why a node may compute something else than onnxruntime does; an empty text if it may not."""
    attributes = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
    inputs = [known.get(name) for name in node.input]
    found = (each.reason for each in DIFFERENCES if node.op_type in each.ops and each.applies(attributes, inputs))
    return next(found, "")


def _floats(inputs: Inputs) -> Array:
    """Return all float32 numbers that a node reads."""
    read = [value.ravel() for value in inputs if value is not None and value.dtype == np.float32]
    return np.concatenate([np.zeros(1, np.float32), *read])


def _nan(attributes: Mapping[str, Any], inputs: Inputs) -> bool:
    return bool(np.isnan(_floats(inputs)).any())


def _not_finite(attributes: Mapping[str, Any], inputs: Inputs) -> bool:
    return not np.isfinite(_floats(inputs)).all()


def _above(limit: float) -> Callable[[Mapping[str, Any], Inputs], bool]:
    def applies(attributes: Mapping[str, Any], inputs: Inputs) -> bool:
        values = np.abs(_floats(inputs))
        return bool((values[np.isfinite(values)] > limit).any())

    return applies


def _same_dilated(attributes: Mapping[str, Any], inputs: Inputs) -> bool:
    same = bytes(attributes.get("auto_pad", b"")).startswith(b"SAME")
    return same and max(attributes.get("dilations", (1,))) > 1


def _cut_size(attributes: Mapping[str, Any], inputs: Inputs) -> bool:
    """Return whether a Resize has align_corners and scales that give no whole size."""
    value, scales = inputs[0], inputs[2] if len(inputs) == 3 else None
    if attributes.get("coordinate_transformation_mode") != b"align_corners" or value is None:
        return False
    if scales is None or not scales.size:
        return False
    sizes = np.array(value.shape) * scales.astype(np.float64)
    return bool(np.any(sizes != np.rint(sizes)))


DIFFERENCES = (
    Difference(
        ("MaxPool", "AveragePool", "LpPool"),
        _same_dilated,
        "SAME_UPPER and SAME_LOWER keep the size; onnxruntime pads for the window without its dilations",
    ),
    Difference(
        ("Resize",),
        _cut_size,
        "align_corners with scales that give no whole size: ONNX divides by the size before it is rounded",
    ),
    Difference(
        ("LRN",),
        _above(30),
        "onnxruntime keeps a running sum of squares, in which small numbers behind a large one lose their digits",
    ),
    Difference(("LRN",), _not_finite, "onnxruntime's running sum of squares stays NaN behind an infinity"),
    Difference(
        ("ArgMax", "ArgMin", "Hardmax", "MaxPool", "GlobalMaxPool", "ReduceMax", "ReduceMin"),
        _nan,
        "NaN wins wherever it stands; in onnxruntime what wins depends on where it stands",
    ),
    Difference(
        ("Cast", "CastLike"),
        lambda attributes, inputs: _not_finite(attributes, inputs) or _above(2**31)(attributes, inputs),
        "ONNX leaves open which whole number NaN, an infinity and a number beyond the range become",
    ),
    Difference(
        ("AveragePool", "GlobalAveragePool", "ReduceMean", "ReduceSum"),
        _above(1e37),
        "near the largest number a partial sum overflows in one order of adding and not in another",
    ),
    Difference(
        ("LayerNormalization", "InstanceNormalization", "GroupNormalization", "MeanVarianceNormalization"),
        _above(1e18),
        "squares of deviations overflow: the result is NaN or zero",
    ),
    Difference(
        ("InstanceNormalization", "BatchNormalization"),
        _not_finite,
        "onnxruntime multiplies value and mean with an infinite scale apart, and infinity less itself is NaN",
    ),
    Difference(
        ("Conv", "ConvTranspose"),
        _not_finite,
        "products of zero and infinity: padding, transforms of tiles and outputs without a weight make NaN",
    ),
    Difference(
        ("GlobalLpPool", "LpNormalization", "LpPool"),
        _above(1e12),
        "powers overflow in float32: infinity, or zero once something is divided by it",
    ),
    Difference(
        ("GridSample", "Resize", "Upsample"),
        _not_finite,
        "onnxruntime multiplies an infinity with a weight of zero, which makes NaN; gputune may not read it",
    ),
)
