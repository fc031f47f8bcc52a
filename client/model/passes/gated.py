"""Recognise activations that are written as a value times a gate: HardSwish, Gelu in both forms, Swish, Mish.

Exporters write them with constants on any side and factors anywhere: GELU is 0.5 * x * (1 + erf(x / sqrt(2))), or x *
0.5 * (...), or has the factor at the end. The pass therefore looks for no order. It writes out as a polynomial what
leads from a tensor to the gate, and from both to a result. If that is the polynomial of an activation, it matches.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from gputune.client.model.graph import Graph, Node

Polynomial = Mapping[tuple[int, int], float]
"""The factor of each product of so many times the value and so many times the gate."""

VALUE, GATE, ONE = (1, 0), (0, 1), (0, 0)
ARITHMETIC = frozenset(("Add", "Div", "Identity", "Mul", "Neg", "Pow", "Sub"))
MOST_STEPS = 8
"""Arithmetic nodes one behind the other that are looked through."""

HIGHEST = 4
NEAR = 1e-5
"""How exactly constants must be those of the definition."""


@dataclass(frozen=True)
class Form:
    """`op` is `result`, a polynomial of x and of the gate, where the gate's operators take `argument`, one of x.

    `gate` names them from the last to the first. Without `argument` it is x times any number, which becomes alpha.
    """

    op: str
    gate: tuple[str, ...]
    argument: Polynomial | None
    result: Polynomial
    attributes: Mapping[str, str] = field(default_factory=dict)
    bounds: Mapping[str, float] = field(default_factory=dict)
    """Attributes that the gate must have."""


SLOPE = math.sqrt(2 / math.pi)
HALVES = {VALUE: 0.5, (1, 1): 0.5}
PRODUCT = {(1, 1): 1.0}
CUBIC = {VALUE: SLOPE, (3, 0): SLOPE * 0.044715}
FORMS = (
    Form("HardSwish", ("Clip",), {VALUE: 1.0, ONE: 3.0}, {(1, 1): 1 / 6}, bounds={"min": 0.0, "max": 6.0}),
    Form("HardSwish", ("HardSigmoid",), {VALUE: 1.0}, PRODUCT, bounds={"alpha": 1 / 6, "beta": 0.5}),
    Form("Gelu", ("Erf",), {VALUE: math.sqrt(0.5)}, HALVES),
    Form("Gelu", ("Tanh",), CUBIC, HALVES, {"approximate": "tanh"}),
    Form("Mish", ("Tanh", "Softplus"), {VALUE: 1.0}, PRODUCT),
    Form("Swish", ("Sigmoid",), None, PRODUCT),
)


def recognise_gated(graph: Graph) -> Graph:
    """Return the same graph with one node for each activation that is spelt out; parts that others read stay."""
    search = _Search(graph)
    found: dict[str, Node] = {}
    for node in graph.nodes:
        if any(form.gate[0] == node.op for form in FORMS) and graph.is_float(node):
            found.update((match.output, match) for match in search.matches(node))
    return graph.rewritten(found.get(node.output, node) for node in graph.nodes)


class _Search:
    """A graph with the producer and the readers of each tensor."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.producers = graph.producers()
        self.readers = graph.readers()

    def matches(self, gate: Node) -> Iterator[Node]:
        """Yield the activations of which this node is the gate, each in the place of the last of its nodes."""
        for form in FORMS:
            if (inner := self._inner(form, gate)) is None:
                continue
            argument, passed = inner.inputs[0], self._between(gate, inner)
            for value in self._behind(argument):
                expansion = _Expansion(self, {value: VALUE})
                steps = expansion.of(argument)
                if steps is None or not (alpha := _alpha(form, steps)):
                    continue
                for last in self._ahead(value, gate.output, form.result):
                    attributes = {"alpha": alpha} if form.argument is None else form.attributes
                    origins = (*expansion.origins, *passed, *last.origins)
                    yield Node(form.op, last.node.name, (value,), last.node.outputs, attributes, origins=origins)

    def _inner(self, form: Form, gate: Node) -> Node | None:
        """Return the first of the gate's nodes when `gate` is their last, and has the attributes of the form."""
        defaults = {"alpha": 0.2, "beta": 0.5} if gate.op == "HardSigmoid" else {}
        given = {name: gate.attributes.get(name, defaults.get(name)) for name in form.bounds}
        if any(value is None or not _near(value, form.bounds[name]) for name, value in given.items()):
            return None
        node: Node | None = gate
        for place, op in enumerate(form.gate):
            node = self.producers.get(node.inputs[0]) if node and place else node
            if node is None or node.op != op:
                return None
        return node

    def _between(self, gate: Node, inner: Node) -> tuple[str, ...]:
        """Return the origins of the gate's nodes, in the order in which they run."""
        if inner is gate:
            return gate.origins
        return (*self._between(self.producers[gate.inputs[0]], inner), *gate.origins)

    def _behind(self, tensor: str) -> Iterator[str]:
        """Yield what `tensor` is computed from by arithmetic, the nearest first, itself included."""
        seen = [tensor]
        for name in seen:
            node = self.producers.get(name)
            if name not in self.graph.constants:
                yield name
                if node is not None and node.op in ARITHMETIC and len(seen) < 2 * MOST_STEPS:
                    seen += [source for source in node.reads if source not in seen]

    def _ahead(self, value: str, gate: str, wanted: Polynomial) -> "Iterator[_Last]":
        """Yield the nodes that compute the wanted polynomial of a value and a gate."""
        reached = [gate]
        shape = self.graph.shape(value)
        for name in reached:
            for node in self.readers.get(name, ()):
                if node.op not in ARITHMETIC or node.output in reached or self.graph.shape(node.output) != shape:
                    continue
                expansion = _Expansion(self, {value: VALUE, gate: GATE})
                result = expansion.of(node.output)
                if result is not None and _same(result, wanted):
                    yield _Last(node, tuple(expansion.origins))
                elif result is not None and len(reached) < MOST_STEPS:
                    reached.append(node.output)


@dataclass(frozen=True)
class _Last:
    """A node that ends a match, and the origins of all arithmetic that leads to it."""

    node: Node
    origins: tuple[str, ...]


class _Expansion:
    """Tensors as polynomials of those that have a symbol; `origins` of the nodes that were looked through."""

    def __init__(self, search: _Search, symbols: Mapping[str, tuple[int, int]]) -> None:
        self.search = search
        self.symbols = symbols
        self.origins: list[str] = []

    def of(self, tensor: str, depth: int = MOST_STEPS) -> Polynomial | None:
        """Return the polynomial that a tensor is; None when it is none, or one of too high a degree."""
        if tensor in self.symbols:
            return {self.symbols[tensor]: 1.0}
        if (number := self.search.graph.scalar(tensor)) is not None:
            return {ONE: number}
        node = self.search.producers.get(tensor)
        if node is None or node.op not in ARITHMETIC or not depth:
            return None
        parts = [self.of(name, depth - 1) for name in node.inputs]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            return None
        result = _combined(node.op, *known)
        self.origins += node.origins
        return result if result is not None and all(sum(powers) <= HIGHEST for powers in result) else None


def _combined(op: str, left: Polynomial, right: Polynomial | None = None) -> Polynomial | None:
    """Return what an arithmetic operator makes of polynomials."""
    if right is None:
        return {powers: -factor for powers, factor in left.items()} if op == "Neg" else left
    number = right.get(ONE, 0.0) if right.keys() <= {ONE} else None
    match op:
        case "Mul":
            return _product(left, right)
        case "Div":
            return {powers: factor / number for powers, factor in left.items()} if number else None
        case "Pow" if number in (2.0, 3.0):
            square = _product(left, left)
            return square if number == 2.0 else _product(square, left)
        case "Add" | "Sub":
            sign = 1 if op == "Add" else -1
            return {powers: left.get(powers, 0.0) + sign * right.get(powers, 0.0) for powers in {**left, **right}}
    return None


def _product(left: Polynomial, right: Polynomial) -> Polynomial:
    result: dict[tuple[int, int], float] = {}
    for (value, gate), factor in left.items():
        for (values, gates), other in right.items():
            powers = value + values, gate + gates
            result[powers] = result.get(powers, 0.0) + factor * other
    return result


def _alpha(form: Form, argument: Polynomial) -> float:
    """Return the factor of x in a gate's argument; 0 where that is not the form's."""
    if form.argument is None:
        return argument[VALUE] if argument.keys() == {VALUE} else 0.0
    return argument[VALUE] if _same(argument, form.argument) else 0.0


def _same(one: Polynomial, other: Polynomial) -> bool:
    return all(_near(one.get(powers, 0.0), other.get(powers, 0.0)) for powers in {**one, **other})


def _near(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=NEAR, abs_tol=1e-12)
