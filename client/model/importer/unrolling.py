"""Write the rounds of a Loop or a Scan one behind the other, if their number follows from shapes and constants.

Rounds are handed out one at a time: whether a Loop goes on is read from what the graph builder has folded of its last
round. Names that a round defines get the node's name in front, and a number if another round has them.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import GraphProto, NodeProto, helper, numpy_helper

from gputune.client.model.graph import Array, Names, TensorInfo
from gputune.client.model.importer.inlining import label_of, renamed
from gputune.kernels.indexing.moving import MOST_PARTS

MOST_ROUNDS = 1024
LOOPS = frozenset(("Loop", "Scan"))
OLDEST_SCAN = 9
"""The operator set since which a Scan has no axis of batches of its own."""


class NotUnrolled(Exception):
    """A loop cannot be written as its rounds; says why."""


class Unrolling:
    """Writes a loop in an operator set. constants, tensors: what the builder knows, which grows with each round."""

    def __init__(
        self,
        node: NodeProto,
        opset: int,
        constants: Mapping[str, Array],
        tensors: Mapping[str, TensorInfo],
        taken: Names,
    ) -> None:
        self._node, self._opset, self._constants, self._tensors, self._taken = node, opset, constants, tensors, taken
        self._attributes: dict[str, Any] = {item.name: helper.get_attribute_value(item) for item in node.attribute}
        self._body: GraphProto = self._attributes["body"]
        self._rest: list[NodeProto] = []
        self._names: dict[str, str] = {}  # of what all rounds share
        self._label = label_of(node)

    def nodes(self) -> Iterator[NodeProto]:
        """Yield the nodes of all rounds, each behind those that it reads. Raises NotUnrolled."""
        yield from self._shared()
        yield from self._loop() if self._node.op_type == "Loop" else self._scan()

    def _shared(self) -> Iterator[NodeProto]:
        """Yield the constants of the body once, so that rounds share weights."""
        made = [helper.make_node("Constant", [], [item.name], value=item) for item in self._body.initializer]
        for node in (*made, *self._body.node):
            if node.op_type != "Constant" or node.domain:
                self._rest.append(node)
                continue
            copy = NodeProto()
            copy.CopyFrom(node)
            copy.output[0] = self._names[node.output[0]] = self._name(node.output[0])
            yield copy

    def _loop(self) -> Iterator[NodeProto]:
        most, going = (self._number(place) for place in range(2))
        states, kept = list(self._node.input[2:]), [list[str]() for _ in self._body.output[len(self._node.input) - 1 :]]
        condition, count = self._node.input[1] if len(self._node.input) > 1 else "", 0
        while going != 0 and (most is None or count < most):
            self._check(count)
            number, constant = self._constant("round", np.array(count, np.int64))
            yield constant
            if not condition:
                condition, constant = self._constant("going", np.array(True))
                yield constant
            results = yield from self._round([number, condition, *states])
            condition, count = results[0], count + 1
            if condition not in self._constants:
                raise NotUnrolled("whether it goes on follows from data")
            going = int(self._constants[condition].all())
            states = results[1 : 1 + len(states)]
            for values, result in zip(kept, results[1 + len(states) :], strict=True):
                values.append(result)
        yield from self._results(states, kept, [0] * len(kept), [0] * len(kept))

    def _scan(self) -> Iterator[NodeProto]:
        if self._opset < OLDEST_SCAN:
            raise NotUnrolled(
                f"a Scan of operator set {self._opset} has batches; {OLDEST_SCAN} is the oldest supported"
            )
        scanned = int(self._attributes["num_scan_inputs"])
        first = len(self._node.input) - scanned
        states, inputs = list(self._node.input[:first]), self._node.input[first:]
        count_kept = len(self._body.output) - first
        kept: list[list[str]] = [[] for _ in range(count_kept)]
        axes, turned = self._each("scan_input_axes", scanned), self._each("scan_input_directions", scanned)
        axes = [axis % len(self._tensors[name].shape) for axis, name in zip(axes, inputs, strict=True)]
        rounds = self._tensors[inputs[0]].shape[axes[0]]
        for count in range(rounds):
            self._check(count)
            parts = []
            for name, axis, back in zip(inputs, axes, turned, strict=True):
                number, constant = self._constant("place", np.array(rounds - 1 - count if back else count))
                parts.append(self._name(name))
                yield constant
                yield helper.make_node("Gather", [name, number], parts[-1:], parts[-1], axis=axis)
            results = yield from self._round([*states, *parts])
            states = results[:first]
            for values, result in zip(kept, results[first:], strict=True):
                values.append(result)
        output_axes, output_back = (self._each(f"scan_output_{name}", count_kept) for name in ("axes", "directions"))
        yield from self._results(states, kept, output_axes, output_back)

    def _round(self, given: Sequence[str]) -> Generator[NodeProto, None, list[str]]:
        """Yield the nodes of a round; return the names of its results."""
        names = self._names | dict(zip((item.name for item in self._body.input), given, strict=True))
        inside = {name for node in self._rest for name in node.output}
        for result in dict.fromkeys(item.name for item in self._body.output):
            if result in inside:
                names[result] = self._name(result)
        yield from renamed(self._node, self._rest, names, self._taken, {})
        return [names.get(item.name, item.name) for item in self._body.output]

    def _results(
        self, states: Sequence[str], kept: Sequence[Sequence[str]], axes: Sequence[int], back: Sequence[int]
    ) -> Iterator[NodeProto]:
        """Yield the node's results: the last states, and what rounds have handed out, along new axes."""
        for state, output in zip(states, self._node.output, strict=False):
            if output:
                yield helper.make_node("Identity", [state], [output], f"{self._label}/{output}")
        for values, axis, turned, output in zip(kept, axes, back, self._node.output[len(states) :], strict=False):
            if not values:
                raise NotUnrolled(f"it has no rounds, so its result {output!r} has no elements")
            if output:
                yield from self._stacked(values[::-1] if turned else values, axis, output)

    def _stacked(self, values: Sequence[str], axis: int, output: str) -> Iterator[NodeProto]:
        """Yield what makes one tensor of those of all rounds."""
        if values[0] not in self._tensors:
            raise NotUnrolled(f"the shape of its result {output!r} follows from data")
        place = axis % (len(self._tensors[values[0]].shape) + 1)
        number, constant = self._constant("axis", np.array([place]))
        yield constant
        lines = []
        for value in values:
            lines.append(self._name(value))
            by_input = self._opset >= 13
            node = helper.make_node("Unsqueeze", [value, number] if by_input else [value], lines[-1:], lines[-1])
            if not by_input:
                node.attribute.append(helper.make_attribute("axes", [place]))
            yield node
        while len(lines) > MOST_PARTS:
            parts = [lines[k : k + MOST_PARTS] for k in range(0, len(lines), MOST_PARTS)]
            lines = [self._name(output) for _ in parts]
            for part, line in zip(parts, lines, strict=True):
                yield helper.make_node("Concat", part, [line], line, axis=place)
        yield helper.make_node("Concat", lines, [output], f"{self._label}/{output}", axis=place)

    def _number(self, place: int) -> int | None:
        """Return the number that an input is known to be; None without one."""
        name = self._node.input[place] if place < len(self._node.input) else ""
        return int(self._constants[name].reshape(())) if name else None

    def _each(self, name: str, count: int) -> list[int]:
        return list(self._attributes.get(name, ())) or [0] * count

    def _constant(self, name: str, value: Array) -> tuple[str, NodeProto]:
        name = self._name(name)
        return name, helper.make_node("Constant", [], [name], name, value=numpy_helper.from_array(value))

    def _name(self, name: str) -> str:
        return self._taken.free(f"{self._label}/{name}")

    @staticmethod
    def _check(rounds: int) -> None:
        if rounds >= MOST_ROUNDS:
            raise NotUnrolled(f"it has more than {MOST_ROUNDS} rounds")
