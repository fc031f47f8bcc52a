"""Provide an OpenCL library of Python functions behind real function pointers.

It answers what a test says, and records each request with the structures and lists to which its pointers lead.
"""

# ruff: noqa: N802 - methods are called as the library's functions are

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gputune.core.identity import DeviceIdentity
from gputune.runtime.devices.discovery import NULL_REPORT
from gputune.runtime.memory import opencl_calls as cl
from gputune.runtime.memory.ladder import Ladder

PLACE = cl.Place(platform=0x100, device=0x200, context=0x300, queue=0x400)
FIRST = 0x10000
"""The first cl_mem that the library gives out; the next are one more each."""
Answers = Mapping[int, int | list[int]]


def identity(*extensions: str, version: str = "OpenCL 3.0 fake", kind: str = "gpu") -> DeviceIdentity:
    assert NULL_REPORT.identity is not None
    return replace(
        NULL_REPORT.identity,
        name="fake",
        device_type=kind,
        device_version=version,
        extensions=tuple(sorted(extensions)),
    )


class FakeOpenCL:
    """answers: of clGetDeviceInfo, by what is asked. failing: error codes of calls, by name. absent: functions that the
    driver does not have. moved: how far from the host pointer buffers are mapped. uses_svm: what is said of buffers."""

    def __init__(
        self,
        answers: Answers | None = None,
        failing: Mapping[str, int] | None = None,
        absent: tuple[str, ...] = (),
        moved: int = 0,
        uses_svm: bool = True,
    ) -> None:
        self.answers, self.failing, self.moved = dict(answers or {}), dict(failing or {}), moved
        self.absent, self.uses_svm = absent, uses_svm
        self.calls: list[tuple[Any, ...]] = []
        self.buffers: dict[int, int] = {}
        """Living cl_mem and their host pointers."""
        self.references: dict[int, int] = {}
        self.driver_memory: dict[int, Any] = {}
        """What clSVMAlloc and its like have given out."""
        self._functions = {name: kind(self._recorded(name)) for name, kind in cl.SIGNATURES.items()}
        self._next = FIRST

    def ladder(self, of: DeviceIdentity) -> Ladder:
        return Ladder(cl.OpenCLCalls(self.symbol, PLACE), of, context=None)

    def symbol(self, name: str) -> int:
        """Extensions' functions are not among a library's own."""
        return 0 if name.endswith(("KHR", "ARM", "INTEL")) or name in self.absent else self._address(name)

    def made(self) -> list[tuple[Any, ...]]:
        """The calls but for the questions, and then none."""
        calls = [call for call in self.calls if not call[0].startswith("clGet")]
        self.calls.clear()
        return calls

    def _address(self, name: str) -> int:
        return ctypes.cast(self._functions[name], ctypes.c_void_p).value or 0

    def _recorded(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            method = getattr(self, "_" + re.sub(r"\W", "_", name))
            return method(*(0 if argument is None else argument for argument in arguments))

        return call

    def _end(self, name: str) -> int:
        return self.failing.get(name, cl.SUCCESS)

    def _made(self, name: str, error: int, host: int, *told: Any) -> int:
        self.calls.append((name, *told))
        code = self._end(name)
        ctypes.c_int32.from_address(error).value = code
        if code:
            return 0
        pointer, self._next = self._next, self._next + 1
        self.buffers[pointer], self.references[pointer] = host, 1
        return pointer

    # --- the library ---

    def _clGetDeviceInfo(self, device: int, what: int, size: int, value: int, needed: int) -> int:
        assert device == PLACE.device
        self.calls.append(("clGetDeviceInfo", what))
        if what not in self.answers:
            return -30
        answer = self.answers[what]
        listed = (ctypes.c_uint32 * len(answer))(*answer) if isinstance(answer, list) else ctypes.c_uint32(answer)
        if needed:
            ctypes.c_size_t.from_address(needed).value = ctypes.sizeof(listed)
        if value:
            assert size >= ctypes.sizeof(listed)
            ctypes.memmove(value, ctypes.addressof(listed), ctypes.sizeof(listed))
        return cl.SUCCESS

    def _clGetMemObjectInfo(self, pointer: int, what: int, size: int, value: int, needed: int) -> int:
        self.calls.append(("clGetMemObjectInfo", pointer, what))
        answer = {
            cl.MEM_USES_SVM_POINTER: ctypes.c_uint32(self.uses_svm),
            cl.MEM_TYPE: ctypes.c_uint32(int(self.answers.get(cl.MEM_TYPE, cl.MEM_OBJECT_BUFFER))),  # type: ignore[arg-type]
            cl.MEM_CONTEXT: ctypes.c_uint64(int(self.answers.get(cl.MEM_CONTEXT, PLACE.context))),  # type: ignore[arg-type]
            cl.MEM_SIZE: ctypes.c_uint64(64),
        }[what]
        assert size == ctypes.sizeof(answer) and not needed
        ctypes.memmove(value, ctypes.addressof(answer), size)
        return self._end("clGetMemObjectInfo")

    def _clCreateBuffer(self, context: int, flags: int, size: int, host: int, error: int) -> int:
        assert context == PLACE.context
        told: Any = host
        if flags & cl.MEM_EXT_HOST_PTR:
            header = cl.ExternalHostPointer.from_address(host)
            told = [header.allocation_type, header.host_cache_policy]
            if header.allocation_type == cl.MEM_ANDROID_AHARDWAREBUFFER_HOST_PTR:
                told.append(cl.HardwareBufferHostPointer.from_address(host).ahb_ptr)
            else:
                descriptor = cl.DescriptorHostPointer.from_address(host)
                told += [descriptor.filedesc, descriptor.hostptr]
                host = descriptor.hostptr
        elif flags & cl.MEM_ALLOC_HOST_PTR:
            memory = ctypes.create_string_buffer(size)
            host = ctypes.addressof(memory)
            self.driver_memory[host] = memory
        return self._made("clCreateBuffer", error, host, flags, size, told)

    def _clCreateBufferWithProperties(
        self, context: int, properties: int, flags: int, size: int, host: int, error: int
    ) -> int:
        assert (context, host) == (PLACE.context, 0)
        return self._made("clCreateBufferWithProperties", error, 0, list_at(properties), flags, size)

    def _clCreateSubBuffer(self, parent: int, flags: int, kind: int, info: int, error: int) -> int:
        assert kind == cl.BUFFER_CREATE_TYPE_REGION
        region = cl.Region.from_address(info)
        host = self.buffers[parent] and self.buffers[parent] + region.origin
        return self._made("clCreateSubBuffer", error, host, parent, flags, region.origin, region.size)

    def _clImportMemoryARM(self, context: int, flags: int, properties: int, memory: int, size: int, error: int) -> int:
        assert context == PLACE.context
        listed = list_at(properties)
        told = ctypes.c_int.from_address(memory).value if listed[1] == cl.IMPORT_TYPE_DMA_BUF else memory
        return self._made("clImportMemoryARM", error, memory, flags, listed, told, size)

    def _clRetainMemObject(self, pointer: int) -> int:
        self.calls.append(("clRetainMemObject", pointer))
        self.references[pointer] = self.references.get(pointer, 1) + 1
        return self._end("clRetainMemObject")

    def _clReleaseMemObject(self, pointer: int) -> int:
        self.calls.append(("clReleaseMemObject", pointer))
        self.references[pointer] -= 1
        return cl.SUCCESS

    def _clEnqueueMapBuffer(
        self, queue: int, pointer: int, blocking: int, flags: int, offset: int, size: int, *rest: int
    ) -> int:
        assert (queue, blocking, flags, offset, rest[:3]) == (PLACE.queue, 1, 3, 0, (0, 0, 0))
        self.calls.append(("clEnqueueMapBuffer", pointer, size))
        code = self._end("clEnqueueMapBuffer")
        ctypes.c_int32.from_address(rest[3]).value = code
        return 0 if code else self.buffers[pointer] + self.moved

    def _clEnqueueUnmapMemObject(self, queue: int, pointer: int, address: int, *rest: int) -> int:
        assert (queue, rest) == (PLACE.queue, (0, 0, 0))
        self.calls.append(("clEnqueueUnmapMemObject", pointer, address))
        return self._end("clEnqueueUnmapMemObject")

    def _clFinish(self, queue: int) -> int:
        self.calls.append(("clFinish",))
        return self._end("clFinish")

    def _clSVMAlloc(self, context: int, flags: int, size: int, alignment: int) -> int:
        self.calls.append(("clSVMAlloc", flags, size, alignment))
        return 0 if self._end("clSVMAlloc") else self._given_out(size)

    def _clSVMFree(self, context: int, address: int) -> None:
        self.calls.append(("clSVMFree",))
        del self.driver_memory[address]

    def _clHostMemAllocINTEL(self, context: int, properties: int, size: int, alignment: int, error: int) -> int:
        self.calls.append(("clHostMemAllocINTEL", properties, size, alignment))
        code = self._end("clHostMemAllocINTEL")
        ctypes.c_int32.from_address(error).value = code
        return 0 if code else self._given_out(size)

    def _clMemBlockingFreeINTEL(self, context: int, address: int) -> int:
        self.calls.append(("clMemBlockingFreeINTEL",))
        del self.driver_memory[address]
        return cl.SUCCESS

    def _given_out(self, size: int) -> int:
        memory = ctypes.create_string_buffer(size)
        self.driver_memory[ctypes.addressof(memory)] = memory
        return ctypes.addressof(memory)

    def _clGetExtensionFunctionAddressForPlatform(self, platform: int, name: bytes) -> int:
        assert platform == PLACE.platform
        return 0 if name.decode() in self.absent else self._address(name.decode())

    def _clEnqueueAcquireExternalMemObjectsKHR(self, *arguments: int) -> int:
        return self._handed_over("clEnqueueAcquireExternalMemObjectsKHR", *arguments)

    def _clEnqueueReleaseExternalMemObjectsKHR(self, *arguments: int) -> int:
        return self._handed_over("clEnqueueReleaseExternalMemObjectsKHR", *arguments)

    def _handed_over(self, name: str, queue: int, count: int, pointers: int, *rest: int) -> int:
        assert (queue, rest) == (PLACE.queue, (0, 0, 0))
        self.calls.append((name, list((ctypes.c_void_p * count).from_address(pointers))))
        return self._end(name)


def list_at(address: int) -> list[int]:
    """A list of numbers of eight bytes that ends with 0, with that."""
    listed: list[int] = []
    while not listed or listed[-1]:
        listed.append(ctypes.c_uint64.from_address(address + 8 * len(listed)).value)
    return listed
