"""Bring quantised models into one form: float32 tensors that hold whole numbers, and steps around them.

A quantised tensor is q, whole numbers of one or two bytes; it stands for (q - zero point) * scale. Here it is q - zero
point in float32, which has all of them, and its scale is known to the pass:

QuantizeLinear     a Quantise: a division and a rounding that are the same on each device
DequantizeLinear   a Mul by the scale, which nothing reads where whole numbers will do
MatMul, Gemm, Conv of two dequantised tensors: a product of their whole numbers, exact in float32 while its sums are
                   below 2 ** 24; else it is cut into runs, whose results are added as integers. Scales come afterwards.
                   So a WholeSum, and a Mul by both scales at once. In front of a QuantizeLinear the Mul is by
                   both scales and divided by the third, and the rest of that is rounding within bounds
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
from gputune.client.model.passes.whole_numbers import MOVES, Sum, Whole, WholeNumbers
from gputune.client.model.passes.whole_products import Factor, output_scales, whole_product


def in_whole_numbers(graph: Graph) -> Graph:
    """Return the same graph without quantising operators. Raises UnsupportedNodes for uses of them that cannot run."""
    if not any(node.op in QUANTISED_FORMS for node in graph.nodes):
        return replace(graph, scaled={})
    work = WholeNumbers(graph)
    refusals: list[Refusal] = []
    for node in graph.nodes:
        try:
            _take(work, node)
        except UnsupportedNodes as error:
            refusals += error.refusals
    if refusals:
        raise UnsupportedNodes(refusals)
    rewritten = graph.rewritten(work.nodes, work.constants, work.tensors)
    precision = replace(graph.precision, kept=graph.precision.kept | work.kept)
    return replace(rewritten, scaled={}, precision=precision)


def _take(work: WholeNumbers, node: Node) -> None:
    """Append what computes the same as a node of the model."""
    if node.op in QUANTISED_FORMS:
        work.kept.update(node.origins)
        QUANTISED_FORMS[node.op](work, node)
    elif node.op in MOVES or node.op == "Concat":
        work.move(node)
    elif node.op in ("Conv", "Gemm", "MatMul") and work.multiply(node):
        work.kept.update(node.origins)
    elif node.op == "Cast" and node.inputs[0] in work.sums and work.info(node.output).dtype == "float32":
        work.add(node, "Identity", (work.sums[node.inputs[0]].tensor,), node.output)
    else:
        work.nodes.append(node)


def _quantize_linear(work: WholeNumbers, node: Node) -> None:
    source, output = node.inputs[0], node.output
    scale, zero = (
        work.one(node, work.scale(node, 1), "scale"),
        int(work.one(node, work.zero(node, 2), "zero point")),
    )
    if work.info(source).dtype != "float32" or source in work.graph.halves:
        raise node.unsupported("its input is not float32")
    low, high = (limit - zero for limit in work.limits(node, output))
    known = work.values.get(source)
    if source in work.sums:
        work.quantised_sum(node, work.sums[source], scale, zero, output)
    elif known is not None and known.scale == scale and low <= known.low and known.high <= high:
        work.numbers[output, zero] = known
        work.stored(node, known.tensor, zero, output)
    else:
        work.quantise(node, source, scale, zero, output)


def _dequantize_linear(work: WholeNumbers, node: Node) -> None:
    source, output = node.inputs[0], node.output
    if node.attributes.get("block_size"):
        raise node.unsupported("its scales are of blocks")
    if work.info(output).dtype != "float32" or output in work.graph.halves:
        raise node.unsupported("its output is not float32")
    shape = work.info(output).shape
    if node.inputs[1] not in work.graph.constants:
        if work.info(node.inputs[1]).size != 1:
            raise work.graph.computed(node, "scale", node.inputs[1])
        whole = work.whole(node, source, work.zero_of(node, 2))
        work.add(node, "Mul", (whole.tensor, node.inputs[1]), output)
        return
    scale = work.scale(node, 1)
    if scale.size == 1 and work.info(source).dtype != "int32":
        whole = replace(work.whole(node, source, work.zero_of(node, 2)), scale=float(scale))
        work.values[output] = whole
        work.add(node, "Mul", (whole.tensor, work.constant(f"{output}/scale", scale.reshape(()))), output)
        return
    along = [1] * len(shape)
    if scale.size > 1:
        along[int(node.attributes.get("axis", 1))] = scale.size
    number = work.new(node, "Cast", (source,), f"{source}/float", shape)
    if (zero := work.zero(node, 2)).any():
        point = work.constant(f"{output}/zero", zero.reshape(along if zero.size > 1 else ()))
        number = work.new(node, "Sub", (number, point), f"{output}/whole", shape)
    factor = work.constant(f"{output}/scale", scale.reshape(along if scale.size > 1 else ()))
    work.add(node, "Mul", (number, factor), output)


def _dynamic_quantize_linear(work: WholeNumbers, node: Node) -> None:
    """Take the range of a tensor, with zero in it, as that of a byte."""
    (source,), (output, scale, zero) = node.inputs, (*node.outputs, "", "")[:3]
    shape = work.info(source).shape
    if work.info(source).dtype != "float32" or source in work.graph.halves:
        raise node.unsupported("its input is not float32")
    nothing = work.constant(f"{output}/nothing", 0.0)
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
        total = whole_product(work, product, left, right)
        work.sums[node.output] = Sum(total, np.ones((), np.float32))
        work.add(node, "Cast", (total,), node.output)

    return form


def _quantised_product(op: str, axis: int) -> Callable[[WholeNumbers, Node], None]:
    """Return the form of a product of bytes whose results are bytes again."""

    def form(work: WholeNumbers, node: Node) -> None:
        left = _side(work, node, 0, 2, work.scale(node, 1))
        right = _side(work, node, 3, 5, work.scale(node, 4), axis)
        product = replace(node, op=op, inputs=(node.inputs[0], node.inputs[3]))
        factor = output_scales(work, product, left, right)
        if factor is None:
            raise node.unsupported("it has scales that differ within a sum")
        total = Sum(whole_product(work, product, left, right, work.known(node, 8, "bias")), factor)
        scale, zero = work.one(node, work.scale(node, 6), "scale"), work.zero_of(node, 7)
        if isinstance(zero, str):
            raise work.graph.computed(node, "zero point", zero)
        work.quantised_sum(node, total, scale, zero, node.output)

    return form


QUANTISED_FORMS: Mapping[str, Callable[[WholeNumbers, Node], None]] = {
    "ConvInteger": _integer_product("Conv", 0),
    "DequantizeLinear": _dequantize_linear,
    "DynamicQuantizeLinear": _dynamic_quantize_linear,
    "MatMulInteger": _integer_product("MatMul", -1),
    "QLinearConv": _quantised_product("Conv", 0),
    "QLinearMatMul": _quantised_product("MatMul", -1),
    "QuantizeLinear": _quantize_linear,
}
