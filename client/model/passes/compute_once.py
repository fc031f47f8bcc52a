"""Compute masks once: exporters and definitions write them anew for each layer.

Only nodes that have a launch of their own in any case are shared. A float that is computed twice may cost nothing,
because each of its readers takes it in; a second reader would make a tensor of it.
"""

from dataclasses import replace

from gputune.client.model.graph import Graph, Node, renamed

SHARED = frozenset((
    "And", "Cast", "Equal", "Expand", "Greater", "GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessOrEqual", "Not", "Or",
    "Where", "Xor",
))  # fmt: skip
"""Operators of which equal nodes are one."""
MOVES = frozenset(("Gather", "Reshape", "Slice"))
"""Operators of which equal nodes are one where they move no floats."""
MOST_ELEMENTS = 64
"""Of constants that are known to be equal by their values."""


def compute_once(graph: Graph) -> Graph:
    """Return the same graph without second nodes that compute a mask."""
    uses = {name for node in graph.nodes if _may_share(graph, node) for name in node.reads}
    equal: dict[tuple[str, tuple[int, ...], bytes], str] = {}
    names = {
        name: equal.setdefault((str(value.dtype), value.shape, value.tobytes()), name)
        for name, value in graph.constants.items()
        if name in uses and value.size <= MOST_ELEMENTS
    }
    first: dict[object, int] = {}
    kept: list[Node] = []
    for node in graph.nodes:
        key = _key(graph, node, names) if _may_share(graph, node) else None
        if key is None or key not in first:
            if key is not None:
                first[key] = len(kept)
            kept.append(node)
            continue
        place = first[key]
        kept[place] = replace(kept[place], origins=(*kept[place].origins, *node.origins))
        names[node.output] = names.get(kept[place].output, kept[place].output)
    return graph.rewritten(renamed(kept, names))


def _may_share(graph: Graph, node: Node) -> bool:
    if len(node.outputs) != 1 or node.output in graph.outputs or node.chain.steps or node.operands:
        return False
    return node.op in SHARED or (node.op in MOVES and graph.tensors[node.output].dtype != "float32")


def _key(graph: Graph, node: Node, names: dict[str, str]) -> object:
    """Return what equal nodes have in common: attributes of such operators are plain values."""
    inputs = tuple(names.get(name, name) for name in node.inputs)
    return node.op, inputs, graph.tensors[node.output], repr(sorted(node.attributes.items()))
