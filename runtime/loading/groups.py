"""Run contexts on one device that share what they do not use at the same time: arenas, and equal weights and programs.

Each arena is as large as the largest that any graph has in its place. Graphs that share arenas run one after the other.
With several streams, there are as many sets of arenas, and as many graphs may run at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from queue import LifoQueue
from typing import TYPE_CHECKING

from gputune.core.errors import ArenaTooSmall, ContextClosed
from gputune.core.opened import Closing
from gputune.runtime.context.format import ContextFile
from gputune.runtime.context.memory_need import MemoryNeed, largest_arenas
from gputune.runtime.contexts.device import OpenDevice
from gputune.runtime.executor import Executor
from gputune.runtime.loading.executors import arenas_on
from gputune.runtime.loading.model import ContextSource, context_sources, open_any, open_together
from gputune.runtime.loading.verdict import Compatibility, is_strict
from gputune.runtime.values import NOTHING, Array, Values

if TYPE_CHECKING:  # most loads do without
    from gputune.runtime.power.profiles.perf_profile import PerfProfile


@dataclass(frozen=True)
class GroupMemory:
    """Count bytes of device memory.

    Attributes:
        arenas: bytes of each arena of one stream, by place.
        streams: the number of sets of arenas.
        private: what all graphs would need with their own arenas, in one stream.
        weights: bytes of weights, which are held once for all.
        states: bytes of the states that are open.
    """

    arenas: tuple[int, ...]
    streams: int
    private: int
    weights: int
    states: int = 0


class ContextGroup(Closing):
    """Run loaded contexts that share their arenas. Several threads may use a group.

    A context is known by its name, and each of its graphs by NAME/GRAPH; the name alone stands for its first graph.
    """

    def __init__(self, backend: OpenDevice, streams: int, strict: bool, device_open_ns: int = 0) -> None:
        """Make a group with load_group. device_open_ns: the time to open the device, which executors report. Raises
        DeviceError."""
        if streams < 1:
            raise ValueError(f"streams is {streams}, at least 1 is needed")
        self._strict = strict
        self._device_open_ns = device_open_ns
        self._closed = False
        self._changes = threading.RLock()  # held while contexts come and go, and arenas are exchanged
        self._device, self._stream_count = backend, streams
        self._arenas = arenas_on(backend, streams)
        self._free: LifoQueue[int] = LifoQueue()
        for stream in reversed(range(streams)):
            self._free.put(stream)
        self._members: dict[str, list[Executor]] = {}
        self._needs: dict[str, MemoryNeed] = {}

    # --- members --------------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> Executor:
        """Return the executor of a graph in the first stream. Raises KeyError."""
        return self.executors(name)[0]

    def __iter__(self) -> Iterator[str]:
        """Return the names of contexts and graphs."""
        return iter(list(self._members))

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, name: object) -> bool:
        return name in self._members

    def executors(self, name: str) -> Sequence[Executor]:
        """Return the executors of a graph, one for each stream. Raises KeyError."""
        if self._closed:
            raise ContextClosed("the group was closed")
        if name not in self._members:
            raise KeyError(f"the group has no graph {name!r}; there are {list(self._members)}")
        return self._members[name]

    def add(self, path: Path | str, name: str | None = None, grow: bool = False) -> Executor:
        """Load one more context under a name, by default its file's without the suffix; return its first graph's
        executor.

        grow: if it needs larger arenas than the group has, replace the arenas of all members. Raises ArenaTooSmall with
        both sizes if larger arenas are needed without grow; ValueError for a name that the group already has; as
        load_group does.
        """
        sources = open_any(path).contexts(name)
        if len(sources) > 1:
            raise ValueError(f"{path} has {len(sources)} contexts; add them one by one")
        (source,) = sources
        with self._changes:
            if self._closed:
                raise ContextClosed("the group was closed")
            if source.name in self._needs:
                raise ValueError(f"{path}: the group has a context {source.name!r} already; give this one another name")
            with source.open(self._device.identity) as file:
                arenas, needed = self.memory.arenas, _need_of(file).arena_bytes
                if not grow and largest_arenas([arenas, needed]) != arenas:
                    raise ArenaTooSmall(
                        f"{path} needs arenas of {list(needed)} bytes, the group has {list(arenas)}; "
                        "grow=True replaces them"
                    )
                self.load(source.name, file)
            return self[source.name]

    def load(self, name: str, file: ContextFile) -> None:
        """Load a context, and replace arenas that are too small for it."""
        loaded: dict[str, list[Executor]] = {}
        with self._changes, ExitStack() as undo:
            for graph in file.header.graphs:
                executors = self._arenas.load(file, graph, self._strict, self._device_open_ns)
                loaded[f"{name}/{graph.name}"] = executors
                for executor in executors:
                    undo.callback(executor.close)
            undo.pop_all()
            self._members[name] = next(iter(loaded.values()))
            self._members |= loaded
            self._needs[name] = _need_of(file)

    def close(self, name: str | None = None) -> None:
        """Close a context, or all contexts and the group's memory. A second call does nothing."""
        with self._changes:
            if name is not None:
                if name not in self._needs:
                    raise KeyError(name)
                del self._needs[name]
            for known in [known for known in self._members if name is None or known.split("/")[0] == name]:
                for executor in self._members.pop(known):
                    executor.close()
            if name is None:
                self._closed = True
                self._needs.clear()
                self._arenas.close()

    # --- use ------------------------------------------------------------------------------------------

    def run(self, name: str, inputs: Values = NOTHING, outputs: Values = NOTHING) -> dict[str, Array]:
        """Run one inference of a graph in any free stream, as Executor.run. Also raises KeyError."""
        return self.run_timed(name, inputs, outputs)[0]

    def run_timed(self, name: str, inputs: Values = NOTHING, outputs: Values = NOTHING) -> tuple[dict[str, Array], int]:
        """Run one inference and also return its ns, as Executor.run_timed; waiting for a stream does not count."""
        executors = self.executors(name)
        stream = self._free.get()
        try:
            return executors[stream].run_timed(inputs, outputs)
        finally:
            self._free.put(stream)

    def inferences(self, name: str) -> int:
        """Return how many inferences of a graph all streams have run. Raises KeyError."""
        return sum(executor.counters.inferences for executor in self.executors(name))

    def set_perf_profile(self, profile: PerfProfile | str, name: str) -> None:
        """Make the inferences of a graph, in all streams, vote for clocks and power, as Executor.set_perf_profile.
        Raises KeyError, ValueError."""
        for executor in self.executors(name):
            executor.set_perf_profile(profile)

    @property
    def memory(self) -> GroupMemory:
        """Return the memory of the group, and what its contexts would need without it."""
        return GroupMemory(
            arenas=self._arenas.sizes,
            streams=self._stream_count,
            private=sum(graph.total_bytes for need in self._needs.values() for graph in need.graphs),
            weights=self._arenas.weights,
            states=self._arenas.states,
        )


def load_group(
    paths: Sequence[Path | str],
    device: str | None = None,
    names: Sequence[str] | None = None,
    streams: int = 1,
    cache_compatibility_mode: Compatibility = "permissive",
) -> ContextGroup:
    """Load contexts that use one set of arenas in turns, each arena as large as the largest that any graph has in its
    place.

    The context with the largest need is loaded first. An ONNX file may stand for contexts by EPContext nodes. From a
    package, the context that fits the device best is loaded.

    Args:
        paths: the files.
        device: as for load(), for the device of the first context.
        names: names of the contexts; by default their files' names without the suffix.
        streams: how many inferences may run at a time, each in its own arenas.
        cache_compatibility_mode: as for load().

    Raises ValueError for names that are not distinct, and as load() does.
    """
    sources = context_sources([open_any(path) for path in paths], names)
    return group_of(sources, device, streams, is_strict(cache_compatibility_mode))


def group_of(sources: Sequence[ContextSource], device: str | None, streams: int, strict: bool) -> ContextGroup:
    """Return the same of contexts that are known. Raises as load_group does."""
    with ExitStack() as stack:
        backend, device_open_ns, files = open_together(sources, device, stack)
        return group_on(backend, files, streams, strict, device_open_ns)


def group_on(
    backend: OpenDevice, files: Mapping[str, ContextFile], streams: int, strict: bool, device_open_ns: int = 0
) -> ContextGroup:
    """Return the same of contexts by their names, on an open device. Raises ContextError, DeviceError, BuildFailed;
    ValueError for streams."""
    group = ContextGroup(backend, streams, strict, device_open_ns)
    try:
        for name, file in sorted(files.items(), key=lambda one: -sum(_need_of(one[1]).arena_bytes)):
            group.load(name, file)
    except BaseException:
        group.close()
        raise
    return group


def _need_of(file: ContextFile) -> MemoryNeed:
    return MemoryNeed.of(file.header.device, file.header.graphs)
