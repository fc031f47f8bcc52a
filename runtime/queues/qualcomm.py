"""Record launches for Qualcomm's recordable queues, the extension cl_qcom_recordable_queues.

Khronos has no text on it; structures and numbers are those of Qualcomm's cl_ext_qcom.h (Adreno OpenCL SDK). Launches
are recorded by enqueuing them on a queue of its own, which runs nothing. The recording is then enqueued on a usual
queue, with the arguments that have changed. Whether a change holds for later inferences is not specified, so every
inference gives all arguments that ever changed. A recording has a largest size, and longer sequences have several.

This has been tested with a library that records its calls, and not on hardware.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from contextlib import suppress
from ctypes import c_size_t, c_uint32, c_void_p
from dataclasses import dataclass

from gputune.runtime.memory import opencl_calls as cl
from gputune.runtime.memory.opencl_calls import CallFailed, OpenCLCalls
from gputune.runtime.queues.recorded import Change, Launch, RecordedQueue, Recording, closed_if_failed

EXTENSION = "cl_qcom_recordable_queues"
RECORDABLE = 1 << 30
DEVICE_MAX_SIZE = 0x41DE
MOST_LAUNCHES = 1 << 16
"""In a recording, where the device names no limit."""

_NEEDED = "clNewRecordingQCOM", "clEndRecordingQCOM", "clReleaseRecordingQCOM", "clEnqueueRecordingQCOM"


class Argument(ctypes.Structure):
    """cl_array_arg_qcom."""

    _fields_ = (
        ("dispatch_index", c_uint32),
        ("arg_index", c_uint32),
        ("arg_size", c_size_t),
        ("arg_value", c_void_p),
    )


def recordable_queues(calls: OpenCLCalls, extensions: Sequence[str]) -> RecordableQueues | str:
    """Return how launches are recorded, or why the device does not record in this way."""
    if EXTENSION not in extensions:
        return f"the device has no {EXTENSION}"
    try:
        for name in _NEEDED:
            calls.function(name)
    except CallFailed as error:
        return f"{EXTENSION}: {error}"
    most = 0
    with suppress(CallFailed):
        most = calls.query_device(DEVICE_MAX_SIZE)
    return RecordableQueues(calls, True, most or MOST_LAUNCHES)


@dataclass(frozen=True)
class RecordableQueues(RecordedQueue):
    """Recordings of a device. most: how many launches one may have."""

    name = EXTENSION

    most: int

    def record(self, launches: Sequence[Launch]) -> RecordedOnQueue:
        """Record launches with the arguments that they have. Raises CallFailed."""
        return RecordedOnQueue(self, launches)


class RecordedOnQueue(Recording):
    """Recordings that follow one another, each of as many launches as one may have."""

    def __init__(self, way: RecordableQueues, launches: Sequence[Launch]) -> None:
        """Record the launches. Raises CallFailed."""
        super().__init__(launches)
        self._calls, self._most = way.calls, way.most
        self._pointers: list[int] = []
        place, do = self._calls.place, self._calls.do
        self._queue = self._calls.make("clCreateCommandQueue", place.context, place.device, RECORDABLE)
        pointers, queue = self._pointers, self._queue
        release, release_queue = map(self._calls.function, ("clReleaseRecordingQCOM", "clReleaseCommandQueue"))

        def give_back() -> None:
            while pointers:
                release(pointers.pop())
            release_queue(queue)

        self._released_by(give_back)
        with closed_if_failed(self):
            for first in range(0, len(launches), self._most):
                pointers.append(self._calls.make("clNewRecordingQCOM", queue))
                for launch in launches[first : first + self._most]:
                    self._add(launch)
                do("clEndRecordingQCOM", pointers[-1])
        self._changes: dict[tuple[int, int], c_void_p] = {}
        self._arguments: list[ctypes.Array[Argument] | None] = [None] * len(pointers)
        self._enqueue = self._calls.function("clEnqueueRecordingQCOM")

    def replay(self) -> None:
        """Enqueue all launches, after everything that was enqueued before. Raises CallFailed."""
        queue = self._calls.place.queue
        for pointer, arguments in zip(self._pointers, self._arguments, strict=True):
            changed = (0, None) if arguments is None else (len(arguments), ctypes.addressof(arguments))
            if code := self._enqueue(queue, pointer, *changed, *(0, None) * 3, 0, None, None):
                raise CallFailed(f"clEnqueueRecordingQCOM failed: {cl.error_name(code)}")

    def _add(self, launch: Launch) -> None:
        dimensions = len(launch.global_size)
        sizes = [(c_size_t * dimensions)(*size) for size in (launch.global_size, launch.local_size)]
        command = launch.kernel.int_ptr, dimensions, None, *map(ctypes.addressof, sizes)
        self._calls.do("clEnqueueNDRangeKernel", self._queue, *command, 0, None, None)

    def _rebind(self, changes: Sequence[Change]) -> None:
        for number, place, pointer in changes:
            self._changes.setdefault((number, place), c_void_p()).value = pointer
        for piece in range(len(self._pointers)):
            found = [
                Argument(number % self._most, place, ctypes.sizeof(value), ctypes.addressof(value))
                for (number, place), value in self._changes.items()
                if number // self._most == piece
            ]
            self._arguments[piece] = (Argument * len(found))(*found) if found else None
