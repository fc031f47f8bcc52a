"""Lower Concat."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

from gputune.client.model.graph import Node
from gputune.client.model.lowering.emitting import Lowering
from gputune.client.model.lowering.layouts import TO_DEVICE, device_shape
from gputune.kernels.ops.concat import ConcatProblem


def concat(lowering: Lowering, node: Node) -> None:
    """Lower a Concat, in the order in which any of its inputs lies already; nothing where its readers read its
    parts."""
    if node.output in lowering.joined:
        return
    shape = lowering.graph.shape(node.output)
    on_device = any(lowering.layouts.lies_on_device(name) for name in node.inputs)
    axis = int(node.attributes["axis"]) % len(shape)
    place = TO_DEVICE.index(axis) if on_device else axis
    order = device_shape(shape) if on_device else shape
    behind = prod(order[place + 1 :])
    parts = tuple(lowering.graph.shape(name)[axis] * behind for name in node.inputs)
    inputs = {f"input{k}": lowering.layouts.get(name, on_device) for k, name in enumerate(node.inputs)}
    problem = ConcatProblem(prod(order[:place]), parts, lowering.layouts.dtype(node.output))
    lowering.run(node, "Concat", problem, inputs, on_device)


LOWERINGS: Mapping[str, Callable[[Lowering, Node], None]] = {
    "Concat": concat,
}
