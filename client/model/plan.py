"""Represent a plan, the result of lowering a graph: operations on named device tensors, and their distinct tasks."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gputune.client.model.graph import Array, Exactness
from gputune.core.dtypes import ELEMENT_TYPES, FLOAT
from gputune.kernels.family import TensorSpec
from gputune.runtime.context.states import StateRecord


@dataclass(frozen=True)
class Task:
    """A kernel to tune: op and problem; `weight` is how many operations of the plan run it."""

    op: str
    problem: Any
    weight: int

    @property
    def kind(self) -> tuple[str, object]:
        """Return what it is, whatever its weight."""
        return self.op, self.problem


@dataclass(frozen=True)
class Operation:
    """One run of a task's kernel. `inputs` maps the kernel's input names to tensors, `output` is the tensor written.

    A tensor may be seen by the kernel in another shape of as many elements. `nodes` are the model's nodes that this
    operation stands for; layout conversions stand for none.
    """

    name: str
    task: Task
    inputs: Mapping[str, str]
    output: str
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class GraphTensor:
    """A tensor of the graph as it lies in a device tensor: NHWC where `on_device`, which only maps are, else in ONNX
    order."""

    name: str
    on_device: bool


@dataclass(frozen=True)
class Plan:
    """Operations in the order they run.

    `inputs` and `outputs` have the model's names and shapes in ONNX order and keep them on the device. `tensors`
    describes every tensor as it lies on the device: rank-4 tensors between operations are NHWC. `constants` holds
    the values of those marked constant: weights as ONNX orders them, operands of elementwise steps in device
    layout. `aliases` maps each view to the tensor whose memory it is; an input, an output and a constant is never
    a view. `holds` says which tensor of the graph lies in a device tensor; what one node's operations hand to each
    other is none. `constant_inputs` are the model's inputs that are constants, which no application gives. `exactness`
    says how quantised nodes are computed, if there are any; `states` which outputs become inputs of the next inference.
    """

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    operations: tuple[Operation, ...]
    tensors: Mapping[str, TensorSpec]
    constants: Mapping[str, Array]
    aliases: Mapping[str, str]
    holds: Mapping[str, GraphTensor] = field(default_factory=dict)
    constant_inputs: Mapping[str, Array] = field(default_factory=dict)
    exactness: Exactness | None = None
    states: StateRecord | None = None

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The distinct tasks in the order in which they first run."""
        return tuple(dict.fromkeys(operation.task for operation in self.operations))

    @property
    def nodes_of(self) -> dict[Task, tuple[str, ...]]:
        """The names of the model's nodes that run each task."""
        nodes: dict[Task, tuple[str, ...]] = {}
        for operation in self.operations:
            nodes[operation.task] = (*nodes.get(operation.task, ()), *operation.nodes)
        return nodes

    @property
    def steps(self) -> Mapping[str, float]:
        """Return how far apart two numbers of the graph's tensors are, of those that floats are rounded to."""
        return {} if self.exactness is None else self.exactness.steps

    def root(self, tensor: str) -> str:
        """Return the tensor whose memory `tensor` is: itself unless it is a view."""
        return self.aliases.get(tensor, tensor)

    @property
    def coarsest(self) -> str:
        """Return the type of floats with the fewest digits in which any of its tensors is stored."""
        stored = {FLOAT, *(spec.dtype for spec in self.tensors.values())}
        return max(stored, key=lambda dtype: ELEMENT_TYPES[dtype].resolution)

    def is_constant(self, tensor: str) -> bool:
        return self.tensors[tensor].constant


def weighted(operations: Sequence[Operation]) -> tuple[Operation, ...]:
    """Return the operations with tasks that know how many of them run these."""
    weights = Counter(each.task.kind for each in operations)
    tasks = {(op, problem): Task(op, problem, weight) for (op, problem), weight in weights.items()}
    return tuple(replace(each, task=tasks[each.task.kind]) for each in operations)
