"""Record launches in a command buffer of cl_khr_command_buffer, and rebind them by mutable dispatch.

The calls that are used here are the same in all versions from 0.9.0 to 0.9.8 and in 1.0, which only has another number
than 0.9.8. Commands that are recorded for an in-order queue run in their order. Three differences matter:

* Before 0.9.8, a command buffer must not be enqueued again while it runs, unless it was made for simultaneous use. PoCL
  notes the end of a run after it has reported it, so the flag is set wherever the device has it.
* PoCL 3.1 needs a place for the event, and reads a kernel's arguments when the buffer is enqueued. So a recording must
  only be enqueued while its launches have the arguments that they had when it was recorded.
* The changes of arguments are a linked list in cl_khr_command_buffer_mutable_dispatch 0.9.0 and 0.9.1, and an array
  since 0.9.2.
"""

from __future__ import annotations

import ctypes
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from ctypes import c_size_t, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from typing import Any

from gputune.runtime.memory import opencl_calls as cl
from gputune.runtime.memory.opencl_calls import CallFailed, OpenCLCalls
from gputune.runtime.queues.recorded import Change, Launch, RecordedQueue, Recording, closed_if_failed

EXTENSION = "cl_khr_command_buffer"
MUTABLE = "cl_khr_command_buffer_mutable_dispatch"

# cl_ext.h, cl_khr_command_buffer and cl_khr_command_buffer_mutable_dispatch
DEVICE_CAPABILITIES = 0x12A9
CAPABILITY_SIMULTANEOUS_USE = 1 << 2
DEVICE_MUTABLE_CAPABILITIES = 0x12B0
FLAGS = 0x1293
SIMULTANEOUS_USE = 1 << 0
MUTABLE_BUFFER = 1 << 1
UPDATABLE_FIELDS = 0x12B1
ARGUMENTS = 1 << 3

Version = tuple[int, int, int]
KNOWN: tuple[Version, Version] = (0, 9, 0), (0, 9, 8)
FINAL: Version = (1, 0, 0)
USED_AGAIN: Version = (0, 9, 8)
"""Since this version, an in-order queue may have a command buffer twice."""
MUTABLE_KNOWN: tuple[Version, Version] = (0, 9, 0), (0, 9, 5)
MUTABLE_ARRAYS: Version = (0, 9, 2)

_NEEDED = (
    "clCreateCommandBufferKHR",
    "clCommandNDRangeKernelKHR",
    "clFinalizeCommandBufferKHR",
    "clEnqueueCommandBufferKHR",
    "clReleaseCommandBufferKHR",
)


class Argument(ctypes.Structure):
    """cl_mutable_dispatch_arg_khr."""

    _fields_ = (("arg_index", c_uint32), ("arg_size", c_size_t), ("arg_value", c_void_p))


_CONFIGURATION = (
    ("command", c_void_p),
    ("num_args", c_uint32),
    ("num_svm_args", c_uint32),
    ("num_exec_infos", c_uint32),
    ("work_dim", c_uint32),
    ("arg_list", c_void_p),
    ("arg_svm_list", c_void_p),
    ("exec_info_list", c_void_p),
    ("global_work_offset", c_void_p),
    ("global_work_size", c_void_p),
    ("local_work_size", c_void_p),
)


class Configuration(ctypes.Structure):
    """cl_mutable_dispatch_config_khr since 0.9.2, of which CONFIGURATION_TYPE is the type."""

    _fields_ = _CONFIGURATION


CONFIGURATION_TYPE = 0


class LinkedConfiguration(ctypes.Structure):
    """cl_mutable_dispatch_config_khr before 0.9.2; type is LINKED_TYPE."""

    _fields_ = (("type", c_uint32), ("next", c_void_p), *_CONFIGURATION)


LINKED_TYPE = 1


class Base(ctypes.Structure):
    """cl_mutable_base_config_khr before 0.9.2; type is 0."""

    _fields_ = (
        ("type", c_uint32),
        ("next", c_void_p),
        ("num_mutable_dispatch", c_uint32),
        ("mutable_dispatch_list", c_void_p),
    )


def command_buffers(calls: OpenCLCalls, extensions: Sequence[str]) -> CommandBuffers | str:
    """Return how the queue's launches are recorded, or why the device does not record in this way."""
    if EXTENSION not in extensions:
        return f"the device has no {EXTENSION}"
    try:
        versions = calls.extension_versions()
        version = versions.get(EXTENSION)
        if version is None or not (KNOWN[0] <= version <= KNOWN[1] or version == FINAL):
            return f"{EXTENSION} has the unknown version {_text(version)}"
        for name in _NEEDED:
            calls.function(name)
        capabilities = calls.query_device(DEVICE_CAPABILITIES)
    except CallFailed as error:
        return f"{EXTENSION}: {error}"
    flags = SIMULTANEOUS_USE if version < USED_AGAIN and capabilities & CAPABILITY_SIMULTANEOUS_USE else 0
    mutable = versions.get(MUTABLE) if _rebinds(calls, versions.get(MUTABLE)) else None
    return CommandBuffers(calls, mutable is not None, flags, mutable is not None and mutable < MUTABLE_ARRAYS)


def _rebinds(calls: OpenCLCalls, version: Version | None) -> bool:
    if version is None or not MUTABLE_KNOWN[0] <= version <= MUTABLE_KNOWN[1]:
        return False
    with suppress(CallFailed):
        return calls.has("clUpdateMutableCommandsKHR") and bool(
            calls.query_device(DEVICE_MUTABLE_CAPABILITIES) & ARGUMENTS
        )
    return False


def _text(version: Version | None) -> str:
    return "(none)" if version is None else ".".join(map(str, version))


@dataclass(frozen=True)
class CommandBuffers(RecordedQueue):
    """Command buffers for a queue. flags: with which they are made; linked: whether changes are a linked list."""

    name = EXTENSION

    flags: int = 0
    linked: bool = False

    def record(self, launches: Sequence[Launch]) -> CommandBuffer:
        """Record launches with the arguments that they have. Raises CallFailed."""
        return CommandBuffer(self, launches)


class CommandBuffer(Recording):
    """A command buffer that has been finalized."""

    def __init__(self, way: CommandBuffers, launches: Sequence[Launch]) -> None:
        """Record the launches. Raises CallFailed."""
        super().__init__(launches)
        self._calls, self._linked = way.calls, way.linked
        queue = c_void_p(self._calls.place.queue)
        flags = way.flags | (MUTABLE_BUFFER if way.rebinds else 0)
        properties = (c_uint64 * 3)(FLAGS, flags, 0)
        self._pointer = self._calls.make(
            *("clCreateCommandBufferKHR", 1, ctypes.addressof(queue)),
            ctypes.addressof(properties) if flags else None,
        )
        release, pointer = self._calls.function("clReleaseCommandBufferKHR"), self._pointer
        self._released_by(lambda: release(pointer))
        with closed_if_failed(self):
            fields = (c_uint64 * 3)(UPDATABLE_FIELDS, ARGUMENTS, 0) if way.rebinds else None
            self._commands = [self._add(launch, fields) for launch in launches]
            self._calls.do("clFinalizeCommandBufferKHR", pointer)
        self._event = c_void_p()
        self._enqueue = self._calls.function("clEnqueueCommandBufferKHR")
        self._arguments = 0, None, pointer, 0, None, ctypes.addressof(self._event)
        self._release_event = self._calls.function("clReleaseEvent")

    def replay(self) -> None:
        """Enqueue all launches, after everything that was enqueued before. Raises CallFailed."""
        if code := self._enqueue(*self._arguments):
            raise CallFailed(f"clEnqueueCommandBufferKHR failed: {cl.error_name(code)}")
        self._release_event(self._event)

    def _add(self, launch: Launch, fields: Any) -> int:
        """Record one launch; what it is called when arguments are changed."""
        command = c_void_p()
        dimensions = len(launch.global_size)
        sizes = [(c_size_t * dimensions)(*size) for size in (launch.global_size, launch.local_size)]
        self._calls.do(
            *("clCommandNDRangeKernelKHR", self._pointer, None),
            *(None if fields is None else ctypes.addressof(fields), launch.kernel.int_ptr, dimensions, None),
            *(ctypes.addressof(size) for size in sizes),
            *(0, None, None, None if fields is None else ctypes.addressof(command)),
        )
        return command.value or 0

    def _rebind(self, changes: Sequence[Change]) -> None:
        changed: defaultdict[int, list[tuple[int, c_void_p]]] = defaultdict(list)
        for number, place, pointer in changes:
            changed[number].append((place, c_void_p(pointer)))
        kind = LinkedConfiguration if self._linked else Configuration
        configurations = (kind * len(changed))()
        kept = []
        for configuration, (number, arguments) in zip(configurations, changed.items(), strict=True):
            each = [Argument(place, ctypes.sizeof(c_void_p), ctypes.addressof(one)) for place, one in arguments]
            listed = (Argument * len(each))(*each)
            kept.append(listed)
            configuration.command, configuration.num_args = self._commands[number], len(each)
            configuration.arg_list = ctypes.addressof(listed)
            if self._linked:
                configuration.type = LINKED_TYPE
        if self._linked:
            base = Base(0, None, len(configurations), ctypes.addressof(configurations))
            self._calls.do(cl.UPDATE_BY_LIST, self._pointer, ctypes.addressof(base))
            return
        types = (c_uint32 * len(configurations))(*[CONFIGURATION_TYPE] * len(configurations))
        pointers = (c_void_p * len(configurations))(*map(ctypes.addressof, configurations))
        listed_in = len(configurations), ctypes.addressof(types), ctypes.addressof(pointers)
        self._calls.do("clUpdateMutableCommandsKHR", self._pointer, *listed_in)
