"""Recognise exp(x - m) / sum(exp(x - m)) as a Softmax, and (x - m) - log(sum(exp(x - m))) as a LogSoftmax.

Usually m is the maximum; anything that does not vary along the axes changes nothing. Recognise also
Where(IsNaN(s), 0, s) after a Softmax s, which sets rows to zero in which a mask has left nothing: PyTorch writes its
attention this way. In such a row, all elements of a Softmax are NaN; in any other row, none is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gputune.client.model.graph import Graph, Node
from gputune.client.model.passes.axes import kept_shape, reduced_axes, seen_through


def recognise_softmax(graph: Graph) -> Graph:
    """Return the same graph with a Softmax or LogSoftmax node wherever one is spelt out; what others read stays."""
    producers = graph.producers()
    return graph.rewritten(_matched(graph, producers, node) or node for node in graph.nodes)


def _matched(graph: Graph, producers: Mapping[str, Node], node: Node) -> Node | None:
    """Return the softmax that ends in this node."""
    if node.op not in ("Div", "Sub") or not graph.is_float(node):
        return None
    value, below = node.inputs
    parts = _behind(graph, producers, below, ("Log", "ReduceSum", "Exp")[node.op == "Div" :])
    if not parts:
        return None
    exponential, total = parts[:2]
    axes, source = reduced_axes(graph, total), exponential.inputs[0]
    neighbours = axes and axes[-1] - axes[0] == len(axes) - 1
    whole = value == (exponential.output if node.op == "Div" else source)
    if not neighbours or not whole or graph.shape(below) != kept_shape(graph, source, axes):
        return None
    shifted = producers.get(source)
    if shifted is not None and shifted.op == "Sub" and _varies_not(graph, shifted, axes):
        source, parts = shifted.inputs[0], (shifted, *parts)
    origins = tuple(name for part in (*parts, node) for name in part.origins)
    op = "Softmax" if node.op == "Div" else "LogSoftmax"
    return replace(node, op=op, inputs=(source,), attributes={"axes": (axes[0], axes[-1])}, origins=origins)


def _behind(graph: Graph, producers: Mapping[str, Node], tensor: str, ops: Sequence[str]) -> tuple[Node, ...]:
    """Return the nodes of these operators that a tensor comes from, the last first; none where they are not."""
    found: tuple[Node, ...] = ()
    for op in ops:
        node = producers.get(seen_through(graph, producers, tensor))
        if node is None or node.op != op:
            return ()
        found, tensor = (node, *found), node.inputs[0]
    return found


def _varies_not(graph: Graph, shifted: Node, axes: tuple[int, ...]) -> bool:
    """Return whether what a Sub takes from its left side is the same all along these axes of it."""
    source, taken = map(graph.shape, shifted.inputs)
    sizes = (1,) * (len(source) - len(taken)) + taken
    return source == graph.shape(shifted.output) and all(sizes[axis] == 1 for axis in axes)


def mask_softmax(graph: Graph) -> Graph:
    """Return the same graph in which a Softmax with attribute "masked" computes those zeros itself, where no other node
    reads what it had."""
    producers, uses = graph.producers(), graph.uses()
    masked: dict[str, Node] = {}
    for node in graph.nodes:
        softmax = _guarded(graph, producers, node)
        if softmax is not None and uses[softmax.output] == 2:
            attributes = {**softmax.attributes, "masked": True}
            origins = (*softmax.origins, *node.origins)
            masked[softmax.output] = replace(softmax, outputs=node.outputs, attributes=attributes, origins=origins)
    replaced = {node.output for node in masked.values()}
    return graph.rewritten(
        masked.get(node.output, node) for node in graph.nodes if node.op != "Where" or node.output not in replaced
    )


def _guarded(graph: Graph, producers: dict[str, Node], node: Node) -> Node | None:
    """Return the Softmax whose NaN a Where replaces with zeros."""
    if node.op != "Where" or graph.scalar(node.inputs[1]) != 0:
        return None
    test, softmax = (producers.get(node.inputs[index]) for index in (0, 2))
    if not test or test.op != "IsNaN" or test.inputs[0] != node.inputs[2]:
        return None
    return softmax if softmax and softmax.op == "Softmax" and not softmax.chain.steps else None
