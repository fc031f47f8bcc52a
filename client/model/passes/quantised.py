"""Bring quantised models into one form: float32 tensors that hold whole numbers, and steps around them.

A quantised tensor is q, whole numbers of one or two bytes; it stands for (q - zero point) * scale. Here it is q - zero
point in float32, which has all of them, and its scale is known to the pass:

QuantizeLinear     a Quantise: a division and a rounding that are the same on each device
DequantizeLinear   a Mul by the scale, which nothing reads where whole numbers will do
MatMul, Gemm, Conv of two dequantised tensors: a product of their whole numbers, exact in float32 while its sums are
                   below 2 ** 24; else it is cut into runs, whose results are added as integers. Scales come afterwards.
                   So a WholeSum, and a Mul by both scales at once. In front of a QuantizeLinear the Mul is by
                   both scales and divided by the third, and the rest of that is rounding within bounds
integers + integers that were floats, such as a bias: a sum in float32, which rounds once as the integers do
moves, Relu        of a dequantised tensor: of its whole numbers
MatMulInteger, ConvInteger, QLinearMatMul, QLinearConv, DynamicQuantizeLinear: the same, spelt otherwise

Integers themselves are computed where something else reads them, such as an output of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from gputune.client.errors import Refusal, UnsupportedNodes
from gputune.client.model.graph import ONE_FOR_ZERO, QUANTISE, RATIO, Array, Graph, Node, TensorInfo
from gputune.client.model.passes.recurrent import has_whole_state
from gputune.client.model.passes.whole_numbers import MOVES, PRODUCTS, Sum, Whole, WholeNumbers
from gputune.client.model.passes.whole_products import Factor, output_scales, whole_product
from gputune.core.precision import EXACT


def in_whole_numbers(graph: Graph) -> Graph:
    """Return the same graph without quantising operators. Raises UnsupportedNodes for uses of them that cannot run."""
    if not is_quantised(graph):
        return graph
    work = WholeNumbers(graph)
    refusals: list[Refusal] = []
    for node in graph.nodes:
        try:
            _take(work, node)
        except UnsupportedNodes as error:
            refusals += error.refusals
    if refusals:
        raise UnsupportedNodes(refusals)
    rewritten = graph.rewritten(work.nodes, work.constants, work.tensors, work.scaled)
    precision = replace(graph.precision, kept=graph.precision.kept | work.kept)
    return replace(rewritten, precision=precision, exactness=work.exactness())


def is_quantised(graph: Graph) -> bool:
    """Return whether a graph has quantising operators."""
    return any(node.op in QUANTISED_FORMS for node in graph.nodes)


def _take(work: WholeNumbers, node: Node) -> None:
    """Append what computes the same as a node of the model."""
    if not work.inexact.isdisjoint(node.reads):
        work.inexact.update(node.outputs)
    if node.op in QUANTISED_FORMS:
        work.kept.update(node.origins)
        QUANTISED_FORMS[node.op](work, node)
    elif node.op in MOVES or node.op == "Concat":
        work.move(node)
    elif node.op in PRODUCTS and work.multiply(node):
        work.kept.update(node.origins)
    elif has_whole_state(work.graph, node):
        if work.graph.precision.quantised == EXACT:
            work.kept.update(node.origins)
        work.in_floats(node)
    elif node.op == "Cast" and _types(work, node) == ("int32", "float32") and node.inputs[0] in work.sums:
        work.add(node, "Identity", (work.sums[node.inputs[0]].tensor,), node.output)
    elif node.op == "Cast" and _types(work, node) == ("float32", "int32") and node.inputs[0] in work.steps:
        work.rounded[node.output] = node.inputs[0]
        work.nodes.append(node)
    elif node.op == "Add" and work.info(node.output).dtype == "int32":
        work.add_integers(node)
    elif node.op == "Div" and node.output in work.quotients:
        work.nodes.append(replace(node, op=RATIO))
    else:
        work.in_floats(node)


def _types(work: WholeNumbers, node: Node) -> tuple[str, str]:
    """Return the types that a cast is from and to."""
    return work.info(node.inputs[0]).dtype, work.info(node.output).dtype


def _quantize_linear(work: WholeNumbers, node: Node) -> None:
    source, output = node.inputs[0], node.output
    _check(work, node, source)
    if (source in work.graph.halves) != (node.inputs[1] in work.graph.halves):
        raise node.unsupported(f"{source!r} and its scale {node.inputs[1]!r} are floats of two types")
    if any(name not in work.graph.constants or work.info(name).size > 1 for name in node.inputs[1:] if name):
        _quantize_along(work, node)
        return
    scale, zero = float(work.scale(node, 1).reshape(())), int(work.zero(node, 2).reshape(()))
    low, high = (limit - zero for limit in work.limits(node, output))
    known = work.values.get(source)
    if source in work.sums:
        work.quantised_sum(node, work.sums[source], scale, zero, output)
    elif known is not None and known.scale == scale and low <= known.low and known.high <= high:
        work.numbers[output, zero] = known
        work.stored(node, known.tensor, zero, output)
    else:
        work.quantise(node, source, scale, zero, output)


def _quantize_along(work: WholeNumbers, node: Node) -> None:
    """Quantise by a scale and a zero point that are computed, or that differ along an axis."""
    steps = work.new(
        node, RATIO, (node.inputs[0], _along(work, node, 1)), f"{node.output}/steps", work.info(node.output).shape
    )
    _round_steps(work, node, steps, 2)


def _round_steps(work: WholeNumbers, node: Node, steps: str, place: int) -> None:
    """Append what rounds to quantised numbers whose zero point, the input at a place, may be computed or differ."""
    (low, high), shape, output = work.limits(node, node.output), work.info(node.output).shape, node.output
    limits = {"scale": 1.0, "low": low - high, "high": high - low}
    whole = work.new(node, QUANTISE, (steps,), f"{output}/rounded", shape, **limits)
    zero = _along(work, node, place)
    for op, limit in (("Max", low), ("Min", high)):
        bound = work.constant(f"{output}/{op}", float(limit))
        if zero:
            bound = work.new(node, "Sub", (bound, zero), f"{output}/{op}", work.info(zero).shape)
        whole = work.new(node, op, (whole, bound), f"{output}/{op}/whole", shape)
    name = node.inputs[place] if len(node.inputs) > place else ""
    if name in work.graph.constants or not name:
        if work.zero(node, place).size == 1:
            work.numbers[output, int(work.zero(node, place).reshape(()))] = Whole(whole, low - high, high - low)
    elif work.info(name).size == 1:
        work.numbers[output, name] = Whole(whole, low - high, high - low)
    work.stored(node, whole, zero or 0, output)


def _dequantize_linear(work: WholeNumbers, node: Node) -> None:
    source, output = node.inputs[0], node.output
    _check(work, node, output)
    work.dequantised.add(output)
    info, scale = work.info(node.inputs[1]), node.inputs[1]
    if info.size == 1 and work.info(source).dtype != "int32" and _zero_is_one(work, node):
        whole = work.whole(node, source, work.zero_of(node, 2))
        if scale in work.graph.constants:
            whole = replace(whole, scale=float(work.scale(node, 1).reshape(())))
            work.values[output] = whole
            if whole.scale == 1:
                work.add(node, "Identity", (whole.tensor,), output)
                return
        work.add(node, "Mul", (whole.tensor, _along(work, node, 1)), output)
        return
    number = work.new(node, "Cast", (source,), f"{source}/float", work.info(output).shape)
    if zero := _along(work, node, 2):
        number = work.new(node, "Sub", (number, zero), f"{output}/whole", work.info(output).shape)
    work.add(node, "Mul", (number, _along(work, node, 1)), output)


def _check(work: WholeNumbers, node: Node, floats: str) -> None:
    """Refuse conversions from and to what are no floats."""
    for name in (floats, *node.inputs[1:2]):
        if work.info(name).dtype != "float32":
            raise node.unsupported(f"{name!r} is {work.info(name).dtype}; floats are supported")


def _zero_is_one(work: WholeNumbers, node: Node) -> bool:
    return len(node.inputs) < 3 or not node.inputs[2] or work.info(node.inputs[2]).size == 1


def _along(work: WholeNumbers, node: Node, index: int) -> str:
    """Return a scale or zero point in float32, so that it broadcasts to the output of the node; "" for an absent
    one."""
    name = node.inputs[index] if index < len(node.inputs) else ""
    if not name:
        return ""
    whole, info = work.info(node.output).shape, work.info(name)
    block, axis = int(node.attributes.get("block_size", 0)), int(node.attributes.get("axis", 1))
    axis %= max(len(whole), 1)
    shape: tuple[int, ...] = ()
    if block:
        shape = info.shape
    elif info.size > 1:
        shape = tuple(info.size if place == axis else 1 for place in range(len(whole)))
    if name in work.graph.constants:
        value = (work.scale(node, 1) if index == 1 else work.graph.constants[name]).reshape(shape)
        if block:
            value = np.repeat(value, block, axis).take(range(whole[axis]), axis)
        return work.constant(f"{name}/along", value)
    if info.dtype != "float32":
        name = work.new(node, "Cast", (name,), f"{name}/float", info.shape)
    if block:
        places = work.exact(f"{name}/places", np.arange(whole[axis]) // block)
        return work.new(node, "Gather", (name, places), f"{name}/along", whole, axis=axis)
    if info.shape == shape:
        return name
    return work.new(node, "Reshape", (name,), f"{name}/along", shape)


def _dynamic_quantize_linear(work: WholeNumbers, node: Node) -> None:
    """Take the range of a tensor, with zero in it, as that of a byte."""
    (source,), (output, scale, zero) = node.inputs, (*node.outputs, "", "")[:3]
    _check(work, node, source)
    shape, nothing = work.info(source).shape, work.constant(f"{output}/nothing", 0.0)
    ends = {}
    for op, bound in (("ReduceMin", "Min"), ("ReduceMax", "Max")):
        end = work.new(node, op, (source,), f"{output}/{bound}/bare", (), keepdims=0)
        ends[bound] = work.new(node, bound, (end, nothing), f"{output}/{bound}", ())
    span = work.new(node, "Sub", (ends["Max"], ends["Min"]), f"{output}/range", ())
    most = work.constant(f"{output}/most", 255.0)
    bare = work.new(node, RATIO, (span, most), f"{output}/step", ())
    step = work.add(node, ONE_FOR_ZERO, (bare,), scale or work.tensor(f"{output}/scale", TensorInfo(())))
    low = work.new(node, "Neg", (ends["Min"],), f"{output}/low", ())
    place = work.new(node, RATIO, (low, step), f"{output}/place", ())
    point = work.new(node, QUANTISE, (place,), f"{output}/zero", (), scale=1.0, low=0, high=255)
    top = work.new(node, "Sub", (most, point), f"{output}/top", ())
    steps = work.new(node, RATIO, (source, step), f"{output}/steps", shape)
    bounded = work.new(node, "Min", (steps, top), f"{output}/bounded", shape)
    whole = work.new(node, QUANTISE, (bounded,), f"{output}/whole", shape, scale=1.0, low=-255, high=255)
    work.numbers[output, zero] = Whole(whole, -255, 255)
    work.stored(node, whole, point, output)
    if zero:
        work.add(node, "Cast", (point,), zero)


def _side(work: WholeNumbers, node: Node, index: int, zero: int, scales: Array | None = None, axis: int = -1) -> Factor:
    """Return an input of bytes as one side of a product. index, zero: where it and its zero point are among the inputs;
    axis: along which a weight may have several zero points and scales."""
    name = node.inputs[index]
    work.limits(node, name)
    scales = np.ones((), np.float32) if scales is None else scales
    known = work.graph.constants.get(name)
    if known is None:
        whole = work.whole(node, name, work.zero_of(node, zero))
        return Factor(whole.tensor, whole.most, work.one(node, scales, "scale"))
    along = [1] * known.ndim
    along[axis] = -1
    point, scales = work.zero(node, zero), scales.reshape(along) if scales.size > 1 else scales.reshape(())
    if point.size > 1 and point.size != known.shape[axis]:
        raise node.unsupported(f"it has {point.size} zero points for {known.shape[axis]} columns")
    numbers = known.astype(np.int64) - (point.reshape(along) if point.size > 1 else point.reshape(()))
    return Factor(numbers, int(np.abs(numbers).max(initial=0)), scales)


def _integer_product(op: str, axis: int) -> Callable[[WholeNumbers, Node], None]:
    """Return the form of a product of bytes whose results are 32-bit integers."""

    def form(work: WholeNumbers, node: Node) -> None:
        left, right = _side(work, node, 0, 2), _side(work, node, 1, 3, axis=axis)
        product = replace(node, op=op, inputs=node.inputs[:2])
        total, integers = whole_product(work, product, left, right)
        work.sums[node.output] = Sum(total, np.ones((), np.float32), exact=not integers)
        work.add(node, "Identity" if integers else "Cast", (integers or total,), node.output)

    return form


def _quantised_product(op: str, axis: int) -> Callable[[WholeNumbers, Node], None]:
    """Return the form of a product of bytes whose results are bytes again."""

    def form(work: WholeNumbers, node: Node) -> None:
        product = replace(node, op=op, inputs=(node.inputs[0], node.inputs[3]))
        bias = work.known(node, 8, "bias")
        if not all(node.inputs[place] in work.graph.constants for place in (1, 4, 6, 7)):
            left, right = _side(work, node, 0, 2), _side(work, node, 3, 5, axis=axis)
            _requantise(work, node, whole_product(work, product, left, right, bias)[0], axis)
            return
        left = _side(work, node, 0, 2, work.scale(node, 1))
        right = _side(work, node, 3, 5, work.scale(node, 4), axis)
        factor = output_scales(work, product, left, right)
        if factor is None:
            raise node.unsupported("it has scales that differ within a sum")
        total = Sum(whole_product(work, product, left, right, bias)[0], factor)
        scale, zero = float(work.one(node, work.scale(node, 6), "scale")), work.zero_of(node, 7)
        assert isinstance(zero, int)
        work.quantised_sum(node, total, scale, zero, node.output)

    return form


def _requantise(work: WholeNumbers, node: Node, total: str, axis: int) -> None:
    """Append what makes quantised numbers of sums whose scales or zero points are computed."""
    left, right, scale = (node.inputs[place] for place in (1, 4, 6))
    for name in (left, scale):
        if work.info(name).size != 1:
            raise node.unsupported(f"its scale {name!r} has {work.info(name).size} numbers; 1 is supported")
    shape = work.info(node.output).shape
    if (count := work.info(right).size) > 1:  # along the output's channels
        columns = (count, *[1] * (len(shape) - 2)) if axis == 0 else (count,)
        if count not in shape[1 if axis == 0 else -1 :][:1]:
            raise node.unsupported("it has scales that differ within a sum")
        right = work.new(node, "Reshape", (right,), f"{right}/along", columns)
    both = work.new(node, "Mul", (right, left), f"{node.output}/scales", work.info(right).shape)
    factor = work.new(node, RATIO, (both, scale), f"{node.output}/factor", work.info(both).shape)
    steps = work.new(node, "Mul", (total, factor), f"{node.output}/steps", shape)
    _round_steps(work, node, steps, 7)


QUANTISED_FORMS: Mapping[str, Callable[[WholeNumbers, Node], None]] = {
    "ConvInteger": _integer_product("Conv", 0),
    "DequantizeLinear": _dequantize_linear,
    "DynamicQuantizeLinear": _dynamic_quantize_linear,
    "MatMulInteger": _integer_product("MatMul", -1),
    "QLinearConv": _quantised_product("Conv", 0),
    "QLinearMatMul": _quantised_product("MatMul", -1),
    "QuantizeLinear": _quantize_linear,
}
