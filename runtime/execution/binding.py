"""Bind the launches of a graph to memory when it is loaded, and bind them again when the memory changes.

A change costs an argument of each launch that uses the memory, and nothing else. Memory is held until other memory has
taken its place in all arguments, because a PoCL process aborts if a buffer is freed that is still an argument.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from gputune.core.bounds import Scalar
from gputune.core.errors import DeviceError
from gputune.core.launches import OFFSET_BYTES
from gputune.runtime.backends import Backend, Bound, Buffer, Program
from gputune.runtime.context.records import BufferKind, BufferRef, LaunchRecord

Place = tuple[BufferKind, int]
"""What a BufferRef names, whatever part of it."""


def unallocated(nbytes: int) -> Buffer:
    """Return what stands for memory that there is not yet: launches may be bound to it and must not run."""
    return Buffer(nbytes, None)


class Binder:
    """Binds the launches of one graph. Not for several threads at once."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._memory: dict[Place, Buffer] = {}
        self._parts: dict[Place, dict[BufferRef, Buffer]] = {}
        self._arguments: defaultdict[Place, list[tuple[Bound, int, BufferRef]]] = defaultdict(list)
        self.changed: set[Place] = set()
        """The places whose memory was exchanged since a reader has emptied the set."""
        self.keepers: list[Callable[[Buffer], object]] = []
        """Are told of memory that must be given up; they may hold memory that launches do not use now."""

    def memory(self, kind: BufferKind, index: int) -> Buffer:
        """Return what launches use there now."""
        return self._memory[kind, index]

    def use(self, kind: BufferKind, index: int, buffer: Buffer) -> None:
        """From now on launches use this memory there, those included that are bound already; it is held until other
        memory takes its place. It must be as large as what launches refer to. Raises DeviceError, and then all launches
        use what they did before."""
        place = kind, index
        before, parts = self._memory.get(place), self._parts.pop(place, None)
        self._memory[place] = buffer
        bound = self._arguments.get(place, ())
        try:
            wanted = [self._buffer(ref) for _, _, ref in bound]
            for (one, position, _), argument in zip(bound, wanted, strict=True):
                self._backend.set_buffer(one, position, argument)
        except BaseException:
            self._parts.pop(place, None)
            if before is not None:
                self._memory[place] = before
                self._parts |= {} if parts is None else {place: parts}
                for one, position, ref in bound:
                    with suppress(DeviceError):
                        self._backend.set_buffer(one, position, self._buffer(ref))
            raise
        self.changed.add(place)
        del before, parts  # not before: drivers abort when memory is freed that is still an argument

    def use_all(self, kind: BufferKind, buffers: Sequence[Buffer]) -> None:
        """Use these buffers as the memory of a kind, each by its index."""
        for index, buffer in enumerate(buffers):
            self.use(kind, index, buffer)

    def places(self) -> list[Place]:
        """Return where launches that are bound use memory."""
        return list(self._arguments)

    def arguments(self, place: Place) -> list[tuple[Bound, int]]:
        """Return the launches that use the memory there, each with the place of the argument."""
        return [(bound, position) for bound, position, _ in self._arguments.get(place, ())]

    def give_up(self, buffer: Buffer) -> None:
        """Has nothing hold this memory any more; launches must not use it."""
        for keeper in self.keepers:
            keeper(buffer)

    def bind(self, program: Program, launch: LaunchRecord) -> Bound:
        """Return a launch with its arguments. Raises as Backend.bind does."""
        given: list[BufferRef | Scalar] = []
        for argument in launch.arguments:
            if launch.offsets and isinstance(argument, BufferRef):
                given += [replace(argument, offset=0), argument.offset // OFFSET_BYTES]
            else:
                given.append(argument)
        arguments = [self._buffer(each) if isinstance(each, BufferRef) else each for each in given]
        bound = self._backend.bind(program, launch.entry, launch.global_size, launch.local_size, arguments)
        for position, each in enumerate(given):
            if isinstance(each, BufferRef):
                self._arguments[each.kind, each.index].append((bound, position, each))
        return bound

    def close(self) -> None:
        """Forget launches and then memory."""
        self.keepers.clear()
        self._arguments.clear()
        self._parts.clear()
        self._memory.clear()

    def _buffer(self, ref: BufferRef) -> Buffer:
        """Return the buffer of an argument: a whole one, which may be larger, or a part that is made once."""
        whole = self._memory[ref.kind, ref.index]
        if ref.offset == 0:
            return whole
        parts = self._parts.setdefault((ref.kind, ref.index), {})
        if ref not in parts:
            parts[ref] = self._backend.part(whole, ref.offset, ref.nbytes)
        return parts[ref]
