"""Takes what lies around a contraction into it: transposes become other letters, and factors go behind it.

Attention is written so: its products have transposes before and behind them, and some exporters scale both sides.
"""

from dataclasses import dataclass, replace

from gputune.client.graph import Graph, Node, as_constant

ANY = "_"
"""The letter of an axis of size 1, which matters to nobody."""


@dataclass(frozen=True)
class _Side:
    """An input of a contraction: the tensor that is read, its letters, and what it is to be multiplied with."""

    tensor: str
    letters: str
    factor: float = 1.0


def absorb_into_products(graph: Graph) -> Graph:
    """The same graph in which each Einsum reads behind transposes and writes as the one behind it would; what others
    read, too, stays for them."""
    producers, uses = graph.producers(), graph.uses()
    readers = {name: node for node in graph.nodes for name in node.reads}
    nodes: list[Node] = []
    constants, tensors = {}, {}
    for node in graph.nodes:
        if node.op == "Transpose" and producers[node.output] is not node:  # a product computes what it did
            continue
        if node.op != "Einsum":
            nodes.append(node)
            continue
        inputs, result = node.attributes["equation"].split("->")
        left, right = (
            _source(graph, producers, _Side(name, letters))
            for name, letters in zip(node.inputs, inputs.split(","), strict=True)
        )
        last, origins = node, node.origins
        while uses[last.output] == 1 and (reader := readers.get(last.output)) and _is_transpose(reader):
            result = "".join(result[axis] for axis in _permutation(reader, len(result)))
            last, origins = reader, (*origins, *reader.origins)
        output, factor = last.output, left.factor * right.factor
        bare = output if factor == 1 else graph.free_name(f"{output}/bare")
        equation = {"equation": f"{left.letters},{right.letters}->{result}"}
        product = Node("Einsum", node.name, (left.tensor, right.tensor), (bare,), equation, origins=origins)
        nodes.append(product)
        if factor != 1:
            number = graph.free_name(f"{output}/factor")
            tensors[bare], constants[number] = graph.tensors[output], as_constant(factor)
            nodes.append(Node("Mul", f"{node.name}/factor", (bare, number), (output,), origins=origins))
        producers[output] = product
    return graph.rewritten(nodes, constants, tensors)


def _source(graph: Graph, producers: dict[str, Node], side: _Side) -> _Side:
    """Where the elements of a side come from, seen through transposes, axes of size 1 and factors."""
    while (node := producers.get(side.tensor)) and (before := _before(graph, node, side)):
        side = before
    return side


def _before(graph: Graph, node: Node, side: _Side) -> _Side | None:
    """What `node` makes the side from, None where that is more than other letters and a factor."""
    if node.chain.steps:
        return None
    source = node.inputs[0]
    if _is_transpose(node):
        letters = dict(zip(_permutation(node, len(side.letters)), side.letters, strict=True))
        return replace(side, tensor=source, letters="".join(letters[axis] for axis in sorted(letters)))
    shape, after = graph.shape(source), graph.shape(side.tensor)
    if node.op == "Reshape" and [size for size in shape if size > 1] == [size for size in after if size > 1]:
        long = (letter for letter, size in zip(side.letters, after, strict=True) if size > 1)
        return replace(side, tensor=source, letters="".join(next(long) if size > 1 else ANY for size in shape))
    if node.op in ("Mul", "Div"):
        for value, other in (node.inputs, node.inputs[::-1])[: 2 if node.op == "Mul" else 1]:
            number = graph.scalar(other)
            if number and graph.shape(value) == after:
                factor = side.factor * (number if node.op == "Mul" else 1 / number)
                return replace(side, tensor=value, factor=factor)
    return None


def _is_transpose(node: Node) -> bool:
    return node.op == "Transpose" and not node.chain.steps


def _permutation(node: Node, rank: int) -> tuple[int, ...]:
    """For each axis of a Transpose's result the axis of its input that it is."""
    return tuple(node.attributes.get("perm") or reversed(range(rank)))
