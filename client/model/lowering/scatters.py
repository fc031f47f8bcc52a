"""Lower the operators that write updates to the positions that indices give."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gputune.client.model.graph import Node
from gputune.client.model.lowering.emitting import Lowering
from gputune.kernels.ops.scatter import ScatterProblem, along, at_points


def scatter_elements(lowering: Lowering, node: Node) -> None:
    shape, looked = (lowering.graph.shape(name) for name in node.inputs[:2])
    axis = int(node.attributes.get("axis", 0)) % len(shape)
    _run(lowering, node, along(shape, looked, axis, **_kind(lowering, node)))


def scatter_nd(lowering: Lowering, node: Node) -> None:
    shape, looked = (lowering.graph.shape(name) for name in node.inputs[:2])
    _run(lowering, node, at_points(shape, looked, **_kind(lowering, node)))


def _kind(lowering: Lowering, node: Node) -> dict[str, Any]:
    data, indices, _ = (lowering.graph.tensors[name] for name in node.inputs)
    return {
        "reduction": node.attributes.get("reduction", "none"),
        "index_dtype": indices.dtype,
        "dtype": data.dtype,
    }


def _run(lowering: Lowering, node: Node, problem: ScatterProblem) -> None:
    names = zip(("data", "indices", "updates"), node.inputs, strict=True)
    inputs = {name: lowering.layouts.get(tensor, on_device=False) for name, tensor in names}
    lowering.run(node, "Scatter", problem, inputs, on_device=False)


LOWERINGS: Mapping[str, Callable[[Lowering, Node], None]] = {
    "Scatter": scatter_elements,
    "ScatterElements": scatter_elements,
    "ScatterND": scatter_nd,
}
