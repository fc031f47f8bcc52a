"""Reduce the number of transposes, and move reshapes of maps away from them.

Consecutive transposes become one, and a transpose that moves nothing becomes a Reshape. A map [N, C, H, W] that becomes
a sequence [N, H*W, C] is usually written as a Reshape and a Transpose. In the other order, the Transpose goes from the
map's order to its order on the device, so it moves nothing there. The way back, from a sequence to a map, is likewise.
"""

from dataclasses import replace

import numpy as np

from gputune.client.model.graph import Graph, Node, TensorInfo
from gputune.client.model.passes.additions import Work
from gputune.client.model.passes.axes import axis_groups


def order_transposes(graph: Graph) -> Graph:
    """Return the same graph with as few transposes as that takes."""
    work = _Work(graph)
    for node in graph.nodes:
        work.add(node)
    return graph.rewritten(work.nodes, tensors=work.tensors)


class _Work(Work):
    """The nodes so far, by what they compute, and the tensors between those that are new."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self._makers: dict[str, Node] = {}

    def add(self, node: Node) -> None:
        """Append a node, or what it becomes together with the one before it."""
        before = self._makers.get(node.inputs[0]) if node.op in ("Reshape", "Transpose") else None
        match (before.op if before else "", node.op):
            case ("Reshape", "Reshape") if before:
                self.add(_behind(before, node))
            case ("Transpose", "Transpose") if before:
                inner, outer = self._order(before), self._order(node)
                self.add(replace(_behind(before, node), attributes={"perm": tuple(inner[axis] for axis in outer)}))
            case ("Reshape", "Transpose") if before and self._transpose_first(before, node):
                pass
            case ("Transpose", "Reshape") if before and self._reshape_first(before, node):
                pass
            case (_, "Transpose") if self._moves_nothing(node):
                self.add(replace(node, op="Reshape", attributes={}))
            case _:
                self._makers.update(dict.fromkeys(node.outputs, node))
                self.nodes.append(node)

    def _transpose_first(self, reshape: Node, transpose: Node) -> bool:
        """Turn a map and reshape it then, where the Reshape only puts axes of the map together."""
        whole, parts = self._shape(transpose.inputs[0]), self._shape(reshape.inputs[0])
        groups = axis_groups(parts, whole) if len(parts) == 4 > len(whole) else None
        if groups is None:
            return False
        order = tuple(part for axis in self._order(transpose) for part in groups[axis])
        self._add_both(
            "Transpose", {"perm": order}, tuple(parts[axis] for axis in order), "Reshape", {}, reshape, transpose
        )
        return True

    def _reshape_first(self, transpose: Node, reshape: Node) -> bool:
        """Reshapes into the axes of a map and turns it then, where the Reshape only takes axes apart."""
        whole, parts = self._shape(reshape.inputs[0]), self._shape(reshape.output)
        groups = axis_groups(parts, whole) if len(parts) == 4 > len(whole) else None
        if groups is None:
            return False
        order = self._order(transpose)
        taken = [part for axis in np.argsort(order) for part in groups[axis]]  # in the order of what is transposed
        back = tuple(int(place) for place in np.argsort(taken))
        self._add_both(
            "Reshape", {}, tuple(parts[part] for part in taken), "Transpose", {"perm": back}, transpose, reshape
        )
        return True

    def _add_both(
        self, first: str, attributes: dict[str, object], shape: tuple[int, ...],
        second: str, others: dict[str, object], before: Node, node: Node,
    ) -> None:  # fmt: skip
        """Two nodes in the place of `before` and `node`, with a tensor of `shape` between them."""
        info = TensorInfo(shape, self.info(node.output).dtype)
        between = self.tensor(f"{node.output}/{first.lower()}", info)
        origins = (*before.origins, *node.origins)
        self.add(Node(first, f"{node.name}/{first.lower()}", before.inputs, (between,), attributes, origins=origins))
        self.add(Node(second, node.name, (between,), node.outputs, others, origins=origins))

    def _moves_nothing(self, node: Node) -> bool:
        """Return whether the axes that are longer than 1 stay in their order."""
        shape = self._shape(node.inputs[0])
        kept = [axis for axis in self._order(node) if shape[axis] > 1]
        return kept == sorted(kept)

    def _order(self, node: Node) -> tuple[int, ...]:
        rank = len(self._shape(node.inputs[0]))
        return tuple(node.attributes.get("perm", range(rank)[::-1]))

    def _shape(self, tensor: str) -> tuple[int, ...]:
        return self.info(tensor).shape


def _behind(before: Node, node: Node) -> Node:
    """Return the node on what the one before it reads."""
    return replace(node, inputs=before.inputs, origins=(*before.origins, *node.origins))
