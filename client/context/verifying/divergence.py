"""Find the first operation of a context that goes wrong, on the target, in the launches that ship.

Tensors are compared in the order in which operations write them, in windows of a limited number of bytes. Each window
takes one inference on the target and one in onnxruntime, so that models of any size can be checked.

If a tensor is not in the model, it is compared when a later tensor differs. The reference is what numpy computes from
the inputs that its operation had. This separates an operation that fails from an operation that spoils its inputs, and
a wrong kernel from a kernel that was given the wrong problem.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from gputune.client.context.verifying.captures import Capture, Captures, array_of, windows
from gputune.client.context.verifying.distance import allowed_for, distance, in_words
from gputune.client.context.verifying.part_oracle import PartOracle
from gputune.client.model.graph import Array
from gputune.client.model.lowering.layouts import TO_DEVICE
from gputune.client.model.lowering.precision import shortened
from gputune.client.model.oracle import Oracle
from gputune.client.model.plan import Plan
from gputune.client.model.reference import result_of
from gputune.core.dtypes import HALVES, is_float
from gputune.kernels.catalogue import family_of
from gputune.runtime.context.records import BufferRef

WINDOW_BYTES = 256 << 20
"""Of a window's tensors, which are held as the target has them and as onnxruntime does; a larger tensor comes alone."""
WINDOW_TENSORS = 512
"""Of a window: half of what a target returns in one message."""

Cause = Literal["kernel", "problem", "overwritten"]


@dataclass(frozen=True)
class Finding:
    """operation: the first that differs, by its place in the plan. tensor: as the model calls what it writes, or the
    device tensor. words: how far off it is, and where. agreeing: how many tensors before it are as they should be.

    cause: "kernel", where numpy computes something else from the inputs that the operation had; "problem", where it
    computes the same; "overwritten", where the input `spoilt` was changed by the operation `culprit` after it had been
    computed."""

    operation: int
    tensor: str
    words: str
    agreeing: int
    cause: Cause
    spoilt: str = ""
    culprit: int = -1


class Divergence:
    """Looks through one graph of a context."""

    def __init__(self, plan: Plan, captures: Captures, oracle: Oracle | PartOracle) -> None:
        self._plan = plan
        self._captures = captures
        self._oracle = oracle
        self._agreeing: set[int] = set()
        self._in_model = _in_model(plan, oracle.names)
        self._allowed = allowed_for(plan.coarsest)

    def first(self, inputs: Mapping[str, Array]) -> Finding | None:
        """Return the first operation that goes wrong on these inputs; None where every tensor that the model has is
        right. Raises TargetError, ContextError, ConfigError."""
        known = list(self._in_model)
        sizes = [self._plan.tensors[self._in_model[place]].nbytes for place in known]
        for window in windows(sizes, WINDOW_BYTES, WINDOW_TENSORS):
            for place, got, want in self._compared([known[index] for index in window], inputs):
                name = self._plan.holds[self._in_model[place]].name
                step = self._plan.steps.get(name, 0.0)
                if distance(got, want, step) > self._allowed:
                    return self._explained(place, name, in_words(got, want, self._allowed, step), inputs)
                self._agreeing.add(place)
        return None

    def _compared(self, places: Sequence[int], inputs: Mapping[str, Array]) -> Iterator[tuple[int, Array, Array]]:
        """Yield what these operations wrote and what is right, in the model's order."""
        plan = self._plan
        want = self._oracle.tensors([plan.holds[self._in_model[place]].name for place in places], inputs)
        read = self._captures.read([self._output(place) for place in places], inputs)
        for place, content in zip(places, read, strict=True):
            held, spec = plan.holds[self._in_model[place]], plan.tensors[self._in_model[place]]
            right = want[held.name]
            maps = held.on_device and right.ndim == len(TO_DEVICE)
            shape = tuple(right.shape[axis] for axis in TO_DEVICE) if maps else right.shape
            if shape != spec.shape or (right.dtype != spec.dtype and not is_float(right.dtype.name)):
                continue  # a pass has made another tensor of it
            if spec.dtype in HALVES and right.dtype.name != spec.dtype:
                right = shortened(right, spec.dtype)  # a mask's most negative number is that of its type
            got = array_of(content, spec.dtype, spec.shape)
            yield place, got.transpose(np.argsort(TO_DEVICE)) if maps else got, right

    def _explained(self, place: int, tensor: str, words: str, inputs: Mapping[str, Array]) -> Finding:
        """Return which operation is to blame for a tensor: the one that writes it, one of those before it whose tensors
        the model does not have, or one that has written where it should not."""
        agreeing = len(self._agreeing)
        for suspect in (*sorted(self._uncompared_before(place)), place):
            operands = self._operands(suspect, inputs)
            for name, each in operands.inputs.items():
                if not np.array_equal(each.when_made, each.when_used):
                    culprit = self._culprit(self._ref(suspect, name), each, suspect, inputs)
                    spoilt = self._plan.operations[suspect].inputs[name]
                    return Finding(place, tensor, words, agreeing, "overwritten", spoilt, culprit)
            right = result_of(self._plan.operations[suspect], self._values(suspect, operands))
            got = array_of(operands.output, right.dtype.name, right.shape)
            if distance(got, right) > self._allowed:
                if suspect != place:
                    tensor, words = self._plan.operations[suspect].output, in_words(got, right, self._allowed)
                return Finding(suspect, tensor, words, agreeing, "kernel")
        return Finding(place, tensor, words, agreeing, "problem")

    def _uncompared_before(self, place: int) -> Collection[int]:
        """Return the operations from which the inputs of one come, as far back as the first that were compared."""
        found: set[int] = set()
        left = [place]
        while left:
            reader = left.pop()
            for tensor in self._plan.operations[reader].inputs.values():
                made = self._made(tensor, reader) - 1
                if made >= 0 and made not in self._agreeing and made not in found:
                    found.add(made)
                    left.append(made)
        return found

    def _operands(self, place: int, inputs: Mapping[str, Array]) -> _Operands:
        operation = self._plan.operations[place]
        made = {
            name: self._made(tensor, place)
            for name, tensor in operation.inputs.items()
            if not self._plan.is_constant(tensor)
        }
        wanted = [Capture(after, self._ref(place, name)) for name, own in made.items() for after in (own, place)]
        *read, output = self._captures.read([*wanted, self._output(place)], inputs)
        rows = zip(made.items(), read[::2], read[1::2], strict=True)
        return _Operands({name: _Input(after, before, used) for (name, after), before, used in rows}, output)

    def _values(self, place: int, operands: _Operands) -> dict[str, Array]:
        """Return the inputs of an operation as it had them."""
        operation = self._plan.operations[place]
        specs = family_of(operation.task.op).inputs(operation.task.problem)
        return {
            spec.name: array_of(operands.inputs[spec.name].when_used, spec.dtype, spec.shape)
            if spec.name in operands.inputs
            else self._plan.constants[operation.inputs[spec.name]]
            for spec in specs
        }

    def _culprit(self, ref: BufferRef, made: _Input, used: int, inputs: Mapping[str, Array]) -> int:
        """Return the operation behind which an input of the operation `used` is not any more what it was, by halves."""
        intact, changed = made.after, used
        while changed - intact > 1:
            middle = (intact + changed) // 2
            (found,) = self._captures.read([Capture(middle, ref)], inputs)
            intact, changed = (middle, changed) if np.array_equal(found, made.when_made) else (intact, middle)
        return changed - 1

    def _made(self, tensor: str, place: int) -> int:
        """After how many operations a tensor is there that an operation reads: none for an input."""
        plan, root = self._plan, self._plan.root(tensor)
        writers = (k for k in range(place - 1, -1, -1) if plan.root(plan.operations[k].output) == root)
        return next(writers, -1) + 1

    def _output(self, place: int) -> Capture:
        return Capture(place + 1, self._ref(place, "output"))

    def _ref(self, place: int, name: str) -> BufferRef:
        return self._captures.place(place).refs[name]


@dataclass(frozen=True)
class _Input:
    """The bytes of an operation's input: when it was made, after so many operations, and when the operation used it."""

    after: int
    when_made: Array
    when_used: Array


@dataclass(frozen=True)
class _Operands:
    """An operation's inputs by the kernel's names for them, without constants, and the bytes of its output."""

    inputs: Mapping[str, _Input]
    output: Array


def _in_model(plan: Plan, names: Collection[str]) -> dict[int, str]:
    """By an operation's place, the device tensor as which the model has what it writes: its output, or a view of it."""
    views: dict[str, list[str]] = {}
    for tensor in plan.holds:
        if plan.holds[tensor].name in names:
            views.setdefault(plan.root(tensor), []).append(tensor)
    found: dict[int, str] = {}
    for place, operation in enumerate(plan.operations):
        there = views.get(plan.root(operation.output), [])
        if there:
            found[place] = operation.output if operation.output in there else there[0]
    return found
