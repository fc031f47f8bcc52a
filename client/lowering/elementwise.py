"""Lowering of operators that compute each element on its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from gputune.client.graph import Node
from gputune.client.lowering.layouts import device_shape
from gputune.kernels.ops.elementwise import ElementwiseProblem

if TYPE_CHECKING:  # operators.py has the table that names these functions
    from gputune.client.lowering.lowering import Lowering


def elementwise(lowering: Lowering, node: Node) -> None:
    shape = lowering.graph.shape(node.output)
    on_device = any(lowering.layouts.lies_on_device(name) for name in node.reads)
    value, *operands = (lowering.layouts.get_broadcast(name, len(shape), on_device) for name in node.reads)
    tensors = lowering.layouts.tensors
    problem = ElementwiseProblem(
        device_shape(shape) if on_device else shape,
        tuple(tensors[name].shape for name in operands),
        tensors[value].shape,
        node.chain,
        tuple(index for index, name in enumerate(operands) if tensors[name].constant),
    )
    inputs = {"input": value, **{f"operand{index}": name for index, name in enumerate(operands)}}
    output = lowering.layouts.define(node.output, on_device)
    lowering.emit(node.name, "Elementwise", problem, inputs, output, node.stands_for)


LOWERINGS: Mapping[str, Callable[[Lowering, Node], None]] = {
    "Elementwise": elementwise,
}
