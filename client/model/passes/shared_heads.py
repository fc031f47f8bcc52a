"""Multiply by keys and values that several heads share without repeating them.

Exporters repeat each head of the keys for a group of query heads: by Unsqueeze, Expand and Reshape. Here the axis of
the query heads is divided instead, into heads and the members of a group, so that a group's rows are rows of one
product. What is repeated is not read, and not written, as often as the group is large.
"""

from collections.abc import Mapping
from dataclasses import replace
from string import ascii_letters

from gputune.client.model.graph import Graph, Node, TensorInfo
from gputune.client.model.passes.additions import Work
from gputune.client.model.passes.fuse_elementwise import BINARY


def share_heads(graph: Graph) -> Graph:
    """Return the same graph with products of what was repeated."""
    sharing = _Sharing(graph)
    for node in graph.nodes:
        sharing.take(node)
    return graph.rewritten(sharing.nodes, sharing.constants, sharing.tensors)


class _Sharing(Work):
    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self._makers: Mapping[str, Node] = graph.producers()
        self._groups: dict[str, tuple[str, int]] = {}
        """The divided form of a tensor, and its axis of heads."""

    def take(self, node: Node) -> None:
        """Take in a node, with the second factor before it was repeated, or the first one. Scales, masks and softmax
        are taken where their heads are divided, so that they join the product."""
        if node.op == "Einsum" and any(self._share(node, side) for side in (1, 0)):
            return
        if node.op in BINARY and self.graph.is_float(node) and self._take_apart(node, self._beside_groups(node)):
            return
        if node.op == "Softmax" and node.inputs[0] in self._groups:
            source, place = self._groups[node.inputs[0]]
            axes = [axis % len(self.graph.shape(node.output)) for axis in node.attributes["axes"]]
            if min(axes) > place:
                moved = {**node.attributes, "axes": tuple(axis + 1 for axis in axes)}
                self._take_apart(replace(node, attributes=moved), (source,))
                return
        self.nodes.append(node)

    def _take_apart(self, node: Node, inputs: tuple[str, ...] | None) -> bool:
        """Compute a node on divided heads, as many as it has in common with an input."""
        if inputs is None:
            return False
        place, source = next(
            (self._groups[name][1], self._groups[name][0]) for name in node.inputs if name in self._groups
        )
        whole, (heads, times) = self.graph.shape(node.output), self.info(source).shape[place : place + 2]
        output = self.tensor(f"{node.output}/groups", TensorInfo(_divided(whole, place, heads, times)))
        self.nodes.append(replace(node, inputs=inputs, outputs=(output,)))
        self._put_together(node, output, place)
        return True

    def _beside_groups(self, node: Node) -> tuple[str, ...] | None:
        """Return the inputs of a node on divided heads: the other one must be the same for all heads."""
        divided = [name for name in node.inputs if name in self._groups]
        others = [name for name in node.inputs if name not in self._groups]
        if len(divided) != 1 or len(others) != 1 or self.graph.shape(divided[0]) != self.graph.shape(node.output):
            return None
        source, place = self._groups[divided[0]]
        rank, shape = len(self.graph.shape(node.output)), self.graph.shape(others[0])
        behind = rank - place
        if len(shape) >= behind and shape[len(shape) - behind] != 1:
            return None
        other = others[0]
        if len(shape) >= behind:
            wide = (*shape[: len(shape) - behind], 1, *shape[len(shape) - behind :])
            other = self._reshaped(node, other, wide)
        return tuple(source if name in self._groups else other for name in node.inputs)

    def _put_together(self, node: Node, output: str, place: int) -> None:
        """Write a divided result in its own shape, for what does not know of it."""
        self._groups[node.output] = output, place
        self.nodes.append(Node("Reshape", f"{node.name}/heads", (output,), node.outputs, origins=node.origins))

    def _share(self, node: Node, side: int) -> bool:
        """Replace a product whose factor of this side is repeated along an axis that the other factor has, too."""
        letters, result = node.attributes["equation"].split("->")
        sides = letters.split(",")
        own, name = sides[side], node.inputs[side]
        if (turn := self._maker(name, "Transpose")) is not None:
            name, order = turn.inputs[0], turn.attributes.get("perm", range(len(own))[::-1])
            own = "".join(letter for _, letter in sorted(zip(order, own, strict=True)))
        found = self._repeated(name)
        if found is None:
            return False
        source, axis, times = found
        letter, other = own[axis], sides[1 - side]
        shape = self.graph.shape(node.inputs[1 - side])
        if other.count(letter) != 1 or own.count(letter) != 1:
            return False
        place = other.index(letter)
        heads = self.graph.shape(source)[axis]
        if shape[place] != heads * times:
            return False
        member = next(each for each in ascii_letters if each not in letters + result)
        factor = node.inputs[1 - side]
        if factor in self._groups and self.info(self._groups[factor][0]).shape == _divided(shape, place, heads, times):
            divided = self._groups[factor][0]
        else:
            divided = self._reshaped(node, factor, _divided(shape, place, heads, times))
        equation = {side: own, 1 - side: other.replace(letter, letter + member)}
        written = f"{equation[0]},{equation[1]}->{result.replace(letter, letter + member)}"
        inputs = (divided, source) if side else (source, divided)
        output, whole = node.output, self.graph.shape(node.output)
        if letter in result:
            info = TensorInfo(_divided(whole, result.index(letter), heads, times))
            output = self.tensor(f"{node.output}/groups", info)
        self.nodes.append(replace(node, inputs=inputs, outputs=(output,), attributes={"equation": written}))
        if letter in result:
            self._put_together(node, output, result.index(letter))
        return True

    def _repeated(self, name: str) -> tuple[str, int, int] | None:
        """Return what a tensor repeats, the axis along which each part is repeated, and how often."""
        joined = self._maker(name, "Reshape")
        wide = joined and self._maker(joined.inputs[0], "Expand")
        apart = wide and self._maker(wide.inputs[0], "Reshape")
        if joined is None or wide is None or apart is None:
            return None
        source, narrow, wide_shape = (self.graph.shape(each) for each in (apart.inputs[0], apart.output, wide.output))
        for axis in range(len(source)):
            times = wide_shape[axis + 1] if len(wide_shape) == len(source) + 1 else 1
            before, behind = source[:axis], source[axis + 1 :]
            expected = (*before, source[axis], 1, *behind), _divided(source, axis, source[axis], times)
            whole = (*before, source[axis] * times, *behind)
            if times > 1 and (narrow, wide_shape, self.graph.shape(name)) == (*expected, whole):
                return apart.inputs[0], axis, times
        return None

    def _maker(self, name: str, op: str) -> Node | None:
        node = self._makers.get(name)
        return node if node is not None and node.op == op else None

    def _reshaped(self, node: Node, name: str, shape: tuple[int, ...]) -> str:
        if name in self.graph.constants:
            return self.exact(f"{name}/groups", self.graph.constants[name].reshape(shape))
        divided = self.tensor(f"{name}/groups", TensorInfo(shape))
        self.nodes.append(Node("Reshape", f"{node.name}/groups", (name,), (divided,), origins=node.origins))
        return divided


def _divided(shape: tuple[int, ...], axis: int, heads: int, times: int) -> tuple[int, ...]:
    """Return a shape with an axis in the place of two: heads, and the members of each group."""
    return (*shape[:axis], heads, times, *shape[axis + 1 :])
