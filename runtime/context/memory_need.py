"""Read the memory block, which says what the graphs of a context need between their launches.

The block is in the first bytes of the file, because a group of contexts has to know the largest need before it opens
the first of them. It is MsgPack with its own checksum, comes before the header, and must agree with the header.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from gputune.core.errors import MalformedHeader
from gputune.core.identity import DeviceIdentity
from gputune.runtime.context.records import LARGEST_ARENA_BYTES, Fields, GraphRecord


@dataclass(frozen=True)
class GraphNeed:
    """The bytes of each arena of a graph, and what no plan of them can do without (0: unknown)."""

    name: str
    arena_bytes: tuple[int, ...]
    bound_bytes: int

    @property
    def total_bytes(self) -> int:
        """Of all arenas: the graph's max_spill_fill_size."""
        return sum(self.arena_bytes)


@dataclass(frozen=True)
class MemoryNeed:
    """The needs of a context's graphs. alignment_bytes: of every tensor in an arena."""

    alignment_bytes: int
    graphs: tuple[GraphNeed, ...]

    @classmethod
    def of(cls, device: DeviceIdentity, graphs: Iterable[GraphRecord]) -> MemoryNeed:
        """What the records of a context say."""
        needs = tuple(GraphNeed(graph.name, graph.arena_bytes, graph.arena_bound_bytes) for graph in graphs)
        return cls(device.base_address_alignment_bytes, needs)

    @property
    def arena_bytes(self) -> tuple[int, ...]:
        """What arenas are as large as that any of the graphs can run in them, one graph at a time."""
        return largest_arenas(graph.arena_bytes for graph in self.graphs)

    def to_fields(self) -> dict[str, Any]:
        """Plain values, as they stand in a file."""
        graphs = [[graph.name, list(graph.arena_bytes), graph.bound_bytes] for graph in self.graphs]
        return {"alignment": self.alignment_bytes, "graphs": graphs}

    @classmethod
    def from_fields(cls, value: object) -> MemoryNeed:
        """The checked block of a file. Raises MalformedHeader."""
        fields = Fields(value, "memory block")
        need = cls(fields.count("alignment"), tuple(_graph(item) for item in fields.items("graphs")))
        if need.alignment_bytes < 1:
            raise MalformedHeader(f"memory block: an alignment of {need.alignment_bytes} bytes")
        return need


def largest_arenas(needs: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    """The largest of each place; arenas of a graph are used together, so places are not mixed."""
    largest: list[int] = []
    for arenas in needs:
        largest += [0] * (len(arenas) - len(largest))
        for place, nbytes in enumerate(arenas):
            largest[place] = max(largest[place], nbytes)
    return tuple(largest)


def _graph(item: object) -> GraphNeed:
    if not isinstance(item, list) or len(item) != 3:
        raise MalformedHeader(f"memory block: {reprlib.repr(item)[:80]} is not a name, arenas and a bound")
    fields = Fields(dict(zip(("name", "arena_bytes", "bound_bytes"), item, strict=True)), "memory block")
    need = GraphNeed(fields.text("name"), fields.counts("arena_bytes"), fields.count("bound_bytes"))
    if not all(0 < nbytes <= LARGEST_ARENA_BYTES for nbytes in need.arena_bytes):
        raise MalformedHeader("memory block: an arena is empty or larger than any device")
    if need.bound_bytes > need.total_bytes:
        raise MalformedHeader("memory block: its arenas are smaller than their bound")
    return need
