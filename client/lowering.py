"""Graph -> Plan: every node becomes an operation on device tensors, and equal problems become one task.

Rank-4 tensors are NHWC between operations; conversions appear where the model's own order is needed: at its inputs
and outputs, at reshapes, and at matrix products over rank-4 tensors.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod

from gputune.client import lowering_moves
from gputune.client.errors import ModelError
from gputune.client.graph import Graph, Node
from gputune.client.layouts import TO_DEVICE, Layouts, device_shape
from gputune.client.passes import simplify
from gputune.client.passes.fuse_elementwise import POOLING
from gputune.client.plan import Operation, Plan, Task
from gputune.client.windows import Window, window_of
from gputune.kernels.catalogue import family_of
from gputune.kernels.family import TensorSpec
from gputune.kernels.ops.conv import ConvProblem
from gputune.kernels.ops.depthwise import DepthwiseProblem
from gputune.kernels.ops.elementwise import ElementwiseProblem
from gputune.kernels.ops.matmul import MatMulProblem
from gputune.kernels.ops.pool import PoolProblem
from gputune.kernels.ops.softmax import SoftmaxProblem
from gputune.kernels.window import Pair

__all__ = ["Operation", "Plan", "Task", "lower"]


def lower(graph: Graph) -> Plan:
    """The plan of an imported graph. Raises ModelError that names every node which cannot be lowered."""
    return Lowering(simplify(graph)).plan()


class Lowering:
    """Emits operations node by node; LOWERINGS says what lowers which operator."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.uses = graph.uses()
        self.operations: list[Operation] = []
        self._taken: set[str] = set()
        self.layouts = Layouts(graph, self._emit)

    def plan(self) -> Plan:
        self._lower_nodes()
        self.layouts.finish()
        weights = Counter((operation.task.op, operation.task.problem) for operation in self.operations)
        tasks = {key: Task(*key, weight) for key, weight in weights.items()}
        read = {name for operation in self.operations for name in operation.inputs.values()}
        constants = {name: value for name, value in self.layouts.constants.items() if name in read}
        unread = self.layouts.constants.keys() - constants.keys()
        return Plan(
            self.graph.name,
            tuple(TensorSpec(name, self.graph.shape(name)) for name in self.graph.inputs),
            tuple(TensorSpec(name, self.graph.shape(name)) for name in self.graph.outputs),
            tuple(replace(each, task=tasks[each.task.op, each.task.problem]) for each in self.operations),
            {name: spec for name, spec in self.layouts.tensors.items() if name not in unread},
            constants,
            self.layouts.aliases,
        )

    def _lower_nodes(self) -> None:
        problems: list[str] = []
        for node in self.graph.nodes:
            try:
                LOWERINGS[node.op](self, node)
            except (ModelError, ValueError) as error:  # a ValueError says why no kernel family has such a problem
                refusal = error if isinstance(error, ModelError) else node.unsupported(str(error))
                problems.append(refusal.message)
                for output in filter(None, node.outputs):  # so that the nodes behind it can be looked at
                    self.layouts.define(output, on_device=True)
        if problems:
            raise ModelError(f"model {self.graph.name!r}: {'; '.join(problems)}")

    def _emit(
        self, name: str, op: str, problem: object, inputs: Mapping[str, str], output: str, nodes: tuple[str, ...] = ()
    ) -> None:
        """Appends an operation whose tensors are as large as its kernel takes them to be. Raises ValueError."""
        family = family_of(op)
        tensors = {**inputs, "output": output}
        for spec in (*family.inputs(problem), family.output(problem)):
            shape = self.layouts.tensors[tensors[spec.name]].shape
            if prod(shape) != prod(spec.shape):
                raise ValueError(f"its {spec.name} has the shape {shape}, its kernel takes {spec.shape}")
        unique, number = name, 1
        while unique in self._taken:  # a conversion is called as its tensor, and a node may be called so, too
            number += 1
            unique = f"{name}.{number}"
        self._taken.add(unique)
        self.operations.append(Operation(unique, Task(op, problem, 1), dict(inputs), output, nodes))

    def run(self, node: Node, op: str, problem: object, inputs: Mapping[str, str], on_device: bool = True) -> None:
        """Emits the operation of a node, with the operands of its epilogue, which lie as its output does."""
        operands = {f"operand{index}": self.layouts.get(name, on_device) for index, name in enumerate(node.operands)}
        output = self.layouts.define(node.output, on_device)
        self._emit(node.name, op, problem, {**inputs, **operands}, output, tuple(dict.fromkeys(node.origins)))

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
            raise node.unsupported(f"it has {len(shape) - 2} spatial dimensions; 2 are supported")
        return shape[0], shape[1], (shape[2], shape[3]), (output[2], output[3]) if len(output) == 4 else (1, 1)

    def conv(self, node: Node) -> None:
        batch, channels, size, output = self.maps(node)
        weight, bias = self.constant(node, 1, "weight"), self.constant(node, 2, "bias")
        filters, seen, *kernel = self.graph.shape(node.inputs[1])
        groups = int(node.attributes.get("group", 1))
        if seen * groups != channels:
            raise node.unsupported(f"its weight sees {seen} channels in {groups} groups, its input has {channels}")
        window = window_of(node, (kernel[0], kernel[1]), size, output)
        source = self.layouts.get(node.inputs[0], on_device=True)
        biases = {"bias": bias} if bias else {}
        if window.is_point and groups == 1:
            product = MatMulProblem(batch * size[0] * size[1], channels, filters, bool(bias), node.chain)
            self.run(node, "MatMul", product, {"a": source, "b": self.layouts.matrix(weight), **biases})
            return
        inputs = {"input": source, "weight": weight, **biases}
        if 1 < groups == channels == filters:
            depthwise = DepthwiseProblem(
                batch, *size, channels, window.kernel, window.strides, window.pads, window.dilations,
                bias=bool(bias), epilogue=node.chain,
            )  # fmt: skip
            self.run(node, "DepthwiseConv", depthwise, inputs)
        else:
            conv = ConvProblem(
                batch, *size, channels, filters, window.kernel, window.strides, window.pads, window.dilations,
                groups, bias=bool(bias), epilogue=node.chain,
            )  # fmt: skip
            self.run(node, "Conv", conv, inputs)

    def gemm(self, node: Node) -> None:
        weight, bias = self.constant(node, 1, "right side"), self.constant(node, 2, "bias")
        depth, columns = self.graph.shape(node.inputs[1])
        rows = self.graph.tensors[node.output].size // columns
        inputs = {"a": self.layouts.get(node.inputs[0], on_device=False), "b": weight}
        problem = MatMulProblem(rows, depth, columns, bool(bias), node.chain)
        self.run(node, "MatMul", problem, {**inputs, "bias": bias} if bias else inputs, on_device=False)

    def pool(self, node: Node) -> None:
        batch, channels, size, output = self.maps(node)
        if any(self.uses[name] for name in node.outputs[1:] if name):
            raise node.unsupported("its indices are used")
        if node.op == "ReduceMean" and self._reduced_axes(node) != (2, 3):
            raise node.unsupported("it reduces other axes than the two of a map")
        if "kernel_shape" in node.attributes:
            kernel = node.attributes["kernel_shape"]
            window = window_of(node, (int(kernel[0]), int(kernel[1])), size, output)
        else:
            window = Window(size, (1, 1), (0, 0, 0, 0), (1, 1))
        if window.dilations != (1, 1):
            raise node.unsupported(f"its window is dilated by {window.dilations}")
        kind = "max" if "Max" in node.op else "average"
        padding = bool(node.attributes.get("count_include_pad", 0))
        problem = PoolProblem(
            kind, batch, *size, channels, window.kernel, window.strides, window.pads, output, padding, node.chain
        )
        self.run(node, "Pool", problem, {"input": self.layouts.get(node.inputs[0], on_device=True)})

    def _reduced_axes(self, node: Node) -> tuple[int, ...]:
        """The axes of a reduction, sorted; they are an attribute or, since operator set 18, an input."""
        rank = len(self.graph.shape(node.inputs[0]))
        axes = node.attributes.get("axes", ())
        if name := self.constant(node, 1, "list of axes"):
            axes = self.graph.constants[name]
        elif not axes and not node.attributes.get("noop_with_empty_axes", 0):
            axes = range(rank)
        return tuple(sorted(int(axis) % rank for axis in axes))

    def softmax(self, node: Node) -> None:
        source = node.inputs[0]
        shape = self.graph.shape(source)
        on_device = self.layouts.lies_on_device(source)
        first, last = node.attributes["axes"]
        places = [TO_DEVICE.index(axis) if on_device else axis for axis in range(first, last + 1)]
        shape = device_shape(shape) if on_device else shape
        start, stop = min(places, default=0), max(places, default=-1) + 1
        problem = SoftmaxProblem(prod(shape[:start]), prod(shape[start:stop]), prod(shape[stop:]))
        self.run(node, "Softmax", problem, {"input": self.layouts.get(source, on_device)}, on_device)

    def reshape(self, node: Node) -> None:
        self.layouts.reshape(node.output, node.inputs[0])

    def elementwise(self, node: Node) -> None:
        shape = self.graph.shape(node.output)
        on_device = any(self.layouts.lies_on_device(name) for name in node.reads)
        value, *operands = (self.layouts.get_broadcast(name, len(shape), on_device) for name in node.reads)
        tensors = self.layouts.tensors
        problem = ElementwiseProblem(
            device_shape(shape) if on_device else shape,
            tuple(tensors[name].shape for name in operands),
            tensors[value].shape,
            node.chain,
            tuple(index for index, name in enumerate(operands) if tensors[name].constant),
        )
        inputs = {"input": value, **{f"operand{index}": name for index, name in enumerate(operands)}}
        output = self.layouts.define(node.output, on_device)
        self._emit(node.name, "Elementwise", problem, inputs, output, tuple(dict.fromkeys(node.origins)))


LOWERINGS: Mapping[str, Callable[[Lowering, Node], None]] = {
    "Concat": lowering_moves.concat,
    "Conv": Lowering.conv,
    "ConvTranspose": lowering_moves.conv_transpose,
    "Elementwise": Lowering.elementwise,
    "Gemm": Lowering.gemm,
    "Reshape": Lowering.reshape,
    "Resize": lowering_moves.resize,
    "Softmax": Lowering.softmax,
    **dict.fromkeys(POOLING, Lowering.pool),
}
