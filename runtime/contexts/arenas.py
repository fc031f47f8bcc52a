"""Share the arenas of a group in the C runtime, which also shares equal weights and programs in it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from weakref import WeakKeyDictionary

from gputune.core.errors import DeviceError
from gputune.runtime.context.format import ContextFile
from gputune.runtime.context.memory_need import MemoryNeed
from gputune.runtime.context.records import ContextHeader, GraphRecord
from gputune.runtime.contexts.device import NativeDevice, opened_file
from gputune.runtime.contexts.executor import NativeExecutor
from gputune.runtime.executor import Executor
from gputune.runtime.native.binding import Group


class NativeArenas:
    """Load the executors of a group, one for each stream. Its arenas are allocated for the first context."""

    def __init__(self, device: NativeDevice, streams: int) -> None:
        if streams != 1:
            raise DeviceError("the C runtime runs one inference of a group at a time so far")
        self._device = device
        self._group: Group | None = None
        self._constants: WeakKeyDictionary[Executor, dict[Hashable, int]] = WeakKeyDictionary()
        self.sizes: tuple[int, ...] = ()

    @property
    def weights(self) -> int:
        """Return the bytes of weights that executors hold."""
        held: dict[Hashable, int] = {}
        for one in self._constants.values():
            held |= one
        return sum(held.values())

    def load(self, file: ContextFile, graph: GraphRecord, strict: bool, device_open_ns: int) -> list[Executor]:
        """Load a graph for each stream. Raises as executor_on does."""
        if self._group is None:
            with opened_file(file) as opened:
                self._group = self._device.device.group([opened])
            self.sizes = MemoryNeed.of(file.header.device, file.header.graphs).arena_bytes
        executor = NativeExecutor(self._device, file, graph, strict, device_open_ns, self._group)
        self._constants[executor] = _constants_of(file.header, graph)
        return [executor]

    def grow(self, file: ContextFile, arenas: Sequence[int], members: Iterable[Sequence[Executor]]) -> None:
        """Exchange the arenas for larger ones, which a file needs; if that fails, all have what they had before."""
        raise DeviceError("the C runtime does not exchange arenas for Python yet")

    def close(self) -> None:
        """Give the arenas up."""
        if self._group is not None:
            self._group.close()
        self.sizes = ()


def _constants_of(header: ContextHeader, graph: GraphRecord) -> dict[Hashable, int]:
    """Return the bytes of the weights that a graph reads, by what makes them equal to others'."""
    sections = [header.sections[header.weights[index]] for index in graph.constants("weights")]
    packed = [header.packing[index] for index in graph.constants("packed")]
    found: dict[Hashable, int] = {section.sha256: section.length for section in sections}
    return found | {("packed", one.name): one.packed_bytes for one in packed}
