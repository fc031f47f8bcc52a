"""Decide which tensors of a plan are stored in float16, and convert between the types of floats.

An operation has one type of floats, for what it reads and what it writes, and computes in float32 in either case; in
mode float16, products of what is stored so may be multiplied in half. It stores float16 in modes that say so, except

* a node that you keep in float32, or that the model has in float32 next to others in float16;
* a sum, a product or a power that may become larger than float16 holds, up to 65504 (`_grows`), and whole numbers of
  more than a byte, of which float16 knows those up to 2048, unless the model has them in float16;
* an operation that reads a result of such operations, so that a norm or a quotient of sums is taken before it is
  rounded; but not products of matrices and convolutions, which are where the time and the bytes are, and not operations
  that read what was computed from such a result and other tensors.

A cast to float16 rounds in a step of its own, which is dropped where its input is stored in float16: by what reads it,
or by what computes it, if that reads float16 and nothing but such casts reads it.

An operation that reads the other type gets a copy, made by a cast, unless its family has kernels that read both;
constants are converted here. The model's inputs and outputs have the types that the model says, or that you ask for.

A plan stores floats in one type of HALVES at most. What is said of float16 here is said of each of these types. But
nothing becomes too large for a type that reaches as far as float32.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from gputune.client.model.graph import Array, Graph, Names
from gputune.client.model.plan import Operation, Plan, Task
from gputune.core.dtypes import ELEMENT_TYPES, FLOAT, FLOATS, HALF, HALVES, stored_in
from gputune.kernels.catalogue import family_of
from gputune.kernels.chain import Chain
from gputune.kernels.family import TensorSpec
from gputune.kernels.ops.elementwise import ElementwiseProblem
from gputune.kernels.ops.reduce import ReduceProblem
from gputune.kernels.ops.scan import ScanProblem
from gputune.kernels.ops.typed import TypedProblem

GROWING = frozenset(("square", "cube", "exp", "pow", "sinh", "cosh", "reciprocal", "tan"))
SHRINKING = frozenset(
    ("sigmoid", "hard_sigmoid", "tanh", "erf", "softsign", "sin", "cos", "atan", "log", "sqrt", "clip")
)
"""Steps after which a number may be much larger than before, and after which it is small again."""
GROWING_SUMS = frozenset(("sum", "prod", "l1", "sum_square"))


def in_precision(plan: Plan, graph: Graph) -> Plan:
    """Return the plan with its floats in the graph's precision."""
    mode = graph.precision.mode or graph.mode
    given = {spec.name: graph.stored(spec.name) for spec in (*plan.inputs, *plan.outputs)}
    if mode == FLOAT and not {*HALVES} & {*given.values()}:
        return plan
    return _Conversion(plan, graph, mode, given).plan()


class _Conversion:
    """Goes through the operations of a plan in order and knows the type in which each tensor is there."""

    def __init__(self, plan: Plan, graph: Graph, mode: str, given: Mapping[str, str]) -> None:
        self._plan, self._graph, self._given = plan, graph, given
        self._half = stored_in(mode)  # FLOAT if it stores none of HALVES
        self._factors = HALF if mode == HALF else FLOAT
        self._names = Names([*plan.tensors, *(spec.name for spec in (*plan.inputs, *plan.outputs))])
        self._stored = {spec.name: given[spec.name] for spec in plan.inputs}  # by the tensor whose memory it is
        self._exact = set[str]()  # tensors that stay in float32 on purpose
        self._copies: dict[tuple[str, str], str] = {}
        self._operations: list[Operation] = []
        self._tensors = dict(plan.tensors)
        self._aliases = dict(plan.aliases)
        self._constants = dict(plan.constants)
        self._holds = dict(plan.holds)
        self._only_rounded = _only_rounded(plan, self._half)

    def plan(self) -> Plan:
        plan, given = self._plan, self._given
        for operation in plan.operations:
            self._add(operation)
        self._tensors |= {name: self._typed(spec) for name, spec in self._tensors.items() if not spec.constant}
        read = {name for operation in self._operations for name in operation.inputs.values()}
        unread = plan.constants.keys() - read
        return replace(
            plan,
            inputs=tuple(replace(spec, dtype=given[spec.name]) for spec in plan.inputs),
            outputs=tuple(replace(spec, dtype=given[spec.name]) for spec in plan.outputs),
            operations=tuple(self._operations),
            tensors={name: spec for name, spec in self._tensors.items() if name not in unread},
            constants={name: value for name, value in self._constants.items() if name not in unread},
            aliases=self._aliases,
            holds=self._holds,
        )

    def _typed(self, spec: TensorSpec) -> TensorSpec:
        return replace(spec, dtype=self._stored.get(self._root(spec.name), spec.dtype))

    def _root(self, tensor: str) -> str:
        return self._aliases.get(tensor, tensor)

    def _add(self, operation: Operation) -> None:
        task, family = operation.task, family_of(operation.task.op)
        dtype = self._type_of(operation)
        if self._rounds_anyway(operation, dtype):
            if self._passes_on(operation, dtype):
                return
            task = _without_rounding(task)
        problem = family.of_floats(task.problem, dtype) if dtype in family.floats else task.problem
        if dtype != FLOAT and not self._is_kept(operation):
            problem = family.computing(problem, self._factors)
        roots = {name: self._root(tensor) for name, tensor in operation.inputs.items()}
        problem = family.reading(problem, {name: self._stored.get(root, dtype) for name, root in roots.items()})
        inputs = dict(operation.inputs)
        for spec in family.inputs(problem):
            if spec.dtype in FLOATS:
                inputs[spec.name] = self._in(inputs[spec.name], spec.dtype)
        result, converted = self._root(operation.output), family.output(problem).dtype
        if converted in FLOATS:
            self._stored[result] = converted
        self._operations.append(replace(operation, task=Task(task.op, problem, 1), inputs=inputs))
        if converted in FLOATS and self._given.get(result, converted) != converted:
            self._give(result, converted)

    def _rounds_anyway(self, operation: Operation, dtype: str) -> bool:
        """Return whether a cast to float16 with which an operation begins changes nothing, since it reads float16."""
        rounded = _rounded_first(operation)
        if not rounded or self._plan.is_constant(operation.inputs["input"]):
            return False
        return rounded in (dtype, self._stored[self._root(operation.inputs["input"])])

    def _passes_on(self, operation: Operation, dtype: str) -> bool:
        """Make the result of an operation that does nothing but round, which storing does, a view or a cast of what it
        reads. Return whether it could be one."""
        problem, source = operation.task.problem, operation.inputs["input"]
        output, wanted = self._root(operation.output), self._given.get(self._root(operation.output), dtype)
        if len(problem.chain.steps) > 1 or problem.input_shape != problem.shape:
            return False
        if output not in self._given:
            copy = self._root(self._in(source, dtype))
            self._aliases |= {view: copy for view, root in self._aliases.items() if root == output} | {output: copy}
        elif self._stored[self._root(source)] != wanted:
            self._stored[output] = wanted
            self._cast(source, operation.output, wanted)
        else:
            return False
        return True

    def _type_of(self, operation: Operation) -> str:
        """Return the type of an operation's floats; whether its results are exact on purpose is noted."""
        family, problem = family_of(operation.task.op), operation.task.problem
        read = [self._root(operation.inputs[each.name]) for each in family.inputs(problem) if each.dtype in FLOATS]
        computed = [name for name in read if not self._tensors[name].constant]
        if self._half != FLOAT and self._rounds_by_storing(operation, read):
            return self._half
        exact = self._is_kept(operation) or self._grows(operation) or self._is_of_numbers(operation)
        follows = not family.heavy and not _rounded_first(operation) and not self._exact.isdisjoint(computed)
        if family.output(problem).dtype not in FLOATS:  # as it is read
            exact = any(self._stored[name] == FLOAT for name in computed)
        elif exact or (follows and self._exact.issuperset(computed)):
            self._exact.add(self._root(operation.output))
        return FLOAT if exact or follows or self._half not in family.floats else self._half

    def _rounds_by_storing(self, operation: Operation, read: list[str]) -> bool:
        """Return whether only casts to float16 read what an operation computes, and it reads floats that float16 holds:
        then it may store what these casts make of it. read: the floats."""
        half, known = self._half, family_of(operation.task.op).floats
        if self._root(operation.output) not in self._only_rounded or half not in known:
            return False
        return all(
            _holds(half, self._constants[name]) if self._tensors[name].constant else self._stored[name] == half
            for name in read
        )

    def _is_kept(self, operation: Operation) -> bool:
        """Return whether you, or a model with float16, keep what an operation computes in float32."""
        graph, held = self._graph, self._plan.holds.get(operation.output)
        if not graph.precision.kept.isdisjoint(operation.nodes):
            return True
        if not graph.halves:
            return False
        if held is not None and (held.name in graph.halves or held.name in graph.like_halves):
            return False
        if held is not None and held.name in graph.named:
            return True
        return bool(operation.nodes) and graph.half_nodes.isdisjoint(operation.nodes)  # what a node is made of

    def _grows(self, operation: Operation) -> bool:
        """Return whether an operation's results may be too large for the type in which the plan stores floats."""
        return ELEMENT_TYPES[self._half].largest < ELEMENT_TYPES[FLOAT].largest / 2 and _grows(operation)

    def _is_of_numbers(self, operation: Operation) -> bool:
        """Return whether an operation makes floats of whole numbers that float16 does not hold, such as indices."""
        problem, held = operation.task.problem, self._plan.holds.get(operation.output)
        casts = isinstance(problem, TypedProblem) and problem.function == "cast"
        if not casts or (held is not None and held.name in self._graph.halves):
            return False
        known = ELEMENT_TYPES[problem.input_dtypes[0]]
        return not known.is_float and known.nbytes > 1

    def _in(self, tensor: str, dtype: str) -> str:
        """Return the tensor in a type: itself or a copy."""
        if self._tensors[tensor].constant:
            return tensor if dtype == FLOAT else self._constant(tensor, dtype)
        if self._stored[self._root(tensor)] == dtype:
            return tensor
        if (tensor, dtype) not in self._copies:
            copy = self._new(tensor, dtype)
            self._cast(tensor, copy, dtype)
            self._copies[tensor, dtype] = copy
        return self._copies[tensor, dtype]

    def _constant(self, tensor: str, dtype: str) -> str:
        """Return a constant in a type of HALVES. What is too large becomes the largest number, as such numbers stand
        for infinity in masks, where an infinity could become NaN."""
        if (tensor, dtype) not in self._copies:
            copy = self._names.free(f"{tensor}/{dtype}")
            value = self._constants[tensor]
            self._constants[copy] = shortened(value, dtype)
            self._tensors[copy] = replace(self._tensors[tensor], name=copy, dtype=dtype)
            self._copies[tensor, dtype] = copy
        return self._copies[tensor, dtype]

    def _give(self, output: str, dtype: str) -> None:
        """Has an output of the model, which was computed in another type, written by a cast."""
        computed = self._new(output, dtype)
        self._aliases.update({view: computed for view, root in self._aliases.items() if root == output})
        last = self._operations[-1]
        if last.output == output:
            self._operations[-1] = replace(last, output=computed)
        if output in self._exact:
            self._exact.add(computed)
        self._stored[output] = self._given[output]
        self._cast(computed, output, self._given[output])
        self._copies[output, dtype] = computed

    def _new(self, tensor: str, dtype: str) -> str:
        """Return a tensor like another one, in a type."""
        name = self._names.free(f"{tensor}/{dtype}")
        self._tensors[name] = replace(self._tensors[tensor], name=name, dtype=dtype)
        self._stored[name] = dtype
        if tensor in self._holds:
            self._holds[name] = self._holds[tensor]
        return name

    def _cast(self, source: str, target: str, dtype: str) -> None:
        shape, stored = self._tensors[source].shape, self._stored[self._root(source)]
        if FLOAT not in (stored, dtype):  # no kernel knows two types of HALVES
            source = self._in(source, FLOAT)
            stored = FLOAT
        problem = TypedProblem("cast", shape, (shape,), (stored,), dtype)
        self._operations.append(Operation(target, Task("Typed", problem, 1), {"input0": source}, target))


def _only_rounded(plan: Plan, dtype: str) -> set[str]:
    """Return the tensors that nothing but casts to a type reads."""
    rounded, others = set[str](), {spec.name for spec in plan.outputs}
    for operation in plan.operations:
        for name, tensor in operation.inputs.items():
            casts = name == "input" and _rounded_first(operation) == dtype
            (rounded if casts else others).add(plan.root(tensor))
    return rounded - others


def _rounded_first(operation: Operation) -> str:
    """Return the type to which an operation casts before its other steps; "" if it does not begin so."""
    problem: Any = operation.task.problem
    steps = problem.chain.steps if isinstance(problem, ElementwiseProblem) else ()
    return next((name for name in HALVES if steps and steps[0].function == ELEMENT_TYPES[name].rounding), "")


def _without_rounding(task: Task) -> Task:
    return replace(task, problem=replace(task.problem, chain=Chain(task.problem.chain.steps[1:])))


def _holds(dtype: str, value: Array) -> bool:
    """Return whether a type of floats holds all numbers of a value."""
    with np.errstate(over="ignore"):
        return np.array_equal(value.astype(dtype).astype(value.dtype), value, equal_nan=True)


def shortened(value: Array, dtype: str) -> Array:
    """Return floats in a shorter type: infinities stay, other numbers become at most the largest."""
    most = ELEMENT_TYPES[dtype].largest
    return np.where(np.isinf(value), value, np.clip(value, -most, most)).astype(dtype)


def _grows(operation: Operation) -> bool:
    """Return whether an operation's results may be much larger than what it reads."""
    problem: Any = operation.task.problem
    if isinstance(problem, ElementwiseProblem):
        return any(_growing(operation, problem))
    if isinstance(problem, ReduceProblem):
        return problem.kind in GROWING_SUMS
    return isinstance(problem, ScanProblem)


def _growing(operation: Operation, problem: ElementwiseProblem) -> Iterator[bool]:
    """Yield whether the last step that changes the size of numbers makes them larger, if there is such a step."""
    for step in reversed(problem.chain.steps):
        own = step.operand is not None and operation.inputs[f"operand{step.operand}"] == operation.inputs["input"]
        if step.function in GROWING or (step.function == "mul" and own):
            yield True
        if step.function in SHRINKING:
            return
