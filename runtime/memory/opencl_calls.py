"""Call the OpenCL functions that pyopencl lacks, through ctypes, in the very library that pyopencl has loaded.

Numbers and signatures are from the Khronos headers CL/cl.h and CL/cl_ext.h of August 2026, unless another header is
named.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from ctypes import c_int32, c_size_t, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from typing import Any

from gputune.core.errors import LaunchFailed

# cl.h
SUCCESS = 0
TRUE = 1
MEM_READ_WRITE = 1 << 0
MEM_USE_HOST_PTR = 1 << 3
MEM_ALLOC_HOST_PTR = 1 << 4
MEM_SVM_FINE_GRAIN_BUFFER = 1 << 10
MEM_OBJECT_BUFFER = 0x10F0
MEM_TYPE = 0x1100
MEM_SIZE = 0x1102
MEM_CONTEXT = 0x1106
MEM_USES_SVM_POINTER = 0x1109
DEVICE_GLOBAL_MEM_CACHELINE_SIZE = 0x101D
DEVICE_EXTENSIONS_WITH_VERSION = 0x1060
DEVICE_HOST_UNIFIED_MEMORY = 0x1035
DEVICE_SVM_CAPABILITIES = 0x1053
SVM_FINE_GRAIN_BUFFER = 1 << 1
SVM_FINE_GRAIN_SYSTEM = 1 << 2
MAP_READ = 1 << 0
MAP_WRITE = 1 << 1
BUFFER_CREATE_TYPE_REGION = 0x1220

# cl_ext.h, cl_khr_external_memory and cl_khr_external_memory_dma_buf
DEVICE_EXTERNAL_MEMORY_IMPORT_HANDLE_TYPES = 0x204F
EXTERNAL_MEMORY_HANDLE_DMA_BUF = 0x2067

# cl_ext.h, cl_arm_import_memory
IMPORT_TYPE = 0x40B2
IMPORT_TYPE_HOST = 0x40B3
IMPORT_TYPE_DMA_BUF = 0x40B4
IMPORT_TYPE_ANDROID_HARDWARE_BUFFER = 0x41E2
IMPORT_DMA_BUF_DATA_CONSISTENCY_WITH_HOST = 0x41E3

# cl_ext.h, cl_qcom_ext_host_ptr, cl_qcom_ext_host_ptr_iocoherent and cl_qcom_ion_host_ptr
MEM_EXT_HOST_PTR = 1 << 29
DEVICE_EXT_MEM_PADDING_IN_BYTES = 0x40A0
DEVICE_PAGE_SIZE = 0x40A1
MEM_HOST_UNCACHED = 0x40A4
MEM_HOST_WRITEBACK = 0x40A5
MEM_HOST_IOCOHERENT = 0x40A9
MEM_ION_HOST_PTR = 0x40A8
# Qualcomm's cl_ext_qcom.h (Adreno OpenCL SDK); Khronos has no text on these two.
MEM_DMABUF_HOST_PTR = 0x411D
MEM_ANDROID_AHARDWAREBUFFER_HOST_PTR = 0x4119

# cl_ext.h, cl_intel_unified_shared_memory
DEVICE_HOST_MEM_CAPABILITIES = 0x4190
UNIFIED_SHARED_MEMORY_ACCESS = 1 << 0

ERRORS: Mapping[int, str] = {
    -1: "CL_DEVICE_NOT_FOUND",
    -2: "CL_DEVICE_NOT_AVAILABLE",
    -3: "CL_COMPILER_NOT_AVAILABLE",
    -4: "CL_MEM_OBJECT_ALLOCATION_FAILURE",
    -5: "CL_OUT_OF_RESOURCES",
    -6: "CL_OUT_OF_HOST_MEMORY",
    -7: "CL_PROFILING_INFO_NOT_AVAILABLE",
    -8: "CL_MEM_COPY_OVERLAP",
    -9: "CL_IMAGE_FORMAT_MISMATCH",
    -10: "CL_IMAGE_FORMAT_NOT_SUPPORTED",
    -11: "CL_BUILD_PROGRAM_FAILURE",
    -12: "CL_MAP_FAILURE",
    -13: "CL_MISALIGNED_SUB_BUFFER_OFFSET",
    -14: "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST",
    -15: "CL_COMPILE_PROGRAM_FAILURE",
    -16: "CL_LINKER_NOT_AVAILABLE",
    -17: "CL_LINK_PROGRAM_FAILURE",
    -18: "CL_DEVICE_PARTITION_FAILED",
    -19: "CL_KERNEL_ARG_INFO_NOT_AVAILABLE",
    -30: "CL_INVALID_VALUE",
    -31: "CL_INVALID_DEVICE_TYPE",
    -32: "CL_INVALID_PLATFORM",
    -33: "CL_INVALID_DEVICE",
    -34: "CL_INVALID_CONTEXT",
    -35: "CL_INVALID_QUEUE_PROPERTIES",
    -36: "CL_INVALID_COMMAND_QUEUE",
    -37: "CL_INVALID_HOST_PTR",
    -38: "CL_INVALID_MEM_OBJECT",
    -39: "CL_INVALID_IMAGE_FORMAT_DESCRIPTOR",
    -40: "CL_INVALID_IMAGE_SIZE",
    -41: "CL_INVALID_SAMPLER",
    -42: "CL_INVALID_BINARY",
    -43: "CL_INVALID_BUILD_OPTIONS",
    -44: "CL_INVALID_PROGRAM",
    -45: "CL_INVALID_PROGRAM_EXECUTABLE",
    -46: "CL_INVALID_KERNEL_NAME",
    -47: "CL_INVALID_KERNEL_DEFINITION",
    -48: "CL_INVALID_KERNEL",
    -49: "CL_INVALID_ARG_INDEX",
    -50: "CL_INVALID_ARG_VALUE",
    -51: "CL_INVALID_ARG_SIZE",
    -52: "CL_INVALID_KERNEL_ARGS",
    -53: "CL_INVALID_WORK_DIMENSION",
    -54: "CL_INVALID_WORK_GROUP_SIZE",
    -55: "CL_INVALID_WORK_ITEM_SIZE",
    -56: "CL_INVALID_GLOBAL_OFFSET",
    -57: "CL_INVALID_EVENT_WAIT_LIST",
    -58: "CL_INVALID_EVENT",
    -59: "CL_INVALID_OPERATION",
    -60: "CL_INVALID_GL_OBJECT",
    -61: "CL_INVALID_BUFFER_SIZE",
    -62: "CL_INVALID_MIP_LEVEL",
    -63: "CL_INVALID_GLOBAL_WORK_SIZE",
    -64: "CL_INVALID_PROPERTY",
    -65: "CL_INVALID_IMAGE_DESCRIPTOR",
    -66: "CL_INVALID_COMPILER_OPTIONS",
    -67: "CL_INVALID_LINKER_OPTIONS",
    -68: "CL_INVALID_DEVICE_PARTITION_COUNT",
    -69: "CL_INVALID_PIPE_SIZE",
    -70: "CL_INVALID_DEVICE_QUEUE",
    -71: "CL_INVALID_SPEC_ID",
    -72: "CL_MAX_SIZE_RESTRICTION_EXCEEDED",
    -1001: "CL_PLATFORM_NOT_FOUND_KHR",
    -1138: "CL_INVALID_COMMAND_BUFFER_KHR",
    -1139: "CL_INVALID_SYNC_POINT_WAIT_LIST_KHR",
    -1140: "CL_INCOMPATIBLE_COMMAND_QUEUE_KHR",
    -1141: "CL_INVALID_MUTABLE_COMMAND_KHR",
}


class Region(ctypes.Structure):
    """cl_buffer_region of cl.h."""

    _fields_ = (("origin", c_size_t), ("size", c_size_t))


class NameVersion(ctypes.Structure):
    """cl_name_version of cl.h."""

    _fields_ = (("version", c_uint32), ("name", ctypes.c_char * 64))


class ExternalHostPointer(ctypes.Structure):
    """cl_mem_ext_host_ptr of cl_qcom_ext_host_ptr."""

    _fields_ = (("allocation_type", c_uint32), ("host_cache_policy", c_uint32))


class DescriptorHostPointer(ctypes.Structure):
    """cl_mem_ion_host_ptr of cl_qcom_ion_host_ptr; cl_mem_dmabuf_host_ptr of cl_ext_qcom.h is laid out alike."""

    _fields_ = (("ext_host_ptr", ExternalHostPointer), ("filedesc", ctypes.c_int), ("hostptr", c_void_p))


class HardwareBufferHostPointer(ctypes.Structure):
    """cl_mem_ahardwarebuffer_host_ptr of cl_ext_qcom.h."""

    _fields_ = (("ext_host_ptr", ExternalHostPointer), ("ahb_ptr", c_void_p))


UPDATE_BY_LIST = "clUpdateMutableCommandsKHR before 0.9.2"
"""The function as cl_khr_command_buffer_mutable_dispatch had it before that version."""

_COMMAND = (c_uint32, c_void_p, c_void_p)  # the events that a command waits for, and its own
_QUERY = (c_void_p, c_uint32, c_size_t, c_void_p, c_void_p)
_LAUNCH = (c_void_p, c_uint32, c_void_p, c_void_p, c_void_p)  # kernel, dimensions, offset and sizes
_OBJECTS = (c_int32, c_void_p, c_uint32, c_void_p, *_COMMAND)

_TYPES: Mapping[str, tuple[Any, ...]] = {
    "clCreateBuffer": (c_void_p, c_void_p, c_uint64, c_size_t, c_void_p, c_void_p),
    "clCreateBufferWithProperties": (c_void_p, c_void_p, c_void_p, c_uint64, c_size_t, c_void_p, c_void_p),
    "clCreateSubBuffer": (c_void_p, c_void_p, c_uint64, c_uint32, c_void_p, c_void_p),
    "clRetainMemObject": (c_int32, c_void_p),
    "clReleaseMemObject": (c_int32, c_void_p),
    "clGetMemObjectInfo": (c_int32, *_QUERY),
    "clGetDeviceInfo": (c_int32, *_QUERY),
    "clGetKernelWorkGroupInfo": (c_int32, c_void_p, *_QUERY),
    "clEnqueueMapBuffer": (
        *(c_void_p, c_void_p, c_void_p, c_uint32, c_uint64, c_size_t, c_size_t, *_COMMAND, c_void_p),
    ),
    "clEnqueueUnmapMemObject": (c_int32, c_void_p, c_void_p, c_void_p, *_COMMAND),
    "clFinish": (c_int32, c_void_p),
    "clSVMAlloc": (c_void_p, c_void_p, c_uint64, c_size_t, c_uint32),
    "clSVMFree": (None, c_void_p, c_void_p),
    "clSetKernelArgSVMPointer": (c_int32, c_void_p, c_uint32, c_void_p),
    "clGetExtensionFunctionAddressForPlatform": (c_void_p, c_void_p, ctypes.c_char_p),
    "clEnqueueAcquireExternalMemObjectsKHR": _OBJECTS,
    "clEnqueueReleaseExternalMemObjectsKHR": _OBJECTS,
    "clImportMemoryARM": (c_void_p, c_void_p, c_uint64, c_void_p, c_void_p, c_size_t, c_void_p),
    "clHostMemAllocINTEL": (c_void_p, c_void_p, c_void_p, c_size_t, c_uint32, c_void_p),
    "clMemBlockingFreeINTEL": (c_int32, c_void_p, c_void_p),
    "clCreateCommandQueue": (c_void_p, c_void_p, c_void_p, c_uint64, c_void_p),
    "clReleaseCommandQueue": (c_int32, c_void_p),
    "clReleaseEvent": (c_int32, c_void_p),
    "clEnqueueNDRangeKernel": (c_int32, c_void_p, *_LAUNCH, *_COMMAND),
    "clCreateCommandBufferKHR": (c_void_p, c_uint32, c_void_p, c_void_p, c_void_p),
    "clCommandNDRangeKernelKHR": (c_int32, c_void_p, c_void_p, c_void_p, *_LAUNCH, *_COMMAND, c_void_p),
    "clFinalizeCommandBufferKHR": (c_int32, c_void_p),
    "clEnqueueCommandBufferKHR": (c_int32, c_uint32, c_void_p, c_void_p, *_COMMAND),
    "clReleaseCommandBufferKHR": (c_int32, c_void_p),
    "clUpdateMutableCommandsKHR": (c_int32, c_void_p, c_uint32, c_void_p, c_void_p),
    UPDATE_BY_LIST: (c_int32, c_void_p, c_void_p),
    "clNewRecordingQCOM": (c_void_p, c_void_p, c_void_p),
    "clEndRecordingQCOM": (c_int32, c_void_p),
    "clReleaseRecordingQCOM": (c_int32, c_void_p),
    "clEnqueueRecordingQCOM": (c_int32, c_void_p, c_void_p, *(c_size_t, c_void_p) * 4, *_COMMAND),
}


def _library_name(name: str) -> str:
    """Return what the library calls a function."""
    return name.partition(" ")[0]


SIGNATURES: Mapping[str, Any] = {name: ctypes.CFUNCTYPE(*types) for name, types in _TYPES.items()}
_EXTENSIONS = frozenset(name for name in SIGNATURES if _library_name(name).endswith(("KHR", "ARM", "INTEL", "QCOM")))


class CallFailed(Exception):
    """A call of OpenCL failed; the message names call and error code."""


def error_name(code: int) -> str:
    """Return what cl.h calls an error code."""
    return ERRORS.get(code, f"error {code}")


def symbols_of(library: str) -> Callable[[str], int]:
    """Return where functions lie that a loaded library, or one that it was linked with, has; 0 for others."""
    loaded = ctypes.CDLL(library)

    def address(name: str) -> int:
        function = getattr(loaded, name, None)
        return 0 if function is None else ctypes.cast(function, c_void_p).value or 0

    return address


@dataclass(frozen=True)
class Place:
    """What calls are made on: the pointers of a platform, a device of it, a context with it, and a queue there."""

    platform: int
    device: int
    context: int
    queue: int


class OpenCLCalls:
    """Calls by name. symbol: where a function of the OpenCL library lies, 0 where it has none."""

    def __init__(self, symbol: Callable[[str], int], place: Place) -> None:
        self.place = place
        self._symbol = symbol
        self._functions: dict[str, Any] = {}

    def has(self, name: str) -> bool:
        """Return whether the library, or the platform's driver where it is an extension's, has a function."""
        return self._function(name) is not None

    def function(self, name: str) -> Any:
        """Return a function to call. Raises CallFailed where there is none."""
        found = self._function(name)
        if found is None:
            raise CallFailed(f"{name} is not available")
        return found

    def do(self, name: str, *arguments: object) -> None:
        """Make a call that returns an error code. Raises CallFailed."""
        code = self.function(name)(*arguments)
        if code != SUCCESS:
            raise CallFailed(f"{name} failed: {error_name(code)}")

    def make(self, name: str, *arguments: object) -> int:
        """Make a call that gives an error code by its last argument, and return the pointer that it returns. Raises
        CallFailed."""
        code = c_int32(SUCCESS)
        made = self.function(name)(*arguments, ctypes.addressof(code))
        if code.value != SUCCESS or not made:
            raise CallFailed(f"{name} failed: {error_name(code.value) if code.value else 'it returned nothing'}")
        return int(made)

    def query_device(self, what: int) -> int:
        """Return a number that clGetDeviceInfo gives. Raises CallFailed."""
        return self._query("clGetDeviceInfo", self.place.device, what, c_uint64)

    def query_memory(self, pointer: int, what: int, kind: Any = c_uint64) -> int:
        """Return a number of type `kind` that clGetMemObjectInfo gives. Raises CallFailed."""
        return self._query("clGetMemObjectInfo", pointer, what, kind)

    def query_kernel(self, kernel: int, what: int) -> int | None:
        """Return a number that clGetKernelWorkGroupInfo gives; None if it fails."""
        value = c_uint64(0)
        where = ctypes.sizeof(value), ctypes.addressof(value)
        try:
            self.do("clGetKernelWorkGroupInfo", kernel, self.place.device, what, *where, None)
        except CallFailed:
            return None
        return value.value

    def _query(self, name: str, of: int, what: int, kind: Any) -> int:
        # Shorter numbers fill the start of it, as those of cl_uint and cl_bool do.
        value = kind(0)
        self.do(name, of, what, ctypes.sizeof(value), ctypes.addressof(value), None)
        return int(value.value)

    def query_list(self, what: int) -> list[int]:
        """Return a list of cl_uint that clGetDeviceInfo gives. Raises CallFailed."""
        nbytes = c_size_t(0)
        self.do("clGetDeviceInfo", self.place.device, what, 0, None, ctypes.addressof(nbytes))
        values = (c_uint32 * (nbytes.value // ctypes.sizeof(c_uint32)))()
        self.do("clGetDeviceInfo", self.place.device, what, nbytes.value, ctypes.addressof(values), None)
        return list(values)

    def extension_versions(self) -> dict[str, tuple[int, int, int]]:
        """Return the version of each extension, where the device knows it. Raises CallFailed."""
        nbytes = c_size_t(0)
        what = self.place.device, DEVICE_EXTENSIONS_WITH_VERSION
        self.do("clGetDeviceInfo", *what, 0, None, ctypes.addressof(nbytes))
        listed = (NameVersion * (nbytes.value // ctypes.sizeof(NameVersion)))()
        self.do("clGetDeviceInfo", *what, ctypes.sizeof(listed), ctypes.addressof(listed), None)
        return {
            one.name.decode("ascii", "replace"): (one.version >> 22, one.version >> 12 & 0x3FF, one.version & 0xFFF)
            for one in listed
        }

    # --- the calls that several importers need ---

    def create_buffer(self, flags: int, nbytes: int, host: int | None) -> int:
        """clCreateBuffer for kernels that read and write. Raises CallFailed."""
        return self.make("clCreateBuffer", self.place.context, MEM_READ_WRITE | flags, nbytes, host)

    def part_of(self, parent: int, origin: int, nbytes: int) -> int:
        """Return a sub-buffer in the place of its parent, which it keeps alive. Raises CallFailed."""
        region = Region(origin, nbytes)
        try:
            return self.make(
                "clCreateSubBuffer", parent, MEM_READ_WRITE, BUFFER_CREATE_TYPE_REGION, ctypes.addressof(region)
            )
        finally:
            self.release(parent)

    def map(self, pointer: int, nbytes: int, wait: bool = True) -> int:
        """Map a buffer for reading and writing once all commands before are done. Return the address, which is valid
        then. wait: until then. Raises CallFailed."""
        how = int(wait), MAP_READ | MAP_WRITE, 0, nbytes
        return self.make("clEnqueueMapBuffer", self.place.queue, pointer, *how, 0, None, None)

    def unmap(self, pointer: int, address: int) -> None:
        """Give back what map has returned. Raises CallFailed."""
        self.do("clEnqueueUnmapMemObject", self.place.queue, pointer, address, 0, None, None)

    def release(self, pointer: int) -> None:
        """Give up a cl_mem. A driver's refusal leaves nothing else to do."""
        self.function("clReleaseMemObject")(pointer)

    def retain(self, pointer: int) -> None:
        """Shares a cl_mem. Raises CallFailed."""
        self.do("clRetainMemObject", pointer)

    def command_on(self, name: str, pointers: Sequence[int]) -> None:
        """Enqueue a command on these cl_mem. Raises CallFailed."""
        listed = (c_void_p * len(pointers))(*pointers)
        self.do(name, self.place.queue, len(pointers), ctypes.addressof(listed), 0, None, None)

    def finish(self) -> None:
        """Wait for all commands of the queue. Raises LaunchFailed."""
        try:
            self.do("clFinish", self.place.queue)
        except CallFailed as error:
            raise LaunchFailed(str(error)) from None

    def _function(self, name: str) -> Any:
        if name not in self._functions:
            self._functions[name] = self._found(name)
        return self._functions[name]

    def _found(self, name: str) -> Any:
        if name in _EXTENSIONS:
            # The loader's own entry would look for the driver in an object that an extension may not have made.
            find = self.function("clGetExtensionFunctionAddressForPlatform")
            address = find(self.place.platform, _library_name(name).encode())
            if not address and name.endswith("QCOM"):  # phones have no loader in front of the driver
                address = self._symbol(name)
        else:
            address = self._symbol(name)
        return SIGNATURES[name](address) if address else None
