"""Write the memory tracks: bytes in use of each arena, and the least bytes/s that each operation moves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gputune.client.viewer.profile import GraphProfile
from gputune.client.viewer.schematic import GraphPlan
from gputune.client.viewer.traces.device_tracks import DeviceTracks
from gputune.client.viewer.traces.events import CounterTrack, Counts, Event, Process, Track
from gputune.client.viewer.traces.source import Shown
from gputune.runtime.profiling.records import Times


@dataclass(frozen=True, eq=False)
class _Moving:
    """The operations that have launches. owner: by launch, the place among them; first, last: by operation, the launch
    with which it begins and ends; nbytes: what it moves."""

    owner: Times
    first: Times
    last: Times
    nbytes: npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class _Steps:
    """From which launches on so many bytes of an arena are in use."""

    launches: Times
    values: Sequence[int]


class MemoryTracks:
    """A counter for each arena of a graph and one for each track of the device; nothing without a schematic."""

    def __init__(self, device: DeviceTracks) -> None:
        self._device = device
        self._moving: dict[GraphProfile, _Moving] = {}
        self._steps: dict[GraphProfile, list[_Steps]] = {}
        self._arenas: dict[GraphProfile, list[CounterTrack]] = {}
        self._rates: list[CounterTrack] = []

    def place(self, shown: Shown) -> None:
        graph = shown.graph
        if graph.plan is not None and graph not in self._moving and len(shown.launches_ns):
            self._moving[graph] = _moving(graph.plan, len(graph.graph.launches))
            self._steps[graph] = [_steps(graph.plan, arena) for arena in range(len(graph.plan.arena_bytes))]

    def declare(self, process: Process, numbers: Iterator[int]) -> Sequence[Track]:
        for graph, steps in self._steps.items():
            names = [f"arena {number} of {graph.graph.name}" for number in range(len(steps))]
            self._arenas[graph] = [CounterTrack(next(numbers), process, name, "bytes") for name in names]
        if self._moving:
            for row in range(len(self._device.rows)):
                name = "bandwidth" if row == 0 else f"bandwidth ({row + 1})"
                self._rates.append(CounterTrack(next(numbers), process, name, "bytes/s"))
        return [*(track for tracks in self._arenas.values() for track in tracks), *self._rates]

    def events(self, shown: Shown) -> Iterator[Event]:
        if shown.graph not in self._moving or not len(shown.launches_ns):
            return
        begun_ns, ended_ns = shown.launches_ns[:, -2], shown.launches_ns[:, -1]
        for track, steps in zip(self._arenas[shown.graph], self._steps[shown.graph], strict=True):
            at_ns = np.append(begun_ns[steps.launches], ended_ns[-1])
            yield Counts(track, at_ns, [*steps.values, 0])
        yield _rates(self._rates[self._device.row_of(shown)], self._moving[shown.graph], begun_ns, ended_ns)


def _moving(plan: GraphPlan, launches: int) -> _Moving:
    operations = [one for one in plan.operations if one.launches]
    owner = np.zeros(launches, np.int64)
    for place, one in enumerate(operations):
        owner[list(one.launches)] = place
    first = np.array([min(one.launches) for one in operations], np.int64)
    last = np.array([max(one.launches) for one in operations], np.int64)
    return _Moving(owner, first, last, np.array([one.nbytes for one in operations], np.float64))


def _steps(plan: GraphPlan, arena: int) -> _Steps:
    """At operations, whose launches come in order: what is needed while one runs counts from its first launch on."""
    launches: list[int] = []
    values: list[int] = []
    for operation, used in zip(plan.operations, plan.held_bytes(arena), strict=True):
        if operation.launches and values[-1:] != [used]:
            launches.append(min(operation.launches))
            values.append(used)
    return _Steps(np.array(launches, np.int64), values)


def _rates(track: CounterTrack, moving: _Moving, begun_ns: Times, ended_ns: Times) -> Counts:
    """Bytes over the time of an operation's launches, from its first to its last; 0 between operations."""
    busy_ns = np.bincount(moving.owner, ended_ns - begun_ns, len(moving.first))
    rates = np.minimum(np.rint(moving.nbytes / np.maximum(busy_ns, 1) * 1e9), 2.0**62).astype(np.int64)
    begun_ns, ended_ns = begun_ns[moving.first], ended_ns[moving.last]
    over = np.append(ended_ns[:-1] < begun_ns[1:], True)
    at_ns = np.concatenate([begun_ns, ended_ns[over]])
    order = np.argsort(at_ns, kind="stable")
    return Counts(track, at_ns[order], np.concatenate([rates, np.zeros(int(over.sum()), np.int64)])[order].tolist())
