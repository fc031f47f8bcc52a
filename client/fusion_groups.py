"""Which operations of a plan could be one kernel: groups that fewer launches may make faster, or not."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gputune.client.plan import Operation, Plan, Task
from gputune.kernels.ops.depthwise import DepthwiseProblem
from gputune.kernels.ops.matmul import MatMulProblem
from gputune.kernels.ops.separable import SeparableProblem


@dataclass(frozen=True, eq=False)
class Group:
    """Operations of a plan and the one operation that computes the same; a group is equal to itself only.

    `operations` are in the order in which they run. The fused one runs in the place of the last of them, and what the
    others write is never there.
    """

    operations: tuple[Operation, ...]
    fused: Operation

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the operations that it replaces."""
        return tuple(operation.name for operation in self.operations)

    @property
    def task(self) -> Task:
        """The fused task."""
        return self.fused.task

    @property
    def replaces(self) -> tuple[Task, ...]:
        """The tasks that it replaces, one for each operation."""
        return tuple(operation.task for operation in self.operations)

    def gain_ns(self, time_ns: Callable[[Task], float | None], launch_ns: float) -> float | None:
        """By how much an inference is shorter with the fused kernel; None while a time is unknown.

        `time_ns` is a task's running time, `launch_ns` what each launch of a chain costs beside it.
        """
        fused, parts = time_ns(self.task), [time_ns(task) for task in self.replaces]
        known = [part for part in parts if part is not None]
        if fused is None or len(known) < len(parts):
            return None
        return sum(known) - fused + (len(parts) - 1) * launch_ns


def fusion_groups(plan: Plan) -> Iterator[Group]:
    """The groups of a plan, in the order in which they run; no two share an operation."""
    reads = Counter(plan.root(name) for operation in plan.operations for name in operation.inputs.values())
    reads.update(plan.root(tensor.name) for tensor in plan.outputs)
    writers = {plan.root(operation.output): operation for operation in plan.operations}
    for operation in plan.operations:
        if operation.task.op == "MatMul":
            middle = plan.root(operation.inputs["a"])
            depthwise = writers.get(middle)
            if depthwise is not None and depthwise.task.op == "DepthwiseConv" and reads[middle] == 1:
                yield from _separable(depthwise, operation)


def _separable(depthwise: Operation, pointwise: Operation) -> Iterator[Group]:
    """A depthwise convolution and the 1x1 convolution that alone reads it, where one kernel can be both."""
    first, second = depthwise.task.problem, pointwise.task.problem
    if not isinstance(first, DepthwiseProblem) or not isinstance(second, MatMulProblem):
        raise TypeError(f"{depthwise.name} and {pointwise.name} are no depthwise and no pointwise convolution")
    if second.k != first.channels or first.epilogue.operands or first.epilogue.has_domain:
        return
    problem = SeparableProblem(
        first.batch, first.height, first.width, first.channels, second.n, first.kernel, first.strides, first.pads,
        first.dilations, first.bias, second.bias, first.epilogue, second.epilogue,
    )  # fmt: skip
    inputs = {"input": depthwise.inputs["input"], "depthwise_weight": depthwise.inputs["weight"]}
    if first.bias:
        inputs["depthwise_bias"] = depthwise.inputs["bias"]
    inputs["weight"] = pointwise.inputs["b"]
    inputs |= {name: tensor for name, tensor in pointwise.inputs.items() if name not in ("a", "b")}
    fused = Operation(
        pointwise.name,  # which no other operation of a plan has
        Task("SeparableConv", problem, 1),
        inputs,
        pointwise.output,
        (*depthwise.nodes, *pointwise.nodes),
    )
    yield Group((depthwise, pointwise), fused)
