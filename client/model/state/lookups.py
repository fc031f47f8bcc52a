"""Turn what shapes decide into constants, and into rows of tables where it depends on the length.

The forms are tried in this order: a constant of which shorter ones are the beginnings, as a causal mask is for one
token; whole numbers that rise by the same step at each length; one row, of which each length takes a shifted part, as
for what depends on the distance of two positions; a window over a table, as for the rows of the next positions; and a
table with an entry for each length.
"""

import logging
from collections.abc import Collection, Mapping

import numpy as np

from gputune.client.errors import ModelError
from gputune.client.model.graph import Array
from gputune.client.model.state.by_length import ByLength
from gputune.client.model.state.growing import Growing
from gputune.client.model.state.writing import Writing

log = logging.getLogger(__name__)

ALL_BYTES = 1 << 28
"""What is computed for all lengths takes at most so much together; of more, samples are looked at."""
SAMPLES = 12
"""Lengths that are looked at then, the first and the last ones among them."""
TABLE_BYTES = 1 << 28
"""The largest table."""


class Lookups:
    """Writes the values of constants that depend on the length into a graph."""

    def __init__(self, growing: Growing, by_length: ByLength, names: Collection[str], writing: Writing) -> None:
        self._growing, self._by_length, self._writing = growing, by_length, writing
        lengths = self._lengths(by_length.nbytes(names))
        found = {past: by_length.at(names, past) for past in lengths}
        self._values = {name: {past: found[past][name] for past in lengths} for name in names}
        self._read: list[tuple[Mapping[int, Array], str]] = []

    def _lengths(self, nbytes: int) -> list[int]:
        first, last = self._growing.first, self._growing.longest
        every = range(first, last + 1)
        if nbytes * len(every) <= ALL_BYTES or len(every) <= SAMPLES:
            return list(every)
        between = np.linspace(first, last, SAMPLES - 4).astype(int).tolist()
        return sorted({*between, first, first + 1, first + 2, last - 1, last})

    def values(self, name: str) -> Mapping[int, Array]:
        """Return what a constant is at the lengths that were looked at."""
        return self._values[name]

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
        self._read.append((values, self.written(values, name)))
        return self._read[-1][1]

    def written(self, values: Mapping[int, Array], name: str) -> str:
        """Write a tensor that has these values at the lengths that were looked at. name: what computes them."""
        last = values[self._growing.longest]
        forms = (self._constant, self._rising, self._shifted, self._window)
        found = next(filter(None, (form(values, last) for form in forms)), "")
        return found or self._table(name, last)

    def _constant(self, values: Mapping[int, Array], last: Array) -> str:
        return self._writing.value(last) if all(_begins(value, last) for value in values.values()) else ""

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

    def _window(self, values: Mapping[int, Array], last: Array) -> str:
        """Write what is, at each length, the next rows of one table."""
        if len(values) <= self._growing.longest - self._growing.first or any(
            value.shape != last.shape for value in values.values()
        ):
            return ""
        for axis in (axis for axis, size in enumerate(last.shape) if size > 1):
            lengths = sorted(values)
            rows = {past: np.moveaxis(values[past], axis, 0) for past in lengths}
            if all(np.array_equal(rows[past][1:], rows[past + 1][:-1]) for past in lengths[:-1]):
                table = np.concatenate([*(rows[past][:1] for past in lengths[:-1]), rows[lengths[-1]]])
                table = np.concatenate([np.zeros((self._growing.first, *table.shape[1:]), table.dtype), table])
                index = self._writing.op("Add", [self._writing.rows(last.shape[axis]), self._writing.length])
                return self._writing.op("Gather", [self._writing.value(np.moveaxis(table, 0, axis)), index], axis=axis)
        return ""

    def _table(self, name: str, last: Array) -> str:
        """Write an entry for each length."""
        count = self._growing.longest + 1
        if last.nbytes * count > TABLE_BYTES:
            raise ModelError(
                f"--state: {name!r} of model {self._growing.imported.path} depends on the length in a way for which "
                f"a table would take {last.nbytes * count} bytes; {TABLE_BYTES} are allowed, so take a smaller "
                "capacity"
            )
        table = np.zeros((count, *last.shape), last.dtype)
        for past in range(self._growing.first, count):
            value = self._values[name].get(past)
            value = self._by_length.at([name], past)[name] if value is None else value
            table[past][tuple(map(slice, value.shape))] = value
        log.debug(f"--state: {name!r} becomes a table of {table.nbytes} bytes")
        return self._writing.op("Gather", [self._writing.value(table), self._writing.single()], axis=0)


def _begins(value: Array, last: Array) -> bool:
    """Return whether a value is the beginning of the longest one along all axes."""
    return value.ndim == last.ndim and np.array_equal(value, last[tuple(map(slice, value.shape))], equal_nan=False)


def _ends(value: Array, last: Array, axis: int) -> bool:
    """Return whether a value is the end of the longest one along an axis."""
    return np.array_equal(value, np.take(last, range(last.shape[axis] - value.shape[axis], last.shape[axis]), axis))


def _type(value: Array) -> int:
    from onnx import helper

    return int(helper.np_dtype_to_tensor_dtype(value.dtype))
