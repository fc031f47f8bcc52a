"""Recognises x * clip(x + 3, 0, 6) / 6, with the division by six anywhere, and x * HardSigmoid(x)."""

import math
from dataclasses import dataclass

from gputune.client.graph import Graph, Node


@dataclass(frozen=True)
class _Scaled:
    """A tensor known to be `factor` times f(x), and the nodes that were looked through."""

    tensor: str
    factor: float
    origins: tuple[str, ...] = ()


def recognise_hard_swish(graph: Graph) -> Graph:
    """The same graph with a HardSwish node wherever it is spelt out; parts that others read stay."""
    producers = graph.producers()
    uses = graph.uses()
    readers = {name: node for node in graph.nodes for name in node.reads}
    found: dict[str, Node] = {}
    for node in graph.nodes:
        if node.op != "Mul" or (match := _match(graph, producers, node)) is None:
            continue
        last, factor, origins = node, match.factor, match.origins
        if not _is_sixth(factor) and uses[node.output] == 1 and node.output in readers:
            last = readers[node.output]
            after = _scale(graph, last, node.output)
            factor, origins = factor * (after or 0.0), (*origins, *last.origins)
        if _is_sixth(factor):
            found[last.name] = Node("HardSwish", last.name, (match.tensor,), last.outputs, origins=origins)
    return graph.rewritten(found.get(node.name, node) for node in graph.nodes)


def _match(graph: Graph, producers: dict[str, Node], node: Node) -> _Scaled | None:
    """The x of which this Mul is `factor` * x * clip(x + 3, 0, 6)."""
    for value, gate in (node.inputs, node.inputs[::-1]):
        opened = _gate(graph, producers, gate)
        if opened is None:
            continue
        plain = _Scaled(value, 1.0) if value == opened.tensor else _unscaled(graph, producers, value)
        if plain is not None and plain.tensor == opened.tensor:
            origins = (*plain.origins, *opened.origins, *node.origins)
            return _Scaled(opened.tensor, plain.factor * opened.factor, origins)
    return None


def _gate(graph: Graph, producers: dict[str, Node], tensor: str) -> _Scaled | None:
    """The x of which `tensor` is factor * clip(x + 3, 0, 6)."""
    node = producers.get(tensor)
    if node is None:
        return None
    if node.op == "HardSigmoid":
        slope, offset = node.attributes.get("alpha", 0.2), node.attributes.get("beta", 0.5)
        fits = _is_sixth(slope) and math.isclose(offset, 0.5, rel_tol=1e-6)
        return _Scaled(node.inputs[0], 1 / 6, node.origins) if fits else None
    if node.op == "Clip":
        adding = producers.get(node.inputs[0])
        if (node.attributes["min"], node.attributes["max"]) != (0, 6) or adding is None or adding.op != "Add":
            return None
        for value, offset in (adding.inputs, adding.inputs[::-1]):
            if graph.scalar(offset) == 3 and graph.shape(value) == graph.shape(adding.output):
                return _Scaled(value, 1.0, (*adding.origins, *node.origins))
        return None
    scaled = _unscaled(graph, producers, tensor)
    inner = _gate(graph, producers, scaled.tensor) if scaled else None
    if scaled is None or inner is None:
        return None
    return _Scaled(inner.tensor, inner.factor * scaled.factor, (*inner.origins, *scaled.origins))


def _unscaled(graph: Graph, producers: dict[str, Node], tensor: str) -> _Scaled | None:
    """What `tensor` is a scalar multiple of, one node back."""
    node = producers.get(tensor)
    for source in node.inputs[:2] if node is not None and node.op in ("Mul", "Div") else ():
        factor = _scale(graph, node, source) if node is not None else None
        if node is not None and factor is not None:
            return _Scaled(source, factor, node.origins)
    return None


def _scale(graph: Graph, node: Node, source: str) -> float | None:
    """The scalar that a Mul or Div multiplies its input `source` with, keeping its shape."""
    if node.op not in ("Mul", "Div") or graph.shape(source) != graph.shape(node.output):
        return None
    left, right = node.inputs
    if node.op == "Div":
        number = graph.scalar(right) if source == left else None
        return 1 / number if number else None
    return graph.scalar(right if source == left else left)


def _is_sixth(number: float) -> bool:
    return math.isclose(number, 1 / 6, rel_tol=1e-6)
