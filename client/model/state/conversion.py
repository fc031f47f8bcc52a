"""Hold what the conversion of one model needs: the model at all lengths, and the new graph as far as it is written."""

from collections.abc import Mapping, Sequence

import numpy as np
import onnx

from gputune.client.model.graph import Array, Names
from gputune.client.model.importer import Visited
from gputune.client.model.importer.shape_inputs import COMPILE_TIME, OF_SHAPES
from gputune.client.model.state.by_length import ByLength
from gputune.client.model.state.growing import Growing, Size
from gputune.client.model.state.lookups import Lookups
from gputune.client.model.state.writing import Writing


class NotApart(Exception):
    """A node does not keep rows apart, in words that follow its name."""


class Conversion:
    """Writes nodes of a model into a new graph.

    pairs: the outputs that pasts become, by the names of these inputs. tokens: rows that one step adds, 0 where there
    is no past. outputs: those that have elements, as keys of an encoder may not in the branch that is given them. kept:
    the nodes that outputs need, in order. joined: pasts, by the results that join them with new rows."""

    def __init__(self, growing: Growing, pairs: Mapping[str, str], tokens: int) -> None:
        self.growing, self.pairs, self.tokens = growing, pairs, tokens
        self.imported = growing.imported
        computed = (name for visited in self.imported.trace for name in visited.node.output)
        self.writing = Writing(Names([*self.imported.tensors, *computed]))
        self.by_length = ByLength(growing)
        self.opset = self.imported.graph.opset  # of the new graph, until functions need another
        self.kept = _read_in_the_end(self.imported.trace, self.imported.graph.outputs)
        read = {name for visited in self.kept if not visited.known for name in visited.node.input}
        self.outputs = [name for name in self.imported.graph.outputs if self.imported.tensors[name].size]
        outputs = {name for name in self.outputs if name in self.by_length.names}
        self.lookups = Lookups(growing, self.by_length, (read & self.by_length.names) | outputs, self.writing)
        self.zero: set[str] = set()  # tensors that are zero behind the end of their last axis
        self.joined: dict[str, str] = {}

    def sizes(self, name: str) -> tuple[Size, ...]:
        """Return the dimensions of a tensor."""
        return self.growing.sizes[name]

    def axes(self, name: str) -> list[int]:
        """Return the axes of a tensor that grow."""
        return self.growing.axes(name) if name else []

    def read(self, name: str) -> str:
        """Return what a tensor of the model is in the new graph."""
        return self.lookups.read(name) if name in self.by_length.names else name

    def known(self, name: str) -> Array | None:
        """Return a constant that is the same at all lengths; None for any other tensor."""
        if name in self.by_length.names:
            return self.lookups.same(name)
        return self.imported.constants.get(name)

    def keep(self, node: onnx.NodeProto, instead: Mapping[int, str] | None = None) -> None:
        """Write a node as it is, with some of its inputs replaced. Raises NotApart if what must be known before it runs
        depends on the length."""
        inputs = dict(instead or {})
        for place, name in enumerate(node.input):
            if name and place not in inputs:
                if place in COMPILE_TIME.get(node.op_type, ()) and name in self.by_length.names:
                    inputs[place] = self._fixed(name)
                inputs.setdefault(place, self.read(name))
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copy.input[:] = [inputs.get(place, name) for place, name in enumerate(node.input)]
        self.writing.nodes.append(copy)

    def at_longest(self, name: str) -> str:
        """Return a constant as it is at the longest past, whatever the length."""
        if name not in self.by_length.names:
            return self.read(name)
        return self.writing.once(("longest", name), lambda: self.writing.value(self.lookups.last(name)))

    def masked(self, name: str, axis: int, fill: float) -> str:
        """Return a tensor with a number behind the end of an axis."""
        (_, rest), behind = self.sizes(name)[axis], len(self.sizes(name)) - 1 - axis
        valid = self.writing.before(self.growing.longest + rest, rest, behind)
        number = self.writing.value(np.array(fill, self.imported.tensors[name].dtype))
        return self.writing.op("Where", [valid, self.read(name), number])

    def write_state(self, node: onnx.NodeProto, axis: int) -> None:
        """Write new rows where a node joins them with a past."""
        past, new = node.input
        if past in self.joined.values():
            raise NotApart(f"it joins the past {past!r}, and so does another node")
        self.joined[node.output[0]] = past
        sizes = self.sizes(past)
        rows = self.growing.longest + self.tokens
        if self.sizes(new)[axis] != (0, self.tokens) or sizes[axis] != (1, 0):
            raise NotApart(f"it adds another number of rows than {self.tokens} to the past {past!r}")
        self.writing.written(past, self.read(new), node.output[0], rows, self.tokens, axis, len(sizes))

    def _fixed(self, name: str) -> str:
        if self.lookups.same(name) is None:
            raise NotApart(f"{name!r} must be known before it runs, and depends on the length")
        return self.at_longest(name)


def _read_in_the_end(trace: Sequence[Visited], outputs: tuple[str, ...]) -> list[Visited]:
    """Return the nodes that outputs need, in order."""
    needed, kept = set(outputs), list[Visited]()
    for visited in reversed(trace):
        if needed.intersection(visited.node.output):
            kept.append(visited)
            needed.update([] if visited.known and visited.node.op_type in OF_SHAPES else visited.node.input)
    return kept[::-1]
