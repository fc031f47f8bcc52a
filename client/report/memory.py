"""Reconstruct which tensor lies where and when in a context's arenas, as far as its file allows.

A file names no tensors. It says which bytes each launch is given, and which of them it writes: what an operation writes
is a new tensor. An older file does not say what launches write. Then bytes are a new tensor when they are given for the
first time, or after others that overlap them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

from gputune.client.context.builder import PORTABLE_ALIGNMENT
from gputune.client.context.memory.memory_planner import Lifetime, least_bytes
from gputune.client.report.sizes import packed_bytes
from gputune.runtime.application.states import remembered
from gputune.runtime.context.format import read_header
from gputune.runtime.context.records import BufferRef, GraphRecord, LaunchRecord


@dataclass(frozen=True)
class ArenaTensor:
    """`nbytes` bytes at `offset` of an arena, held from one operation to another, both included and counted from 0.
    name: of the operation that writes them first."""

    name: str
    arena: int
    offset: int
    nbytes: int
    first_use: int
    last_use: int

    @property
    def end(self) -> int:
        """The first byte behind it."""
        return self.offset + self.nbytes


@dataclass(frozen=True)
class GraphMemory:
    """The arenas of a graph. bound_bytes: what no plan in as many arenas can do without, as the file says it or, where
    it does not, by its tensors."""

    name: str
    operations: tuple[str, ...]
    arena_bytes: tuple[int, ...]
    bound_bytes: int
    tensors: tuple[ArenaTensor, ...]
    """In the order in which they are written."""
    state_bytes: int = 0
    """Of each state that an application opens, beside the arenas."""

    @property
    def total_bytes(self) -> int:
        """Of all arenas."""
        return sum(self.arena_bytes)

    @property
    def ratio(self) -> float:
        """The arenas by their bound; 1 where there are none."""
        return self.total_bytes / self.bound_bytes if self.bound_bytes else 1.0

    @cached_property
    def alive_bytes(self) -> tuple[int, ...]:
        """By operation, the bytes of all tensors that are held while it runs."""
        changes = [0] * (len(self.operations) + 1)
        for tensor in self.tensors:
            changes[tensor.first_use] += tensor.nbytes
            changes[tensor.last_use + 1] -= tensor.nbytes
        return tuple(itertools.accumulate(changes[:-1]))

    def to_dict(self) -> dict[str, object]:
        """As JSON values."""
        told = ("total_bytes", "ratio", "alive_bytes")
        return {**asdict(self), **{name: getattr(self, name) for name in told}}


@dataclass(frozen=True)
class MemoryReport:
    """The memory of a context's graphs. weights_bytes: of the packed weights that they share."""

    context: str
    device: str
    weights_bytes: int
    graphs: tuple[GraphMemory, ...]

    def to_dict(self) -> dict[str, object]:
        """As JSON values."""
        return {**vars(self), "graphs": [graph.to_dict() for graph in self.graphs]}


def read_memory(path: Path) -> MemoryReport:
    """Return the memory of a context binary's graphs, from its header. Raises ContextError; OSError."""
    header = read_header(path)
    read = {header.weights[index] for graph in header.graphs for index in graph.constants("weights")}
    weights = sum(header.sections[place].length for place in read) + packed_bytes(header)
    graphs = tuple(graph_memory(graph, header.graphs) for graph in header.graphs)
    return MemoryReport(path.name, header.device.name, weights, graphs)


def graph_memory(graph: GraphRecord, beside: Sequence[GraphRecord] = ()) -> GraphMemory:
    """Return the memory of a graph. beside: the graphs of its context, of which some may use the same states, that are
    as large as the largest needs."""
    runs = [(name, list(own)) for name, own in itertools.groupby(graph.launches, lambda launch: launch.operation)]
    tensors = tuple(sorted(_tensors(runs), key=lambda each: (each.first_use, each.arena, each.offset)))
    bound = graph.arena_bound_bytes or _bound(tensors, graph.arena_bytes)
    sharing = [one for one in beside or (graph,) if remembered(one) == remembered(graph)]
    states = max(one.states.nbytes(one.inputs) if one.states is not None else 0 for one in sharing)
    return GraphMemory(graph.name, tuple(name for name, _ in runs), graph.arena_bytes, bound, tensors, states)


def _bound(tensors: Sequence[ArenaTensor], arena_bytes: Sequence[int]) -> int:
    alignment = math.gcd(PORTABLE_ALIGNMENT, *(tensor.offset for tensor in tensors))
    lives = [Lifetime(each.name, each.nbytes, each.first_use, each.last_use) for each in tensors]
    return min(least_bytes(lives, alignment, len(arena_bytes)), sum(arena_bytes))


@dataclass
class _Held:
    """A tensor that may be read still."""

    name: str
    first: int
    last: int


def _tensors(runs: Sequence[tuple[str, Sequence[LaunchRecord]]]) -> Iterator[ArenaTensor]:
    """Yield the tensors of operations, each given with its launches, in any order."""
    held: dict[BufferRef, _Held] = {}
    gone: list[tuple[BufferRef, _Held]] = []
    for place, (name, launches) in enumerate(runs):
        for ref, writes in _given(launches).items():
            if not writes and ref in held:
                held[ref].last = place
                continue
            gone += [(other, held.pop(other)) for other in list(held) if _overlap(ref, other)]
            held[ref] = _Held(name, place, place)
    for ref, one in [*gone, *held.items()]:
        yield ArenaTensor(one.name, ref.index, ref.offset, ref.nbytes, one.first, one.last)


def _given(launches: Sequence[LaunchRecord]) -> dict[BufferRef, bool]:
    """Return what of the arenas an operation is given, and whether any of its launches writes it."""
    given: dict[BufferRef, bool] = {}
    for launch in launches:
        for place, argument in enumerate(launch.arguments):
            if isinstance(argument, BufferRef) and argument.kind == "arena":
                given[argument] = given.get(argument, False) or place in launch.writes
    return given


def _overlap(one: BufferRef, other: BufferRef) -> bool:
    """Return whether two tensors have bytes in common."""
    together = one.offset < other.offset + other.nbytes and other.offset < one.offset + one.nbytes
    return one.index == other.index and together
