"""Provide the OpenCL library of fake_opencl.c, and contexts for its device."""

import ctypes
import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gputune.core.identity import DeviceIdentity
from gputune.runtime.context.format import write_context
from gputune.runtime.context.records import (
    BufferRef,
    Context,
    GraphRecord,
    LaunchRecord,
    MemoryType,
    ProgramRecord,
    TensorRecord,
)
from tests.native.compiling import OPTIMISED, compiled, sanitizers

HERE = Path(__file__).parent
DEVICE = DeviceIdentity(
    platform="Fake",
    platform_version="OpenCL 1.2 fake",
    name="Fake GPU",
    vendor="gputune",
    driver_version="1.0",
    device_version="OpenCL 1.2 fake",
    device_type="gpu",
    compute_units=4,
    max_work_group_size=1024,
    max_work_item_sizes=(1024, 1024, 64),
    local_memory_bytes=32 << 10,
    global_memory_bytes=1 << 30,
    max_allocation_bytes=1 << 28,
    base_address_alignment_bytes=128,
    preferred_float_width=1,
    extensions=("cl_khr_byte_addressable_store", "cl_khr_fp16"),
)
CPU = dataclasses.replace(DEVICE, device_type="cpu")
"""The same device by Fake.is_cpu."""
SOURCE = "__kernel void twice(__global const float *from, __global float *to) {}"
ELEMENTS, STAGES = 64, 3
NBYTES = 4 * ELEMENTS
WEIGHTS_BYTES = 5 << 20


def fake_library(flags: Sequence[str] = ()) -> Path:
    """The library, compiled with these flags, too."""
    strict = ("-std=c11", "-pedantic", "-Wall", "-Wextra", "-Wconversion", "-Werror")
    return compiled("libOpenCL_fake.so", [HERE / "fake_opencl.c"], (*OPTIMISED, "-shared", *flags), strict)


class Fake:
    """The library, compiled once for a state of its source."""

    def __init__(self) -> None:
        self.path = fake_library(sanitizers())
        self._library = ctypes.CDLL(str(self.path))
        self._library.fake_fail_at.argtypes = [ctypes.c_long]
        self._library.fake_alive.restype = self._library.fake_calls.restype = ctypes.c_long
        self._library.fake_failed.restype = ctypes.c_char_p
        self._library.fake_stamp.argtypes = 4 * [ctypes.c_uint64]
        self._library.fake_delay.argtypes = self._library.fake_refuse.argtypes = [ctypes.c_long]
        self._library.fake_most_events.restype = ctypes.c_long
        for name in ("ahead", "cpu", "devices", "lose", "status"):
            getattr(self._library, f"fake_{name}").argtypes = [ctypes.c_long]
        self._library.fake_opened.restype = ctypes.c_long
        self._library.fake_replays.restype = self._library.fake_finishes.restype = ctypes.c_long
        self._library.fake_meet.argtypes = [ctypes.c_long]
        self._library.fake_met.restype = ctypes.c_long
        self._library.fake_recordings.restype = ctypes.c_long
        self._library.fake_updates.restype = ctypes.c_long

    @property
    def failed(self) -> str:
        """Where the call is that was made to fail."""
        return str(self._library.fake_failed().decode())

    @property
    def alive(self) -> int:
        """OpenCL objects that were made and not released."""
        return int(self._library.fake_alive())

    @property
    def calls(self) -> int:
        """Since fail_at was called last."""
        return int(self._library.fake_calls())

    def meet(self, threads: int) -> None:
        """From now on so many threads wait for a queue at a time, each for the others; 0: as they come."""
        self._library.fake_meet(threads)

    @property
    def met(self) -> int:
        """The most threads that have waited at a time since then."""
        return int(self._library.fake_met())

    @property
    def finishes(self) -> int:
        """Waits for a queue so far."""
        return int(self._library.fake_finishes())

    @property
    def replays(self) -> int:
        """Recordings that were enqueued so far."""
        return int(self._library.fake_replays())

    @property
    def recordings(self) -> int:
        """Command buffers and Qualcomm's recordings that were made so far."""
        return int(self._library.fake_recordings())

    @property
    def updates(self) -> int:
        """Calls so far that changed arguments of a command buffer."""
        return int(self._library.fake_updates())

    def records(self, how: int, delay_ns: int = 0, refuses: bool = False) -> None:
        """how: 0 for no recorded queues, 1 for command buffers, 2 for recordable queues, 3 for command buffers with
        mutable dispatch, and 4 for the same before its version 0.9.2. delay_ns: what enqueuing a
        launch takes. refuses: whether replays fail."""
        self._library.fake_records(how)
        self._library.fake_delay(delay_ns)
        self._library.fake_refuse(refuses)

    def is_cpu(self, is_one: bool) -> None:
        """Makes the device a CPU, or a GPU again, for who opens it from now on."""
        self._library.fake_cpu(is_one)

    @property
    def opened(self) -> int:
        """Return the number of the device that a context was made for last."""
        return int(self._library.fake_opened())

    def devices(self, count: int) -> None:
        """Gives the platform so many equal devices, at most two; of two, the platform is listed twice."""
        self._library.fake_devices(count)

    def lose(self, is_lost: bool) -> None:
        """Makes what is read of the device wrong from now on, or right again."""
        self._library.fake_lose(is_lost)

    def status(self, status: int) -> None:
        """Makes calls that fail return this status from now on; -5 is the usual one."""
        self._library.fake_status(status)

    def stamp(self, queued_ns: int, submitted_ns: int, begun_ns: int, ended_ns: int) -> None:
        """Gives events these times from now on; 0: their own."""
        self._library.fake_stamp(queued_ns, submitted_ns, begun_ns, ended_ns)

    def is_ahead(self, ns: int) -> None:
        """Lets the device's clock be read from now on, which is so far ahead of the host's; 0: it cannot be read."""
        self._library.fake_ahead(ns)

    def most_events(self) -> int:
        """Return the most events that were alive at a time since this was asked last."""
        return int(self._library.fake_most_events())

    def fail_at(self, call: int) -> None:
        """Makes the call of this number from now on fail; 0: none."""
        self._library.fake_fail_at(call)


def doubling_context(
    path: Path,
    graphs: tuple[str, ...] = ("main",),
    binary: bytes = SOURCE.encode(),
    device: DeviceIdentity = DEVICE,
    apart: int = NBYTES,
    configuration: Mapping[str, Any] | None = None,
    needs: Sequence[Sequence[int]] = (),
    memory_type: MemoryType = "raw",
    count: int = STAGES,
) -> Path:
    """Graphs that take x and give y, which is x times two to the power of `count`, by an arena between the stages,
    whose parts are so many bytes apart. needs: arenas of each graph instead of that one, of which it uses the first;
    memory_type: what x and y are prepared for."""
    arenas = [BufferRef("arena", 0, place * apart, NBYTES) for place in range(2)]
    stages = [BufferRef("input", 0, 0, NBYTES), *(arenas[place % 2] for place in range(count - 1))]
    stages.append(BufferRef("output", 0, 0, NBYTES))
    launches = tuple(
        LaunchRecord(f"op {place}", "0" * 64, 0, "twice", (ELEMENTS,), (4,), pair)
        for place, pair in enumerate(itertools.pairwise(stages))
    )
    inputs, outputs = ((TensorRecord(name, (ELEMENTS,), memory_type=memory_type),) for name in "xy")
    sizes = needs or [(apart + NBYTES,)] * len(graphs)
    records = [
        GraphRecord(name, inputs, outputs, launches, tuple(each)) for name, each in zip(graphs, sizes, strict=True)
    ]
    programs = (ProgramRecord(binary, SOURCE, ""),)
    said = dict(configuration or {})
    write_context(path, Context(records, programs, (), device.to_dict(), "fake", said, {"gputune": "0.1.0"}, True))
    return path


def weighted_context(path: Path, value: float) -> Path:
    """A graph that takes x and gives y, all of which is twice the value; it lies in weights that are read in several
    pieces."""
    weights = np.full(WEIGHTS_BYTES // 4, value, np.float32)
    source = "__kernel void twice(__global const float *from, __global float *x, __global float *to) {}"
    refs = BufferRef("weights", 0, 0, NBYTES), BufferRef("input", 0, 0, NBYTES), BufferRef("output", 0, 0, NBYTES)
    launch = LaunchRecord("op", "0" * 64, 0, "twice", (ELEMENTS,), (4,), refs)
    inputs, outputs = ((TensorRecord(name, (ELEMENTS,)),) for name in "xy")
    record = GraphRecord("main", inputs, outputs, (launch,), ())
    programs = (ProgramRecord(source.encode(), source, ""),)
    write_context(path, Context([record], programs, (weights,), DEVICE.to_dict(), "fake", {}, {}, True))
    return path


def named_context(path: Path, names: Sequence[str], inputs: Sequence[str] = ("x",), elements: int = ELEMENTS) -> Path:
    """A graph that takes inputs and gives outputs of these names: the first is twice the first input, each other twice
    the one before."""
    refs = [
        BufferRef("input", 0, 0, 4 * elements),
        *(BufferRef("output", place, 0, 4 * elements) for place in range(len(names))),
    ]
    launches = tuple(
        LaunchRecord(f"op {place}", "0" * 64, 0, "twice", (elements,), (4,), pair)
        for place, pair in enumerate(itertools.pairwise(refs))
    )
    outputs = tuple(TensorRecord(name, (elements,)) for name in names)
    given = tuple(TensorRecord(name, (elements,)) for name in inputs)
    record = GraphRecord("main", given, outputs, launches, ())
    programs = (ProgramRecord(SOURCE.encode(), SOURCE, ""),)
    write_context(path, Context([record], programs, (), DEVICE.to_dict(), "fake", {}, {}, True))
    return path


def compact_context(path: Path, values: Sequence[float], binary: bytes = b"") -> Path:
    """A graph that takes x and gives for each value an output, all of which is four times the value; it lies in weights
    that a packing of its own doubles."""
    source = f"{SOURCE} __kernel void fill(__global const float *from, __global float *x, __global float *to) {{}}"
    packings, launches = [], []
    for place in range(len(values)):
        pack = BufferRef("weights", place, 0, NBYTES), BufferRef("arena", 0, 0, NBYTES)
        fill = (
            BufferRef("packed", place, 0, NBYTES),
            BufferRef("input", 0, 0, NBYTES),
            BufferRef("output", place, 0, NBYTES),
        )
        packed = LaunchRecord("pack", "0" * 64, 0, "twice", (ELEMENTS,), (4,), pack)
        packings.append(GraphRecord(f"{place:064}", (), (), (packed,), (NBYTES,)))
        launches.append(LaunchRecord(f"op {place}", "0" * 64, 0, "fill", (ELEMENTS,), (4,), fill))
    outputs = tuple(TensorRecord(f"y{place}", (ELEMENTS,)) for place in range(len(values)))
    record = GraphRecord("main", (TensorRecord("x", (ELEMENTS,)),), outputs, tuple(launches), ())
    arrays = [np.full(ELEMENTS, value, np.float32) for value in values]
    programs = (ProgramRecord(binary or source.encode(), source, ""),)
    write_context(path, Context([record], programs, arrays, DEVICE.to_dict(), "fake", {}, {}, True, packings))
    return path
