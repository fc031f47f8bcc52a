"""Represent the model between import and lowering: nodes and static tensors, without onnx types."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from gputune.client.errors import Refusal, UnsupportedNodes
from gputune.core.dtypes import ELEMENT_TYPES, FLOAT, HALVES
from gputune.core.precision import EXACT, MIXED
from gputune.kernels.chain import EMPTY, Chain
from gputune.runtime.context.states import StateRecord

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class TensorInfo:
    """Shape in ONNX order (N, C, H, W for pictures) and numpy dtype name."""

    shape: tuple[int, ...]
    dtype: str = "float32"

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Precision:
    """Say in which type a plan keeps the floats of a graph.

    mode: `float32`, or `float16_storage`: tensors between operations and weights are stored in float16, and kernels
    compute in float32; or `float16`: on a device that can, products may be multiplied in half, too. "": that of the
    model (Graph.mode). kept: the model's nodes, by their names, that compute and keep float32 in any mode. given:
    inputs and outputs of the graph that have another type of floats than the model says. quantised: by which of RULES
    quantised nodes are computed.
    """

    mode: str = ""
    kept: frozenset[str] = frozenset()
    given: Mapping[str, str] = field(default_factory=dict)
    quantised: str = EXACT


@dataclass(frozen=True)
class Exactness:
    """Hold what a pass finds in a graph with quantised nodes.

    asked: one of RULES. whole: the operators of the model's nodes that whole numbers compute, with the number of these.
    exceptions: products of two quantised tensors that multiply floats. steps: by the names of quantised tensors that
    floats are rounded to, and of what these are dequantised to, how far apart two of its numbers are; a float that is
    all but halfway between two of them may become either one.
    """

    asked: str = EXACT
    whole: Mapping[str, int] = field(default_factory=dict)
    exceptions: tuple[Refusal, ...] = ()
    steps: Mapping[str, float] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """Return EXACT for a graph without exceptions, else MIXED, or IN_FLOATS where that was asked for."""
        return MIXED if self.asked == EXACT and self.exceptions else self.asked

    def told(self, outputs: Iterable[str]) -> dict[str, Any]:
        """Return it as JSON values, with the steps of these tensors."""
        return {
            "rules": self.kind,
            "whole_numbers": dict(self.whole),
            "exceptions": [{"node": one.node, "op": one.op, "why": one.why} for one in self.exceptions],
            "steps": {name: self.steps[name] for name in outputs if name in self.steps},
        }


def kind_of(graphs: Iterable[Mapping[str, Any]]) -> str:
    """Return what a context is, by what is told of its graphs: MIXED where these differ, "" if none is quantised."""
    kinds = {graph["rules"] for graph in graphs}
    return kinds.pop() if len(kinds) == 1 else MIXED if kinds else ""


ROUNDINGS: Mapping[str, str] = {name: f"RoundTo{ELEMENT_TYPES[name].rounding.title()}" for name in HALVES}
"""The operators of nodes that round float32 numbers to those of a shorter type, by the type. No model has them."""
QUANTISE = "Quantise"
"""The operator of a node that divides by attribute "scale" and rounds to whole numbers from "low" to "high"."""
WHOLE_SUM = "WholeSum"
"""That of a node that says that its input is a sum of products of whole numbers, below 2 ** 24."""
RATIO = "Ratio"
"""That of a division of which each digit counts."""
ONE_FOR_ZERO = "OneForZero"


@dataclass(frozen=True)
class Scaled:
    """A constant that is whole `numbers`, from which `zeros` are taken away, times `scales`.

    Both have as many axes as the numbers and repeat along those of size 1; along `axis` each of them is for `block`
    neighbours. No zeros are zero, no scales are one. `dequantised`: whether a DequantizeLinear says so.
    """

    numbers: Array
    scales: Array | None = None
    zeros: Array | None = None
    axis: int = 0
    block: int = 1
    dequantised: bool = False

    @property
    def whole(self) -> Array:
        """The numbers without their zero points, of one that has no blocks."""
        numbers = self.numbers.astype(np.int16 if self.numbers.dtype.itemsize == 1 else np.int64)
        return numbers if self.zeros is None else numbers - self.zeros.astype(numbers.dtype)

    def turned(self, order: Sequence[int] | None = None) -> "Scaled":
        """Return it with its axes in another order; None: the reverse one."""
        order = order or range(self.numbers.ndim)[::-1]
        scales, zeros = (None if each is None else each.transpose(order) for each in (self.scales, self.zeros))
        axis = list(order).index(self.axis)
        return replace(self, numbers=self.numbers.transpose(order), scales=scales, zeros=zeros, axis=axis)

    def as_matrix(self) -> "Scaled":
        """Return it as a matrix [inputs, outputs], if it has the weights [outputs, inputs, 1, 1] of a convolution."""
        if self.numbers.ndim != 4 or self.numbers.shape[2:] != (1, 1):
            return self
        numbers, scales, zeros = (
            None if each is None else each.reshape(each.shape[:2]).T for each in (self.numbers, self.scales, self.zeros)
        )
        assert numbers is not None
        return replace(self, numbers=numbers, scales=scales, zeros=zeros, axis=1 - min(self.axis, 1))

    def times(self, factors: Array) -> "Scaled | None":
        """Return it multiplied by what broadcasts to it; None where that differs within a block."""
        padded = factors.reshape((1,) * (self.numbers.ndim - factors.ndim) + factors.shape)
        if self.block > 1 and padded.shape[self.axis] > 1:
            return None
        return replace(self, scales=as_constant(padded if self.scales is None else self.scales * padded))


@dataclass(frozen=True)
class Node:
    """One operator. `inputs` may hold "" where an optional input is absent.

    Its outputs identify a node; its name is a label, which another node may have, too.

    `chain` is what passes fused behind the operator; its k-th operand is the tensor `operands[k]`. Of a node that
    cannot run, `operands` are what its branches take from around it. `origins` names the model's nodes that this one
    stands for.
    """

    op: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    chain: Chain = EMPTY
    operands: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()

    @property
    def output(self) -> str:
        return self.outputs[0]

    @property
    def stands_for(self) -> tuple[str, ...]:
        """The names of the model's nodes that this one stands for, each once."""
        return tuple(dict.fromkeys(self.origins))

    @property
    def reads(self) -> tuple[str, ...]:
        """Every tensor the node reads, once for each time it is read."""
        return tuple(name for name in (*self.inputs, *self.operands) if name)

    @property
    def label(self) -> str:
        """How messages name the node."""
        return f"{self.op} node {self.name!r}"

    def unsupported(self, why: str, instead: str = "") -> UnsupportedNodes:
        """Return the error to raise for a node of a supported operator that is used in a way which is not. It names the
        node of the model that this one stands for."""
        return UnsupportedNodes((Refusal(self.op, self.origins[0] if self.origins else self.name, why, instead),))


def renamed(nodes: Iterable[Node], names: Mapping[str, str]) -> Iterator[Node]:
    """Yield the nodes with some tensors called otherwise, wherever they are read or computed."""

    def new(tensors: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(names.get(name, name) for name in tensors)

    for node in nodes:
        yield replace(node, inputs=new(node.inputs), outputs=new(node.outputs), operands=new(node.operands))


class Names:
    """Gives new tensors names that no other has."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)
        self._numbers: Counter[str] = Counter()

    def free(self, wanted: str) -> str:
        """`wanted`, or `wanted` with a number behind it where that name is taken. From then on it is."""
        name = wanted
        while name in self._taken:
            self._numbers[wanted] += 1
            name = f"{wanted}.{self._numbers[wanted] + 1}"
        self._taken.add(name)
        return name


@dataclass(frozen=True)
class Graph:
    """Nodes in an order in which they can run; `tensors` describes every name, `constants` holds values.

    `constant_inputs` are inputs of the model that are constants: those that have a value, and those without elements.

    `named` are the tensors that the model's file names; others were made when nodes were taken apart. `node_ops` says
    what kind of node each of the model's is, by the names that are origins of nodes. `instead` is the advice for
    tensors that must be known before the model runs, and follow from inputs that may be made constants.

    Passes know floats as float32, whatever they are stored in. `halves` are the tensors that the model has in a type of
    HALVES, with that type, `like_halves` those in float32 whose numbers are of such a type, `half_nodes` the model's
    nodes that compute one. `precision` says what a plan makes of them. `scaled` has those of the constants that are
    whole numbers, or were dequantised, `exactness` is what the passes found of quantised nodes. `states` says which
    outputs become inputs of the next inference. `path` is the model's file.
    """

    name: str
    opset: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    constants: Mapping[str, Array]
    tensors: Mapping[str, TensorInfo]
    named: frozenset[str] = frozenset()
    constant_inputs: Mapping[str, Array] = field(default_factory=dict)
    node_ops: Mapping[str, str] = field(default_factory=dict)
    instead: Mapping[str, str] = field(default_factory=dict)
    halves: Mapping[str, str] = field(default_factory=dict)
    like_halves: frozenset[str] = frozenset()
    half_nodes: frozenset[str] = frozenset()
    precision: Precision = field(default_factory=Precision)
    scaled: Mapping[str, Scaled] = field(default_factory=dict)
    exactness: Exactness | None = None
    states: StateRecord | None = None
    path: str = field(default="", compare=False)

    @property
    def called(self) -> str:
        """How messages call the model: by its file, where it has one."""
        return self.path or repr(self.name)

    def stored(self, tensor: str) -> str:
        """Return the type that an input or output of the graph has for those who give and take it."""
        return self.precision.given.get(tensor, self.halves.get(tensor, self.tensors[tensor].dtype))

    @property
    def mode(self) -> str:
        """Return the precision mode that it has unless another is asked for: the shorter type of floats that the model
        has. With several of them all is in float32, which holds their numbers."""
        types = {*self.halves.values()}
        return types.pop() if len(types) == 1 else FLOAT

    def shape(self, tensor: str) -> tuple[int, ...]:
        return self.tensors[tensor].shape

    def producers(self) -> dict[str, Node]:
        """Return the node that computes each tensor; inputs and constants have none."""
        return {output: node for node in self.nodes for output in node.outputs if output}

    def readers(self) -> dict[str, list[Node]]:
        """Return the nodes that read each tensor, once each; what nothing reads has none."""
        found: dict[str, list[Node]] = {}
        for node in self.nodes:
            for name in dict.fromkeys(node.reads):
                found.setdefault(name, []).append(node)
        return found

    def uses(self) -> Counter[str]:
        """Return how often each tensor is read; being an output of the graph counts as one more."""
        return Counter([*(name for node in self.nodes for name in node.reads), *self.outputs])

    def is_float(self, node: Node) -> bool:
        """Return whether a node reads and computes float32 numbers and nothing else."""
        return all(self.tensors[name].dtype == "float32" for name in (*node.reads, *filter(None, node.outputs)))

    def scalar(self, tensor: str) -> float | None:
        """Return the value of a constant that holds a single number, else None."""
        value = self.constants.get(tensor)
        return float(value.reshape(())) if value is not None and value.size == 1 else None

    def computed(self, node: Node, what: str, tensor: str) -> UnsupportedNodes:
        """Return the error to raise for an input of a node that is computed and must be known before; what: that it
        is."""
        return node.unsupported(f"its {what} {tensor!r} is computed at run time", self.instead.get(tensor, ""))

    def rewritten(
        self,
        nodes: Iterable[Node],
        constants: Mapping[str, Array] | None = None,
        tensors: Mapping[str, TensorInfo] | None = None,
        scaled: Mapping[str, Scaled] | None = None,
    ) -> "Graph":
        """Return the graph with other nodes and some more constants and tensors, without what no output needs.
        scaled: of these constants."""
        kept: list[Node] = []
        needed = set(self.outputs)
        for node in reversed(list(nodes)):
            if needed.intersection(node.outputs):
                kept.append(node)
                needed.update(node.reads)
        needed.update(self.inputs, *(node.outputs for node in kept))
        known = constants or {}
        values = {**self.constants, **known}
        infos = {**self.tensors, **(tensors or {})}
        infos.update({name: TensorInfo(value.shape, str(value.dtype)) for name, value in known.items()})
        return replace(
            self,
            nodes=tuple(reversed(kept)),
            constants={name: value for name, value in values.items() if name in needed},
            tensors={name: info for name, info in infos.items() if name in needed},
            scaled={name: each for name, each in {**self.scaled, **(scaled or {})}.items() if name in needed},
        )

    def in_its_words(self, refusals: Iterable[Refusal]) -> list[Refusal]:
        """Refusals of nodes with the operators that the model has in their place."""
        found = []
        for one in refusals:
            op = self.node_ops.get(one.node, one.op)
            why = one.why if op == one.op else f"{one.why}, in the {one.op} that replaces it"
            found.append(replace(one, op=op, why=why))
        return found

    def names(self) -> "Names":
        """Return the names of all tensors, unread outputs of nodes included, to find free ones beside them."""
        return Names({*self.tensors, *(output for node in self.nodes for output in node.outputs)})


def as_constant(value: Array | float) -> Array:
    """Return a constant that was computed, as graphs keep it: float32. What is so already is not copied, since weights
    are large; so it must not be written to."""
    return np.asarray(value, dtype=np.float32)
