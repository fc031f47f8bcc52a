"""Write the tracks of a run: when the device executed or had a gap, what the system took away, clocks and load."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from gputune.client.viewer.traces.device_tracks import DeviceTracks
from gputune.client.viewer.traces.events import CounterTrack, Counts, Event, Label, Process, Slices, Track
from gputune.client.viewer.traces.source import Shown, row_tracks
from gputune.runtime.profiling.records import StateSample, Times

_EXECUTING, _GAP = Label("executing", "runtrace"), Label("gap", "runtrace")


class RunTracks:
    """Beside each track of the device when it executed and had gaps in an inference; for each thread of the host, how
    often a processor was taken from it in an inference; what was sampled of the device's state."""

    def __init__(self, device: DeviceTracks, states: Sequence[StateSample]) -> None:
        self._device = device
        self._states = states
        self._threads: set[int] = set()
        self._tracks: list[Track] = []
        self._preemptions: dict[int, CounterTrack] = {}
        self._samples: dict[str, CounterTrack] = {}

    def place(self, shown: Shown) -> None:
        self._threads.update(shown.inference.preemptions)

    def declare(self, process: Process, numbers: Iterator[int]) -> Sequence[Track]:
        self._tracks = row_tracks(process, numbers, "runtrace", self._device.rows)
        for thread in sorted(self._threads):
            name = f"preemptions of thread {thread}"
            self._preemptions[thread] = CounterTrack(next(numbers), process, name, "count")
        for name in dict.fromkeys(name for state in self._states for name in state.values):
            self._samples[name] = CounterTrack(next(numbers), process, name, "value")
        return [*self._tracks, *self._preemptions.values(), *self._samples.values()]

    def events(self, shown: Shown) -> Iterator[Event]:
        one, times = shown.inference, shown.launches_ns
        for thread, count in one.preemptions.items():
            yield Counts(self._preemptions[thread], np.array([one.begun_ns, one.ended_ns]), [count, 0])
        if len(times):
            track = self._tracks[self._device.row_of(shown)]
            yield _executing(track, times[:, -2], times[:, -1])

    def samples(self) -> Iterator[Event]:
        """Yield the state of the whole log."""
        for name, track in self._samples.items():
            found = sorted((state.at_ns, state.values[name]) for state in self._states if name in state.values)
            yield Counts(track, np.array([at_ns for at_ns, _ in found], np.int64), [value for _, value in found])


def _executing(track: Track, begun_ns: Times, ended_ns: Times) -> Slices:
    """Return launches that follow each other without a gap as one slice, gaps as others, in turns."""
    order = np.argsort(begun_ns, kind="stable")
    begun_ns, ended_ns = begun_ns[order], np.maximum.accumulate(ended_ns[order])
    (gaps,) = np.nonzero(begun_ns[1:] > ended_ns[:-1])
    moments = np.stack([ended_ns[gaps], begun_ns[gaps + 1]], axis=1).ravel()
    moments = np.concatenate([begun_ns[:1], moments, ended_ns[-1:]])
    labels = [_EXECUTING, _GAP] * len(gaps) + [_EXECUTING]
    return Slices(track, labels, moments[:-1], moments[1:])
