"""Import memory into an OpenCL device in place, in every way that exists, best first.

Each importer says what a device lacks for it and why a handle does not fit, and makes the cl_mem. The extensions are
described in the Khronos registry; opencl_calls.py describes what Qualcomm has not published there.
"""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

from gputune.runtime.memory import opencl_calls as cl
from gputune.runtime.memory.device_facts import DeviceFacts
from gputune.runtime.memory.handles import PAGE, Kind, MemHandle
from gputune.runtime.memory.opencl_calls import CallFailed, OpenCLCalls

Access = Literal["", "map", "sync"]


@dataclass(frozen=True)
class Taken:
    """A cl_mem that was made of memory, to be released. `whole` is what commands on external memory are told of: itself
    or what it is a part of."""

    pointer: int
    whole: int


@dataclass(frozen=True)
class Allocated:
    """New memory: where the host sees it, its cl_mem or 0, and what frees it."""

    address: int
    pointer: int
    free: Callable[[], object]


class DeviceRefuses(CallFailed):
    """A way of taking memory that turned out to be none on this device, whatever the memory."""


class Importer(ABC):
    """A way to take memory.

    access: what host access takes once the device has finished: nothing (host and device see the same), a map, or a
    word to the dma-buf's exporter. external: whether commands must acquire the memory first and release it then.
    allocates: the kind of the memory that it takes, where only memory of its own will do; None for the others.
    """

    name: ClassVar[str]
    allocates: ClassVar[Kind | None] = None
    access: ClassVar[Access] = ""
    external: ClassVar[bool] = False

    @abstractmethod
    def probe(self, facts: DeviceFacts) -> str:
        """Return what the device lacks for it; empty where it can be tried."""

    @abstractmethod
    def misfit(self, facts: DeviceFacts, handle: MemHandle, context: int) -> str:
        """Why this memory cannot be taken so into a context; empty where it can be tried."""

    @abstractmethod
    def take(self, calls: OpenCLCalls, facts: DeviceFacts, handle: MemHandle) -> Taken:
        """Make the cl_mem. Raises CallFailed."""

    def allocate(self, calls: OpenCLCalls, nbytes: int) -> Allocated:
        """Return new memory of the kind that it allocates. Raises CallFailed."""
        raise CallFailed(f"{self.name} has no memory of its own")

    def _not_allocated(self, handle: MemHandle, context: int) -> str:
        if handle.kind == self.allocates:
            return "" if handle.owner == context else "it was allocated in another context"
        return "the device did not allocate it"


class OwnMemObject(Importer):
    """A cl_mem that the application has made in the same context."""

    name = "cl_mem"

    def probe(self, facts: DeviceFacts) -> str:
        return ""

    def misfit(self, facts: DeviceFacts, handle: MemHandle, context: int) -> str:
        return "" if handle.kind == "cl_mem" else "it is no cl_mem"

    def take(self, calls: OpenCLCalls, facts: DeviceFacts, handle: MemHandle) -> Taken:
        if calls.query_memory(handle.pointer, cl.MEM_TYPE, ctypes.c_uint32) != cl.MEM_OBJECT_BUFFER:
            raise CallFailed("the cl_mem is an image or a pipe, no buffer")
        if calls.query_memory(handle.pointer, cl.MEM_CONTEXT) != calls.place.context:
            raise CallFailed("the cl_mem belongs to another context")
        nbytes = calls.query_memory(handle.pointer, cl.MEM_SIZE)
        if nbytes < handle.nbytes:
            raise CallFailed(f"the cl_mem has {nbytes} bytes, the handle {handle.nbytes}")
        calls.retain(handle.pointer)
        return Taken(handle.pointer, handle.pointer)


class DmaBuf(Importer):
    """A dma-buf; kernels see the part of it that the handle is."""

    access = "sync"

    def misfit(self, facts: DeviceFacts, handle: MemHandle, context: int) -> str:
        return _no_dma_buf(handle) or _misaligned(facts, handle.offset, "offset")

    def take(self, calls: OpenCLCalls, facts: DeviceFacts, handle: MemHandle) -> Taken:
        whole = self._take_whole(calls, handle.fileno(), handle.offset + handle.nbytes)
        return _cut(calls, whole, handle.offset, handle.nbytes)

    @abstractmethod
    def _take_whole(self, calls: OpenCLCalls, fd: int, nbytes: int) -> int: ...


class ExternalDmaBuf(DmaBuf):
    """A dma-buf by cl_khr_external_memory_dma_buf."""

    name = "cl_khr_external_memory_dma_buf"
    external = True

    def probe(self, facts: DeviceFacts) -> str:
        if lack := facts.lacks("cl_khr_external_memory", self.name):
            return lack
        if facts.version < (3, 0):  # the loader would call what an older driver does not have
            return f"the device has OpenCL {facts.version[0]}.{facts.version[1]}, 3.0 is needed"
        return "" if facts.dma_buf else "the device does not list dma-bufs among the memory that it imports"

    def _take_whole(self, calls: OpenCLCalls, fd: int, nbytes: int) -> int:
        # The specification's own example passes no flags: none of those about host pointers may be set.
        properties = (ctypes.c_uint64 * 3)(cl.EXTERNAL_MEMORY_HANDLE_DMA_BUF, fd, 0)
        context, listed = calls.place.context, ctypes.addressof(properties)
        return calls.make("clCreateBufferWithProperties", context, listed, cl.MEM_READ_WRITE, nbytes, None)


class ArmImport(Importer):
    """What clImportMemoryARM maps into the device's page tables; it never copies."""

    def _import(self, calls: OpenCLCalls, kind: int, memory: int, nbytes: int, *more: int) -> int:
        listed = (cl.IMPORT_TYPE, kind, *more, 0)
        properties = (ctypes.c_ssize_t * len(listed))(*listed)
        context, address = calls.place.context, ctypes.addressof(properties)
        return calls.make("clImportMemoryARM", context, cl.MEM_READ_WRITE, address, memory, nbytes)


class ArmDmaBuf(DmaBuf, ArmImport):
    """A dma-buf by cl_arm_import_memory; the driver keeps the host's view consistent."""

    name = "cl_arm_import_memory_dma_buf"

    def probe(self, facts: DeviceFacts) -> str:
        return facts.lacks("cl_arm_import_memory", self.name)

    def _take_whole(self, calls: OpenCLCalls, fd: int, nbytes: int) -> int:
        number = ctypes.c_int(fd)  # `memory` points to the descriptor
        consistent = cl.IMPORT_DMA_BUF_DATA_CONSISTENCY_WITH_HOST, cl.TRUE
        return self._import(calls, cl.IMPORT_TYPE_DMA_BUF, ctypes.addressof(number), nbytes, *consistent)


class ArmHost(ArmImport):
    """Memory of the process by cl_arm_import_memory. Coherence is the hardware's, or the driver's at every command."""

    name = "cl_arm_import_memory_host"

    def probe(self, facts: DeviceFacts) -> str:
        return facts.lacks("cl_arm_import_memory", self.name)

    def misfit(self, facts: DeviceFacts, handle: MemHandle, context: int) -> str:
        if handle.kind not in ("memfd", "host"):  # "Importing dma_buf pages through a CPU mapping is undefined."
            return "it is no ordinary memory of the process"
        if handle.address % facts.cache_line:
            return f"its address is no multiple of a cache line of {facts.cache_line} bytes"
        return _invisible(handle) or _misaligned(facts, handle.address, "address")

    def take(self, calls: OpenCLCalls, facts: DeviceFacts, handle: MemHandle) -> Taken:
        pointer = self._import(calls, cl.IMPORT_TYPE_HOST, handle.address, handle.nbytes)
        return Taken(pointer, pointer)


class ArmHardwareBuffer(ArmImport):
    """An AHardwareBuffer by cl_arm_import_memory."""

    name = "cl_arm_import_memory_android_hardware_buffer"

    def probe(self, facts: DeviceFacts) -> str:
        return facts.lacks("cl_arm_import_memory", self.name)

    def misfit(self, facts: DeviceFacts, handle: MemHandle, context: int) -> str:
        return _no_hardware_buffer(handle)

    def take(self, calls: OpenCLCalls, facts: DeviceFacts, handle: MemHandle) -> Taken:
        pointer = self._import(calls, cl.IMPORT_TYPE_ANDROID_HARDWARE_BUFFER, handle.pointer, handle.nbytes)
        return Taken(pointer, pointer)


class QualcommImport(Importer):
    """What cl_qcom_ext_host_ptr takes by a structure in the place of the host pointer."""

    def probe(self, facts: DeviceFacts) -> str:
        return facts.lacks("cl_qcom_ext_host_ptr", self.name)

    def _create(self, calls: OpenCLCalls, structure: ctypes.Structure, nbytes: int) -> Taken:
        flags = cl.MEM_USE_HOST_PTR | cl.MEM_EXT_HOST_PTR  # neither is valid alone
        pointer = calls.create_buffer(flags, nbytes, ctypes.addressof(structure))
        return Taken(pointer, pointer)

    def _header(self, facts: DeviceFacts, allocation_type: int) -> cl.ExternalHostPointer:
        # Both policies are for memory that the host caches, as that of the system heap is.
        coherent = "cl_qcom_ext_host_ptr_iocoherent" in facts.extensions
        policy = cl.MEM_HOST_IOCOHERENT if coherent else cl.MEM_HOST_WRITEBACK
        return cl.ExternalHostPointer(allocation_type, policy)


class QualcommDescriptor(QualcommImport):
    """A dma-buf on an Adreno; on older kernels ION gives the same descriptors."""

    access = "map"
    allocation_type: ClassVar[int]

    def misfit(self, facts: DeviceFacts, handle: MemHandle, context: int) -> str:
        if reason := _no_dma_buf(handle) or _invisible(handle):
            return reason
        if handle.offset:
            return "it does not begin where the dma-buf does"
        if handle.address % facts.page:
            return f"its address is no multiple of the device's page of {facts.page} bytes"
        if handle.padding < facts.padding:
            return f"the device needs {facts.padding} bytes after it, the dma-buf has {handle.padding}"
        return ""

    def take(self, calls: OpenCLCalls, facts: DeviceFacts, handle: MemHandle) -> Taken:
        header = self._header(facts, self.allocation_type)
        return self._create(calls, cl.DescriptorHostPointer(header, handle.fileno(), handle.address), handle.nbytes)


class QualcommDmaBuf(QualcommDescriptor):
    """A dma-buf by cl_qcom_dmabuf_host_ptr."""

    name = "cl_qcom_dmabuf_host_ptr"
    allocation_type = cl.MEM_DMABUF_HOST_PTR


class QualcommIon(QualcommDescriptor):
    """ION's memory by cl_qcom_ion_host_ptr."""

    name = "cl_qcom_ion_host_ptr"
    allocation_type = cl.MEM_ION_HOST_PTR


class QualcommHardwareBuffer(QualcommImport):
    """An AHardwareBuffer on an Adreno."""

    name = "cl_qcom_android_ahardwarebuffer_host_ptr"

    def misfit(self, facts: DeviceFacts, handle: MemHandle, context: int) -> str:
        return _no_hardware_buffer(handle)

    def take(self, calls: OpenCLCalls, facts: DeviceFacts, handle: MemHandle) -> Taken:
        header = self._header(facts, cl.MEM_ANDROID_AHARDWAREBUFFER_HOST_PTR)
        return self._create(calls, cl.HardwareBufferHostPointer(header, handle.pointer), handle.nbytes)


class HostPointer(Importer):
    """CL_MEM_USE_HOST_PTR on memory that a device without memory of its own can use where it lies."""

    name = "CL_MEM_USE_HOST_PTR"
    access = "map"

    def probe(self, facts: DeviceFacts) -> str:
        return _separate(facts)

    def misfit(self, facts: DeviceFacts, handle: MemHandle, context: int) -> str:
        if reason := _invisible(handle) or _foreign(handle):
            return reason
        if facts.cpu or not handle.pages:
            start = handle.address
            if not facts.cpu and start % PAGE:
                return f"its address is no multiple of a page of {PAGE} bytes, so the driver would copy"
            if not facts.cpu and handle.nbytes % facts.cache_line:
                return f"its size is no multiple of a cache line of {facts.cache_line} bytes, so the driver would copy"
            return _misaligned(facts, start, "address")
        return _misaligned(facts, handle.address - handle.pages[0], "place in its page")

    def take(self, calls: OpenCLCalls, facts: DeviceFacts, handle: MemHandle) -> Taken:
        if facts.cpu or not handle.pages:
            pointer = calls.create_buffer(cl.MEM_USE_HOST_PTR, handle.nbytes, handle.address)
            return Taken(pointer, pointer)
        # Drivers of GPUs take whole pages or copy.
        base, length = handle.pages
        whole = calls.create_buffer(cl.MEM_USE_HOST_PTR, length, base)
        return _cut(calls, whole, handle.address - base, handle.nbytes)


class UnifiedSharedMemory(Importer):
    """Intel's unified shared memory of the host. Its specification leaves open whether a cl_mem can be made of it;
    drivers that refuse say CL_INVALID_HOST_PTR."""

    name = "cl_intel_unified_shared_memory"
    allocates = "usm"
    access = "map"

    def probe(self, facts: DeviceFacts) -> str:
        if lack := facts.lacks(self.name):
            return lack
        return "" if facts.host_usm else "the device does not support host USM"

    def misfit(self, facts: DeviceFacts, handle: MemHandle, context: int) -> str:
        return self._not_allocated(handle, context)

    def take(self, calls: OpenCLCalls, facts: DeviceFacts, handle: MemHandle) -> Taken:
        pointer = calls.create_buffer(cl.MEM_USE_HOST_PTR, handle.nbytes, handle.address)
        return Taken(pointer, pointer)

    def allocate(self, calls: OpenCLCalls, nbytes: int) -> Allocated:
        context = calls.place.context
        address = calls.make("clHostMemAllocINTEL", context, None, nbytes, 0)
        return Allocated(address, 0, lambda: calls.function("clMemBlockingFreeINTEL")(context, address))


class FineGrainBuffer(Importer):
    """Fine-grain shared virtual memory that was allocated as such: host and device see the same without commands."""

    name = "fine-grain SVM buffer"
    allocates = "svm"

    def probe(self, facts: DeviceFacts) -> str:
        return "" if facts.svm & cl.SVM_FINE_GRAIN_BUFFER else "the device has no fine-grain SVM"

    def misfit(self, facts: DeviceFacts, handle: MemHandle, context: int) -> str:
        return self._not_allocated(handle, context)

    def take(self, calls: OpenCLCalls, facts: DeviceFacts, handle: MemHandle) -> Taken:
        return _shared_virtual(calls, handle)

    def allocate(self, calls: OpenCLCalls, nbytes: int) -> Allocated:
        context = calls.place.context
        flags = cl.MEM_READ_WRITE | cl.MEM_SVM_FINE_GRAIN_BUFFER
        address = calls.function("clSVMAlloc")(context, flags, nbytes, 0)
        if not address:
            raise CallFailed("clSVMAlloc failed")  # it has no error code
        return Allocated(address, 0, lambda: calls.function("clSVMFree")(context, address))


class FineGrainSystem(Importer):
    """Any memory of the process, on devices that share the host's address space."""

    name = "fine-grain SVM system"

    def probe(self, facts: DeviceFacts) -> str:
        return "" if facts.svm & cl.SVM_FINE_GRAIN_SYSTEM else "the device does not share the host's address space"

    def misfit(self, facts: DeviceFacts, handle: MemHandle, context: int) -> str:
        return _invisible(handle) or _foreign(handle) or _misaligned(facts, handle.address, "address")

    def take(self, calls: OpenCLCalls, facts: DeviceFacts, handle: MemHandle) -> Taken:
        return _shared_virtual(calls, handle)


class AllocatedHostPointer(Importer):
    """CL_MEM_ALLOC_HOST_PTR: memory that the driver has allocated so that it can be mapped. The host may touch it only
    between begin_host_access and end_host_access. Of a device with memory of its own it is a copy at the host, and what
    was written there before is overwritten when it is mapped: NVIDIA's driver does so, always at the same address."""

    name = "CL_MEM_ALLOC_HOST_PTR"
    allocates = "mapped"
    access = "map"

    def probe(self, facts: DeviceFacts) -> str:
        return _separate(facts)

    def misfit(self, facts: DeviceFacts, handle: MemHandle, context: int) -> str:
        return self._not_allocated(handle, context)

    def take(self, calls: OpenCLCalls, facts: DeviceFacts, handle: MemHandle) -> Taken:
        calls.retain(handle.pointer)
        return Taken(handle.pointer, handle.pointer)

    def allocate(self, calls: OpenCLCalls, nbytes: int) -> Allocated:
        pointer = calls.create_buffer(cl.MEM_ALLOC_HOST_PTR, nbytes, None)
        try:
            addresses = set()
            for _ in range(2):
                address = calls.map(pointer, nbytes)
                calls.unmap(pointer, address)
                addresses.add(address)
            if len(addresses) > 1:
                raise CallFailed("it is mapped at another address each time")
        except CallFailed:
            calls.release(pointer)
            raise
        return Allocated(address, pointer, lambda: calls.release(pointer))


IMPORTERS: tuple[Importer, ...] = (
    OwnMemObject(),
    ExternalDmaBuf(),
    ArmDmaBuf(),
    ArmHost(),
    ArmHardwareBuffer(),
    QualcommDmaBuf(),
    QualcommIon(),
    QualcommHardwareBuffer(),
    UnifiedSharedMemory(),
    FineGrainBuffer(),
    FineGrainSystem(),
    HostPointer(),
    AllocatedHostPointer(),
)
"""In the order in which they are tried; behind the last there is only the copy."""


def _shared_virtual(calls: OpenCLCalls, handle: MemHandle) -> Taken:
    pointer = calls.create_buffer(cl.MEM_USE_HOST_PTR, handle.nbytes, handle.address)
    try:
        if not calls.query_memory(pointer, cl.MEM_USES_SVM_POINTER, ctypes.c_uint32):
            raise DeviceRefuses("the driver does not know buffers of such memory as shared virtual memory")
    except CallFailed:
        calls.release(pointer)
        raise
    return Taken(pointer, pointer)


def _cut(calls: OpenCLCalls, whole: int, origin: int, nbytes: int) -> Taken:
    """Return the part of a cl_mem that a handle is; it keeps the whole alive."""
    return Taken(calls.part_of(whole, origin, nbytes) if origin else whole, whole)


def _separate(facts: DeviceFacts) -> str:
    return "" if facts.unified else "the device has memory of its own, so its driver would copy at every map"


def _misaligned(facts: DeviceFacts, place: int, what: str) -> str:
    return f"its {what} is no multiple of {facts.alignment} bytes" if place % facts.alignment else ""


def _invisible(handle: MemHandle) -> str:
    return "" if handle.address else "the host cannot see it"


def _foreign(handle: MemHandle) -> str:
    """Why the host's view of memory is not the memory to be given to a device."""
    if handle.kind == "fd":
        return "it is a dma-buf, whose exporter must know of every access through the host's mapping"
    return "it is the memory of a cl_mem" if handle.kind == "mapped" else ""


def _no_dma_buf(handle: MemHandle) -> str:
    return "" if handle.kind == "fd" else "it is no dma-buf"


def _no_hardware_buffer(handle: MemHandle) -> str:
    return "" if handle.kind == "hardware_buffer" else "it is no AHardwareBuffer"
