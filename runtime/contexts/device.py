"""Open OpenCL devices in the C runtime, and their memory as handles. Nothing of pyopencl is imported for that."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from weakref import WeakKeyDictionary

from gputune.core.errors import CannotImport, DeviceNotFound
from gputune.core.identity import DeviceIdentity
from gputune.core.launches import check_allocation
from gputune.core.quirks import quirks_of, unset_defaults
from gputune.runtime.backends import Backend
from gputune.runtime.backends.null import NullBackend
from gputune.runtime.backends.sources import Prove
from gputune.runtime.context.format import ContextFile
from gputune.runtime.contexts.imported import Imported
from gputune.runtime.devices.discovery import OPENCL, DeviceReport
from gputune.runtime.devices.drivers import OPENCL_LIBRARY, drivers, loaded_library, opencl_library
from gputune.runtime.devices.features import AskedOnce
from gputune.runtime.devices.scratch import scratch_environment
from gputune.runtime.devices.settings import deciding, scarce_processors, variables
from gputune.runtime.memory.handles import Kind, MemHandle
from gputune.runtime.native.binding import Device, File, Native, library
from gputune.runtime.native.building import why_no_runtime
from gputune.runtime.native.memory import Memory

_KINDS: Mapping[str, Kind] = {"fine-grain SVM buffer": "svm", "cl_intel_unified_shared_memory": "usm"}
"""Kinds of handles by the importers whose memory they are; others are mapped."""
_MOST_TRIED = 8
"""Devices of a platform among which one is looked for."""
_IN_MEMORY = "context in memory"
"""The name that the C runtime gives a context that it reads from bytes."""


class NativeDevice:
    """Hold a device that the C runtime has open, and what it needs to use an application's memory."""

    computes = True

    def __init__(self, open_device: Callable[[], Device], driver: str, prove: Prove) -> None:
        """Open it. driver: the name of the driver's .icd file; prove: what proves features of the device. Raises
        DeviceError, DeviceNotFound."""
        self.prove = prove
        self.device = open_device()
        self.identity = self.device.identity(driver)
        self._allocated: WeakKeyDictionary[MemHandle, Memory] = WeakKeyDictionary()

    @property
    def allocated_bytes(self) -> int:
        """Return the bytes of device memory that contexts hold now. Memory of handles does not count."""
        return self.device.nbytes

    def another_queue(self) -> NativeDevice:
        """Return the same device with a queue of its own, whose launches may run beside those of this one. Raises
        DeviceError."""
        return NativeDevice(self.device.another, self.identity.driver, self.prove)

    def lost(self) -> bool:
        """Return whether the device works no more in this process."""
        return self.device.lost

    @property
    def settings(self) -> dict[str, str]:
        """Return the variables that change code or time, and a want of processors."""
        scarce = scarce_processors(self.identity.compute_units) if self.identity.device_type == "cpu" else {}
        return deciding(os.environ) | scarce

    def allocate_handle(self, nbytes: int) -> MemHandle:
        """Return new memory that host and device both use without a copy, of the best kind that the device has. Raises
        LimitExceeded, UnusableMemory."""
        check_allocation(nbytes, self.identity)
        memory = self.device.allocate(nbytes)
        if memory.descriptor >= 0:  # which other processes can be given
            with memory:
                return MemHandle.from_fd(memory.descriptor, 0, nbytes)
        if not memory.importer:
            memory.close()
            return MemHandle.allocate(nbytes)
        where = _KINDS.get(memory.importer, "mapped"), memory.address, nbytes
        handle = MemHandle._allocated(*where, pointer=memory.cl_mem, free=memory.close)
        self._allocated[handle] = memory
        return handle

    def memory_of(self, handle: MemHandle) -> tuple[Memory, bool]:
        """Return a handle's memory as inferences take it, and whether it was made for this call: then the caller closes
        it. Raises CannotImport for memory that can neither be used nor copied, LimitExceeded, MemoryClosed,
        DeviceError."""
        check_allocation(handle.nbytes, self.identity)
        if (known := self._allocated.get(handle)) is not None:
            return known, False
        memory = self._imported(handle)
        if not memory.importer and handle.array is None:
            with memory:
                raise CannotImport(f"{self.identity.name} cannot use {handle} without a copy ({memory.kind})")
        return memory, True

    @property
    def context_pointer(self) -> int:
        """Return the cl_context in which an application's own cl_mem must be made, as a number."""
        return self.device.context

    def import_memory(self, handle: MemHandle) -> Imported:
        """Return the handle's memory as a buffer, without a copy; the buffer keeps it. Raises CannotImport, which says
        why each importer refuses it, LimitExceeded above the device's largest allocation, and MemoryClosed."""
        lease = handle.hold("imported by a device")
        try:
            memory, own = self.memory_of(handle)
        except BaseException:
            lease.release()
            raise
        return Imported(handle, memory, own, lease)

    def begin_host_access(self, *imported: Imported) -> None:
        """Let the host use imported memory, where that takes commands, once the device has finished. Raises
        LaunchFailed when the device has the memory elsewhere, and UnusableMemory."""
        for one in imported:
            one.begin_host_access()

    def end_host_access(self, imported: Imported) -> None:
        """Give imported memory back to the device, where that takes a command. Raises LaunchFailed and
        UnusableMemory."""
        imported.end_host_access()

    def importers(self) -> list[tuple[str, str]]:
        """Return the ways of taking memory without a copy, in the order in which they are tried, each with why the
        device cannot use it (empty: it can); what is left when none takes a handle is "copy"."""
        return self.device.importers()

    def _imported(self, handle: MemHandle) -> Memory:
        if handle.kind in ("fd", "memfd"):  # of which C knows the whole pages
            return self.device.import_(handle.fileno(), handle.nbytes, handle.offset)
        if handle.kind == "cl_mem":
            return self.device.import_cl_mem(handle.pointer, handle.nbytes)
        if handle.kind == "hardware_buffer":
            return self.device.import_hardware_buffer(handle.pointer, handle.nbytes)
        array = handle.array
        assert array is not None
        return self.device.wrap(array)


OpenDevice = NullBackend | NativeDevice
"""A device on which contexts run: in the C runtime, or simulated."""


def why_no_contexts(report: DeviceReport) -> str:
    """Return why no context can run on a device, and what to do, in one line; empty if they can. An agent, and what
    simulates a device, need no C runtime here."""
    needed = report.backend == OPENCL and not report.remote
    return why_no_runtime() if needed else ""


def in_c(backend: Backend | NativeDevice) -> NativeDevice | None:
    """Return the device in the C runtime, in the same cl_context, unless it only simulates one. Raises DeviceError."""
    if isinstance(backend, NativeDevice):
        return backend
    return beside(backend) if backend.device_pointer else None


def open_report(report: DeviceReport) -> NativeDevice:
    """Open the device of a report in this process. Raises DeviceNotFound if the process cannot see it, as when it has
    opened another driver before."""
    assert report.identity is not None
    drivers().check()
    wanted, native = report.identity, library()
    os.environ.update(unset_defaults(os.environ))  # drivers read their variables when they are loaded
    environment = report.environment() | opencl_library()
    if (folder := quirks_of(wanted).compiled) is not None:
        environment |= scratch_environment(folder, None)
    named = os.environ.get(OPENCL_LIBRARY) or environment.pop(OPENCL_LIBRARY, None)
    environment.pop(OPENCL_LIBRARY, None)

    def open_device() -> Device:
        with variables(environment):
            return _found(native, report, wanted, named)

    return NativeDevice(open_device, Path(report.driver_file).name, AskedOnce(report))


def _found(native: Native, report: DeviceReport, wanted: DeviceIdentity, library: str | None) -> Device:
    """Return the device of a report, which may not know its number among the platform's devices. Raises
    DeviceNotFound."""
    refused = ""
    for ordinal in dict.fromkeys([report.position, *range(_MOST_TRIED)]):
        try:
            return native.device(name=wanted.name, opencl=library, platform=wanted.platform, ordinal=ordinal)
        except DeviceNotFound as error:
            refused = refused or str(error)
    raise DeviceNotFound(
        f"{report.title} cannot be opened: {refused} "
        "(the first OpenCL driver opened in a process is the only one; use a fresh process for another)"
    )


_beside: WeakKeyDictionary[Backend, NativeDevice] = WeakKeyDictionary()


def beside(backend: Backend) -> NativeDevice:
    """Return the device of a backend in the C runtime, in the same cl_context; it is opened once. Raises
    DeviceError."""
    found = _beside.get(backend)
    if found is None:
        named = opencl_library().get(OPENCL_LIBRARY) or loaded_library()  # that of pyopencl, whatever variables name
        given = backend.context_pointer, backend.device_pointer
        open_device = functools.partial(library().device, opencl=named, given=given)
        found = _beside[backend] = NativeDevice(open_device, backend.identity.driver, backend.prove)
    return found


def lost(backend: Backend) -> bool:
    """Return whether a device, or the same in the C runtime if contexts have run there, works no more in this
    process."""
    native = _beside.get(backend)
    return backend.lost() or (native is not None and native.lost())


def opened_file(file: ContextFile) -> File:
    """Open a context in the C runtime that Python has open. Raises ContextError, OSError."""
    path = file.own_path
    if path is not None and file.is_at(path):
        opened = library().open(path)
        if file.is_at(path):
            return opened
        opened.close()  # it was replaced meanwhile
    return library().open_bytes(file.content)


def named_in(text: str, file: ContextFile) -> str:
    """Return what C says of a context, with the name that Python has for it."""
    return f"{file.path}{text.removeprefix(_IN_MEMORY)}" if text.startswith(_IN_MEMORY) else text
