"""Graph -> Plan: every node becomes an operation on device tensors, and equal problems become one task.

Rank-4 tensors are NHWC between operations; conversions appear where the model's own order is needed: at its inputs
and outputs, at reshapes, and at matrix products over rank-4 tensors.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from math import prod

from gputune.client.errors import ModelError, Refusal, UnsupportedNodes
from gputune.client.graph import Array, Graph, Names, Node
from gputune.client.lowering.added import lowering_of
from gputune.client.lowering.layouts import Layouts
from gputune.client.lowering.operators import LOWERINGS
from gputune.client.passes import simplify
from gputune.client.passes.joined_maps import joined_maps
from gputune.client.plan import Operation, Plan, Task
from gputune.kernels.catalogue import family_of
from gputune.kernels.family import TensorSpec
from gputune.kernels.window import Pair


def lower(graph: Graph) -> Plan:
    """The plan of an imported graph. Raises ModelError that names every node which cannot be lowered."""
    return Lowering(simplify(graph)).plan()


class Lowering:
    """Emits operations node by node; LOWERINGS says what lowers which operator."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.uses = graph.uses()
        # An op package's lowering knows of no map that nobody writes.
        self.joined = {} if lowering_of("Concat") or lowering_of("Conv") else joined_maps(graph)
        self.operations: list[Operation] = []
        self._names = Names()  # of operations: a conversion is called as its tensor, and a node may be called so, too
        self.layouts = Layouts(graph, self.emit)

    def plan(self) -> Plan:
        self._lower_nodes()
        lowered = len(self.operations)
        self.layouts.finish()
        self._run_before_readers(lowered)
        weights = Counter((operation.task.op, operation.task.problem) for operation in self.operations)
        tasks = {key: Task(*key, weight) for key, weight in weights.items()}
        read = {name for operation in self.operations for name in operation.inputs.values()}
        constants = {name: value for name, value in self.layouts.constants.items() if name in read}
        unread = self.layouts.constants.keys() - constants.keys()
        return Plan(
            self.graph.name,
            tuple(map(self._spec, self.graph.inputs)),
            tuple(map(self._spec, self.graph.outputs)),
            tuple(replace(each, task=tasks[each.task.op, each.task.problem]) for each in self.operations),
            {name: spec for name, spec in self.layouts.tensors.items() if name not in unread},
            constants,
            self.layouts.aliases,
        )

    def _lower_nodes(self) -> None:
        problems: list[str] = []
        refusals: list[Refusal] = []
        for node in self.graph.nodes:
            try:
                (lowering_of(node.op) or LOWERINGS[node.op])(self, node)
            except (ModelError, ValueError) as error:  # a ValueError says why no kernel family has such a problem
                refusal = error if isinstance(error, ModelError) else node.unsupported(str(error))
                problems.append(refusal.message)
                known = refusal.refusals if isinstance(refusal, UnsupportedNodes) else ()
                refusals += known or (Refusal(node.op, node.name, refusal.message),)
                for output in filter(None, node.outputs):  # so that the nodes behind it can be looked at
                    self.layouts.define(output, on_device=True)
        if problems:
            message = f"model {self.graph.name!r}: {'; '.join(problems)}"
            raise UnsupportedNodes(message, refusals, len(self.graph.nodes))

    def _run_before_readers(self, since: int) -> None:
        """Moves each operation from this place on up to the first that reads what it writes: what was a view, which is
        there with its source, has become a copy."""
        for place in range(since, len(self.operations)):
            operation = self.operations[place]
            readers = (k for k, each in enumerate(self.operations[:place]) if operation.output in each.inputs.values())
            self.operations.insert(next(readers, place), self.operations.pop(place))

    def _spec(self, tensor: str) -> TensorSpec:
        info = self.graph.tensors[tensor]
        return TensorSpec(tensor, info.shape, dtype=info.dtype)

    def emit(
        self, name: str, op: str, problem: object, inputs: Mapping[str, str], output: str, nodes: tuple[str, ...] = ()
    ) -> None:
        """Appends an operation on device tensors, which are as large as its kernel takes them to be, and of its types.

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
        """Emits the operation of a node, with the operands of its epilogue, which lie as its output does."""
        operands = {f"operand{index}": self.layouts.get(name, on_device) for index, name in enumerate(node.operands)}
        output = self.layouts.define(node.output, on_device)
        self.emit(node.name, op, problem, {**inputs, **operands}, output, node.stands_for)

    def value(self, node: Node, index: int, what: str) -> Array | None:
        """The value of an input that has to be known before anything runs, None when it is absent."""
        name = node.inputs[index] if index < len(node.inputs) else ""
        if name and name not in self.graph.constants:
            raise node.unsupported(f"its {what} {name!r} is computed at run time")
        return self.graph.constants[name] if name else None

    def constant(self, node: Node, index: int, what: str) -> str:
        """The tensor of a constant input, "" when it is absent."""
        name = node.inputs[index] if index < len(node.inputs) else ""
        if name and not self.layouts.is_constant(name):
            raise node.unsupported(f"its {what} {name!r} is computed at run time")
        return self.layouts.get(name, on_device=False) if name else ""

    def maps(self, node: Node) -> tuple[int, int, Pair, Pair]:
        """Batch, channels, and the sizes (height, width) of the maps that a node reads and writes."""
        shape, output = self.graph.shape(node.inputs[0]), self.graph.shape(node.output)
        if len(shape) != 4:
            raise node.unsupported(f"it has {len(shape) - 2} spatial dimensions; 1 to 3 are supported")
        return shape[0], shape[1], (shape[2], shape[3]), (output[2], output[3])
