"""Merge a Reshape, a Transpose and a Reshape into one Rearrange if they move the elements of maps.

Exporters write the channel shuffle between grouped convolutions, and a pixel shuffle and its inverse, like that. The
tensors between have five or six axes and lie in ONNX's order. As one Rearrange, the elements go from the order in which
maps lie on the device to the same order.
"""

from dataclasses import replace
from math import prod

from gputune.client.model.graph import Graph, Node
from gputune.client.model.passes.axes import axis_groups

MAP_AXES = 4

Axes = tuple[tuple[tuple[int, int, int], ...], ...]
"""The attribute of a Rearrange."""


def recognise_rearrangements(graph: Graph) -> Graph:
    """Return the same graph with a Rearrange for every three such nodes that make a map or are made of one.

    Its attribute `axes` holds for each axis of the output the parts of input axes that it consists of, outermost first:
    (size, axis, step), so many positions of an axis of the input, `step` apart.
    """
    uses = graph.uses()
    makers = {node.output: node for node in graph.nodes}
    replaced: dict[str, Node] = {}
    dropped: set[str] = set()
    for merge in graph.nodes:
        transpose = _before(makers, uses, merge, "Reshape", "Transpose")
        split = transpose and _before(makers, uses, transpose, "Transpose", "Reshape")
        if not (transpose and split):
            continue
        axes = _axes(graph, split, transpose, merge)
        if axes is not None:
            origins = (*split.origins, *transpose.origins, *merge.origins)
            replaced[merge.output] = replace(
                merge, op="Rearrange", inputs=split.inputs[:1], attributes={"axes": axes}, origins=origins
            )
            dropped |= {split.output, transpose.output}
    return graph.rewritten(replaced.get(node.output, node) for node in graph.nodes if node.output not in dropped)


def _before(makers: dict[str, Node], uses: dict[str, int], node: Node, op: str, before: str) -> Node | None:
    """Return what makes the input of a node of this operator, where it is of the other one and nothing else reads
    it."""
    maker = makers.get(node.inputs[0]) if node.op == op else None
    return maker if maker is not None and maker.op == before and uses[maker.output] == 1 else None


def _axes(graph: Graph, split: Node, transpose: Node, merge: Node) -> Axes | None:
    """Return the axes of the Rearrange; None where there is no map, or axes are not taken apart and put together one by
    one."""
    source, apart = graph.shape(split.inputs[0]), graph.shape(split.output)
    turned, target = graph.shape(transpose.output), graph.shape(merge.output)
    if MAP_AXES not in (len(source), len(target)) or not prod(source):
        return None
    taken, put = axis_groups(apart, source), axis_groups(turned, target)
    if taken is None or put is None:
        return None
    parts: dict[int, tuple[int, int, int]] = {}
    for axis, group in enumerate(taken):
        for place, part in enumerate(group):
            parts[part] = apart[part], axis, prod(apart[inner] for inner in group[place + 1 :])
    order = tuple(transpose.attributes.get("perm", range(len(apart))[::-1]))
    return tuple(tuple(parts[order[place]] for place in group) for group in put)
