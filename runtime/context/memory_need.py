"""Read the memory block, which says what the graphs of a context need between their launches.

The block is in the first bytes of the file, so that a reader knows the largest need of a group of contexts before it
reads their headers. It is MsgPack with its own checksum, comes before the header, and must agree with the header.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from gputune.core.bounds import Amount, CText, Within, in_files
from gputune.core.decoder import record_of
from gputune.core.errors import MalformedHeader
from gputune.core.identity import DeviceIdentity
from gputune.runtime.context.records import LARGEST_ARENA_BYTES, GraphRecord


class GraphNeed(NamedTuple):
    """The bytes of each arena of a graph, and what no plan of them can do without (0: unknown)."""

    name: CText
    arena_bytes: tuple[Annotated[int, Within(1, LARGEST_ARENA_BYTES)], ...]
    bound_bytes: Amount

    @property
    def total_bytes(self) -> int:
        """Of all arenas: the graph's max_spill_fill_size."""
        return sum(self.arena_bytes)


@in_files()
@dataclass(frozen=True)
class MemoryNeed:
    """The needs of a context's graphs. alignment: in bytes, of every tensor in an arena."""

    alignment: Annotated[int, Within(1, 2**63 - 1)]
    graphs: tuple[GraphNeed, ...]

    @classmethod
    def of(cls, device: DeviceIdentity, graphs: Iterable[GraphRecord]) -> MemoryNeed:
        """Return what the records of a context say."""
        needs = tuple(GraphNeed(graph.name, graph.arena_bytes, graph.arena_bound_bytes) for graph in graphs)
        return cls(device.base_address_alignment_bytes, needs)

    @property
    def arena_bytes(self) -> tuple[int, ...]:
        """What arenas are as large as that any of the graphs can run in them, one graph at a time."""
        return largest_arenas(graph.arena_bytes for graph in self.graphs)

    def to_fields(self) -> dict[str, Any]:
        """Plain values, as they stand in a file."""
        return {"alignment": self.alignment, "graphs": [list(graph) for graph in self.graphs]}

    @classmethod
    def from_fields(cls, value: object) -> MemoryNeed:
        """Return the checked block of a file. Raises MalformedHeader."""
        need = record_of(cls, value, "memory block", MalformedHeader)
        if any(graph.bound_bytes > graph.total_bytes for graph in need.graphs):
            raise MalformedHeader("memory block: its arenas are smaller than their bound")
        return need


def largest_arenas(needs: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the largest of each place; arenas of a graph are used together, so places are not mixed."""
    largest: list[int] = []
    for arenas in needs:
        largest += [0] * (len(arenas) - len(largest))
        for place, nbytes in enumerate(arenas):
            largest[place] = max(largest[place], nbytes)
    return tuple(largest)
