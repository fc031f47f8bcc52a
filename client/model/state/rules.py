"""Say which operators keep rows apart, and write what others need so that nothing behind the end is seen.

A rule writes the node into the new graph, or raises NotApart."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from gputune.client.model.importer import operator_of
from gputune.client.model.state import taking
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
        if to.opset >= 13:
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
    "Gather": taking.gather,
    "Slice": taking.take_slice,
    "ScatterND": taking.scatter,
}
