"""Lower operators that look up elements by index."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

from gputune.client.model.graph import Node
from gputune.client.model.lowering.emitting import Lowering
from gputune.kernels.ops.gather import GatherProblem, strides_of

Steps = tuple[int, ...]


def gather(lowering: Lowering, node: Node) -> None:
    shape, looked = (lowering.graph.shape(name) for name in node.inputs)
    axis = int(node.attributes.get("axis", 0)) % len(shape)
    inner, count = prod(shape[axis + 1 :]), prod(looked)
    outer = prod(shape[:axis])
    _run(lowering, node, (outer, count), (shape[axis] * inner, 0), (0, 1), (shape[axis],), (inner,), inner)


def gather_elements(lowering: Lowering, node: Node) -> None:
    shape, looked = (lowering.graph.shape(name) for name in node.inputs)
    axis = int(node.attributes.get("axis", 0)) % len(shape)
    spans = strides_of(shape)
    steps = tuple(0 if each == axis else stride for each, stride in enumerate(spans))
    _run(lowering, node, looked, steps, strides_of(looked), (shape[axis],), (spans[axis],), 1)


def gather_nd(lowering: Lowering, node: Node) -> None:
    shape, looked = (lowering.graph.shape(name) for name in node.inputs)
    batch, depth = int(node.attributes.get("batch_dims", 0)), looked[-1]
    extents, spans = shape[batch : batch + depth], strides_of(shape)[batch : batch + depth]
    batches, count = prod(shape[:batch]), prod(looked[batch:-1])
    inner = prod(shape[batch + depth :])
    steps, lookups = (prod(shape[batch:]), 0), (count * depth, depth)
    _run(lowering, node, (batches, count), steps, lookups, extents, spans, inner)


def _run(
    lowering: Lowering,
    node: Node,
    sizes: Steps,
    steps: Steps,
    lookups: Steps,
    extents: Steps,
    spans: Steps,
    inner: int,
) -> None:
    """Emit the Gather of a node, with loops of one step left out."""
    kept = [loop for loop in zip(sizes, steps, lookups, strict=True) if loop[0] > 1] or [(1, 0, 0)]
    sizes, steps, lookups = zip(*kept, strict=True)
    graph, layouts = lowering.graph, lowering.layouts
    data, indices = node.inputs
    elements, indexed = graph.tensors[data].size, graph.tensors[indices].size
    problem = GatherProblem(
        elements=elements,
        indices=indexed,
        sizes=sizes,
        steps=steps,
        lookups=lookups,
        extents=extents,
        spans=spans,
        inner=inner,
        index_dtype=layouts.dtype(indices),
        dtype=layouts.dtype(data),
    )
    inputs = {"input": layouts.get(data, on_device=False), "indices": layouts.get(indices, on_device=False)}
    lowering.run(node, "Gather", problem, inputs, on_device=False)


LOWERINGS: Mapping[str, Callable[[Lowering, Node], None]] = {
    "Gather": gather,
    "GatherElements": gather_elements,
    "GatherND": gather_nd,
}
