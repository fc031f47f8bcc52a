"""Lower the operators that work along axes: Reduce*, ArgMax and ArgMin, CumSum, Softmax and its relatives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import prod

from gputune.client.model.graph import Node
from gputune.client.model.lowering.emitting import Lowering
from gputune.client.model.lowering.layouts import TO_DEVICE, device_shape
from gputune.client.model.passes.axes import axis_of, reduced_axes
from gputune.kernels.indexing.loops import merged
from gputune.kernels.ops.arg import ArgProblem
from gputune.kernels.ops.reduce import ReduceProblem
from gputune.kernels.ops.scan import ScanProblem
from gputune.kernels.ops.softmax import SoftmaxProblem

REDUCTIONS = {
    "ReduceL1": "l1",
    "ReduceL2": "l2",
    "ReduceLogSum": "log_sum",
    "ReduceLogSumExp": "log_sum_exp",
    "ReduceMax": "max",
    "ReduceMean": "mean",
    "ReduceMin": "min",
    "ReduceProd": "prod",
    "ReduceSum": "sum",
    "ReduceSumSquare": "sum_square",
}
"""What each operator makes of the elements that it reduces."""


def reduction(lowering: Lowering, node: Node) -> None:
    axes = reduced_axes(lowering.graph, node)
    source, on_device = readable(lowering, node, axes)
    shape, places = lowering.graph.shape(node.inputs[0]), positions(axes, on_device)
    dtype = lowering.graph.tensors[node.inputs[0]].dtype
    sizes, places, _ = merged(device_shape(shape) if on_device else shape, places)
    problem = ReduceProblem(REDUCTIONS[node.op], sizes, places, dtype, node.chain)
    lowering.run(node, "Reduce", problem, {"input": source}, on_device)


def arg(lowering: Lowering, node: Node) -> None:
    axis = axis_of(lowering.graph, node, 0)
    source, on_device = readable(lowering, node, (axis,))
    problem = ArgProblem(
        *rows(lowering, node, (axis,), on_device),
        largest=node.op == "ArgMax",
        last=bool(node.attributes.get("select_last_index", 0)),
        dtype=lowering.graph.tensors[node.inputs[0]].dtype,
    )
    lowering.run(node, "ArgMax", problem, {"input": source}, on_device)


def scan(lowering: Lowering, node: Node) -> None:
    """CumSum and CumProd; the axis is an input."""
    value = lowering.value(node, 1, "axis")
    rank = len(lowering.graph.shape(node.inputs[0]))
    axis = int(value.reshape(())) if value is not None and value.size == 1 else rank
    if not -rank <= axis < rank:
        raise node.unsupported(f"its axis is not one of its {rank} dimensions")
    on_device = lowering.layouts.lies_on_device(node.inputs[0])
    problem = ScanProblem(
        *rows(lowering, node, (axis % rank,), on_device),
        product=node.op == "CumProd",
        exclusive=bool(node.attributes.get("exclusive", 0)),
        reverse=bool(node.attributes.get("reverse", 0)),
        dtype=lowering.graph.tensors[node.inputs[0]].dtype,
    )
    lowering.run(node, "Scan", problem, {"input": lowering.layouts.get(node.inputs[0], on_device)}, on_device)


def softmax(lowering: Lowering, node: Node) -> None:
    """Softmax, LogSoftmax and Hardmax, in the order in which the input lies."""
    source = node.inputs[0]
    first, last = node.attributes["axes"]
    on_device = lowering.layouts.lies_on_device(source)
    if node.op == "Hardmax" and first != last:
        on_device = False  # of equal elements the first one counts, in ONNX order
    sizes = rows(lowering, node, range(first, last + 1), on_device)
    inputs = {"input": lowering.layouts.get(source, on_device)}
    if node.op == "Hardmax":
        lowering.run(node, "ArgMax", ArgProblem(*sizes, one_hot=True), inputs, on_device)
    else:
        problem = SoftmaxProblem(*sizes, log=node.op == "LogSoftmax", masked=node.attributes.get("masked", False))
        lowering.run(node, "Softmax", problem, inputs, on_device)


def readable(lowering: Lowering, node: Node, axes: Iterable[int]) -> tuple[str, bool]:
    """Return the input of a node that removes axes, in the order in which it lies, and whether that is device order.

    Where the axes that remain would come out in another order than ONNX's, and have no axes of size 1 between them to
    say so, it is read in ONNX order.
    """
    source = node.inputs[0]
    kept = [axis for axis in TO_DEVICE if axis not in axes]
    whole = len(lowering.graph.shape(node.output)) == 4 and lowering.graph.tensors[node.output].dtype == "float32"
    on_device = lowering.layouts.lies_on_device(source) and (whole or kept == sorted(kept))
    return lowering.layouts.get(source, on_device), on_device


def positions(axes: Iterable[int], on_device: bool) -> tuple[int, ...]:
    """Return where ONNX's axes are in the order in which a tensor lies."""
    return tuple(TO_DEVICE.index(axis) if on_device else axis for axis in axes)


def rows(lowering: Lowering, node: Node, axes: Iterable[int], on_device: bool) -> tuple[int, int, int]:
    """Return a node's input as [outer, axis, inner] for neighbouring axes."""
    shape = lowering.graph.shape(node.inputs[0])
    places = positions(axes, on_device)
    shape = device_shape(shape) if on_device else shape
    start, stop = min(places, default=0), max(places, default=-1) + 1
    return prod(shape[:start]), prod(shape[start:stop]), prod(shape[stop:])


LOWERINGS: Mapping[str, Callable[[Lowering, Node], None]] = {
    **dict.fromkeys(REDUCTIONS, reduction),
    **dict.fromkeys(("ArgMax", "ArgMin"), arg),
    **dict.fromkeys(("CumProd", "CumSum"), scan),
    **dict.fromkeys(("Hardmax", "LogSoftmax", "Softmax"), softmax),
}
