"""Find operations of a plan that one kernel could compute: fewer launches may be faster, or not.

Passes always fuse epilogues (bias, activation, residual sum, scale and shift), because that never loses. The groups
here can lose. Some compute something twice: a depthwise convolution with the 1x1 convolution after it, and both with
the 1x1 convolution before them. Attention, which is two products and the softmax between them, has fewer sums at the
same time. Measurement decides. To add an alternative, write a family for the fused
computation and a finder in this module.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from gputune.client.model.lowering.attending import Parts, fused_attention
from gputune.client.model.plan import Operation, Plan, Task
from gputune.core.alike import as_kind
from gputune.kernels.ops.inverted_residual import InvertedResidualProblem
from gputune.kernels.ops.separable import SeparableProblem

Producer = Callable[[Operation, str, str], Operation | None]
"""Return the operation of an op that computes an input of another one, and of no other."""

LEAST_EXPANSION = 2
"""Expanding channels to so many times as many, or fewer, saves too little to compute some of them twice."""

FUSED_NAMES = {"input": "input", "weight": "depthwise_weight", "bias": "depthwise_bias"}
"""What a fused kernel calls the inputs of its depthwise convolution."""


@dataclass(frozen=True, eq=False)
class FusionGroup:
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


def fusion_groups(plan: Plan) -> Iterator[FusionGroup]:
    """Yield the groups of a plan, in the order in which they run; some share operations, and only one of them can
    be."""
    reads = Counter(plan.root(name) for operation in plan.operations for name in operation.inputs.values())
    reads.update(plan.root(tensor.name) for tensor in plan.outputs)
    writers = {plan.root(operation.output): operation for operation in plan.operations}

    def producer(operation: Operation, name: str, op: str) -> Operation | None:
        """Return the `op` operation that computes an input of this one, and of no other."""
        tensor = plan.root(operation.inputs.get(name, ""))  # a product of parts has no "a"
        found = writers.get(tensor)
        return found if found is not None and found.task.op == op and reads[tensor] == 1 else None

    for values in plan.operations:
        if values.task.op == "MatMul" and values.task.problem.places:
            attention = _attention(plan, values, producer)
            if attention:
                yield attention
    for project in plan.operations:
        if project.task.op == "MatMul" and (depthwise := producer(project, "a", "DepthwiseConv")):
            separable = _separable(depthwise, project)
            if separable is not None:
                yield separable
                if expand := producer(depthwise, "input", "MatMul"):
                    yield from _inverted_residual(expand, separable)


def _attention(plan: Plan, values: Operation, producer: Producer) -> FusionGroup | None:
    """Return two products and the softmax between them, unless no kernel can be all of them."""
    zeroed = producer(values, "a", "Typed")
    if zeroed is not None and not _puts(plan, zeroed, "input1", zero=True):
        return None
    softmax = producer(values, "a", "Softmax") if zeroed is None else producer(zeroed, "input2", "Softmax")
    if softmax is None:
        return None
    hidden = producer(softmax, "input", "Typed")
    shown = hidden is not None and _puts(plan, hidden, "input2")
    if hidden is not None and not shown and not _puts(plan, hidden, "input1"):
        return None
    below, name = (softmax, "input") if hidden is None else (hidden, "input1" if shown else "input2")
    masks = producer(below, name, "Elementwise")
    scores = producer(below, name, "MatMul") if masks is None else producer(masks, "input", "MatMul")
    if scores is None:
        return None
    masking, hiding, zeroing = (None if one is None else one.task.problem for one in (masks, hidden, zeroed))
    products = scores.task.problem, softmax.task.problem, values.task.problem
    problem = fused_attention(Parts(*products, masking, hiding, shown, zeroing))
    if problem is None:
        return None
    operands = [one.inputs[each] for one in (scores, masks) if one for each in sorted(one.inputs) if "operand" in each]
    inputs = {"query": scores.inputs["a"], "key": scores.inputs["b"], "value": values.inputs["b"]}
    inputs |= dict(zip(problem.scores.operand_names, operands, strict=True))
    if hidden is not None:
        inputs |= {"hidden": hidden.inputs["input0"], "hidden_score": hidden.inputs["input2" if shown else "input1"]}
    if zeroed is not None:
        inputs["zeroed"] = zeroed.inputs["input0"]
    parts = (scores, masks, hidden, softmax, zeroed, values)
    return _group(tuple(one for one in parts if one is not None), "Attention", problem, inputs)


def _puts(plan: Plan, operation: Operation, name: str, zero: bool = False) -> bool:
    """Return whether an operation puts one number, or zero, that is its input of this name, where a condition says."""
    number = plan.constants.get(operation.inputs.get(name, ""))
    if operation.task.problem.function != "where" or number is None or number.size != 1:
        return False
    return not zero or not number.any()


def _separable(depthwise: Operation, project: Operation) -> FusionGroup | None:
    """Return a depthwise and a pointwise convolution, unless no kernel can be both."""
    first, second = depthwise.task.problem, project.task.problem
    if (
        first.group > 1
        or not second.weights
        or second.quantised
        or second.k != first.channels
        or first.epilogue.operands
        or first.epilogue.has_domain
    ):
        return None
    if first.dtype != second.dtype:
        return None
    problem = as_kind(
        SeparableProblem,
        first,
        out_channels=second.n,
        depthwise_bias=first.bias,
        bias=second.bias,
        depthwise_epilogue=first.epilogue,
        epilogue=second.epilogue,
    )
    inputs = {
        **{FUSED_NAMES[name]: tensor for name, tensor in depthwise.inputs.items()},
        "weight": project.inputs["b"],
        **{name: tensor for name, tensor in project.inputs.items() if name not in ("a", "b")},
    }
    return _group((depthwise, project), "SeparableConv", problem, inputs)


def _inverted_residual(expand: Operation, separable: FusionGroup) -> Iterator[FusionGroup]:
    """Yield a separable convolution and the expansion in front of it."""
    first, second = expand.task.problem, separable.task.problem
    if (
        first.dtype != second.dtype
        or first.n != second.channels
        or first.epilogue.operands
        or first.epilogue.has_domain
        or first.parts
        or not first.weights
        or first.quantised
    ):
        return
    if second.channels <= LEAST_EXPANSION * first.k:
        return
    expansion = {"in_channels": first.k, "expand_bias": first.bias, "expand_epilogue": first.epilogue}
    problem = as_kind(InvertedResidualProblem, second, **expansion)
    inputs = {**separable.fused.inputs, "input": expand.inputs["a"], "expand_weight": expand.inputs["b"]}
    if first.bias:
        inputs["expand_bias"] = expand.inputs["bias"]
    yield _group((expand, *separable.operations), "InvertedResidual", problem, inputs)


def _group(operations: tuple[Operation, ...], op: str, problem: object, inputs: Mapping[str, str]) -> FusionGroup:
    """Return the group whose fused operation has the name of the last one, which no other operation of a plan has."""
    nodes = tuple(node for operation in operations for node in operation.nodes)
    last = operations[-1]
    return FusionGroup(operations, Operation(last.name, Task(op, problem, 1), inputs, last.output, nodes))
