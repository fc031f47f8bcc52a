"""Recognise Where(IsNaN(s), 0, s) after a Softmax s, which sets rows to zero in which a mask has left nothing.

PyTorch writes its attention this way. In such a row, all elements of a Softmax are NaN; in any other row, none is.
"""

from dataclasses import replace

from gputune.client.model.graph import Graph, Node


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
