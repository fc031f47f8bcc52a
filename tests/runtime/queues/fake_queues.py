"""Provide an OpenCL library of Python functions that records launches, by command buffers and by recordable queues."""

# ruff: noqa: N802 - methods are called as the library's functions are

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gputune.runtime.memory import opencl_calls as cl
from gputune.runtime.queues import command_buffers, qualcomm
from tests.runtime.memory.fake_opencl import PLACE, FakeOpenCL, list_at

RECORDING_QUEUE = 0x900
COMMAND = 0x7000
"""What the library calls the first command of a command buffer."""
Sizes = tuple[int, ...]


@dataclass(eq=False)
class Pointer:
    """What pyopencl has around a pointer."""

    int_ptr: int


@dataclass(eq=False)
class FakeMemory:
    """A buffer."""

    handle: Any


def memory(pointer: int) -> FakeMemory:
    return FakeMemory(Pointer(pointer))


@dataclass(eq=False)
class FakeLaunch:
    """A launch of a kernel of this number."""

    kernel: Any
    global_size: Sizes = (8, 4)
    local_size: Sizes = (2, 1)
    held: dict[int, FakeMemory] = field(default_factory=dict)


def launches(*held: Mapping[int, FakeMemory]) -> list[FakeLaunch]:
    return [FakeLaunch(Pointer(0xA0 + place), held=dict(each)) for place, each in enumerate(held)]


def names_and_versions(versions: Mapping[str, tuple[int, int, int]]) -> bytes:
    """What CL_DEVICE_EXTENSIONS_WITH_VERSION is answered with."""
    rows = [
        cl.NameVersion(major << 22 | minor << 12 | patch, name.encode())
        for name, (major, minor, patch) in versions.items()
    ]
    return b"".join(map(bytes, rows))


class FakeQueues(FakeOpenCL):
    """versions: of its extensions; None where the device does not know the question."""

    def __init__(
        self,
        versions: Mapping[str, tuple[int, int, int]] | None,
        answers: Mapping[int, int | list[int]] | None = None,
        failing: Mapping[str, int] | None = None,
        absent: tuple[str, ...] = (),
    ) -> None:
        super().__init__(answers, failing, absent)
        self.versions = versions
        self.extensions = [] if versions is None else [*versions]
        self.opencl = cl.OpenCLCalls(self.symbol, PLACE)

    def _clGetDeviceInfo(self, device: int, what: int, size: int, value: int, needed: int) -> int:
        if what != cl.DEVICE_EXTENSIONS_WITH_VERSION:
            return super()._clGetDeviceInfo(device, what, size, value, needed)
        if self.versions is None:
            return -30
        listed = names_and_versions(self.versions)
        if needed:
            ctypes.c_size_t.from_address(needed).value = len(listed)
        if value:
            ctypes.memmove(value, listed, len(listed))
        return cl.SUCCESS

    def _called(self, name: str, *told: Any) -> int:
        self.calls.append((name, *told))
        return self._end(name)

    def _launch(self, rest: Sequence[int]) -> tuple[int, Sizes, Sizes]:
        """The kernel of a launch with its sizes."""
        kernel, dimensions, offset, *sizes = rest[:5]
        assert offset == 0
        first, second = (tuple((ctypes.c_size_t * dimensions).from_address(each)) for each in sizes)
        return kernel, first, second

    # --- command buffers ---

    def _clCreateCommandBufferKHR(self, count: int, queues: int, properties: int, error: int) -> int:
        assert (count, ctypes.c_void_p.from_address(queues).value) == (1, PLACE.queue)
        return self._made("clCreateCommandBufferKHR", error, 0, list_at(properties) if properties else None)

    def _clCommandNDRangeKernelKHR(self, buffer: int, queue: int, properties: int, *rest: int) -> int:
        *launch, waits, wait_list, point, command = rest
        assert (queue, waits, wait_list, point) == (0, 0, 0, 0)
        number = sum(call[0] == "clCommandNDRangeKernelKHR" for call in self.calls)
        if command:
            ctypes.c_void_p.from_address(command).value = COMMAND + number
        fields = list_at(properties) if properties else None
        return self._called("clCommandNDRangeKernelKHR", buffer, fields, *self._launch(launch))

    def _clFinalizeCommandBufferKHR(self, buffer: int) -> int:
        return self._called("clFinalizeCommandBufferKHR", buffer)

    def _clEnqueueCommandBufferKHR(self, count: int, queues: int, buffer: int, *rest: int) -> int:
        assert (count, queues, rest[:2]) == (0, 0, (0, 0))
        ctypes.c_void_p.from_address(rest[2]).value = 0xE1  # PoCL writes there without asking
        return self._called("clEnqueueCommandBufferKHR", buffer)

    def _clReleaseCommandBufferKHR(self, buffer: int) -> int:
        return self._called("clReleaseCommandBufferKHR", buffer)

    def _clReleaseEvent(self, event: int) -> int:
        assert event == 0xE1
        return self._called("clReleaseEvent")

    def _clUpdateMutableCommandsKHR(self, buffer: int, count: int, types: int, configurations: int) -> int:
        assert list((ctypes.c_uint32 * count).from_address(types)) == [command_buffers.CONFIGURATION_TYPE] * count
        found = [
            self._change(command_buffers.Configuration.from_address(address))
            for address in (ctypes.c_uint64 * count).from_address(configurations)
        ]
        return self._called("clUpdateMutableCommandsKHR", buffer, found)

    def _clUpdateMutableCommandsKHR_before_0_9_2(self, buffer: int, configuration: int) -> int:
        base = command_buffers.Base.from_address(configuration)
        assert (base.type, base.next) == (0, None)
        kind = command_buffers.LinkedConfiguration * base.num_mutable_dispatch
        listed = kind.from_address(base.mutable_dispatch_list)
        assert all((one.type, one.next) == (command_buffers.LINKED_TYPE, None) for one in listed)
        return self._called("clUpdateMutableCommandsKHR", buffer, [self._change(one) for one in listed])

    def _address(self, name: str) -> int:
        linked = (self.versions or {}).get(command_buffers.MUTABLE, (9, 9, 9)) < command_buffers.MUTABLE_ARRAYS
        name = cl.UPDATE_BY_LIST if name == "clUpdateMutableCommandsKHR" and linked else name
        return super()._address(name)

    def _change(self, one: Any) -> tuple[int, dict[int, int]]:
        assert not (one.num_svm_args or one.num_exec_infos or one.work_dim or one.global_work_size)
        arguments = (command_buffers.Argument * one.num_args).from_address(one.arg_list)
        assert all(each.arg_size == 8 for each in arguments)
        return one.command, {each.arg_index: _pointer_at(each.arg_value) for each in arguments}

    # --- recordable queues ---

    def _clCreateCommandQueue(self, context: int, device: int, properties: int, error: int) -> int:
        assert (context, device) == (PLACE.context, PLACE.device)
        code = self._called("clCreateCommandQueue", properties)
        ctypes.c_int32.from_address(error).value = code
        return 0 if code else RECORDING_QUEUE

    def _clReleaseCommandQueue(self, queue: int) -> int:
        return self._called("clReleaseCommandQueue", queue)

    def _clNewRecordingQCOM(self, queue: int, error: int) -> int:
        assert queue == RECORDING_QUEUE
        return self._made("clNewRecordingQCOM", error, 0)

    def _clEnqueueNDRangeKernel(self, queue: int, *rest: int) -> int:
        assert queue == RECORDING_QUEUE and rest[5:] == (0, 0, 0)
        return self._called("clEnqueueNDRangeKernel", *self._launch(rest))

    def _clEndRecordingQCOM(self, recording: int) -> int:
        return self._called("clEndRecordingQCOM", recording)

    def _clReleaseRecordingQCOM(self, recording: int) -> int:
        return self._called("clReleaseRecordingQCOM", recording)

    def _clEnqueueRecordingQCOM(self, queue: int, recording: int, count: int, arguments: int, *rest: int) -> int:
        assert queue == PLACE.queue and not any(rest)
        listed = (qualcomm.Argument * count).from_address(arguments) if count else ()
        found = {(one.dispatch_index, one.arg_index): _pointer_at(one.arg_value) for one in listed}
        assert all(one.arg_size == 8 for one in listed)
        return self._called("clEnqueueRecordingQCOM", recording, found)


def _pointer_at(address: int) -> int:
    return ctypes.c_void_p.from_address(address).value or 0
