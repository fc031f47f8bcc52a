"""Record the inferences that the C runtime runs: it makes the records, and what Python observes is added to them.

A recorder has a profile of C without a file. It is switched on for one inference at a time, and takes the record right
behind it. So inferences in several forms can take turns, and several profilers can have recorders of a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

from gputune.runtime.native.binding import Device, Graph, Profile
from gputune.runtime.profiling.levels import Level
from gputune.runtime.profiling.log import Log, LogReader
from gputune.runtime.profiling.observers import Observer
from gputune.runtime.profiling.records import LoggedInference, MarkedInference, StateSample

T = TypeVar("T")
NAME = "the C runtime's profile"


class NativeRecorder:
    """Record inferences of one graph. For one thread at a time.

    graph: its place in the log; unavailable: the system's counters that cannot be read, with the reason of each.
    """

    def __init__(
        self,
        device: Device,
        native: Graph,
        level: Level,
        observer: Observer,
        write: Callable[[LoggedInference | StateSample], None],
    ) -> None:
        """native: the graph in C. write: is given each record, and may raise OSError. Raises DeviceError."""
        self.graph = 0
        self._native, self._observer, self._write = native, observer, write
        self._records = _Records(device.profile(None, level))
        self.unavailable = self._records.take().header.unavailable

    def infer(self, run: Callable[[], T]) -> T:
        """Call `run`, which makes one inference, and record that. Raises as `run` does, and then records nothing;
        DeviceError, OSError where it cannot be recorded."""
        self._observer.before()
        self._native.record(self._records.profile)
        try:
            result = run()
        finally:
            self._native.record(None)
        self._observer.after()
        found = self._records.take()
        for state in found.states:
            self._write(state)
        for one in found.inferences:
            self._write(replace(one, graph=self.graph, observed=self._observer.results()))
        return result


class NativeMarks:
    """Record inferences by persistent kernels with marks. recorder: itself, as an executor needs it."""

    def __init__(self, device: Device, native: Graph) -> None:
        """Build the kernels. Raises CannotMark, DeviceError."""
        self._native = native
        self._records = _Records(device.profile(None, "qhas"))
        native.record_marked(self._records.profile)
        native.record(None)
        self.recorder = self

    def infer(self, run: Callable[[], T]) -> T:
        """Call `run`, which makes one inference. The first one loads code and is not kept. Raises as `run` does."""
        self._native.record_marked(self._records.profile)
        try:
            return run()
        finally:
            self._native.record(None)

    def forget(self) -> None:
        """Drop those so far. Raises DeviceError."""
        self._taken()

    def of_graph(self, graph: int) -> Iterator[MarkedInference]:
        """Yield those so far, of the graph at that place of the log. Raises DeviceError."""
        for one in self._taken().marked:
            yield replace(one, graph=graph)

    def _taken(self) -> Log:
        self._records.profile.write_marks()
        return self._records.take()


class _Records:
    """The records of a profile without a file, as they are made."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self._reader = LogReader(NAME)

    def take(self) -> Log:
        """Return what was recorded since the last call, with all graphs that were described."""
        self._reader.feed(self.profile.take())
        log = self._reader.log
        assert log is not None  # it begins with its header
        found = replace(log)
        log.inferences, log.marked, log.states = [], [], []
        return found
