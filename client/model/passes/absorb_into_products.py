"""Absorb operators around a contraction into it.

Transposes become other letters, slices become parts of what is read, and factors move after the product. Attention is
written this way: its products have transposes before and after them, its inputs are thirds of one tensor, and some
exporters scale both.
"""

from dataclasses import dataclass, replace

from gputune.client.model.graph import Graph, Node
from gputune.client.model.passes.additions import Additions

ANY = "_"
"""The letter of an axis of size 1, which changes no place in memory."""


@dataclass(frozen=True)
class _Side:
    """An input of a contraction: the tensor that is read, and of each of its axes the letter, the first element that is
    read and how many are. What is read is to be multiplied with `factor`."""

    tensor: str
    letters: str
    firsts: tuple[int, ...]
    sizes: tuple[int, ...]
    factor: float = 1.0


def absorb_into_products(graph: Graph) -> Graph:
    """Return the same graph in which each Einsum reads behind transposes and slices and writes as a Transpose behind it
    would; what others read, too, stays for them.

    Attribute "parts" of an Einsum: for each input the first element and the size along each axis of what it reads.
    """
    producers, uses = graph.producers(), graph.uses()
    readers = {name: node for node in graph.nodes for name in node.reads}
    nodes: list[Node] = []
    added = Additions(graph)
    for node in graph.nodes:
        if node.op == "Transpose" and producers[node.output] is not node:  # a product computes what it did
            continue
        if node.op != "Einsum":
            nodes.append(node)
            continue
        inputs, result = node.attributes["equation"].split("->")
        left, right = (
            _source(graph, producers, _whole(graph, name, letters))
            for name, letters in zip(node.inputs, inputs.split(","), strict=True)
        )
        last, origins = node, node.origins
        while uses[last.output] == 1 and (reader := readers.get(last.output)) and _is(reader, "Transpose"):
            result = "".join(result[axis] for axis in _permutation(reader, len(result)))
            last, origins = reader, (*origins, *reader.origins)
        output, factor = last.output, left.factor * right.factor
        bare = output if factor == 1 else added.tensor(f"{output}/bare", graph.tensors[output])
        attributes = {
            "equation": f"{left.letters},{right.letters}->{result}",
            "parts": tuple(tuple(zip(side.firsts, side.sizes, strict=True)) for side in (left, right)),
        }
        product = Node("Einsum", node.name, (left.tensor, right.tensor), (bare,), attributes, origins=origins)
        nodes.append(product)
        if factor != 1:
            number = added.constant(f"{output}/factor", factor)
            nodes.append(Node("Mul", f"{node.name}/factor", (bare, number), (output,), origins=origins))
        producers[output] = product
    return graph.rewritten(nodes, added.constants, added.tensors)


def _whole(graph: Graph, tensor: str, letters: str) -> _Side:
    return _Side(tensor, letters, (0,) * len(letters), graph.shape(tensor))


def _source(graph: Graph, producers: dict[str, Node], side: _Side) -> _Side:
    """Return where the elements of a side come from."""
    while (node := producers.get(side.tensor)) and (before := _before(graph, node, side)):
        side = before
    return side


def _before(graph: Graph, node: Node, side: _Side) -> _Side | None:
    """Return what `node` makes a side from, None where that is more than other letters, a part and a factor."""
    if node.chain.steps or not node.inputs:
        return None
    source = replace(side, tensor=node.inputs[0])
    shape, after = graph.shape(node.inputs[0]), graph.shape(side.tensor)
    match node.op:
        case "Transpose":
            order = _permutation(node, len(after))
            return _taken(source, [order.index(axis) for axis in range(len(order))])
        case "Reshape" if _long(shape) == _long(after):
            long = iter(axis for axis, size in enumerate(after) if size > 1)
            return _taken(source, [next(long) if size > 1 else None for size in shape])
        case "Mul" | "Div":
            for value, other in (node.inputs, node.inputs[::-1])[: 2 if node.op == "Mul" else 1]:
                if (number := graph.scalar(other)) and graph.shape(value) == after:
                    factor = side.factor * (number if node.op == "Mul" else 1 / number)
                    return replace(side, tensor=value, factor=factor)
        case "Slice" | "Split" | "Gather" if (firsts := _firsts(graph, node, side.tensor)) is not None:
            if node.op == "Gather" and len(shape) > len(after):  # an element of the axis, which is no axis any more
                axis = int(node.attributes.get("axis", 0)) % len(shape)
                source = _taken(source, [*range(axis), None, *range(axis, len(after))])
            return replace(
                source, firsts=tuple(first + more for first, more in zip(source.firsts, firsts, strict=True))
            )
    return None


def _firsts(graph: Graph, node: Node, output: str) -> list[int] | None:
    """Return the first element along each axis of the block that a Slice, Split or Gather takes, None where it takes
    none."""
    firsts = [0] * len(shape := graph.shape(node.inputs[0]))
    if node.op == "Split":
        axis = int(node.attributes.get("axis", 0)) % len(shape)
        firsts[axis] = sum(graph.shape(name)[axis] for name in node.outputs[: node.outputs.index(output)])
        return firsts
    if node.op == "Gather":
        indices = graph.constants.get(node.inputs[1])
        if indices is None or indices.size != 1 or indices.ndim > 1:
            return None
        axis = int(node.attributes.get("axis", 0)) % len(shape)
        index = int(indices.reshape(()))
        firsts[axis] = index % shape[axis]
        return firsts if -shape[axis] <= index < shape[axis] else None
    if len(node.inputs) < 3 or any(name and name not in graph.constants for name in node.inputs[1:]):
        return None
    starts, ends, axes, steps = (
        [int(number) for number in graph.constants[name]] if name else None for name in (*node.inputs[1:], "", "")[:4]
    )
    for axis, start, end, step in zip(
        axes or range(len(starts or ())), starts or (), ends or (), steps or [1] * len(starts or ()), strict=True
    ):
        kept = range(*slice(start, end, step).indices(shape[axis]))
        if kept.step != 1:
            return None
        firsts[axis] = kept.start
    return firsts


def _taken(side: _Side, axes: list[int | None]) -> _Side:
    """Return the side by other axes: which of its own each of them is, None for one of size 1 that is new."""
    letters = "".join(ANY if axis is None else side.letters[axis] for axis in axes)
    firsts = tuple(0 if axis is None else side.firsts[axis] for axis in axes)
    return replace(side, letters=letters, firsts=firsts, sizes=tuple(1 if a is None else side.sizes[a] for a in axes))


def _long(shape: tuple[int, ...]) -> list[int]:
    return [size for size in shape if size > 1]


def _is(node: Node, op: str) -> bool:
    return node.op == op and not node.chain.steps


def _permutation(node: Node, rank: int) -> tuple[int, ...]:
    """For each axis of a Transpose's result the axis of its input that it is."""
    return tuple(node.attributes.get("perm") or reversed(range(rank)))
