"""Drops nodes that return what they are given: Identity, Dropout at inference, reshapes to the same shape."""

from gputune.client.graph import Graph, Node, renamed

COPIES = frozenset(("Dropout", "Identity"))
"""Operators that return what they are given."""


def drop_identity(graph: Graph) -> Graph:
    """The same graph with every reader of a copy reading the original.

    A copy stays, as Identity, only where an output of the graph would lose its name: when the original is
    an input or another output. Raises ModelError for a Dropout in training mode.
    """
    producers = graph.producers()
    uses = graph.uses()
    names: dict[str, str] = {}

    def current(tensor: str) -> str:
        while tensor in names:
            tensor = names[tensor]
        return tensor

    kept: list[Node] = []
    for node in graph.nodes:
        source, result = current(node.inputs[0]) if node.inputs else "", node.output
        if node.op == "Dropout":
            _check_dropout(graph, node, masked=any(uses[mask] for mask in node.outputs[1:]))
        elif node.op != "Identity" and (node.op != "Reshape" or graph.shape(source) != graph.shape(result)):
            kept.append(node)
            continue
        if result not in graph.outputs:
            names[result] = source
        elif source in producers and source not in graph.outputs:
            names[source] = result
        else:
            kept.append(Node("Identity", node.name, (source,), (result,), origins=node.origins))
    return graph.rewritten(renamed(kept, {name: current(name) for name in names}))


def _check_dropout(graph: Graph, node: Node, masked: bool) -> None:
    training = node.inputs[2] if len(node.inputs) > 2 else ""
    if training and graph.scalar(training) != 0:
        raise node.unsupported("it is in training mode")
    if masked:
        raise node.unsupported("its mask is used")
