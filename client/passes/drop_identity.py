"""Drops nodes that return what they are given: Identity, reshapes to the same shape."""

from gputune.client.graph import Graph, Node, renamed


def drop_identity(graph: Graph) -> Graph:
    """The same graph with every reader of a copy reading the original.

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
        if node.op != "Identity" and (node.op != "Reshape" or graph.shape(source) != graph.shape(result)):
            kept.append(node)
            continue
        if result not in graph.outputs:
            names[result] = source
        elif source in producers and source not in graph.outputs:
            names[source] = result
        else:
            kept.append(Node("Identity", node.name, (source,), (result,), origins=node.origins))
    return graph.rewritten(renamed(kept, {name: current(name) for name in names}))
