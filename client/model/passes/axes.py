"""Work out axes: which axes of its first input a node works along, what a reduction leaves, a Reshape splits."""

from collections.abc import Mapping, Sequence
from math import prod

from gputune.client.model.graph import Graph, Node


def axis_of(graph: Graph, node: Node, default: int) -> int:
    """Return the one axis, from 0 on. ModelError when the input has no such axis."""
    return _checked(graph, node, [int(node.attributes.get("axis", default))])[0]


def reduced_axes(graph: Graph, node: Node) -> tuple[int, ...]:
    """Return the axes of a reduction, sorted; they are an attribute or, since operator set 13 or 18, an input. Without
    any, all are reduced, unless the node says that none is. ModelError when they are computed or there are no such
    axes."""
    axes = node.attributes.get("axes", ())
    if name := node.inputs[1] if len(node.inputs) > 1 else "":
        if name not in graph.constants:
            raise graph.computed(node, "list of axes", name)
        axes = graph.constants[name].reshape(-1)
    if not len(axes) and not node.attributes.get("noop_with_empty_axes", 0):
        axes = range(len(graph.shape(node.inputs[0])))
    return tuple(sorted(set(_checked(graph, node, [int(axis) for axis in axes]))))


def _checked(graph: Graph, node: Node, axes: list[int]) -> list[int]:
    rank = len(graph.shape(node.inputs[0]))
    for axis in axes:
        if not -rank <= axis < rank:
            raise node.unsupported(f"it has no axis {axis} in its {rank} dimensions")
    return [axis % rank for axis in axes]


VIEWS = ("Expand", "Reshape")
"""Operators that keep elements in their order, where they keep their number."""


def seen_through(graph: Graph, producers: Mapping[str, Node], tensor: str) -> str:
    """Return the first tensor that has the elements of this one in their order, in whatever shape."""
    node = producers.get(tensor)
    while node is not None and node.op in VIEWS and graph.tensors[node.inputs[0]].size == graph.tensors[tensor].size:
        tensor = node.inputs[0]
        node = producers.get(tensor)
    return tensor


def kept_shape(graph: Graph, source: str, axes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of a tensor once these axes are reduced to 1."""
    return tuple(1 if axis in axes else size for axis, size in enumerate(graph.shape(source)))


def axis_groups(parts: Sequence[int], whole: Sequence[int]) -> list[list[int]] | None:
    """For each axis of `whole` the neighbouring axes of `parts` that it consists of, None where it is not like that."""
    groups: list[list[int]] = []
    axis = 0
    for size in whole:
        groups.append([])
        product = 1
        while axis < len(parts) and product < size:
            groups[-1].append(axis)
            product *= parts[axis]
            axis += 1
        if product != size:
            return None
        if axis < len(parts) and parts[axis] == 1:
            groups[-1].append(axis)
            axis += 1
    while axis < len(parts) and groups:
        groups[-1].append(axis)
        axis += 1
    return groups if len(groups) and prod(parts) == prod(whole) else None
