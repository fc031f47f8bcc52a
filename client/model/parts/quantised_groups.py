"""Find what belongs to a product between DequantizeLinear and QuantizeLinear, so that no cut goes through it.

onnxruntime multiplies bytes where all of such a group is there, and so do kernels. If a cut went through it, floats of
four times the bytes would be handed over, and both sides would multiply floats.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gputune.client.model.graph import Graph, Node
from gputune.client.model.passes.whole_numbers import PRODUCTS
from gputune.client.model.passes.without_encodings import INTEGER_PRODUCTS

BEHIND = frozenset(("Add", "Cast", "Clip", "LeakyRelu", "Mul", "Relu", "Sigmoid"))
"""Operators between a product and a QuantizeLinear, or behind a product of integers."""
SOURCES = frozenset(("DequantizeLinear", "DynamicQuantizeLinear"))


@dataclass(frozen=True)
class QuantisedGroup:
    """The model's nodes of a group, by their places. own: those that nothing but the group reads, and its last."""

    every: frozenset[int]
    own: frozenset[int]


def quantised_groups(graph: Graph, places: Mapping[str, int]) -> Iterator[QuantisedGroup]:
    """Yield the groups of a graph that are of several nodes of the model. places: of these, by their names."""
    makers = graph.producers()
    readers: dict[str, list[Node]] = {name: [] for name in graph.outputs}
    for node in graph.nodes:
        for name in node.reads:
            readers.setdefault(name, []).append(node)
    for product in graph.nodes:
        whole = product.op in INTEGER_PRODUCTS
        if not whole and product.op not in PRODUCTS:
            continue
        sources = [makers[name] for name in product.inputs if name in makers and makers[name].op in SOURCES]
        inside = [*sources, product, *_behind(graph, product, readers)]
        every = frozenset(node.origins[0] for node in inside)
        if (sources or whole) and len(every) > 1:
            shared = {
                node.origins[0]
                for node in inside[:-1]
                for name in node.outputs
                if name in graph.outputs or not every.issuperset(each.origins[0] for each in readers.get(name, ()))
            }
            found = (frozenset(map(places.__getitem__, names)) for names in (every, every - shared))
            yield QuantisedGroup(*found)


def _behind(graph: Graph, product: Node, readers: Mapping[str, Sequence[Node]]) -> list[Node]:
    """Return the nodes from a product to the QuantizeLinear that rounds it, or to the floats of a sum of integers."""
    found: list[Node] = []
    last = product
    while last.output not in graph.outputs and len(readers.get(last.output, ())) == 1:
        (last,) = readers[last.output]
        if last.op == "QuantizeLinear":
            return [*found, last]
        if last.op not in BEHIND:
            break
        found.append(last)
    return found if product.op in INTEGER_PRODUCTS else []
