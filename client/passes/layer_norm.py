"""Recognises normalisations that are spelt out: (x - mean(x)) / sqrt(mean((x - mean(x))^2) + epsilon) * scale + bias.

Exporters write the square as a Pow or a Mul, compute x - mean(x) once or twice, and divide, or multiply with the
reciprocal. TensorFlow's x * g + (bias - mean(x) * g) with g = scale / sqrt(..) is the same. Without a mean it is an
RMSNormalization.
"""

from dataclasses import dataclass

import numpy as np

from gputune.client.graph import Graph, Node
from gputune.client.passes.axes import reduced_axes


@dataclass(frozen=True)
class _Mean:
    """A tensor known to be the mean of `tensor` over `axes`, which are still there with size 1."""

    tensor: str
    axes: tuple[int, ...]


@dataclass(frozen=True)
class _Deviation:
    """A tensor known to be sqrt(mean of squares of `centred` + epsilon), or 1 divided by that."""

    centred: str
    axes: tuple[int, ...]
    epsilon: float
    inverse: bool = False


def recognise_layer_norm(graph: Graph) -> Graph:
    """The same graph with a LayerNormalization or RMSNormalization node, of any `axes`, wherever one is spelt out."""
    return _Search(graph).result()


class _Search:
    """The graph being read."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.producers = graph.producers()
        self.uses = graph.uses()
        self.readers = {name: node for node in graph.nodes for name in node.reads}

    def result(self) -> Graph:
        found: dict[str, Node] = {}
        for node in self.graph.nodes:
            match = self._whole(node) or self._folded(node)
            if match is not None:
                last = self._with_parameters(match)
                found[last.output] = last
        return self.graph.rewritten(found.get(node.output, node) for node in self.graph.nodes)

    def _whole(self, node: Node) -> Node | None:
        """The normalisation that ends in this division, or multiplication with a reciprocal."""
        if node.op not in ("Div", "Mul"):
            return None
        for value, other in (node.inputs, node.inputs[::-1])[: 1 if node.op == "Div" else 2]:
            by = self._deviation(other)
            if by is None or by.inverse != (node.op == "Mul"):
                continue
            mean, same = self._centred(value), self._centred(by.centred)
            if value != by.centred and (mean is None or mean != same):
                continue
            if mean is not None and mean == same and mean.axes == by.axes:
                return self._node("LayerNormalization", node, mean.tensor, by)
            return self._node("RMSNormalization", node, value, by)
        return None

    def _folded(self, node: Node) -> Node | None:
        """The normalisation that ends in this Add of x * g and bias - mean(x) * g."""
        for product, rest in (node.inputs, node.inputs[::-1]) if node.op == "Add" else ():
            first, shift = self._inputs("Mul", product), self._inputs("Sub", rest)
            second = self._inputs("Mul", shift[1]) if shift else ()
            for value, factor in (first, first[::-1]) if first and second else ():
                means = [self._mean(name) for name in second if name != factor]
                opened = self._scaled(factor)
                if factor not in second or len(means) != 1 or means[0] is None or opened is None:
                    continue
                by, scale = opened
                if means[0] != self._centred(by.centred) or means[0] != _Mean(value, by.axes):
                    continue
                if self._is_parameter(scale, value) and self._is_parameter(shift[0], value):
                    return self._node("LayerNormalization", node, value, by, (scale, shift[0]))
        return None

    def _scaled(self, tensor: str) -> tuple[_Deviation, str] | None:
        """The reciprocal deviation and the scale of which `tensor` is the product; "" for no scale."""
        if (by := self._deviation(tensor)) is not None:
            return (by, "") if by.inverse else None
        pair = self._inputs("Mul", tensor)
        for factor, scale in (pair, pair[::-1]) if pair else ():
            by = self._deviation(factor)
            if by is not None and by.inverse:
                return by, scale
        return None

    def _deviation(self, tensor: str) -> _Deviation | None:
        """What `tensor` is the deviation of, or the reciprocal of one."""
        node = self.producers.get(tensor)
        if node is None:
            return None
        if node.op in ("Reciprocal", "Div"):
            below = self._deviation(node.inputs[-1])
            if below is None or below.inverse or (node.op == "Div" and self.graph.scalar(node.inputs[0]) != 1):
                return None
            return _Deviation(below.centred, below.axes, below.epsilon, inverse=True)
        power = self.graph.scalar(node.inputs[1]) if node.op == "Pow" else 0.5 if node.op == "Sqrt" else None
        if power not in (0.5, -0.5):
            return None
        pair = self._inputs("Add", node.inputs[0])
        for variance, addend in (pair, pair[::-1]) if pair else ():
            epsilon, mean = self.graph.scalar(addend), self._mean(variance)
            squared = self._squared(mean.tensor) if mean is not None else ""
            if epsilon is not None and epsilon >= 0 and mean is not None and squared:
                return _Deviation(squared, mean.axes, epsilon, power < 0)
        return None

    def _squared(self, tensor: str) -> str:
        """What `tensor` is the square of, "" when it is none."""
        node = self.producers.get(tensor)
        if node is not None and node.op == "Pow" and self.graph.scalar(node.inputs[1]) == 2:
            return node.inputs[0]
        if node is not None and node.op == "Mul":
            left, right = node.inputs
            alike = self._centred(left) is not None and self._centred(left) == self._centred(right)
            return left if left == right or alike else ""
        return ""

    def _centred(self, tensor: str) -> _Mean | None:
        """The mean that was taken from its own tensor to get this one."""
        pair = self._inputs("Sub", tensor)
        mean = self._mean(pair[1]) if pair else None
        return mean if mean is not None and mean.tensor == pair[0] else None

    def _mean(self, tensor: str) -> _Mean | None:
        node = self.producers.get(tensor)
        source = node.inputs[0] if node is not None and node.op == "ReduceMean" else ""
        if node is None or not source or self.graph.tensors[source].dtype != "float32":
            return None
        axes = reduced_axes(self.graph, node)
        kept = tuple(1 if axis in axes else size for axis, size in enumerate(self.graph.shape(source)))
        return _Mean(source, axes) if axes and self.graph.shape(tensor) == kept else None

    def _inputs(self, op: str, tensor: str) -> tuple[str, ...]:
        """The inputs of the node of that operator which computes the tensor, else none."""
        node = self.producers.get(tensor)
        return node.inputs if node is not None and node.op == op else ()

    def _node(self, op: str, end: Node, source: str, by: _Deviation, parameters: tuple[str, ...] = ()) -> Node:
        attributes = {"axes": by.axes, "epsilon": by.epsilon}
        return Node(op, end.name, (source, *parameters), end.outputs, attributes, origins=self._origins(end, source))

    def _origins(self, end: Node, source: str) -> tuple[str, ...]:
        """The nodes between `source` and the end, which vanish unless somebody else reads them."""
        names: list[str] = []
        waiting = [end]
        while waiting:
            node = waiting.pop()
            if not set(names).issuperset(node.origins):
                names += node.origins
                waiting += [self.producers[name] for name in node.reads if name != source and name in self.producers]
        return tuple(reversed(names))

    def _with_parameters(self, node: Node) -> Node:
        """The normalisation with the scale and the bias that are applied to its result."""
        for place, op in ((1, "Mul"), (2, "Add")):
            reader = self.readers.get(node.output)
            if reader is None or reader.op != op or self.uses[node.output] != 1 or len(node.inputs) > place:
                continue
            other = next((name for name in reader.inputs if name != node.output), "")
            if node.op == "RMSNormalization" and op == "Add":
                break
            if other in self.graph.constants and self._is_parameter(other, node.inputs[0]):
                inputs = (*node.inputs, *("",) * (place - len(node.inputs)), other)
                origins = (*node.origins, *reader.origins)
                node = Node(node.op, reader.name, inputs, reader.outputs, node.attributes, origins=origins)
        return node

    def _is_parameter(self, tensor: str, source: str) -> bool:
        """Whether a tensor is known and broadcasts to `source`, or is none."""
        if not tensor:
            return True
        shape = self.graph.shape(source)
        if tensor not in self.graph.constants or len(self.graph.shape(tensor)) > len(shape):
            return False
        return bool(np.broadcast_shapes(self.graph.shape(tensor), shape) == shape)
