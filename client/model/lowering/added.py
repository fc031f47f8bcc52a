"""Register the operators that op packages add while they are in use: how each is lowered, and which shapes it computes.

Stock operators have their shapes from onnx and their lowerings from operators.py. Operators of other domains have both
from this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from gputune.client.model.graph import Array, Node, TensorInfo
from gputune.client.model.lowering.emitting import Lowering

Lower: TypeAlias = "Callable[[Lowering, Node], None]"
"""Emits the operations of a node."""

Shape: TypeAlias = Callable[[Node, Mapping[str, TensorInfo], Mapping[str, Array]], Sequence[TensorInfo]]
"""The shapes and types of a node's outputs, from all tensors and all constants that are known before it. Raises
ValueError with what is wrong with the node."""


@dataclass(frozen=True)
class Added:
    """Operators by name: "Softmax", or "com.example.Softmax" where the domain is not ONNX's own."""

    lowerings: Mapping[str, Lower] = field(default_factory=dict)
    shapes: Mapping[str, Shape] = field(default_factory=dict)


_in_use = Added()


def lowering_of(op: str) -> Lower | None:
    """Return what lowers an operator of a package in use; None where none knows it."""
    return _in_use.lowerings.get(op)


def shape_of(op: str) -> Shape | None:
    """Return what knows the shapes of an operator of a package in use; None where none does."""
    return _in_use.shapes.get(op)


@contextmanager
def using(added: Added) -> Iterator[None]:
    """Has the process know these operators, and no others of packages, in the block."""
    global _in_use
    before, _in_use = _in_use, added
    try:
        yield
    finally:
        _in_use = before
