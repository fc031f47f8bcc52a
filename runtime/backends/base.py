"""Define the API of a device: memory, programs, launches and their times."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from gputune.core.bounds import Scalar
from gputune.core.errors import DeviceError, InvalidLaunch, LimitExceeded
from gputune.core.identity import DeviceIdentity
from gputune.core.launches import Work, check_allocation, check_sizes
from gputune.core.resources import Resources
from gputune.runtime.backends.answers import (
    Bytes,
    Checked,
    Compared,
    Reference,
    Times,
    Timing,
    checked,
    compared,
    guards_of,
)
from gputune.runtime.backends.sources import Prove, refuse_files, unproven
from gputune.runtime.devices import load, state

LAUNCHES_ENQUEUED = 256
"""How many launches are enqueued at most before their times are read."""
PROBED_BYTES, PROBED_WITH = 64, 0xA5
FLUSHED_BYTES = 64 << 20  # at least: some drivers report a first-level cache, or none
LINE_BYTES = 64
FLUSH = "__kernel void flush(__global uint16 *lines) { lines[get_global_id(0)] += 1; }"


@dataclass(eq=False)
class Buffer:
    """Device memory of `nbytes` bytes; freed with the last reference to it."""

    nbytes: int
    handle: Any
    parent: Buffer | None = None


@dataclass(eq=False)
class Program:
    """A built program; `build_ns` is what the driver's compiler took.

    prefix: what its kernels' names begin with before what their source calls them; others share its handle then, and
    it has no binary of its own. log: what the compiler said of its kernels, if this driver was asked to.
    """

    handle: Any
    build_ns: int
    binary: bytes | None = None
    prefix: str = ""
    log: str = ""


@dataclass(eq=False)
class Bound:
    """A kernel with its sizes and all its arguments set; those of `before` run before it each time.

    It holds its buffers by the places of their arguments, because PoCL aborts when a buffer is freed while it is still
    a kernel's argument; `kernel` comes first so that it is released first.
    """

    kernel: Any
    global_size: tuple[int, ...]
    local_size: tuple[int, ...]
    held: dict[int, Buffer]
    before: tuple[Bound, ...] = ()

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """Its arguments that are buffers."""
        return tuple(self.held.values())

    @property
    def sequence(self) -> tuple[Bound, ...]:
        """All kernels in the order in which they run; the last is this one."""
        return (*self.before, self)


class Call(NamedTuple):
    """Name a kernel of a program, with what it is launched with. work: for a backend that models time."""

    program: Program
    entry: str
    global_size: tuple[int, ...]
    local_size: tuple[int, ...]
    arguments: Sequence[Buffer | Scalar]
    work: Work | None = None


@dataclass(frozen=True, eq=False)
class Batch:
    """Launches of one kernel, enqueued together as a part of a pass. evict_bytes: how many bytes of other data pass
    before them; 0 is as many as the device's caches hold, None is none."""

    bound: Bound
    launches: int = 1
    evict_bytes: int | None = None


class Zone(NamedTuple):
    """`nbytes` of a buffer behind guard_bytes and before a guard. summed: whether their checksum is wanted."""

    buffer: Buffer
    guard_bytes: int
    nbytes: int
    summed: bool = True


@dataclass(eq=False)
class Backend(ABC):
    """One open device. `computes` is False when launches leave the outputs alone (the null backend).

    finds_compiled: its driver finds what other processes have compiled into the folder that open_backend was given. All
    methods raise the errors of errors.py with the status that a trial is recorded with.
    """

    computes: ClassVar[bool] = True

    identity: DeviceIdentity
    finds_compiled: bool = field(default=False, init=False)
    device_pointer: int = field(default=0, init=False)
    context_pointer: int = field(default=0, init=False)
    """The cl_device_id and the cl_context as numbers, 0 where there is none."""
    prove: Prove = field(default=unproven, init=False, repr=False)
    """Asked before a source with inline assembly is built, and before a context is loaded that needs features."""
    _flushers: dict[int, Bound] = field(default_factory=dict, init=False, repr=False)

    @property
    def settings(self) -> dict[str, str]:
        """Settings outside of gputune, by name, that change the driver's code or how long it takes."""
        return {}

    # --- memory ---

    def allocate(self, nbytes: int) -> Buffer:
        """Device memory with undefined contents. Raises LimitExceeded above the device's largest allocation."""
        self._check_size(nbytes)
        return Buffer(nbytes, self._allocate(nbytes))

    def _check_size(self, nbytes: int) -> None:
        check_allocation(nbytes, self.identity)
        if nbytes < 1:
            raise InvalidLaunch(f"a buffer of {nbytes} bytes, at least 1 is needed")

    # --- buffers' contents ---

    def upload(self, data: Any) -> Buffer:
        """Return a new buffer with the bytes of data (anything with a contiguous buffer)."""
        content = np.frombuffer(data, np.uint8)
        buffer = self.allocate(content.nbytes)
        self.write(buffer, content)
        return buffer

    def part(self, parent: Buffer, offset: int, nbytes: int) -> Buffer:
        """Return the bytes [offset, offset + nbytes) of parent, which must be no part itself, as a buffer that
        shares its memory. The offset must be a multiple of the device's base address alignment."""
        if offset < 0 or nbytes < 1 or offset + nbytes > parent.nbytes or parent.parent is not None:
            raise InvalidLaunch(f"bytes {offset} to {offset + nbytes} of a buffer of {parent.nbytes} bytes")
        alignment = self.identity.base_address_alignment_bytes
        if offset % alignment:
            raise LimitExceeded(f"a buffer part at offset {offset}, the device aligns parts to {alignment} bytes")
        return Buffer(nbytes, self._part(parent, offset, nbytes), parent)

    @abstractmethod
    def write(self, buffer: Buffer, data: Any) -> None:
        """Copy data (at most as long as the buffer) to the start of the buffer; return when it is copied."""

    @abstractmethod
    def read(self, buffer: Buffer, into: Bytes | None = None) -> Bytes:
        """Return the bytes of the buffer, after all launches before; `into` is an array of exactly its size to fill."""

    @abstractmethod
    def fill(self, buffer: Buffer, pattern: int) -> None:
        """Fill the buffer with a repeated byte (0 to 255)."""

    def copy(self, source: Buffer, target: Buffer) -> None:
        """Copy all bytes of a buffer to another one that is at least as large. Raises DeviceError."""
        self.write(target, self.read(source))

    def compare(self, zone: Zone, reference: Reference, beside: Sequence[Zone] = ()) -> tuple[Compared, list[Checked]]:
        """Return what is wrong with the contents of a zone, and with its guards; and what checksum says of the zones
        `beside` it, so that one call answers all that a verification asks. Raises DeviceError."""
        seen = self.checksum(beside)
        content, end = self.read(zone.buffer), zone.guard_bytes + zone.nbytes
        values = content[zone.guard_bytes : end].view(reference.values.dtype).reshape(reference.values.shape)
        return compared(values, reference, guards_of(content, zone.guard_bytes, end)), seen

    def checksum(self, zones: Sequence[Zone]) -> list[Checked]:
        """Return for each zone what it holds and what its guards show. Raises DeviceError."""
        return [checked(self.read(buffer), guard, guard + size, summed) for buffer, guard, size, summed in zones]

    # --- programs ---

    def build(self, source: str, options: str) -> Program:
        """Build OpenCL C. Raises BuildFailed with the shortened build log, or with what refuse_files has to say."""
        refuse_files(source, options, self.prove)
        return self._build(source, options)

    @abstractmethod
    def load_binary(self, binary: bytes) -> Program:
        """Build a program from what harvest returned. Raises BuildFailed when the driver refuses it."""

    @abstractmethod
    def harvest(self, program: Program) -> bytes:
        """Return the program's binary. Some drivers generate code at the first launch with a local size and keep
        what they were asked for first, so read it once, after a launch with the final sizes."""

    # --- launches ---

    def bind(
        self,
        program: Program,
        entry: str,
        global_size: tuple[int, ...],
        local_size: tuple[int, ...],
        arguments: Sequence[Buffer | Scalar],
        work: Work | None = None,
    ) -> Bound:
        """Return a kernel ready to launch. `work` is for a backend that models time instead of measuring it.

        Raises InvalidLaunch, LimitExceeded, BuildFailed (no such entry) or LaunchFailed (wrong arguments).
        """
        check_sizes(global_size, local_size, self.identity)
        return self._bind(Call(program, entry, global_size, local_size, arguments, work))

    def code_of(self, bound: Bound) -> str | None:
        """Return a name of the machine code that a kernel runs as with its sizes, once it was launched: equal names
        mean equal code. None where that cannot be known, or not cheaply."""
        return None

    def resources_of(self, program: Program, bound: Bound) -> tuple[Resources, ...]:
        """Return what each kernel of a launch takes, in their order; nothing where that cannot be known."""
        return ()

    @property
    def cache_bytes(self) -> int:
        """Return the bytes of the last-level cache of the device; 0 if the size is not known."""
        return 0

    def flush_caches(self, nbytes: int | None = None) -> None:  # noqa: B027 - nothing to do where nothing is computed
        """Put other data into the device's caches and wait for that: so many bytes, or enough for all of them. The
        first call may compile. Raises DeviceError."""

    @abstractmethod
    def enqueue(self, bound: Bound) -> None:
        """Start a launch behind all earlier ones, without waiting."""

    @abstractmethod
    def enqueue_timed(self, bounds: Sequence[Bound]) -> Callable[[], Times]:
        """Start launches behind all earlier ones, without waiting. Once everything is finished, what it returns gives
        their timestamps in ns of the device's clock, which they must have: for each launch, with its stages, a row of
        when it was queued by the host, submitted to the device, started there and ended. None is before the one in
        front of it in its row."""

    def state(self) -> dict[str, float]:
        """Return the clocks, temperatures and load of the machine that the device is in, as devices/state.py and
        devices/load.py name them."""
        return state.read() | load.read()

    def lost(self) -> bool:
        """Return whether nothing works any more in this process, as with drivers of GPUs after a kernel has touched
        memory that is not there: they refuse all that is asked of a device until a process opens it anew."""
        try:
            probe = self.allocate(PROBED_BYTES)
            self.fill(probe, PROBED_WITH)
            return not (self.read(probe) == PROBED_WITH).all()
        except DeviceError:
            return True

    @abstractmethod
    def finish(self) -> None:
        """Wait for everything enqueued."""

    @abstractmethod
    def first_launch(self, bound: Bound, started: Callable[[], None]) -> Timing:
        """Launch once and wait. Call `started` when the device begins to run it, which is after the driver has
        generated what code it generates at a first launch."""

    @abstractmethod
    def time(self, bound: Bound, launches: int) -> Timing:
        """Run the same launch several times, wait and say how long that took."""

    def time_pass(self, batches: Sequence[Batch], enough_ns: float = math.inf) -> list[Timing]:
        """Run batches in their order and say how long each took. It ends once those on the device's clock add up to
        enough_ns, or that says nothing of one: the caller has to choose another clock then. Raises DeviceError."""
        timings: list[Timing] = []
        for batch in batches:
            if batch.evict_bytes is not None:
                self.flush_caches(batch.evict_bytes or None)
            timings.append(timing := self.time(batch.bound, batch.launches))
            if timing.event_ns <= 0 or sum(each.event_ns for each in timings) >= enough_ns:
                break
        return timings

    # --- for the backends ---

    def _flusher(self, nbytes: int | None) -> Bound:
        """Return a launch that puts so many bytes of other data into the caches, or enough for all of them."""
        if nbytes is None:
            nbytes = max(FLUSHED_BYTES, 2 * self.cache_bytes)
        if nbytes not in self._flushers:
            groups = min(nbytes, self.identity.max_allocation_bytes) // LINE_BYTES // LINE_BYTES
            buffer = self.allocate(groups * LINE_BYTES * LINE_BYTES)
            size = (groups * LINE_BYTES,), (min(LINE_BYTES, self.identity.max_work_group_size),)
            self._flushers[nbytes] = self.bind(self.build(FLUSH, ""), "flush", *size, [buffer])
        return self._flushers[nbytes]

    @abstractmethod
    def _build(self, source: str, options: str) -> Program: ...

    @abstractmethod
    def _allocate(self, nbytes: int) -> Any: ...

    @abstractmethod
    def _part(self, parent: Buffer, offset: int, nbytes: int) -> Any: ...

    @abstractmethod
    def _bind(self, call: Call) -> Bound: ...


def buffers_of(arguments: Sequence[Buffer | Scalar]) -> dict[int, Buffer]:
    """Return the arguments that are buffers, by their places."""
    return {place: argument for place, argument in enumerate(arguments) if isinstance(argument, Buffer)}
