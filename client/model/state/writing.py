"""Write the nodes and weights of a new graph."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper

from gputune.client.model.graph import Array, Names

MOST_COMPARED = 1 << 20
"""The bytes of the largest weight that is looked up among those that are there."""


class Writing:
    """Collects nodes in the order in which they are written, and the weights that they read.

    length: the input of one int32 that says how many rows of the state there are."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._made: dict[Hashable, str] = {}
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, Array] = {}
        self.length = names.free("length")

    def op(self, kind: str, inputs: Sequence[str], output: str = "", **attributes: Any) -> str:
        """Write a node with one output, and return the name of that."""
        output = output or self._names.free(f"state/{kind}")
        self.nodes.append(helper.make_node(kind, inputs, [output], output, **attributes))
        return output

    def value(self, array: npt.ArrayLike, name: str = "") -> str:
        """Write a weight, and return its name: without a name of its own the same for equal ones."""
        value = np.asarray(array)
        if name or value.nbytes > MOST_COMPARED:
            name = name or self._names.free("state/value")
            self.weights[name] = value
            return name
        key = "weight", value.dtype.str, value.shape, value.tobytes()
        return self.once(key, lambda: self.value(value, self._names.free("state/value")))

    def once(self, key: Hashable, make: Callable[[], str]) -> str:
        """Return a tensor that is the same wherever it is needed, and write it the first time."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def rows(self, count: int, first: int = 0, behind: int = 0) -> str:
        """Return whole numbers from a first one on, with as many axes of size 1 behind them."""
        return self.value(np.arange(first, first + count, dtype=np.int32).reshape([-1] + [1] * behind))

    def single(self) -> str:
        """Return the length as a tensor without dimensions."""
        return self.once("single", lambda: self.op("Reshape", [self.length, self.value(np.empty(0, np.int64))]))

    def before(self, count: int, more: int, behind: int) -> str:
        """Return which of so many rows lie before the end of the length and more rows."""
        return self.once(
            ("before", count, more, behind), lambda: self.op("Less", [self.rows(count, -more, behind), self.length])
        )

    def shifted(self, count: int, by: int) -> str:
        """Return the numbers of rows, less the length, plus a number."""
        return self.once(("shifted", count, by), lambda: self.op("Sub", [self.rows(count, by), self.length]))

    def written(self, state: str, new: str, output: str, rows: int, tokens: int, axis: int, rank: int) -> str:
        """Write new rows over a state of so many rows behind its end. axis: of the rows, of so many axes."""
        behind = rank - 1 - axis
        if tokens == 1:
            numbers = self.rows(rows, 0, behind)
            here = self.once(("here", rows, behind), lambda: self.op("Equal", [numbers, self.length]))
            return self.op("Where", [here, new, state], output)
        inside = self.once(("inside", rows, tokens, behind), lambda: self._inside(rows, tokens, behind))
        return self.op(
            "Where", [inside, self.op("Gather", [new, self._source(rows, tokens)], axis=axis), state], output
        )

    def _inside(self, rows: int, tokens: int, behind: int) -> str:
        """Return which rows are written: those that are a new row, and not only near one."""
        found = self.op("Equal", [self.shifted(rows, 0), self._source(rows, tokens)])
        return self.op("Reshape", [found, self.value(np.array([rows] + [1] * behind))])

    def _source(self, rows: int, tokens: int) -> str:
        """Return which of the new rows each row is, the nearest one for those that are not written."""
        nearest = np.clip(np.arange(-rows, rows, dtype=np.int32), 0, tokens - 1)
        return self.once(
            ("source", rows, tokens),
            lambda: self.op("Gather", [self.value(nearest), self.shifted(rows, rows)], axis=0),
        )
