"""Recognise normalisations that are spelt out: (x - mean(x)) / sqrt(mean((x - mean(x))^2) + epsilon) * scale + bias.

PyTorch's exporters write the square as a Pow or a Mul, compute x - mean(x) once or twice, and divide or multiply with
the reciprocal. TensorFlow writes x * g + (bias - mean(x) * g) with g = scale / sqrt(..). Flax writes (x - mean(x)) * g
+ bias with max(0, mean(x^2) - mean(x)^2) as variance; its means are sums times 1 / n, without the axes. Without a mean,
the result is an RMSNormalization. Parts that other nodes read stay.
"""

import math
from dataclasses import dataclass

import numpy as np

from gputune.client.model.graph import Graph, Node
from gputune.client.model.passes.axes import kept_shape, reduced_axes, seen_through


@dataclass(frozen=True)
class _Mean:
    """A tensor known to be the mean of `source` over `axes`, whatever its shape."""

    source: str
    axes: tuple[int, ...]


@dataclass(frozen=True)
class _Spread:
    """A tensor known to be how far `around.source` is from its mean (`centred`) or from 0, as a root of mean squares.

    `inverse`: 1 divided by that.
    """

    around: _Mean
    centred: bool
    epsilon: float
    inverse: bool = False


def recognise_layer_norm(graph: Graph) -> Graph:
    """Return the same graph with a LayerNormalization or RMSNormalization node, of any `axes`, wherever one is spelt
    out."""
    search = _Search(graph)
    found: dict[str, Node] = {}
    for node in graph.nodes:
        if (match := search.whole(node) or search.folded(node)) is not None:
            last = search.with_parameters(match)
            found[last.output] = last
    return graph.rewritten(found.get(node.output, node) for node in graph.nodes)


class _Search:
    """The graph being read."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.producers = graph.producers()
        self.uses = graph.uses()
        self.readers = {name: node for node in graph.nodes for name in node.reads}

    def whole(self, node: Node) -> Node | None:
        """Return the normalisation that ends in this division, or multiplication with a reciprocal or a scaled one."""
        choices: list[tuple[str, _Spread, str]] = []
        if node.op == "Div" and (spread := self._spread(node.inputs[1])) is not None and not spread.inverse:
            choices = [(node.inputs[0], spread, "")]
        for value, factor in self._both("Mul", node.output):
            if (scaled := self._scaled(factor)) is not None:
                choices.append((value, *scaled))
        for value, spread, scale in choices:
            around = self._centred(value) if spread.centred else _Mean(value, spread.around.axes)
            if around == spread.around and self._is_parameter(scale, around.source):
                return self._node(node, spread, (scale,) if scale else ())
        return None

    def folded(self, node: Node) -> Node | None:
        """Return the normalisation that ends in this Add of x * g and bias - mean(x) * g."""
        for product, rest in self._both("Add", node.output):
            bias, shift = self._inputs("Sub", rest) or ("", "")
            for value, factor in self._both("Mul", product):
                spread, scale = self._scaled(factor) or (None, "")
                if spread is None or spread.around.source != value or not spread.centred:
                    continue
                means = [self._mean(mean) for mean, other in self._both("Mul", shift) if other == factor]
                known = self._is_parameter(scale, value) and self._is_parameter(bias, value)
                if spread.around in means and known:
                    return self._node(node, spread, (scale, bias))
        return None

    def with_parameters(self, node: Node) -> Node:
        """Return the normalisation with the scale and the bias that are applied to its result."""
        for place, op in ((1, "Mul"), (2, "Add")):
            reader = self.readers.get(node.output)
            if len(node.inputs) > place or (node.op, op) == ("RMSNormalization", "Add"):
                continue
            if reader is None or reader.op != op or self.uses[node.output] != 1:
                continue
            other = next(name for name in reader.inputs if name != node.output)
            if self._is_parameter(other, node.inputs[0]):
                inputs = (*node.inputs, *("",) * (place - len(node.inputs)), other)
                origins = (*node.origins, *reader.origins)
                node = Node(node.op, reader.name, inputs, reader.outputs, node.attributes, origins=origins)
        return node

    def _scaled(self, tensor: str) -> tuple[_Spread, str] | None:
        """Return the reciprocal spread and the scale of which `tensor` is the product; "" for no scale."""
        choices = [(tensor, ""), *self._both("Mul", tensor)]
        for factor, scale in choices:
            spread = self._spread(factor)
            if spread is not None and spread.inverse:
                return spread, scale
        return None

    def _spread(self, tensor: str) -> _Spread | None:
        """Return what `tensor` is the spread of, or its reciprocal, with the reduced axes still there."""
        found = self._root(tensor)
        fits = found is not None and self.graph.shape(tensor) == kept_shape(
            self.graph, found.around.source, found.around.axes
        )
        return found if fits else None

    def _root(self, tensor: str) -> _Spread | None:
        node = self.producers.get(seen_through(self.graph, self.producers, tensor))
        if node is None:
            return None
        if node.op == "Reciprocal" or (node.op == "Div" and self.graph.scalar(node.inputs[0]) == 1):
            below = self._root(node.inputs[-1])
            return None if below is None or below.inverse else _Spread(below.around, below.centred, below.epsilon, True)
        power = self.graph.scalar(node.inputs[1]) if node.op == "Pow" else 0.5 if node.op == "Sqrt" else None
        for variance, addend in self._both("Add", node.inputs[0]) if power in (0.5, -0.5) else ():
            epsilon, found = self.graph.scalar(addend), self._variance(variance)
            if epsilon is not None and epsilon >= 0 and found is not None:
                return _Spread(*found, epsilon, power == -0.5)
        return None

    def _variance(self, tensor: str) -> tuple[_Mean, bool] | None:
        """Return the mean that `tensor` is the variance around, and True; or the mean of squares that it is, and
        False."""
        tensor = seen_through(self.graph, self.producers, tensor)
        for value, bound in self._both("Max", tensor):
            if self.graph.scalar(bound) == 0:
                return self._variance(value)
        if pair := self._inputs("Sub", tensor):
            squares, around = self._variance(pair[0]), self._mean(self._squared(pair[1]))
            return (around, True) if around and squares == (around, False) else None
        squares_mean = self._mean(tensor)
        squared = self._squared(squares_mean.source) if squares_mean else ""
        if not squares_mean or not squared:
            return None
        around = self._centred(squared)
        if around is not None and around.axes == squares_mean.axes:
            return around, True
        return _Mean(squared, squares_mean.axes), False

    def _squared(self, tensor: str) -> str:
        """Return what `tensor` is the square of, "" when it is none."""
        base, exponent = self._inputs("Pow", tensor) or ("", "")
        if base and self.graph.scalar(exponent) == 2:
            return base
        left, right = self._inputs("Mul", tensor) or ("", "")
        around = self._centred(left)
        return left if left == right or (around is not None and around == self._centred(right)) else ""

    def _centred(self, tensor: str) -> _Mean | None:
        """Return the mean that was taken from its own source to get this tensor."""
        source, taken = self._inputs("Sub", tensor) or ("", "")
        mean = self._mean(taken)
        fits = (
            mean is not None
            and mean.source == source
            and self.graph.shape(taken) == kept_shape(self.graph, source, mean.axes)
        )
        return mean if fits else None

    def _mean(self, tensor: str) -> _Mean | None:
        tensor = seen_through(self.graph, self.producers, tensor)
        node, share = self.producers.get(tensor), 1.0
        if node is not None and node.op in ("Mul", "Div"):
            for total, other in self._both(node.op, tensor)[: 1 if node.op == "Div" else 2]:
                number = self.graph.scalar(other)
                if number and total in self.producers:
                    node, share = self.producers[total], number if node.op == "Mul" else 1 / number
                    break
        if node is None or node.op not in ("ReduceMean", "ReduceSum"):
            return None
        source, axes = node.inputs[0], reduced_axes(self.graph, node)
        count = math.prod(self.graph.shape(source)[axis] for axis in axes)
        whole = share if node.op == "ReduceMean" else share * count
        fits = axes and self.graph.tensors[source].dtype == "float32" and math.isclose(whole, 1, rel_tol=1e-6)
        return _Mean(source, axes) if fits else None

    def _inputs(self, op: str, tensor: str) -> tuple[str, ...]:
        """Return the inputs of the node of that operator which computes the tensor, else none."""
        node = self.producers.get(tensor)
        return node.inputs if node is not None and node.op == op else ()

    def _both(self, op: str, tensor: str) -> list[tuple[str, str]]:
        """Return the two inputs of the node of that operator which computes the tensor, in both orders."""
        pair = self._inputs(op, tensor)
        return [(pair[0], pair[1]), (pair[1], pair[0])] if pair else []

    def _node(self, end: Node, spread: _Spread, parameters: tuple[str, ...]) -> Node:
        op = "LayerNormalization" if spread.centred else "RMSNormalization"
        source, attributes = spread.around.source, {"axes": spread.around.axes, "epsilon": spread.epsilon}
        return Node(op, end.name, (source, *parameters), end.outputs, attributes, origins=self._origins(end, source))

    def _origins(self, end: Node, source: str) -> tuple[str, ...]:
        """Return the nodes between `source` and the end."""
        found: dict[tuple[str, ...], Node] = {}
        waiting = [end]
        while waiting:
            node = waiting.pop()
            if node.outputs not in found:
                found[node.outputs] = node
                waiting += [self.producers[name] for name in node.reads if name != source and name in self.producers]
        return tuple(name for node in reversed(found.values()) for name in node.origins)

    def _is_parameter(self, tensor: str, source: str) -> bool:
        """Return whether a tensor is known and broadcasts to `source`, or is none."""
        if not tensor:
            return True
        shape, mine = self.graph.shape(source), self.graph.shape(tensor)
        if tensor not in self.graph.constants or len(mine) > len(shape):
            return False
        return bool(np.broadcast_shapes(mine, shape) == shape)
