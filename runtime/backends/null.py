"""Simulate a device that computes nothing: host memory, no kernels, and a deterministic model of their time.

A launch takes the roofline time of its work (or of the bytes of its buffers) on a made-up device, times a penalty from
1 to 10 that a hash of source, options and sizes decides. The same launch costs the same in every process.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from gputune.core.errors import BuildFailed, CannotImport, LaunchFailed
from gputune.core.identity import DeviceIdentity
from gputune.core.launches import Work
from gputune.runtime.backends.answers import Bytes, Times, Timing
from gputune.runtime.backends.base import Backend, Bound, Buffer, Call, Program, buffers_of
from gputune.runtime.devices.discovery import DeviceReport
from gputune.runtime.memory.handles import Lease, MemHandle

FLOPS_PER_NS = 100.0
BYTES_PER_NS = 20.0
LAUNCH_NS = 2_000
HOST_POINTER = "host pointer"
"""The way in which it takes memory."""
MAGIC = b"gputune-null "


def open_device(report: DeviceReport, profiling: bool = True, compiled: Path | None = None) -> NullBackend:
    """Return the null device: it always has a clock, and compiles nothing."""
    assert report.identity is not None
    return NullBackend(report.identity)


@dataclass(eq=False)
class Imported:
    """A handle's memory as a device uses it. As long as this lives, the handle cannot be closed. importer, coherent,
    cl_mem: as of contexts.imported.Imported."""

    handle: MemHandle
    lease: Lease
    importer: str = HOST_POINTER
    coherent: bool = True
    cl_mem: int = 0


class NullBackend(Backend):
    """No device at all; outputs are not computed."""

    computes: ClassVar[bool] = False

    _clock_ns = 0
    """The device's clock, which only launches with stamps move."""

    def __init__(self, identity: DeviceIdentity) -> None:
        super().__init__(identity)
        self._held_bytes: dict[int, int] = {}
        """Of buffers that live, by their ids."""

    def another_queue(self) -> Self:
        """Return the same device with a queue of its own, whose launches may run beside those of this one; buffers and
        programs serve both."""
        return self

    # --- memory ---

    def allocate(self, nbytes: int) -> Buffer:
        buffer = super().allocate(nbytes)
        self._held_bytes[id(buffer)] = nbytes
        weakref.finalize(buffer, self._held_bytes.pop, id(buffer), None).atexit = False
        return buffer

    @property
    def allocated_bytes(self) -> int:
        """Return the bytes of memory that is allocated now. Memory of handles does not count."""
        return sum(self._held_bytes.copy().values())

    def write(self, buffer: Buffer, data: Any) -> None:
        content = np.frombuffer(data, np.uint8)
        if content.nbytes > buffer.nbytes:
            raise LaunchFailed(f"writing {content.nbytes} bytes to a buffer of {buffer.nbytes} bytes")
        buffer.handle[: content.nbytes] = content

    def read(self, buffer: Buffer, into: Bytes | None = None) -> Bytes:
        result = np.empty(buffer.nbytes, np.uint8) if into is None else into
        result[:] = buffer.handle
        return result

    def fill(self, buffer: Buffer, pattern: int) -> None:
        buffer.handle[:] = pattern

    # --- memory of the caller ---

    def import_memory(self, handle: MemHandle) -> Imported:
        """Return the handle's memory, without a copy. Raises CannotImport for memory that the host cannot see,
        LimitExceeded above the device's largest allocation, and MemoryClosed."""
        self._check_size(handle.nbytes)
        if handle.array is None:
            raise CannotImport(f"{self.identity.name} cannot use {handle} without a copy: the host cannot see it")
        return Imported(handle, handle.hold("imported by a device"))

    def allocate_handle(self, nbytes: int) -> MemHandle:
        """Return new memory that host and device both use without a copy, of the best kind that the device has. Raises
        LimitExceeded and UnusableMemory."""
        self._check_size(nbytes)
        return MemHandle.allocate(nbytes)

    def begin_host_access(self, *imported: Imported) -> None:
        """Do nothing: the memory is the host's."""

    def end_host_access(self, imported: Imported) -> None:
        """Do nothing: the memory is the host's."""

    # --- for the base ---

    def _build(self, source: str, options: str) -> Program:
        binary = MAGIC + hashlib.sha256(f"{options}\0{source}".encode()).hexdigest().encode()
        return Program(handle=None, build_ns=0, binary=binary)

    def load_binary(self, binary: bytes) -> Program:
        if not binary.startswith(MAGIC):
            raise BuildFailed("not a program binary of the null device")
        return Program(handle=None, build_ns=0, binary=bytes(binary))

    def harvest(self, program: Program) -> bytes:
        assert program.binary is not None
        return program.binary

    def enqueue(self, bound: Bound) -> None:
        pass  # nothing runs, so there is nothing to wait for either

    def enqueue_timed(self, bounds: Sequence[Bound]) -> Callable[[], Times]:
        return self._stamped([time_ns(bound) for bound in bounds])

    def _stamped(self, durations_ns: Sequence[int]) -> Callable[[], Times]:
        """Return the timestamps of launches each of which is queued when the one before has ended, and starts at
        once."""
        times = self._from_now(durations_ns)
        self._clock_ns += sum(durations_ns)
        return lambda: times

    def _from_now(self, durations_ns: Sequence[int]) -> Times:
        ended_ns = self._clock_ns + np.cumsum(durations_ns, dtype=np.int64)
        started_ns = ended_ns - durations_ns
        return np.stack([started_ns, started_ns, started_ns, ended_ns], axis=1)

    def finish(self) -> None:
        pass

    def first_launch(self, bound: Bound, started: Callable[[], None]) -> Timing:
        started()
        return self.time(bound, 1)

    def time(self, bound: Bound, launches: int) -> Timing:
        total_ns = launches * time_ns(bound)
        return Timing(launches, total_ns, total_ns, times=self._from_now([time_ns(bound)] * launches))

    def _allocate(self, nbytes: int) -> Any:
        return np.zeros(nbytes, np.uint8)

    def _part(self, parent: Buffer, offset: int, nbytes: int) -> Any:
        return parent.handle[offset : offset + nbytes]

    def _bind(self, call: Call) -> Bound:
        held = buffers_of(call.arguments)
        least = call.work or Work(flops=0, bytes=sum(buffer.nbytes for buffer in held.values()))
        digest = hashlib.sha256(
            repr((call.program.binary, call.entry, call.global_size, call.local_size)).encode()
        ).digest()
        penalty = 1 + 9 * int.from_bytes(digest[:8], "little") / 2**64
        time_ns = LAUNCH_NS + round(penalty * max(least.flops / FLOPS_PER_NS, least.bytes / BYTES_PER_NS))
        return Bound(time_ns, call.global_size, call.local_size, held)


def time_ns(bound: Bound) -> int:
    """Return what the model says that a launch takes; its stages are part of its work and cost their starts only."""
    return int(bound.kernel) + LAUNCH_NS * len(bound.before)
