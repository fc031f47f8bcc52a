"""Turn what shapes decide into constants, and into rows of tables where it depends on the length.

The forms are tried in this order: a constant of which shorter ones are the beginnings, as a causal mask is for one
token; whole numbers that rise by the same step at each length; one row, of which each length takes a shifted part, as
for what depends on the distance of two positions; a window over a table, as for the rows of the next positions; and a
table with an entry for each length.
"""

import logging
from collections.abc import Callable, Collection, Mapping

import numpy as np

from gputune.client.errors import ModelError
from gputune.client.model.graph import Array
from gputune.client.model.state.by_length import ByLength, begins
from gputune.client.model.state.growing import Growing
from gputune.client.model.state.writing import Writing

log = logging.getLogger(__name__)

ALL_BYTES, ALL_NODES = 1 << 28, 20_000
"""What is computed for all lengths takes at most so much together; of more, samples are looked at."""
SAMPLES = 24
"""Lengths that are looked at then, the first and the last ones among them."""
TABLE_BYTES = 1 << 28
"""The largest table."""

Computed = Callable[[int], Array]
"""Return a value at a length."""


class Lookups:
    """Writes values that depend on the length into a graph. lengths: those that are looked at."""

    def __init__(self, growing: Growing, by_length: ByLength, names: Collection[str], writing: Writing) -> None:
        """names: of constants that are read."""
        self._growing, self._by_length, self._writing = growing, by_length, writing
        self.lengths = self._lengths(*by_length.work(names))
        found = {past: by_length.at(names, past) for past in self.lengths}
        self._values = {name: {past: found[past][name] for past in self.lengths} for name in names}
        self._read: list[tuple[Mapping[int, Array], str]] = []

    def _lengths(self, nodes: int, nbytes: int) -> list[int]:
        first, last = self._growing.first, self._growing.longest
        count = last - first + 1
        if count <= SAMPLES or (nbytes * count <= ALL_BYTES and nodes * count <= ALL_NODES):
            return list(range(first, last + 1))
        between = np.linspace(first, last, SAMPLES - 4).astype(int).tolist()
        return sorted({*between, first, first + 1, first + 2, last - 1, last})

    def at(self, name: str, past: int) -> Array:
        """Return what a constant is at a length."""
        found = self._values[name].get(past)
        return self._by_length.at([name], past)[name] if found is None else found

    def same(self, name: str) -> Array | None:
        """Return what a constant is at all lengths; None if it depends on them."""
        last = self.last(name)
        return last if all(np.array_equal(value, last) for value in self._values[name].values()) else None

    def last(self, name: str) -> Array:
        """Return what a constant is at the longest past."""
        return self._values[name][self._growing.longest]

    def read(self, name: str) -> str:
        """Return the tensor in the new graph that has the value at the length."""
        values = self._values[name]
        for others, tensor in self._read:  # each layer may have its own of a mask
            if all(np.array_equal(value, others[past]) for past, value in values.items()):
                return tensor
        self._read.append((values, self.written(name, lambda past: self.at(name, past))))
        return self._read[-1][1]

    def written(self, what: str, computed: Computed) -> str:
        """Write a tensor that has a value at each length. what: how messages call it."""
        values = {past: computed(past) for past in self.lengths}
        last = values[self._growing.longest]
        forms = (self._constant, self._rising, self._shifted)
        found = next(filter(None, (form(values, last) for form in forms)), "")
        return found or self._window(values, last, computed) or self._table(what, last, computed)

    def _constant(self, values: Mapping[int, Array], last: Array) -> str:
        return self._writing.value(last) if all(begins(value, last) for value in values.values()) else ""

    def _rising(self, values: Mapping[int, Array], last: Array) -> str:
        """Write whole numbers that rise by the same step at each length."""
        if last.dtype.kind not in "iu" or any(value.shape != last.shape for value in values.values()):
            return ""
        low, high = min(values), max(values)
        steps, rest = np.divmod(values[high] - values[low], max(high - low, 1))
        start = values[low] - steps * low
        if rest.any() or not all(np.array_equal(start + steps * past, value) for past, value in values.items()):
            return ""
        writing = self._writing
        length = writing.once(
            ("length as", last.dtype.name), lambda: writing.op("Cast", [writing.single()], to=_type(last))
        )
        risen = length if (steps == 1).all() else writing.op("Mul", [length, writing.value(steps)])
        return writing.op("Add", [risen, writing.value(start)])

    def _shifted(self, values: Mapping[int, Array], last: Array) -> str:
        """Write what depends on the distance from the end: all values are the ends of the longest one."""
        axes = [axis for axis, size in enumerate(last.shape) if any(size != v.shape[axis] for v in values.values())]
        if len(axes) != 1 or not all(_ends(value, last, axes[0]) for value in values.values()):
            return ""
        axis, longest = axes[0], self._growing.longest
        pads = [(0, longest if each == axis else 0) for each in range(last.ndim)]
        row = self._writing.value(np.pad(last, pads))
        return self._writing.op("Gather", [row, self._writing.shifted(last.shape[axis], longest)], axis=axis)

    def _window(self, values: Mapping[int, Array], last: Array, computed: Computed) -> str:
        """Write what is, at each length, the next rows of one table."""
        if any(value.shape != last.shape for value in values.values()):
            return ""
        pairs = [(past, past + 1) for past in values if past + 1 in values]
        for axis in (axis for axis, size in enumerate(last.shape) if size > 1):
            rows = {past: np.moveaxis(value, axis, 0) for past, value in values.items()}
            if all(np.array_equal(rows[one][1:], rows[other][:-1]) for one, other in pairs):
                table = self._joined(axis, last.shape[axis], computed)
                if all(np.array_equal(table[past : past + len(each)], each) for past, each in rows.items()):
                    index = self._writing.op("Add", [self._writing.rows(last.shape[axis]), self._writing.length])
                    weight = self._writing.value(np.moveaxis(table, 0, axis))
                    return self._writing.op("Gather", [weight, index], axis=axis)
        return ""

    def _joined(self, axis: int, size: int, computed: Computed) -> Array:
        """Return all rows of windows of a size, with the axis in front."""
        last = self._growing.longest
        parts = {past: np.moveaxis(computed(past), axis, 0) for past in (*range(self._growing.first, last, size), last)}
        table = np.zeros((last + size, *parts[last].shape[1:]), parts[last].dtype)
        for past, rows in parts.items():
            table[past : past + size] = rows
        return table

    def _table(self, what: str, last: Array, computed: Computed) -> str:
        """Write an entry for each length."""
        count = self._growing.longest + 1
        if last.nbytes * count > TABLE_BYTES:
            raise ModelError(
                f"--state: {what!r} of model {self._growing.imported.path} depends on the length in a way for which "
                f"a table would take {last.nbytes * count} bytes; {TABLE_BYTES} are allowed, so take a smaller "
                "capacity"
            )
        table = np.zeros((count, *last.shape), last.dtype)
        for past in range(self._growing.first, count):
            value = computed(past)
            table[past][tuple(map(slice, value.shape))] = value
        log.debug(f"--state: {what!r} becomes a table of {table.nbytes} bytes")
        return self._writing.op("Gather", [self._writing.value(table), self._writing.single()], axis=0)


def _ends(value: Array, last: Array, axis: int) -> bool:
    """Return whether a value is the end of the longest one along an axis."""
    return np.array_equal(value, np.take(last, range(last.shape[axis] - value.shape[axis], last.shape[axis]), axis))


def _type(value: Array) -> int:
    from onnx import helper

    return int(helper.np_dtype_to_tensor_dtype(value.dtype))
