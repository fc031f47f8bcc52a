"""Lower TopK: first find the positions of its elements, then their values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

from gputune.client.model.graph import Node
from gputune.client.model.lowering.emitting import Lowering
from gputune.kernels.ops.gather import GatherProblem
from gputune.kernels.ops.top import TopProblem


def top(lowering: Lowering, node: Node) -> None:
    graph, layouts = lowering.graph, lowering.layouts
    data, (values, places) = node.inputs[0], (*node.outputs, "")[:2]
    shape, found = graph.shape(data), graph.shape(values)
    axis = int(node.attributes.get("axis", -1)) % len(shape)
    outer, inner, dtype = prod(shape[:axis]), prod(shape[axis + 1 :]), layouts.dtype(data)
    largest = bool(node.attributes.get("largest", 1))
    problem = TopProblem(outer, shape[axis], inner, found[axis], largest, dtype)
    source = layouts.get(data, on_device=False)
    if lowering.uses[places]:
        indices = layouts.define(places, on_device=False)
    else:
        indices = layouts.temporary(f"{values}/places", found, "int64")
    lowering.emit(node.name, "TopK", problem, {"input": source}, indices, node.stands_for)
    if not lowering.uses[values]:
        return
    loops = (
        (outer, shape[axis] * inner, found[axis] * inner),
        (found[axis], 0, inner),
        (inner, 1, 1),
    )
    sizes, steps, lookups = zip(*([loop for loop in loops if loop[0] > 1] or [(1, 0, 0)]), strict=True)
    looked = GatherProblem(
        elements=prod(shape),
        indices=prod(found),
        sizes=sizes,
        steps=steps,
        lookups=lookups,
        extents=(shape[axis],),
        spans=(inner,),
        inner=1,
        index_dtype="int64",
        dtype=dtype,
    )
    target = layouts.define(values, on_device=False)
    lowering.emit(
        f"{node.name}/values", "Gather", looked, {"input": source, "indices": indices}, target, node.stands_for
    )


LOWERINGS: Mapping[str, Callable[[Lowering, Node], None]] = {
    "TopK": top,
}
