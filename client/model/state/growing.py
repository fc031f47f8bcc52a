"""Find which dimensions of a model's tensors grow with the past: the importer folds all shapes, at three lengths."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gputune.client.errors import ModelError
from gputune.client.model.graph import Array
from gputune.client.model.importer import Imported

Size = tuple[int, int]
"""A dimension: `slope` * past + `rest`. The slope is 0 or 1, but for constants."""


@dataclass(frozen=True)
class Growing:
    """A model at its longest past, and the dimensions of all of its tensors at any other.

    written: constants that stand in functions which were written for a length. importing: imports it at a length."""

    imported: Imported
    sizes: Mapping[str, tuple[Size, ...]]
    first: int
    longest: int
    written: frozenset[str]
    importing: Callable[[int], Imported]

    def axes(self, name: str) -> list[int]:
        """Return the axes of a tensor that grow."""
        return [axis for axis, (slope, _) in enumerate(self.sizes.get(name, ())) if slope]

    def shape(self, name: str, past: int) -> tuple[int, ...]:
        """Return the shape of a tensor at a length."""
        return tuple(slope * past + rest for slope, rest in self.sizes[name])


@dataclass(frozen=True)
class Outline:
    """What is compared of a model at several lengths: its nodes, the shapes of its tensors, and digests of constants in
    functions."""

    nodes: tuple[tuple[str, str, tuple[str, ...]], ...]
    shapes: Mapping[str, tuple[int, ...]]
    written: Mapping[str, str]


def outline(imported: Imported) -> Outline:
    nodes = tuple((node.op, node.label, node.outputs) for node in imported.graph.nodes)
    written = [step.node.output[0] for step in imported.trace if step.node.op_type == "Constant"]
    own = imported.graph.named
    digests = {name: _digest(imported.constants[name]) for name in written if name not in own}
    return Outline(nodes, {name: info.shape for name, info in imported.tensors.items()}, digests)


def _digest(value: Array) -> str:
    return f"{value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"


def measured(importing: Callable[[int], Imported], path: Path, first: int, longest: int) -> Growing:
    """Import a model at its longest past and at two others. importing: at a length. first: the shortest past.

    Raises ModelError for a model whose nodes or dimensions do not follow from the past in this way."""
    whole = importing(longest)
    whole.whole()  # all of it must run
    own, places = outline(whole), _places(longest)
    found = {past: own if past == longest else outline(importing(past)) for past in places}
    for past in places:
        _check_same(own, found[past], path, past, longest)
    sizes = {name: _sizes(path, name, places, found, name in whole.constants) for name in whole.tensors}
    written = {
        name for name, digest in own.written.items() if any(o.written.get(name) != digest for o in found.values())
    }
    return Growing(whole, sizes, first, longest, frozenset(written), importing)


def _places(longest: int) -> tuple[int, int, int]:
    """Return three lengths: short ones, at which sizes are not 1 by chance, and the longest one."""
    return (2, 2 + (longest - 2) // 2, longest) if longest >= 4 else (2, 3, 4)


def _check_same(one: Outline, other: Outline, path: Path, past: int, longest: int) -> None:
    """Raise ModelError for models that do not have the same nodes at two lengths."""
    for node, twin in zip(one.nodes, other.nodes, strict=False):
        if node != twin:
            raise ModelError(
                f"--state: model {path} has {node[1]} with a past of {longest} rows, and {twin[1]} in its place with "
                f"{past}; its nodes must be the same at all lengths"
            )
    if len(one.nodes) != len(other.nodes):
        raise ModelError(f"--state: model {path} has other nodes with a past of {past} rows than with {longest}")


def _sizes(
    path: Path, name: str, places: tuple[int, int, int], found: Mapping[int, Outline], known: bool
) -> tuple[Size, ...]:
    shapes = [found[past].shapes[name] for past in places if name in found[past].shapes]
    if len(shapes) < len(places) or len({len(shape) for shape in shapes}) > 1:
        raise ModelError(f"--state: tensor {name!r} of model {path} has another rank at other lengths of the past")
    return tuple(_size(path, name, places, sizes, known) for sizes in zip(*shapes, strict=True))


def _size(path: Path, name: str, places: tuple[int, int, int], sizes: tuple[int, ...], known: bool) -> Size:
    """Return a dimension that has these sizes at three lengths. known: of a constant."""
    low, middle, high = sizes
    slope = (high - low) // (places[2] - places[0])
    rest = low - slope * places[0]
    if (slope not in (0, 1) and not known) or [slope * past + rest for past in places] != [low, middle, high]:
        raise ModelError(
            f"--state: a dimension of tensor {name!r} of model {path} is {low}, {middle} and {high} with pasts of "
            f"{places[0]}, {places[1]} and {places[2]} rows, which is not the past and a number of rows"
        )
    return slope, rest
