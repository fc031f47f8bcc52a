"""Say which operators keep rows apart, and write what others need so that nothing behind the end is seen.

A rule writes the node into the new graph, or raises NotApart."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from gputune.client.model.graph import Array
from gputune.client.model.importer import operator_of
from gputune.client.model.state.conversion import Conversion, NotApart

Rule = Callable[[Conversion, onnx.NodeProto, Mapping[str, Any]], None]

ANYWHERE = frozenset((
    "Abs", "Acos", "Acosh", "Add", "And", "Asin", "Asinh", "Atan", "Atanh", "BitShift", "BitwiseAnd", "BitwiseNot",
    "BitwiseOr", "BitwiseXor", "Cast", "CastLike", "Ceil", "Celu", "Clip", "Cos", "Cosh", "DequantizeLinear", "Div",
    "Dropout", "Elu", "Equal", "Erf", "Exp", "Expand", "Floor", "Gelu", "Greater", "GreaterOrEqual", "HardSigmoid",
    "HardSwish", "Identity", "IsInf", "IsNaN", "LeakyRelu", "Less", "LessOrEqual", "Log", "Max", "Mean", "Min", "Mish",
    "Mod", "Mul", "Neg", "Not", "Or", "PRelu", "Pow", "QuantizeLinear", "Reciprocal", "Relu", "Round", "Selu",
    "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Squeeze", "Sub", "Sum", "Swish", "Tan", "Tanh",
    "ThresholdedRelu", "Transpose", "Unsqueeze", "Where", "Xor",
))  # fmt: skip
"""Operators of which a number of the result depends on numbers at the same place only."""
PASSES_ZERO = frozenset(("Identity", "Cast", "Dropout"))

FILLS = {
    "Softmax": -math.inf, "LogSoftmax": -math.inf, "ReduceMax": -math.inf, "ArgMax": -math.inf, "ReduceMin": math.inf,
    "ArgMin": math.inf, "ReduceSum": 0, "ReduceSumSquare": 0, "ReduceL1": 0, "ReduceL2": 0, "ReduceProd": 1,
    "ReduceLogSumExp": -math.inf, "ReduceLogSum": 0,
}  # fmt: skip
"""Operators that look along an axis, and the number behind its end that changes nothing."""


def convert(to: Conversion, node: onnx.NodeProto) -> None:
    """Write what a node of the model becomes. Raises NotApart for one that cannot become anything."""
    attributes = {item.name: helper.get_attribute_value(item) for item in node.attribute}
    past = next((name for name in node.input if name in to.pairs and to.axes(name)), None)
    if past is not None:
        _state(to, node, past, attributes)
        return
    rule = RULES.get(operator_of(node))
    if rule is None and (any(map(to.axes, node.input)) or any(map(to.axes, filter(None, node.output)))):
        raise NotApart("it may mix the rows of the past, and which of them are there is not known before it runs")
    (rule or _kept)(to, node, attributes)


def _state(to: Conversion, node: onnx.NodeProto, past: str, attributes: Mapping[str, Any]) -> None:
    axis = to.axes(past)[0]
    rank = len(to.sizes(past))
    if (
        node.op_type != "Concat"
        or attributes["axis"] % rank != axis
        or list(node.input).index(past)
        or (len(node.input) != 2)
    ):
        raise NotApart(f"it reads the past {past!r} other than by joining it with new rows behind it")
    to.write_state(node, axis)


def _kept(to: Conversion, node: onnx.NodeProto, attributes: Mapping[str, Any]) -> None:
    to.keep(node)


def _anywhere(to: Conversion, node: onnx.NodeProto, attributes: Mapping[str, Any]) -> None:
    to.keep(node, {1: to.at_longest(node.input[1])} if node.op_type == "Expand" else None)
    if node.op_type in PASSES_ZERO and node.input[0] in to.zero:
        to.zero.add(node.output[0])


def _beside(default: int, last: bool = False) -> Rule:
    """Return the rule of operators that look along an axis, which may not be one that grows. last: along all behind it,
    too."""

    def rule(to: Conversion, node: onnx.NodeProto, attributes: Mapping[str, Any]) -> None:
        rank = len(to.sizes(node.input[0]))
        axis = attributes.get("axis", default) % max(rank, 1)
        for name in node.input[:1] if node.op_type != "Concat" else node.input:
            if any(each >= axis if last else each == axis for each in to.axes(name)):
                raise NotApart("it works along the rows of the past")
        to.keep(node)

    return rule


def _concat(to: Conversion, node: onnx.NodeProto, attributes: Mapping[str, Any]) -> None:
    if len(node.input) == 1:  # what is left of a cache when it was used for the first time
        to.writing.op("Identity", [to.read(node.input[0])], node.output[0])
        return
    axis = attributes["axis"] % len(to.sizes(node.input[0]))
    if any(axis in to.axes(name) for name in node.input):
        raise NotApart("it joins rows of the past with others, and is not an output")
    to.keep(node)


def _along(to: Conversion, node: onnx.NodeProto, attributes: Mapping[str, Any]) -> None:
    """Mask what looks along axes that grow."""
    name = node.input[0]
    growing = set(to.axes(name)) & set(_axes_of(to, node, attributes))
    if not growing:
        to.keep(node)
        return
    if node.op_type not in FILLS:
        raise NotApart("it works along the rows of the past, and would see those that are not there yet")
    if len(growing) > 1:
        raise NotApart("it works along two axes that grow")
    axis = growing.pop()
    to.keep(node, {0: to.masked(name, axis, _fill(to, node))})
    if node.op_type == "Softmax" and axis == len(to.sizes(name)) - 1:
        to.zero.add(node.output[0])


def _fill(to: Conversion, node: onnx.NodeProto) -> float:
    """Return the number that changes nothing, in the type of what the node reads."""
    fill, dtype = FILLS[node.op_type], np.dtype(to.imported.tensors[node.input[0]].dtype)
    if math.isinf(fill) and dtype.kind in "iu":
        return float(np.iinfo(dtype).max if fill > 0 else np.iinfo(dtype).min)
    return fill


def _axes_of(to: Conversion, node: onnx.NodeProto, attributes: Mapping[str, Any]) -> Sequence[int]:
    """Return the axes along which a node looks."""
    rank = len(to.sizes(node.input[0]))
    if node.op_type in ("Softmax", "LogSoftmax"):
        if to.imported.graph.opset >= 13:
            return [attributes.get("axis", -1) % rank]
        return range(attributes.get("axis", 1) % rank, rank)
    if node.op_type in ("ArgMax", "ArgMin", "Hardmax", "CumSum", "CumProd"):
        return [attributes.get("axis", 0) % rank]
    axes = attributes.get("axes")
    if axes is None and len(node.input) > 1 and node.input[1]:
        known = to.known(node.input[1])
        if known is None:
            raise NotApart(f"its axes {node.input[1]!r} are not known, or depend on the length")
        axes = known.tolist()
    if not axes:
        return () if attributes.get("noop_with_empty_axes") else range(rank)
    return [axis % rank for axis in axes]


def _summed_so_far(to: Conversion, node: onnx.NodeProto, attributes: Mapping[str, Any]) -> None:
    axis = to.known(node.input[1])
    if axis is None or (
        attributes.get("reverse") and int(axis.flat[0]) % len(to.sizes(node.input[0])) in to.axes(node.input[0])
    ):
        raise NotApart("it sums up the rows of the past from their end")
    to.keep(node)


def _quantised(to: Conversion, node: onnx.NodeProto, attributes: Mapping[str, Any]) -> None:
    """Have a range that is found at run time see zeros behind the end: it always has 0 in it."""
    masked = node.input[0]
    for axis in to.axes(node.input[0]):
        (_, rest), behind = to.sizes(node.input[0])[axis], len(to.sizes(node.input[0])) - 1 - axis
        valid = to.writing.before(to.growing.longest + rest, rest, behind)
        zero = to.writing.value(np.zeros((), np.float32))
        masked = to.writing.op("Where", [valid, to.read(masked) if masked == node.input[0] else masked, zero])
    to.keep(node, {0: masked})


def _product(to: Conversion, node: onnx.NodeProto, attributes: Mapping[str, Any]) -> None:
    """Have products summed up along rows see zeros behind the end."""
    left = node.input[0]
    if len(to.sizes(left)) - 1 not in to.axes(left):
        to.keep(node)
        return
    if node.op_type != "MatMul":
        raise NotApart("it sums up products of rows of the past")
    to.keep(node, None if left in to.zero else {0: to.masked(left, len(to.sizes(left)) - 1, 0)})


def _gemm(to: Conversion, node: onnx.NodeProto, attributes: Mapping[str, Any]) -> None:
    if (0 if attributes.get("transA") else 1) in to.axes(node.input[0]):
        raise NotApart("it sums up products of rows of the past")
    to.keep(node)


def _reshape(to: Conversion, node: onnx.NodeProto, attributes: Mapping[str, Any]) -> None:
    if _parts(to, node.input[0]) != _parts(to, node.output[0]):
        raise NotApart("it mixes the rows of the past with another axis")
    to.keep(node, {1: to.at_longest(node.input[1])} if node.op_type == "Reshape" else None)


def _parts(to: Conversion, name: str) -> list[tuple[int, int]]:
    """Return how many elements lie between axes that grow, and what these are."""
    found, size = list[tuple[int, int]](), 1
    for slope, rest in to.sizes(name):
        if slope:
            found.append((size, rest))
        size = 1 if slope else size * rest
    return [*found, (size, 0)]


def _gather(to: Conversion, node: onnx.NodeProto, attributes: Mapping[str, Any]) -> None:
    data, indices = node.input
    axis = attributes.get("axis", 0) % len(to.sizes(data))
    if axis not in to.axes(data):
        to.keep(node)
        return
    rest = to.sizes(data)[axis][1]
    if indices in to.by_length.names:
        values = to.lookups.values(indices)
    elif indices in to.imported.constants:
        constant = to.imported.constants[indices]
        values = dict.fromkeys(range(to.growing.first, to.growing.longest + 1), constant)
    else:
        raise NotApart("it takes rows of the past that are not known before it runs")
    _picked(to, node, {past: np.where(v < 0, v + past + rest, v) for past, v in values.items()}, axis)


def _picked(to: Conversion, node: onnx.NodeProto, rows: Mapping[int, Array], axis: int) -> None:
    """Take the rows of these numbers, by the length."""
    if len({value.shape for value in rows.values()}) > 1:
        raise NotApart("it takes a part of the rows of the past that is neither their end nor their beginning")
    index = to.lookups.written({past: value.astype(np.int64) for past, value in rows.items()}, node.output[0])
    to.writing.op("Gather", [to.read(node.input[0]), index], node.output[0], axis=axis)


def _slice(to: Conversion, node: onnx.NodeProto, attributes: Mapping[str, Any]) -> None:
    """Take slices along axes that grow, or by numbers that depend on the length, one axis after the other."""
    data, rank = node.input[0], len(to.sizes(node.input[0]))
    if not to.axes(data) and not to.by_length.names.intersection(node.input[1:]):
        to.keep(node)
        return
    if not all(name in to.imported.constants for name in filter(None, node.input[1:])):
        raise NotApart("it takes rows of the past that are not known before it runs")
    name, taken = to.read(data), _slices(to, node, attributes, rank)
    for place, (axis, parts) in enumerate(taken.items()):
        output = node.output[0] if place == len(taken) - 1 else ""
        name = _sliced(to, name, output, to.sizes(data)[axis], axis, parts)


def _slices(
    to: Conversion, node: onnx.NodeProto, attributes: Mapping[str, Any], rank: int
) -> dict[int, dict[int, slice]]:
    """Return what is taken along each axis, by the length."""

    def numbers(place: int, key: str, past: int) -> Sequence[int] | None:
        given = node.input[place] if place < len(node.input) else ""
        if not given:
            return attributes.get(key)
        found = to.lookups.values(given)[past] if given in to.by_length.names else to.imported.constants[given]
        return [int(each) for each in found.flat]

    given = [name for name in node.input[1:] if name in to.by_length.names]
    lengths = to.lookups.values(given[0]) if given else range(to.growing.first, to.growing.longest + 1)
    found: dict[int, dict[int, slice]] = {}
    for past in lengths:
        starts, ends = numbers(1, "starts", past) or [], numbers(2, "ends", past) or []
        axes = numbers(3, "axes", past) or range(len(starts))
        steps = numbers(4, "steps", past) or [1] * len(starts)
        for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
            found.setdefault(axis % rank, {})[past] = slice(start, end if end >= 0 or step > 0 else None, step)
    return found


def _sliced(
    to: Conversion, name: str, output: str, size: tuple[int, int], axis: int, parts: Mapping[int, slice]
) -> str:
    """Write what is taken along one axis."""
    slope, rest = size
    rows = {past: np.arange(slope * past + rest)[part] for past, part in parts.items()}
    if slope and all(len(each) == past + rest for past, each in rows.items()):
        return to.writing.op("Identity", [name], output)
    if slope and len({len(each) - past for past, each in rows.items()}) == 1:  # of rows that grow, all but a few
        if any(each.size and (each[0] != rows[max(rows)][0] or (np.diff(each) != 1).any()) for each in rows.values()):
            raise NotApart("it takes a part of the rows of the past that is neither their end nor their beginning")
    elif len({len(each) for each in rows.values()}) > 1:
        raise NotApart("it takes a part of the rows of the past that is neither their end nor their beginning")
    else:
        index = to.lookups.written(rows, name)
        return to.writing.op("Gather", [name, index], output, axis=axis)
    return to.writing.op("Gather", [name, to.writing.value(rows[max(rows)])], output, axis=axis)


def _scattered(to: Conversion, node: onnx.NodeProto, attributes: Mapping[str, Any]) -> None:
    """Take updates themselves where they replace everything in order."""
    data, indices, updates = node.input
    whole = to.growing.shape(data, to.growing.longest)
    everywhere = np.moveaxis(np.indices(whole), 0, -1)
    last = to.imported.constants.get(indices, np.empty(0))
    if attributes.get("reduction", b"none") != b"none" or not np.array_equal(last, everywhere):
        raise NotApart("it writes into a part of the rows of the past")
    to.writing.op("Identity", [to.read(updates)], node.output[0])


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(ANYWHERE, _anywhere),
    **dict.fromkeys((*FILLS, "ReduceMean", "Hardmax"), _along),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization"), _beside(-1, last=True)),
    "SimplifiedLayerNormalization": _beside(-1, last=True),
    "Split": _beside(0),
    "Concat": _concat,
    "CumSum": _summed_so_far,
    "Trilu": _kept,
    "DynamicQuantizeLinear": _quantised,
    "MatMul": _product,
    "MatMulInteger": _product,
    "Gemm": _gemm,
    "Reshape": _reshape,
    "Flatten": _reshape,
    "Gather": _gather,
    "Slice": _slice,
    "ScatterND": _scattered,
}
