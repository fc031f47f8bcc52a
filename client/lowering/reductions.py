"""Lowering of the operators that look along axes: Softmax."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import TYPE_CHECKING

from gputune.client.graph import Node
from gputune.client.lowering.layouts import TO_DEVICE, device_shape
from gputune.kernels.ops.softmax import SoftmaxProblem

if TYPE_CHECKING:  # operators.py has the table that names these functions
    from gputune.client.lowering.lowering import Lowering


def softmax(lowering: Lowering, node: Node) -> None:
    source = node.inputs[0]
    shape = lowering.graph.shape(source)
    on_device = lowering.layouts.lies_on_device(source)
    first, last = node.attributes["axes"]
    places = [TO_DEVICE.index(axis) if on_device else axis for axis in range(first, last + 1)]
    shape = device_shape(shape) if on_device else shape
    start, stop = min(places, default=0), max(places, default=-1) + 1
    problem = SoftmaxProblem(prod(shape[:start]), prod(shape[start:stop]), prod(shape[stop:]))
    lowering.run(node, "Softmax", problem, {"input": lowering.layouts.get(source, on_device)}, on_device)


LOWERINGS: Mapping[str, Callable[[Lowering, Node], None]] = {
    "Softmax": softmax,
}
