"""Lowering of the operators that put updates where indices point at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

from gputune.client.model.graph import Node
from gputune.client.model.lowering.emitting import Lowering
from gputune.kernels.ops.gather import strides_of
from gputune.kernels.ops.scatter import ScatterProblem


def scatter_elements(lowering: Lowering, node: Node) -> None:
    shape, looked = (lowering.graph.shape(name) for name in node.inputs[:2])
    axis = int(node.attributes.get("axis", 0)) % len(shape)
    steps = strides_of(looked)
    problem = ScatterProblem(
        sizes=shape,
        inner=1,
        count=looked[axis],
        lookups=tuple(0 if each == axis else step for each, step in enumerate(steps)),
        heres=tuple(int(each == axis) for each in range(len(shape))),
        reached=tuple(shape[each] if each == axis else size for each, size in enumerate(looked)),
        extents=(shape[axis],),
        spans=(1,),
        index_step=steps[axis],
        update_step=steps[axis],
        **_common(lowering, node),
    )
    _run(lowering, node, problem)


def scatter_nd(lowering: Lowering, node: Node) -> None:
    shape, looked = (lowering.graph.shape(name) for name in node.inputs[:2])
    depth = looked[-1]
    extents, inner = shape[:depth], prod(shape[depth:])
    problem = ScatterProblem(
        sizes=(prod(extents),),
        inner=inner,
        count=prod(looked[:-1]),
        lookups=(0,),
        heres=(1,),
        reached=(prod(extents),),
        extents=extents,
        spans=strides_of(extents),
        index_step=depth,
        update_step=inner,
        **_common(lowering, node),
    )
    _run(lowering, node, problem)


def _common(lowering: Lowering, node: Node) -> dict[str, Any]:
    data, indices, updates = (lowering.graph.tensors[name] for name in node.inputs)
    reduction = node.attributes.get("reduction", "none")
    sizes = {"indices": indices.size, "updates": updates.size}
    return {**sizes, "reduction": reduction, "index_dtype": indices.dtype, "dtype": data.dtype}


def _run(lowering: Lowering, node: Node, problem: ScatterProblem) -> None:
    names = zip(("data", "indices", "updates"), node.inputs, strict=True)
    inputs = {name: lowering.layouts.get(tensor, on_device=False) for name, tensor in names}
    lowering.run(node, "Scatter", problem, inputs, on_device=False)


LOWERINGS: Mapping[str, Callable[[Lowering, Node], None]] = {
    "Scatter": scatter_elements,
    "ScatterElements": scatter_elements,
    "ScatterND": scatter_nd,
}
