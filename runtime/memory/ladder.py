"""Try the importers of one open OpenCL device, in their order."""

from __future__ import annotations

import contextlib
import ctypes
import functools
from dataclasses import dataclass, field, replace

from gputune.core.errors import CannotImport, LaunchFailed
from gputune.core.identity import DeviceIdentity
from gputune.core.opened import Opened
from gputune.core.quirks import reads_in_place
from gputune.runtime.memory.descriptors import DMA_BUF_SYNC_END, DMA_BUF_SYNC_START, synchronise
from gputune.runtime.memory.device_facts import DeviceFacts
from gputune.runtime.memory.handles import PAGE, MemHandle
from gputune.runtime.memory.importers import (
    IMPORTERS,
    Allocated,
    AllocatedHostPointer,
    DeviceRefuses,
    FineGrainBuffer,
    Importer,
    Taken,
    UnifiedSharedMemory,
)
from gputune.runtime.memory.opencl_calls import MEM_USE_HOST_PTR, CallFailed, OpenCLCalls

COPY = "copy"
PROBED = 64  # bytes by which it is seen whether a device reads memory of the host where it lies


@dataclass(eq=False)
class Ladder:
    """What a device can take without a copy. context: what keeps the OpenCL context alive, whose memory this is."""

    calls: OpenCLCalls
    identity: DeviceIdentity
    context: object
    _refused: dict[str, str] = field(default_factory=dict)
    """Importers that turned out to be none on this device, and why."""
    _seen: set[str] = field(default_factory=set)
    """Importers whose buffers were mapped once and lay where the handle's memory does."""

    def use_queue(self, queue: int) -> None:
        """Has commands from now on go to another queue of the context; both must be finished."""
        self.calls.place = replace(self.calls.place, queue=queue)

    @functools.cached_property
    def facts(self) -> DeviceFacts:
        """What the device said."""
        return DeviceFacts.of(self.calls, self.identity)

    @functools.cached_property
    def _lacks(self) -> dict[str, str]:
        return {importer.name: importer.probe(self.facts) for importer in IMPORTERS}

    def importers(self) -> list[tuple[str, str]]:
        """Return the name of each importer, in their order, and why the device cannot use it. What can be tried on a
        page of memory is tried. A copy is always there."""
        found = [(one.name, self._unusable(one) or self._tried(one)) for one in IMPORTERS]
        return [*found, (COPY, "")]

    def take(self, handle: MemHandle) -> tuple[Taken, Importer]:
        """Return a cl_mem on the handle's memory, which is the caller's to release, by the first importer that takes
        it. Raises CannotImport."""
        tried: dict[str, list[str]] = {}  # importers by what speaks against them, what is this memory's first
        lacking: dict[str, list[str]] = {}
        for importer in IMPORTERS:
            name = importer.name
            if reason := self._unusable(importer):
                lacking.setdefault(reason, []).append(name)
                continue
            reason = importer.misfit(self.facts, handle, self.calls.place.context)
            if not reason:
                try:
                    return self._take(importer, handle), importer
                except CallFailed as error:
                    reason = self._failed(importer, error)
            tried.setdefault(reason, []).append(name)
        reasons = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in (tried | lacking).items())
        raise CannotImport(f"{self.identity.name} cannot use {handle} without a copy ({reasons})")

    def allocate(self, nbytes: int) -> MemHandle:
        """Return the best memory that host and device can both use: what the device sees without commands, else what
        other processes can be given, too, where the device takes that, else what it allocates to be mapped. Raises
        UnusableMemory."""
        for importer in (FineGrainBuffer(), UnifiedSharedMemory()):
            if not self._unusable(importer):
                with contextlib.suppress(CallFailed):
                    return self._allocate(importer, nbytes)
        shared = MemHandle.allocate(nbytes)
        try:
            self.calls.release(self.take(shared)[0].pointer)
        except CannotImport:
            if not self._unusable(mapped := AllocatedHostPointer()):
                with contextlib.suppress(CallFailed):
                    allocated = self._allocate(mapped, nbytes)
                    shared.close()
                    return allocated
        return shared

    def lend(self, address: int, nbytes: int) -> int:
        """Return a cl_mem, to be released, on memory of the host that launches read where it lies, with no command
        behind what the host writes there; 0 where they do not, or the driver takes no such memory now."""
        with contextlib.suppress(CallFailed):
            return self.calls.create_buffer(MEM_USE_HOST_PTR, nbytes, address) if self._reads_in_place else 0
        return 0

    @functools.cached_property
    def _reads_in_place(self) -> bool:
        """Whether the driver is known for it, and maps a buffer on memory at an odd address there."""
        if not reads_in_place(self.identity):
            return False
        memory = ctypes.create_string_buffer(PROBED + 1)
        address = ctypes.addressof(memory) + 1
        with contextlib.suppress(CallFailed):
            pointer = self.calls.create_buffer(MEM_USE_HOST_PTR, PROBED, address)
            try:
                mapped = self.calls.map(pointer, PROBED)
                self.calls.unmap(pointer, mapped)
                return mapped == address
            finally:
                self.calls.finish()
                self.calls.release(pointer)
        return False

    def begin_host_access(self, handle: MemHandle, taken: Taken, importer: Importer, *, wait: bool = True) -> int:
        """Let the host use what a device was given, without `wait` as soon as the queue is finished. Return where it
        lies, or 0 where nothing was mapped. Raises LaunchFailed when it lies elsewhere than the handle, and
        UnusableMemory."""
        if importer.access == "map":
            try:
                address = self.calls.map(taken.pointer, handle.nbytes, wait)
                if address != handle.address:
                    self.calls.unmap(taken.pointer, address)
                    raise CallFailed("the driver has mapped a copy")
            except CallFailed as error:
                raise LaunchFailed(f"mapping {handle}: {error}") from None
            return address
        if importer.access == "sync":
            self.calls.finish()
            synchronise(handle.fileno(), DMA_BUF_SYNC_START)
        return 0

    def end_host_access(self, handle: MemHandle, address: int, taken: Taken, importer: Importer) -> None:
        """Give the memory back to the device. Raises LaunchFailed and UnusableMemory."""
        if importer.access == "sync":
            synchronise(handle.fileno(), DMA_BUF_SYNC_END)
        elif importer.access == "map":
            try:
                self.calls.unmap(taken.pointer, address)
            except CallFailed as error:
                raise LaunchFailed(f"unmapping {handle}: {error}") from None

    def hand_over(self, wholes: list[int], acquire: bool) -> None:
        """Enqueue the command by which the device acquires or releases external memory. Raises LaunchFailed."""
        name = "clEnqueueAcquireExternalMemObjectsKHR" if acquire else "clEnqueueReleaseExternalMemObjectsKHR"
        try:
            self.calls.command_on(name, wholes)
        except CallFailed as error:
            raise LaunchFailed(str(error)) from None

    def _take(self, importer: Importer, handle: MemHandle) -> Taken:
        taken = importer.take(self.calls, self.facts, handle)
        if importer.access == "map" and importer.name not in self._seen:
            # A map that lies elsewhere is a copy. Once is enough: a driver does not change its ways.
            try:
                address = self.calls.map(taken.pointer, handle.nbytes)
                self.calls.unmap(taken.pointer, address)
            except CallFailed:
                self.calls.release(taken.pointer)
                raise
            if address != handle.address:
                self.calls.release(taken.pointer)
                raise DeviceRefuses("the driver copies: what it maps lies elsewhere")
            self._seen.add(importer.name)
        return taken

    def _unusable(self, importer: Importer) -> str:
        return self._refused.get(importer.name) or self._lacks[importer.name]

    def _failed(self, importer: Importer, error: CallFailed) -> str:
        """Why an importer did not take memory; what holds for all memory is kept."""
        if isinstance(error, DeviceRefuses):
            self._refused[importer.name] = str(error)
        return str(error)

    def _tried(self, importer: Importer) -> str:
        """Why a device cannot take a page of memory, whatever it says of itself; empty where it can, or where that
        takes memory that cannot be had here."""
        try:
            with self._allocate(importer, PAGE) if importer.allocates else MemHandle.allocate(PAGE) as page:
                if not importer.misfit(self.facts, page, self.calls.place.context):
                    self.calls.release(self._take(importer, page).pointer)
        except CallFailed as error:
            return self._failed(importer, error)
        return ""

    def _allocate(self, importer: Importer, nbytes: int) -> MemHandle:
        """Memory of the importer's own kind. Raises CallFailed."""
        assert importer.allocates is not None
        made = importer.allocate(self.calls, nbytes)
        where = importer.allocates, made.address, nbytes
        free = functools.partial(_free, made, Opened("OpenCL"), self.context)
        return MemHandle._allocated(*where, pointer=made.pointer, owner=self.calls.place.context, free=free)


def _free(made: Allocated, opened: Opened, context: object) -> None:
    """Free a driver's memory, which holds its context until then: the host's views of it may outlive the backend. A
    fork cannot give it back."""
    if opened.here:
        made.free()
