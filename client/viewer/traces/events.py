"""Define what a trace consists of in whatever file: slices on tracks, arrows between them, and counters.

Events come in batches, so that a file of millions is written without a record for each event.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from gputune.runtime.profiling.records import Times

Value = str | int | float
Numbers = Mapping[str, Sequence[int] | Sequence[float]]


@dataclass(frozen=True)
class Process:
    """A log, as viewers show processes. origin: what it is of and how it was measured, for people."""

    number: int
    name: str
    origin: Mapping[str, Value]


@dataclass(frozen=True, eq=False)
class Track:
    """Where slices lie that are nested or disjoint. number: in the order in which tracks are shown, from 1, and of no
    other track of the trace."""

    number: int
    process: Process
    name: str


@dataclass(frozen=True, eq=False)
class CounterTrack(Track):
    """Where a value changes. unit: in which the value is, for people."""

    unit: str


@dataclass(frozen=True, eq=False)
class Label:
    """What many slices have in common; there are as many labels as a graph has launches, not as a log has."""

    name: str
    category: str
    arguments: Mapping[str, Value] = field(default_factory=dict)


class FlowEnd(NamedTuple):
    """One end of an arrow: the place of a slice in its batch, the arrow's number, which no other arrow has, what kind
    it is of, and whether it starts there."""

    place: int
    flow: int
    kind: str
    starts: bool


@dataclass(frozen=True, eq=False)
class Slices:
    """Slices of one track, in the order of their beginnings and outer ones first. numbers: arguments that differ from
    slice to slice, of the first slices or of all; a name has either whole numbers or floats. flows: by place."""

    track: Track
    labels: Sequence[Label]
    begun_ns: Times
    ended_ns: Times
    numbers: Numbers = field(default_factory=dict)
    flows: Sequence[FlowEnd] = ()


@dataclass(frozen=True, eq=False)
class Counts:
    """What a counter is from these moments on, each until the next."""

    track: CounterTrack
    at_ns: Times
    values: Sequence[int] | Sequence[float]


Event = Slices | Counts
