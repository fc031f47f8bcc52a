"""Compute at any length of the past what shapes alone decide."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property

import numpy as np

from gputune.client.errors import ModelError
from gputune.client.model.graph import Array
from gputune.client.model.importer import Visited, folded
from gputune.client.model.importer.shape_inputs import OF_SHAPES
from gputune.client.model.state.growing import Growing

MANY = 1 << 30
"""Stands for the nodes of an import."""


class ByLength:
    """Knows the constants of the model at its longest past that are others at other lengths."""

    def __init__(self, growing: Growing) -> None:
        self._growing = growing
        self._tensors = growing.imported.tensors
        self._constants = growing.imported.constants
        self._given = {name: value for name, value in self._inputs().items() if growing.axes(name)}
        self._steps: list[Visited] = []
        self._written: dict[int, dict[str, Array]] = {}  # in functions, by the length
        self.names = set(self._given) | growing.written
        for step in growing.imported.trace:
            if step.known and not growing.written.intersection(step.node.output) and self._follows(step):
                self._steps.append(step)
                self.names.update(filter(None, step.node.output))

    def at(self, names: Collection[str], past: int) -> dict[str, Array]:
        """Return the values of some of these constants at a length."""
        shape = self._growing.shape
        found = {name: np.full(shape(name, past), value.flat[0]) for name, value in self._given.items()}
        steps = self._needed(names)
        if self._growing.written & self._read(names):
            found |= self._in_functions(past)
        for step in steps:
            found.update(folded(step.node, self._feeds(step, found, past), step.opset))
        return {name: found[name] for name in names}

    def work(self, names: Collection[str]) -> tuple[int, int]:
        """Return how many nodes compute some of them, and the bytes of all results at the longest past."""
        steps = self._needed(names)
        if any(name not in self._forms for name in self._growing.written & self._read(names)):
            return MANY, 0
        return len(steps), sum(self._constants[name].nbytes for step in steps for name in step.node.output if name)

    def _read(self, names: Collection[str]) -> set[str]:
        """Return these names, and all that is read to compute them."""
        return {*names, *(name for step in self._needed(names) for name in step.node.input)}

    def _in_functions(self, past: int) -> dict[str, Array]:
        """Return the constants in functions at a length. Raises ModelError."""
        if len(self._forms) == len(self._growing.written):
            return {name: form(past) for name, form in self._forms.items()}
        return self._imported(past)

    def _imported(self, past: int) -> dict[str, Array]:
        """Return the constants in functions at a length, for which the model is imported. Raises ModelError."""
        if past not in self._written:
            constants = self._growing.importing(past).constants
            if missing := self._growing.written - constants.keys():
                raise ModelError(
                    f"--state: {min(missing)!r} of model {self._path} is not there with a past of {past} rows"
                )
            self._written[past] = {name: constants[name] for name in self._growing.written}
        return self._written[past]

    @cached_property
    def _forms(self) -> Mapping[str, Callable[[int], Array]]:
        """How constants in functions follow from the length: whole numbers that rise by the same step, such as sizes,
        or the beginning of the longest one, such as numbers of rows. Others are left out."""
        first, longest = self._growing.first, self._growing.longest
        places = sorted({first, first + 1, (first + longest) // 2, longest - 1, longest})
        self._written[longest] = {name: self._constants[name] for name in self._growing.written}
        found = {past: self._imported(past) for past in places}
        forms = {}
        for name in self._growing.written:
            form = _form({past: found[past][name] for past in places})
            if form is not None:
                forms[name] = form
        return forms

    def _follows(self, step: Visited) -> bool:
        """Return whether the results of a node depend on the length."""
        if step.node.op_type in OF_SHAPES:
            return bool(self._growing.axes(step.node.input[0]))
        return any(name in self.names for name in step.node.input)

    def _needed(self, names: Collection[str]) -> Sequence[Visited]:
        wanted, steps = set(names), list[Visited]()
        for step in reversed(self._steps):
            if wanted.intersection(step.node.output):
                steps.append(step)
                wanted.update([] if step.node.op_type in OF_SHAPES else step.node.input)
        return steps[::-1]

    def _feeds(self, step: Visited, found: Mapping[str, Array], past: int) -> dict[str, Array]:
        """Return what a node reads: of that whose shape matters only, a stand-in that takes no memory."""
        if step.node.op_type in OF_SHAPES:
            name = step.node.input[0]
            single = np.zeros((), self._tensors[name].dtype)
            return {name: np.broadcast_to(single, self._growing.shape(name, past))}
        return {name: found[name] if name in found else self._constants[name] for name in step.node.input if name}

    def _inputs(self) -> Mapping[str, Array]:
        """Return the inputs that have a value. Raises ModelError for one that grows and is not the same everywhere."""
        given = self._growing.imported.graph.constant_inputs
        for name, value in given.items():
            if self._growing.axes(name) and (value != value.flat[0]).any():
                raise ModelError(
                    f"--state: input {name!r} of model {self._path} grows with the past; give it a single number"
                )
        return given

    @cached_property
    def _path(self) -> str:
        return str(self._growing.imported.path)


def begins(value: Array, last: Array) -> bool:
    """Return whether a value is the beginning of the longest one along all axes."""
    return value.ndim == last.ndim and np.array_equal(value, last[tuple(map(slice, value.shape))], equal_nan=False)


def _form(values: Mapping[int, Array]) -> Callable[[int], Array] | None:
    """Return what a constant is at any length, by its values at some; None if it is neither of the forms."""
    low, high = min(values), max(values)
    start, last = values[low], values[high]
    slopes = [(size - own) // (high - low) for size, own in zip(last.shape, start.shape, strict=True)]

    def beginning(past: int) -> Array:
        return last[tuple(slice(size - slope * (high - past)) for size, slope in zip(last.shape, slopes, strict=True))]

    def rising(past: int) -> Array:
        return np.asarray(start + (last - start) // (high - low) * (past - low))

    forms = [beginning, rising] if last.dtype.kind in "iu" and start.shape == last.shape else [beginning]
    right = (form for form in forms if all(np.array_equal(form(past), value) for past, value in values.items()))
    return next(right, None)
