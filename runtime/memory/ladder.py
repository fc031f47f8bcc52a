"""The importers of one open OpenCL device, tried in their order."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

from gputune.core.errors import CannotImport, LaunchFailed
from gputune.core.identity import DeviceIdentity
from gputune.core.opened import Opened
from gputune.runtime.memory.descriptors import DMA_BUF_SYNC_END, DMA_BUF_SYNC_START, synchronise
from gputune.runtime.memory.device_facts import DeviceFacts
from gputune.runtime.memory.handles import Kind, MemHandle
from gputune.runtime.memory.importers import (
    IMPORTERS,
    AllocatedHostPointer,
    FineGrainBuffer,
    Importer,
    Taken,
    UnifiedSharedMemory,
)
from gputune.runtime.memory.opencl_calls import CallFailed, OpenCLCalls

COPY = "copy"


@dataclass(eq=False)
class Ladder:
    """What a device can take without a copy. context: what keeps the OpenCL context alive, whose memory this is."""

    calls: OpenCLCalls
    identity: DeviceIdentity
    context: object
    _refused: dict[str, str] = field(default_factory=dict)
    """Importers whose buffers turned out to be copies, and why."""
    _seen: set[str] = field(default_factory=set)
    """Importers whose buffers were mapped once and lay where the handle's memory does."""

    @functools.cached_property
    def facts(self) -> DeviceFacts:
        """What the device said."""
        return DeviceFacts.of(self.calls, self.identity)

    @functools.cached_property
    def _lacks(self) -> dict[str, str]:
        return {importer.name: importer.probe(self.facts) for importer in IMPORTERS}

    def importers(self) -> list[tuple[str, str]]:
        """Name of each importer, in their order, and why the device cannot use it; a copy is always there."""
        return [(one.name, self._refused.get(one.name, self._lacks[one.name])) for one in IMPORTERS] + [(COPY, "")]

    def take(self, handle: MemHandle) -> tuple[Taken, Importer]:
        """A cl_mem on the handle's memory, which is the caller's to release, by the first importer that takes it.
        Raises CannotImport."""
        tried: dict[str, list[str]] = {}  # importers by what speaks against them, what is this memory's first
        lacking: dict[str, list[str]] = {}
        for importer in IMPORTERS:
            name = importer.name
            if reason := self._refused.get(name) or self._lacks[name]:
                lacking.setdefault(reason, []).append(name)
                continue
            reason = importer.misfit(self.facts, handle, self.calls.place.context)
            if not reason:
                try:
                    return self._take(importer, handle), importer
                except CallFailed as error:
                    reason = str(error)
            tried.setdefault(reason, []).append(name)
        reasons = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in (tried | lacking).items())
        raise CannotImport(f"{self.identity.name} cannot use {handle} without a copy ({reasons})")

    def allocate(self, nbytes: int) -> MemHandle:
        """The best memory that host and device can both use: what the device sees without commands, else what other
        processes can be given, too, where the device takes that, else what it allocates to be mapped. Raises
        UnusableMemory."""
        best = self._allocate(FineGrainBuffer(), "svm", nbytes) or self._allocate(UnifiedSharedMemory(), "usm", nbytes)
        if best is not None:
            return best
        shared = MemHandle.allocate(nbytes)
        try:
            self.calls.release(self.take(shared)[0].pointer)
        except CannotImport:
            mapped = self._allocate(AllocatedHostPointer(), "mapped", nbytes)
            if mapped is not None:
                shared.close()
                return mapped
        return shared

    def begin_host_access(self, handle: MemHandle, taken: Taken, importer: Importer) -> int:
        """Lets the host use what a device was given; where it lies, or 0 where nothing was mapped. Raises LaunchFailed
        when it lies elsewhere than the handle, and UnusableMemory."""
        if importer.access == "map":
            try:
                address = self.calls.map(taken.pointer, handle.nbytes)
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
        """Gives the memory back to the device. Raises LaunchFailed and UnusableMemory."""
        if importer.access == "sync":
            synchronise(handle.fileno(), DMA_BUF_SYNC_END)
        elif importer.access == "map":
            try:
                self.calls.unmap(taken.pointer, address)
            except CallFailed as error:
                raise LaunchFailed(f"unmapping {handle}: {error}") from None

    def hand_over(self, wholes: list[int], acquire: bool) -> None:
        """Enqueues the command by which the device acquires or releases external memory. Raises LaunchFailed."""
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
                self._refused[importer.name] = "the driver copies: what it maps lies elsewhere"
                raise CallFailed(self._refused[importer.name])
            self._seen.add(importer.name)
        return taken

    def _allocate(self, importer: Importer, kind: Kind, nbytes: int) -> MemHandle | None:
        if self._refused.get(importer.name) or self._lacks[importer.name]:
            return None
        try:
            made = importer.allocate(self.calls, nbytes)
        except CallFailed:
            return None
        if made is None:
            return None
        address, pointer, free = made
        # The memory outlives the backend where the host still has views of it; a fork cannot give it back.
        opened, context = Opened("OpenCL"), self.context

        def end(keep: object = context) -> None:
            if opened.here:
                free()

        handle = MemHandle._allocated(kind, address, nbytes, self.calls.place.context, end)
        handle.pointer = pointer
        return handle
