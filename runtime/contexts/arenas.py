"""Share the arenas of a group in the C runtime, which also has its equal weights and programs once."""

from __future__ import annotations

from contextlib import ExitStack

from gputune.runtime.context.format import ContextFile
from gputune.runtime.context.records import GraphRecord
from gputune.runtime.contexts.device import NativeDevice, opened_file
from gputune.runtime.contexts.executor import NativeExecutor
from gputune.runtime.executor import Executor
from gputune.runtime.native.states import state_bytes


class NativeArenas:
    """Load the executors of a group, one for each stream. Arenas grow with the contexts that are loaded."""

    def __init__(self, device: NativeDevice, streams: int) -> None:
        """Make a group without arenas. Raises DeviceError."""
        self._device, self._streams = device, streams
        self._group = device.device.group([], streams)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return the bytes of each arena of a stream."""
        return () if self._group.closed else self._group.arenas

    @property
    def weights(self) -> int:
        """Return the bytes of weights that executors hold."""
        return 0 if self._group.closed else self._group.weights

    @property
    def states(self) -> int:
        """Return the bytes of states that are open on the device."""
        return state_bytes(self._device.device)

    def load(self, file: ContextFile, graph: GraphRecord, strict: bool, device_open_ns: int) -> list[Executor]:
        """Load a graph for each stream, and replace arenas that are too small for a graph of the file; if that fails,
        all have what they had before. Raises as executor_on does."""
        if any(has < needs for has, needs in zip(self._padded(graph), graph.arena_bytes, strict=True)):
            with opened_file(file) as opened:
                self._group.grow(opened)
        loaded: list[Executor] = []
        with ExitStack() as undo:
            for stream in range(self._streams):
                place = self._group, stream
                loaded.append(NativeExecutor(self._device, file, graph, strict, device_open_ns, place))
                undo.callback(loaded[-1].close)
            undo.pop_all()
        return loaded

    def close(self) -> None:
        """Give the arenas up."""
        self._group.close()

    def _padded(self, graph: GraphRecord) -> tuple[int, ...]:
        """Return the sizes of the arenas that a graph uses, 0 for those that are not there."""
        sizes = self.sizes
        return (*sizes, *[0] * len(graph.arena_bytes))[: len(graph.arena_bytes)]
