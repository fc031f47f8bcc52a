"""Drop nodes that return their input unchanged: Identity, and reshapes, expansions and slices without effect."""

from gputune.client.model.graph import Graph, Node, renamed

SAME_WHERE_SHAPED_SO = frozenset(("Expand", "Reshape", "Tile"))
"""Operators that return what they are given wherever the shape stays as it is."""


def drop_identity(graph: Graph) -> Graph:
    """Return the same graph with every reader of a copy reading the original.

    A copy stays, as Identity, only where an output of the graph would lose its name: when the original is
    an input or another output.
    """
    producers = graph.producers()
    names: dict[str, str] = {}

    def current(tensor: str) -> str:
        while tensor in names:
            tensor = names[tensor]
        return tensor

    kept: list[Node] = []
    for node in graph.nodes:
        source, result = current(node.inputs[0]) if node.inputs else "", node.output
        if not _is_copy(graph, node, source):
            kept.append(node)
            continue
        if result not in graph.outputs:
            names[result] = source
        elif source in producers and source not in graph.outputs:
            names[source] = result
        else:
            kept.append(Node("Identity", node.name, (source,), (result,), origins=node.origins))
    return graph.rewritten(renamed(kept, {name: current(name) for name in names}))


def _is_copy(graph: Graph, node: Node, source: str) -> bool:
    if node.op == "Identity":
        return True
    if node.op not in SAME_WHERE_SHAPED_SO | {"Slice"} or graph.shape(source) != graph.shape(node.output):
        return False
    steps = node.inputs[4] if len(node.inputs) > 4 else ""
    return node.op != "Slice" or not steps or (steps in graph.constants and bool((graph.constants[steps] > 0).all()))
