"""Write the nodes and weights of a new graph."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper

from gputune.client.model.graph import Array, Names


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
        """Write a weight, and return its name."""
        name = name or self._names.free("state/value")
        self.weights[name] = np.asarray(array)
        return name

    def once(self, key: Hashable, make: Callable[[], str]) -> str:
        """Return a tensor that is the same wherever it is needed, and write it the first time."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def whole(self, number: int) -> str:
        """Return a number as a weight of shape [1]."""
        return self.once(("number", number), lambda: self.value(np.array([number], np.int32)))

    def rows(self, count: int, behind: int = 0) -> str:
        """Return the numbers of rows, with as many axes of size 1 behind them."""
        shape = [-1] + [1] * behind
        return self.once(("rows", count, behind), lambda: self.value(np.arange(count, dtype=np.int32).reshape(shape)))

    def single(self) -> str:
        """Return the length as a tensor without dimensions."""
        return self.once("single", lambda: self.op("Reshape", [self.length, self.value(np.empty(0, np.int64))]))

    def end(self, more: int) -> str:
        """Return the length and more rows."""
        if not more:
            return self.length
        return self.once(("end", more), lambda: self.op("Add", [self.length, self.whole(more)]))

    def before(self, count: int, more: int, behind: int) -> str:
        """Return which of so many rows lie before the end of the length and more rows."""
        return self.once(
            ("before", count, more, behind), lambda: self.op("Less", [self.rows(count, behind), self.end(more)])
        )

    def shifted(self, count: int, by: int) -> str:
        """Return the numbers of rows, less the length, plus a number: 0 for what lies that far before the end."""
        return self.once(
            ("shifted", count, by),
            lambda: self.op("Sub", [self.value(np.arange(by, count + by, dtype=np.int32)), self.length]),
        )

    def written(self, state: str, new: str, output: str, rows: int, tokens: int, axis: int, rank: int) -> str:
        """Write new rows over a state of so many rows behind its end. axis: of the rows, of so many axes."""
        behind = rank - 1 - axis
        if tokens == 1:
            here = self.once(("here", rows, behind), lambda: self.op("Equal", [self.rows(rows, behind), self.length]))
            return self.op("Where", [here, new, state], output)
        inside = self.once(("inside", rows, tokens, behind), lambda: self._inside(rows, tokens, behind))
        source = self.once(("source", rows, tokens), lambda: self._source(rows, tokens))
        return self.op("Where", [inside, self.op("Gather", [new, source], axis=axis), state], output)

    def _inside(self, rows: int, tokens: int, behind: int) -> str:
        """Return which rows are written."""
        older = self.before(rows, 0, behind)
        return self.op("And", [self.op("Not", [older]), self.before(rows, tokens, behind)])

    def _source(self, rows: int, tokens: int) -> str:
        """Return which of the new rows each row is, the nearest one for those that are not written."""
        nearest = np.clip(np.arange(-rows, rows, dtype=np.int32), 0, tokens - 1)
        return self.op("Gather", [self.value(nearest), self.shifted(rows, rows)], axis=0)
