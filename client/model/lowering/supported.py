"""Say which nodes of a graph cannot run, and why, without a plan for the rest."""

from collections.abc import Collection
from dataclasses import replace

from gputune.client.errors import Refusal, UnsupportedNodes
from gputune.client.model.graph import Graph, Node
from gputune.client.model.lowering.lowering import lower


def refusals_of(graph: Graph) -> tuple[Refusal, ...]:
    """Return a refusal for every node of an imported graph that cannot run, in the order of the graph.

    Lowering ends with the first pass or step that refuses nodes. So this cuts such nodes out and lowers the rest, until
    nothing is refused. Raises ModelError for what is wrong with the graph and not with single nodes.
    """
    found: dict[str, Refusal] = {}
    rest, left = graph, len(graph.nodes) + 1
    while 0 < len(rest.nodes) < left:
        left = len(rest.nodes)
        try:
            lower(rest)
        except UnsupportedNodes as error:
            found = {one.node: one for one in error.refusals} | found
            rest = _without(rest, found)
    places = {name: place for place, node in enumerate(graph.nodes) for name in _names(node)}
    return tuple(sorted(found.values(), key=lambda one: places.get(one.node, 0)))


def _without(graph: Graph, names: Collection[str]) -> Graph:
    """Return the graph without nodes of these names: what they computed are inputs, what they read outputs."""
    cut = [node for node in graph.nodes if not _names(node).isdisjoint(names)]
    left = [node for node in graph.nodes if _names(node).isdisjoint(names)]
    computed = {output for node in left for output in node.outputs if output}
    read = {name for node in left for name in node.reads}
    wanted = (*graph.outputs, *(name for node in cut for name in node.reads))
    given = (*graph.inputs, *(output for node in cut for output in node.outputs if output in read))
    outputs = tuple(dict.fromkeys(name for name in wanted if name in computed))
    return replace(graph, inputs=tuple(dict.fromkeys(given)), outputs=outputs).rewritten(left)


def _names(node: Node) -> set[str]:
    return {node.name, *node.origins}
