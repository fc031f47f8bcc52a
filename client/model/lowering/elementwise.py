"""Lower operators that compute each element independently."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gputune.client.model.graph import Node
from gputune.client.model.lowering.emitting import Lowering
from gputune.client.model.lowering.layouts import device_shape
from gputune.kernels.ops.elementwise import ElementwiseProblem


def elementwise(lowering: Lowering, node: Node) -> None:
    """Lower a chain, in the order that takes fewer conversions of what it reads, and in device order where both take
    one."""
    shape, reads = lowering.graph.shape(node.output), set(node.reads)
    there, here = (sum(lowering.layouts.converts(name, order) for name in reads) for order in (True, False))
    on_device = there <= here and any(lowering.layouts.lies_on_device(name) for name in reads)
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
