"""Record launches once, and hand them to a device by one command for each inference.

A way to record belongs to a queue. A recording keeps the arguments that its launches had, and all that it uses lives as
long as it. An argument may be given another buffer where the way can rebind; elsewhere the launches are recorded again.
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from gputune.core.opened import Closing, Opened
from gputune.runtime.memory.opencl_calls import OpenCLCalls


class Memory(Protocol):
    """A buffer of a device; `handle` is a pyopencl.Buffer."""

    handle: Any


class Launch(Protocol):
    """A kernel with its sizes and its arguments set; `kernel` is a pyopencl.Kernel, and `held` has its buffers by the
    places of their arguments."""

    kernel: Any
    global_size: tuple[int, ...]
    local_size: tuple[int, ...]

    @property
    def held(self) -> Mapping[int, Memory]:
        """Return its buffers."""


Change = tuple[int, int, int]
"""Which launch of a recording, which argument of it, and the cl_mem that it becomes."""


class Recording(Closing, ABC):
    """Launches that were recorded, in their order."""

    def __init__(self, launches: Sequence[Launch]) -> None:
        self._launches = tuple(launches)
        self._numbers = {id(launch): number for number, launch in enumerate(launches)}
        self._held: list[dict[int, Memory]] = [dict(launch.held) for launch in launches]
        self._release: Callable[[], object] = lambda: None

    @abstractmethod
    def replay(self) -> None:
        """Enqueue all launches, after everything that was enqueued before. Raises CallFailed."""

    def rebind(self, changed: Sequence[tuple[Launch, int]]) -> None:
        """Let these arguments be the buffers that their launches have now; nothing of this recording may be enqueued.
        Launches that are not of this recording do not count. Raises CallFailed; then it must be closed."""
        changes: list[Change] = []
        for launch, place in changed:
            number = self._numbers.get(id(launch))
            if number is None or self._held[number].get(place) is launch.held[place]:
                continue
            changes.append((number, place, launch.held[place].handle.int_ptr))
        if changes:
            self._rebind(changes)
        for number, place, _ in changes:  # and not before: drivers abort when memory is freed that is an argument
            self._held[number][place] = self._launches[number].held[place]

    def uses(self, memory: Memory) -> bool:
        """Return whether a buffer is an argument of it."""
        return any(one is memory for held in self._held for one in held.values())

    def close(self) -> None:
        """Give the recording back, and then what it held. It must not be enqueued. A second call does nothing."""
        self._release()
        self._held.clear()

    @abstractmethod
    def _rebind(self, changes: Sequence[Change]) -> None:
        """Let arguments be other buffers, if the way can do that. Raises CallFailed."""

    def _released_by(self, release: Callable[[], object]) -> None:
        """Have this called once: by `close`, or when nothing refers to the recording. A fork cannot give it back."""
        opened = Opened("a recording")

        def here() -> None:
            if opened.here:
                release()

        finalize = weakref.finalize(self, here)
        finalize.atexit = False
        self._release = finalize


@dataclass(frozen=True)
class RecordedQueue(ABC):
    """A way to record launches for the queue of these calls. rebinds: whether its recordings can."""

    name: ClassVar[str]

    calls: OpenCLCalls
    rebinds: bool

    @abstractmethod
    def record(self, launches: Sequence[Launch]) -> Recording:
        """Record launches with the arguments that they have. Raises CallFailed."""


@contextmanager
def closed_if_failed(recording: Recording) -> Iterator[None]:
    """Close a recording that was begun and cannot be completed."""
    try:
        yield
    except BaseException:
        recording.close()
        raise
