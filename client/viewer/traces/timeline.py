"""Arrange a profile as tracks and events: one model for all files that hold traces.

The tracks of a log are, from top to bottom: the phases of a generation; the host's threads with inferences and their
parts; what launches have waited for; the launches; and the launches inside persistent kernels. If features ask for it,
further tracks show when the device executed and how much memory was in use. Every moment is in ns of the host's clock.
A slice lies on only one track.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from gputune.client.options.viewer import Features
from gputune.client.viewer.profile import GraphProfile, Profile
from gputune.client.viewer.traces.device_tracks import DeviceTracks, InsideTracks
from gputune.client.viewer.traces.events import Event, Process, Track, Value
from gputune.client.viewer.traces.host_tracks import HostTracks, PhaseTracks
from gputune.client.viewer.traces.memory_tracks import MemoryTracks
from gputune.client.viewer.traces.run_tracks import RunTracks
from gputune.client.viewer.traces.source import Shown, Source
from gputune.runtime.profiling.log import Log
from gputune.runtime.profiling.records import END_NS


class Timeline:
    """All that a trace shows. Tracks are known before the first event."""

    def __init__(self, profile: Profile, features: Features) -> None:
        """Places all inferences. Raises MalformedLog where too many overlap."""
        numbers = itertools.count(1)
        self._logs = [_LogTimeline(place, log, profile, features, numbers) for place, log in enumerate(profile.logs)]
        first = profile.logs[0].header if profile.logs else None
        self.clock = (0, 0) if first is None else (first.begun_ns, first.begun_unix_ns)
        """The same moment by the host's clock and by the calendar, in ns."""

    @property
    def processes(self) -> list[Process]:
        """One for each log."""
        return [log.process for log in self._logs]

    @property
    def tracks(self) -> list[Track]:
        """Those that are shown, counters included."""
        return [track for log in self._logs for track in log.tracks]

    @property
    def inferences(self) -> int:
        """How many batches of events there are."""
        return sum(len(log.shown) for log in self._logs)

    def batches(self) -> Iterator[Iterator[Event]]:
        """Events: those of each log as a whole, then those of one inference after the other. To be asked for once."""
        for log in self._logs:
            yield log.whole()
            yield from map(log.events, log.shown)


class _LogTimeline:
    """The tracks of one log. Those that a feature switches off have their numbers all the same, so that it changes
    nothing else."""

    def __init__(self, place: int, log: Log, profile: Profile, features: Features, numbers: Iterator[int]) -> None:
        self.process = Process(place + 1, _title(place, log, len(profile.logs)), _origin(log))
        zoom = profile.zoom or (0, END_NS)
        states = [state for state in log.states if zoom[0] <= state.at_ns <= zoom[1]]
        device = DeviceTracks(place + 1, profile.schematic, features)
        self._phases = PhaseTracks(profile.spans_of(log))
        self._runs = RunTracks(device, states)
        memory = MemoryTracks(device)
        shown_by: Mapping[Source, bool] = {
            HostTracks(): True,
            device: True,
            InsideTracks(device): True,
            self._runs: features.runtrace,
            memory: features.memory_info,
        }
        self._sources = [source for source, is_on in shown_by.items() if is_on]
        self._samples = features.runtrace
        self.shown = _shown([graph for graph in profile.graphs if graph.log is log])
        for one in self.shown:
            for source in shown_by:
                source.place(one)
        self.tracks: list[Track] = list(self._phases.declare(self.process, numbers))
        for source, is_on in shown_by.items():
            tracks = source.declare(self.process, numbers)
            self.tracks += tracks if is_on else []

    def whole(self) -> Iterator[Event]:
        """Yield what belongs to no inference."""
        yield from self._phases.events()
        if self._samples:
            yield from self._runs.samples()

    def events(self, shown: Shown) -> Iterator[Event]:
        """Of an inference."""
        for source in self._sources:
            yield from source.events(shown)


def _shown(graphs: Sequence[GraphProfile]) -> list[Shown]:
    """Return the inferences of a log in the order in which they begin."""
    found = [(graph, one) for graph in graphs for one in (*graph.inferences, *graph.marked)]
    found.sort(key=lambda pair: pair[1].begun_ns)
    return [Shown(place, graph, one) for place, (graph, one) in enumerate(found)]


def _title(place: int, log: Log, logs: int) -> str:
    """Return the contexts that ran, or the file, and where; several logs have their number, since files share names."""
    contexts = list(dict.fromkeys(graph.context for graph in log.graphs))
    name = f"{', '.join(contexts) or Path(log.path).name} on {log.header.device.get('name', 'a device')}"
    return name if logs == 1 else f"{place + 1}: {name}"


def _origin(log: Log) -> dict[str, Value]:
    return {
        "log": Path(log.path).name,
        "software": log.header.software,
        "level": log.header.level,
        "device": str(log.header.device.get("name", "")),
        "complete": "yes" if log.complete else "no, it was cut off",
        **{f"counter {name}": f"not available: {why}" for name, why in log.header.unavailable.items()},
    }
