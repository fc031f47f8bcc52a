"""Represent the state of lowering functions: the graph, the tensors as they lie on the device, and the operations so
far.
"""

from collections.abc import Mapping
from math import prod

import numpy as np

from gputune.client.model.graph import Array, Graph, Names, Node
from gputune.client.model.lowering.layouts import Layouts
from gputune.client.model.lowering.quantised_weights import in_bytes, quantised_matrix
from gputune.client.model.plan import Operation, Task
from gputune.kernels.catalogue import family_of
from gputune.kernels.tiling.packing import Quantised
from gputune.kernels.tiling.window import Pair


class Lowering:
    """Emits operations on device tensors. joined: by tensor, the Concat whose inputs its readers read part by part;
    see passes/joined_maps.py."""

    def __init__(self, graph: Graph, joined: Mapping[str, Node]) -> None:
        self.graph = graph
        self.uses = graph.uses()
        self.joined = joined
        self.operations: list[Operation] = []
        self._names = Names()  # of operations: a conversion is called as its tensor, and a node may be called so, too
        self.layouts = Layouts(graph, self.emit)
        self._bytes: dict[str, str] = {}
        self._quantised: dict[str, tuple[Quantised | None, Mapping[str, str]]] = {}

    def emit(
        self, name: str, op: str, problem: object, inputs: Mapping[str, str], output: str, nodes: tuple[str, ...] = ()
    ) -> None:
        """Append an operation on device tensors, which are as large as its kernel takes them to be, and of its types.

        Raises ValueError where they are not.
        """
        family = family_of(op)
        tensors = {**inputs, "output": output}
        for spec in (*family.inputs(problem), family.output(problem)):
            given = self.layouts.tensors[tensors[spec.name]]
            if prod(given.shape) != prod(spec.shape):
                raise ValueError(f"its {spec.name} has the shape {given.shape}, its kernel takes {spec.shape}")
            if given.dtype != spec.dtype:
                raise ValueError(f"its {spec.name} is {given.dtype}, its kernel takes {spec.dtype}")
        self.operations.append(Operation(self._names.free(name), Task(op, problem, 1), dict(inputs), output, nodes))

    def run(self, node: Node, op: str, problem: object, inputs: Mapping[str, str], on_device: bool = True) -> None:
        """Emit the operation of a node, with the operands of its epilogue, which lie as its output does."""
        operands = {f"operand{index}": self.layouts.get(name, on_device) for index, name in enumerate(node.operands)}
        output = self.layouts.define(node.output, on_device)
        self.emit(node.name, op, problem, {**inputs, **operands}, output, node.stands_for)

    def value(self, node: Node, index: int, what: str) -> Array | None:
        """Return the value of an input that has to be known before anything runs, None when it is absent."""
        name = node.inputs[index] if index < len(node.inputs) else ""
        if name and name not in self.graph.constants:
            raise self.graph.computed(node, what, name)
        return self.graph.constants[name] if name else None

    def constant(self, node: Node, index: int, what: str) -> str:
        """Return the tensor of a constant input, "" when it is absent."""
        name = node.inputs[index] if index < len(node.inputs) else ""
        if name and not self.layouts.is_constant(name):
            raise self.graph.computed(node, what, name)
        return self.layouts.get(name, on_device=False) if name else ""

    def quantised_matrix(self, weight: str) -> tuple[Quantised | None, Mapping[str, str]]:
        """Return how a constant matrix is stored as whole numbers, with its tensors by the names of inputs; None where
        it is floats."""
        if weight not in self._quantised:
            scaled = self.graph.scaled.get(weight)
            found = scaled and quantised_matrix(scaled.as_matrix())
            kept, values = found or (None, {})
            tensors = {name: self.layouts.constant(f"{weight}/{name}", value) for name, value in values.items()}
            self._quantised[weight] = kept, tensors
        return self._quantised[weight]

    def bytes_of(self, weight: str) -> str:
        """Return the tensor of a constant of whole numbers as int8, "" where it has others."""
        scaled = self.graph.scaled.get(weight)
        if scaled is None or scaled.scales is not None or not in_bytes(scaled.numbers):
            return ""
        if weight not in self._bytes:
            self._bytes[weight] = self.layouts.constant(f"{weight}/bytes", scaled.numbers.astype(np.int8))
        return self._bytes[weight]

    def maps(self, node: Node) -> tuple[int, int, Pair, Pair]:
        """Batch, channels, and the sizes (height, width) of the maps that a node reads and writes."""
        shape, output = self.graph.shape(node.inputs[0]), self.graph.shape(node.output)
        if len(shape) != 4:
            raise node.unsupported(f"it has {len(shape) - 2} spatial dimensions; 1 to 3 are supported")
        return shape[0], shape[1], (shape[2], shape[3]), (output[2], output[3])
