"""Find the inputs of a model that decide what must be known before it runs, and propose values for them.

Such an input is small, and so is all that is folded from it on the way to what it decides. What follows from pictures
or through weights is data, of which no value would make sense.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from gputune.client.errors import INPUT_VALUE as OPTION
from gputune.client.model.graph import Array, Node, TensorInfo
from gputune.client.model.importer.folding import NEVER_FOLDED
from gputune.core.dtypes import is_float

MOST_ELEMENTS = 8
"""The largest number of elements of an input that decides, and of a tensor that is folded from it."""
MOST_TENSORS = 100
"""So many are looked at for one proposal, because models may have long chains of nodes."""

NOT_FOLDED = NEVER_FOLDED | {"If", "Loop", "Scan"}
COMPARING = frozenset(("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"))
PASSING = frozenset(("Cast", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Unsqueeze"))
"""Operators whose results are numbers that they read."""


@dataclass(frozen=True)
class Deciding:
    """Knows what each tensor follows from: the inputs of the model, and of other tensors the node that computes it."""

    inputs: Collection[str]
    tensors: Mapping[str, TensorInfo]
    constants: Mapping[str, Array]
    makers: dict[str, Node] = field(default_factory=dict)

    def take(self, node: Node) -> None:
        """Take in a node that computes at run time."""
        self.makers.update(dict.fromkeys(node.outputs, node))

    def instead(self, names: Sequence[str]) -> str:
        """Return the advice to give values to the inputs from which these tensors follow; empty if other data decides,
        or no other inputs would be left."""
        found = self._behind(names)
        if not found or len(found) == len(self.inputs):
            return ""
        options = (f"{OPTION} {name}={_example(self.tensors[name], value)}" for name, value in found.items())
        several = "constants" if len(found) > 1 else "a constant"
        return f"make {' and '.join(map(repr, found))} {several}, e.g. {' '.join(options)}"

    def _behind(self, names: Sequence[str]) -> dict[str, float | None]:
        """Return the inputs from which tensors follow, each with the number that it is compared with; none if it is
        data."""
        waiting: list[tuple[str, float | None]] = [(name, None) for name in names]
        seen, found = set(names), dict[str, float | None]()
        while waiting:
            name, compared = waiting.pop()
            info, node = self.tensors.get(name), self.makers.get(name)
            if info is None or info.size > MOST_ELEMENTS or len(seen) > MOST_TENSORS:
                return {}
            if name in self.inputs:
                if is_float(info.dtype) and info.size > 1:
                    return {}
                found.setdefault(name, compared)
                continue
            if node is None or "." in node.op or node.op in NOT_FOLDED:
                return {}
            compared = self._compared(node, compared)
            new = [each for each in node.reads if each not in self.constants and each not in seen]
            seen.update(new)
            waiting += [(each, compared) for each in new]
        return found

    def _compared(self, node: Node, behind: float | None) -> float | None:
        """Return the number that the inputs of a node are compared with; behind: that of its outputs."""
        if node.op in PASSING:
            return behind
        known = [self.constants[name] for name in node.reads if name in self.constants]
        return float(known[0].reshape(())) if node.op in COMPARING and known and known[0].size == 1 else None


def _example(info: TensorInfo, compared: float | None) -> str:
    """Return a value that an input may have: the number that it is compared with, if it is."""
    if info.dtype == "bool":
        return ",".join(["true"] * info.size)
    fits = compared is not None and info.size == 1 and (is_float(info.dtype) or compared.is_integer())
    return ",".join([f"{compared:.17g}" if fits else "1"] * info.size)
