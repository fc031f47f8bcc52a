"""Drive an OpenCL device."""

from __future__ import annotations

import contextlib
import copy
import functools
import os
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from operator import attrgetter
from pathlib import Path
from typing import Any, Self

import numpy as np

from gputune.core.bounds import Scalar
from gputune.core.errors import BuildFailed, DeviceError, DeviceNotFound, LaunchFailed, LimitExceeded
from gputune.core.launches import ArgumentForm, Work
from gputune.core.quirks import quirks_of
from gputune.core.resources import UNKNOWN, Resources
from gputune.runtime.backends.answers import Bytes, Times, Timing, in_order_of_time, timing_of
from gputune.runtime.backends.base import Backend, Bound, Buffer, Imported, Program, attempted, buffers_of
from gputune.runtime.backends.compiled_kernels import code_of, spare_general_code
from gputune.runtime.backends.merging import OWN_NAMES
from gputune.runtime.backends.opencl_devices import cl, drivers, identity_of, visible_devices
from gputune.runtime.backends.sources import shortened_log
from gputune.runtime.devices.caches import last_cache_bytes
from gputune.runtime.devices.discovery import DeviceReport
from gputune.runtime.devices.resources import asked_resources, ptxas_resources
from gputune.runtime.devices.scratch import scratch_environment
from gputune.runtime.devices.settings import deciding, scarce_processors
from gputune.runtime.memory.handles import MemHandle
from gputune.runtime.memory.ladder import Ladder
from gputune.runtime.memory.opencl_calls import SIGNATURES, OpenCLCalls, Place, error_name, symbols_of

Error = cl.Error
LONGEST_PAUSE_SECONDS = 1e-3  # between two looks at a first launch
MOST_LOADING = 8  # programs at the same time

_LIMITS = {
    cl.status_code.INVALID_WORK_GROUP_SIZE,
    cl.status_code.INVALID_WORK_ITEM_SIZE,
    cl.status_code.INVALID_BUFFER_SIZE,
    cl.status_code.MEM_OBJECT_ALLOCATION_FAILURE,
    cl.status_code.OUT_OF_RESOURCES,
    cl.status_code.OUT_OF_HOST_MEMORY,
}

_KERNEL, _GLOBAL_SIZE, _LOCAL_SIZE = map(attrgetter, ("kernel", "global_size", "local_size"))
_RUNNING, _COMPLETE = cl.command_execution_status.RUNNING, cl.command_execution_status.COMPLETE


def open_device(report: DeviceReport, profiling: bool, compiled: Path | None = None) -> OpenCLBackend:
    """Open the device of a report; `compiled` is where a driver that can may keep what it has compiled. Raises
    DeviceNotFound when this process cannot see it."""
    assert report.identity is not None
    driver = Path(report.driver_file).name
    environment, folder = report.environment(), quirks_of(report.identity).compiled
    if folder is not None:
        environment |= scratch_environment(folder, compiled)
    visible = visible_devices(environment)
    wanted = (report.identity.platform, report.identity.name)
    found = [
        place for place, device in enumerate(visible) if (device.platform.name.strip(), device.name.strip()) == wanted
    ]
    if not found:
        others = ", ".join(device.name.strip() for device in visible) or "no device"
        raise DeviceNotFound(
            f"{report.title} cannot be opened: this process sees {others} "
            "(the first OpenCL driver opened in a process is the only one; use a fresh process for another)"
        )
    place = report.position if report.position in found else found[0]
    backend = OpenCLBackend(visible[place], driver, profiling)
    backend.finds_compiled = folder is not None and environment.get(folder.finds) == "1"
    backend.compiled = compiled if backend.finds_compiled else None
    return backend


class OpenCLBackend(Backend):
    """One OpenCL device with a context and an in-order queue of its own."""

    def __init__(self, device: cl.Device, driver: str, profiling: bool = True) -> None:
        super().__init__(identity_of(device, driver))
        self.profiles = profiling
        self._device = device
        self.device_pointer = int(device.int_ptr)
        self._has_timer = self.identity.device_version >= "OpenCL 2.1"  # older drivers' tables end before it
        self._timed_queue: cl.CommandQueue | None = None
        self.compiled: Path | None = None  # where the driver keeps what it compiles for each kernel and local size
        with _translated("opening the device"):
            self._context = cl.Context([device])
        self._queue = self._new_queue(timed=profiling)
        self._symbol = symbols_of(cl._cl.__file__)
        quirks = quirks_of(self.identity)
        self._verbose = quirks.verbose
        self._generates_late = self.identity.device_type in quirks.compiles_at_first_launch

    def _new_queue(self, timed: bool) -> cl.CommandQueue:
        clock = {"properties": cl.command_queue_properties.PROFILING_ENABLE} if timed else {}
        with _translated("opening a queue"):
            return cl.CommandQueue(self._context, self._device, **clock)

    def another_queue(self) -> Self:
        other = copy.copy(self)
        other._flushers, other._timed_queue = {}, None
        other.__dict__.pop("_ladder", None)  # its commands go to one queue
        other._queue = self._new_queue(timed=self.profiles)
        return other

    @functools.cached_property
    def _shares_memory(self) -> bool:
        """Whether it reads the host's memory itself and sees what was written there without being told: OpenCL's fine
        grain buffers. Not asked of GPUs, whose kernels may find such memory far away."""
        if self.identity.device_type != "cpu":
            return False
        try:
            return bool(self._device.svm_capabilities & cl.device_svm_capabilities.FINE_GRAIN_BUFFER)
        except cl.Error:  # a device of OpenCL 1.2 does not know the question
            return False

    @property
    def settings(self) -> dict[str, str]:
        """The variables that change code or time as they are in this process, and a want of processors."""
        scarce = scarce_processors(self.identity.compute_units) if self.identity.device_type == "cpu" else {}
        return deciding(os.environ) | scarce

    def device_now_ns(self) -> int | None:
        drivers().check()
        if self._has_timer:
            with contextlib.suppress(cl.Error):  # since OpenCL 3.0 drivers may leave it out
                return int(self._device.device_and_host_timer()[0])
            self._has_timer = False
        return None

    def write(self, buffer: Buffer, data: Any) -> None:
        with _translated("writing a buffer"):
            cl.enqueue_copy(self._queue, buffer.handle, data, is_blocking=True)

    def begin_write(self, buffer: Buffer, data: Any) -> object:
        with _translated("writing a buffer"):
            return cl.enqueue_copy(self._queue, buffer.handle, data, is_blocking=False)

    def read(self, buffer: Buffer, into: Bytes | None = None) -> Bytes:
        result = np.empty(buffer.nbytes, np.uint8) if into is None else into
        with _translated("reading a buffer"):
            cl.enqueue_copy(self._queue, result, buffer.handle, is_blocking=True)
        return result

    def fill(self, buffer: Buffer, pattern: int) -> None:
        with _translated("filling a buffer"):
            cl.enqueue_fill_buffer(self._queue, buffer.handle, np.full(1, pattern, np.uint8), 0, buffer.nbytes)

    def copy(self, source: Buffer, target: Buffer) -> None:
        with _translated("copying a buffer"):
            cl.enqueue_copy(self._queue, target.handle, source.handle, byte_count=source.nbytes)

    def _build(self, source: str, options: str) -> Program:
        with warnings.catch_warnings(action="ignore"):
            return self._built(lambda: cl.Program(self._context, source), options, self._verbose)

    def load_binary(self, binary: bytes) -> Program:
        with warnings.catch_warnings(action="ignore"):
            return self._load(binary, self._verbose)

    def load_binaries(self, binaries: Sequence[bytes]) -> list[Program | BuildFailed]:
        # Warnings are silenced for all threads at once, because that is a setting of the process.
        at_once = min(os.cpu_count() or 1, MOST_LOADING)
        with warnings.catch_warnings(action="ignore"), ThreadPoolExecutor(at_once) as threads:
            return list(threads.map(functools.partial(attempted, self._load), binaries))

    def _load(self, binary: bytes, verbose: str = "") -> Program:
        return self._built(lambda: cl.Program(self._context, [self._device], [binary]), "", verbose)

    def harvest(self, program: Program) -> bytes:
        if program.binary is None:
            with _translated("reading a program's binary"):
                if self.compiled is not None:
                    spare_general_code(self.compiled, program.handle.kernel_names.split(";"))
                binaries = program.handle.get_info(cl.program_info.BINARIES)
            program.binary = bytes(binaries[0])
        return program.binary

    def enqueue(self, bound: Bound) -> None:
        with _translated("a launch"):
            for one in bound.sequence:
                cl.enqueue_nd_range_kernel(self._queue, one.kernel, one.global_size, one.local_size)

    def in_order(self, bounds: Sequence[Bound]) -> Callable[[], None]:
        queue, sequence = self._queue, [one for bound in bounds for one in bound.sequence]

        def start() -> None:
            # The loop is not Python's, and kernels are looked up each time, because none may be held longer than its
            # Bound.
            sizes = map(_GLOBAL_SIZE, sequence), map(_LOCAL_SIZE, sequence)
            with _translated("a launch"):
                deque(map(cl.enqueue_nd_range_kernel, repeat(queue), map(_KERNEL, sequence), *sizes), maxlen=0)

        return start

    @contextlib.contextmanager
    def timing(self) -> Iterator[None]:
        if self.profiles:
            yield
            return
        usual = self._queue
        if self._timed_queue is None:  # a queue of its own, because some drivers are slower with the clock
            self._timed_queue = self._new_queue(timed=True)
        try:
            self._use_queue(self._timed_queue)
            yield
        finally:
            self._use_queue(usual)

    def _use_queue(self, queue: cl.CommandQueue) -> None:
        self._queue = queue
        if (ladder := self.__dict__.get("_ladder")) is not None:
            ladder.use_queue(queue.int_ptr)

    def enqueue_timed(self, bounds: Sequence[Bound]) -> Callable[[], Times]:
        sequence = [one for bound in bounds for one in bound.sequence]
        sizes = map(_GLOBAL_SIZE, sequence), map(_LOCAL_SIZE, sequence)
        with _translated("a launch"):
            events = list(map(cl.enqueue_nd_range_kernel, repeat(self._queue), map(_KERNEL, sequence), *sizes))
        kernels = [len(bound.sequence) for bound in bounds]
        return lambda: in_order_of_time(_stamps(events, kernels))

    def finish(self) -> None:
        with _translated("waiting for a launch"):
            self._queue.finish()

    def first_launch(self, bound: Bound, started: Callable[[], None]) -> Timing:
        with _translated("a launch"):
            start = time.perf_counter_ns()
            event = cl.enqueue_nd_range_kernel(self._queue, bound.kernel, bound.global_size, bound.local_size)
            self._queue.flush()
            if self._generates_late:
                _wait_until_it_runs(event)
            started()
            event.wait()
            wall_ns = time.perf_counter_ns() - start
            return Timing(1, max(event.profile.end - event.profile.start, 0), wall_ns)

    def time(self, bound: Bound, launches: int) -> Timing:
        queue = self._queue
        kernels = launches * [(one.kernel, one.global_size, one.local_size) for one in bound.sequence]
        with _translated("a launch"):
            start = time.perf_counter_ns()
            events = [cl.enqueue_nd_range_kernel(queue, *each) for each in kernels]
            queue.finish()
            wall_ns = time.perf_counter_ns() - start
        return timing_of(_stamps(events, [1] * len(events)), launches, wall_ns)

    def code_of(self, bound: Bound) -> str | None:
        codes = [code for one in bound.sequence if (code := self._code_of_one(one)) is not None]
        return " ".join(codes) if len(codes) == len(bound.sequence) else None

    def _code_of_one(self, bound: Bound) -> str | None:
        name = bound.kernel.function_name
        if self.compiled is None or not name.startswith(OWN_NAMES):  # other names may be those of many kernels
            return None
        return code_of(self.compiled, name, bound.local_size)

    def resources_of(self, program: Program, bound: Bound) -> tuple[Resources, ...]:
        drivers().check()
        said, ask = ptxas_resources(program.log), self._ladder.calls.query_kernel
        kernels = [one.kernel for one in bound.sequence]
        asked = [asked_resources(functools.partial(ask, kernel.int_ptr), self.identity) for kernel in kernels]
        return tuple(
            said.get(kernel.function_name, UNKNOWN).over(each) for kernel, each in zip(kernels, asked, strict=True)
        )

    @property
    def cache_bytes(self) -> int:
        return last_cache_bytes(self.identity, self._device.global_mem_cache_size)

    def flush_caches(self, nbytes: int | None = None) -> None:
        self.enqueue(self._flusher(nbytes))
        self.finish()

    def _allocate(self, nbytes: int) -> Any:
        with _translated(f"allocating {nbytes} bytes"):
            return cl.Buffer(self._context, cl.mem_flags.READ_WRITE, nbytes)

    def _allocate_shared(self, nbytes: int) -> tuple[Any, Bytes | None]:
        if not self._shares_memory:
            return self._allocate(nbytes), None
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR
        with _translated(f"allocating {nbytes} bytes"):
            host = cl.fsvm_empty(self._context, nbytes, np.dtype(np.uint8))
            return cl.Buffer(self._context, flags, hostbuf=host), host

    def allocate_arena(self, nbytes: int, form: ArgumentForm) -> Buffer:
        if form != "svm" or self._set_pointer is None:
            return self.allocate(nbytes)
        self._check_size(nbytes)
        with _translated(f"allocating {nbytes} bytes"):
            memory = cl.SVMAllocation(self._context, nbytes, 0, cl.svm_mem_flags.READ_WRITE)
        return self._counted(Buffer(nbytes, memory, pointer=memory.svm_ptr))

    @functools.cached_property
    def _set_pointer(self) -> Any:
        """The function that gives a kernel a pointer into shared virtual memory; None where the device has none."""
        try:
            shares = self._device.svm_capabilities & cl.device_svm_capabilities.COARSE_GRAIN_BUFFER
        except cl.Error:  # a device of OpenCL 1.2 does not know the question
            shares = 0
        address = self._symbol("clSetKernelArgSVMPointer") if shares else 0
        return SIGNATURES["clSetKernelArgSVMPointer"](address) if address else None

    # --- memory of the caller ---

    @functools.cached_property
    def _ladder(self) -> Ladder:
        pointers = self._device.platform, self._device, self._context, self._queue
        place = Place(*(one.int_ptr for one in pointers))
        return Ladder(OpenCLCalls(self._symbol, place), self.identity, self._context)

    @property
    def context_pointer(self) -> int:
        return self._context.int_ptr

    def lent(self, array: Any) -> Buffer | None:
        self._check_size(array.nbytes)
        drivers().check()
        pointer = self._ladder.lend(array.__array_interface__["data"][0], array.nbytes) if array.flags.aligned else 0
        return Buffer(array.nbytes, cl.Buffer.from_int_ptr(pointer, retain=False)) if pointer else None

    def importers(self) -> list[tuple[str, str]]:
        drivers().check()
        return self._ladder.importers()

    def allocate_handle(self, nbytes: int) -> MemHandle:
        self._check_size(nbytes)
        drivers().check()
        return self._ladder.allocate(nbytes)

    def _import(self, handle: MemHandle, lease: object) -> Imported:
        drivers().check()
        taken, importer = self._ladder.take(handle)
        coherent = not importer.access
        memory = cl.Buffer.from_int_ptr(taken.pointer, retain=False)
        buffer = Buffer(handle.nbytes, memory, host=handle.array if coherent else None, owner=lease)
        return Imported(buffer, importer.name, coherent, handle, importer.external, (taken, importer))

    def begin_host_access(self, *imported: Imported) -> None:
        wanted = [one for one in imported if not one.coherent and one.mapped is None]
        if wanted:
            drivers().check()
        for one in wanted:
            one.mapped = self._ladder.begin_host_access(one.handle, *one.taken, wait=len(wanted) == 1)
        if len(wanted) > 1:  # one wait for all: each takes a round trip to the driver's threads
            self.finish()

    def end_host_access(self, imported: Imported) -> None:
        if not imported.coherent and imported.mapped is not None:
            drivers().check()
            self._ladder.end_host_access(imported.handle, imported.mapped, *imported.taken)
            imported.mapped = None

    def acquire(self, imported: Sequence[Imported]) -> None:
        self._hand_over(imported, acquire=True)

    def release(self, imported: Sequence[Imported]) -> None:
        self._hand_over(imported, acquire=False)

    def _hand_over(self, imported: Sequence[Imported], acquire: bool) -> None:
        if wholes := [one.taken[0].whole for one in imported if one.external]:
            drivers().check()
            self._ladder.hand_over(wholes, acquire)

    # --- for the base ---

    def _part(self, parent: Buffer, offset: int, nbytes: int) -> Any:
        with _translated(f"a buffer part at offset {offset}"):
            return parent.handle.get_sub_region(offset, nbytes)

    def _built(self, make: Any, options: str, verbose: str = "") -> Program:
        """verbose: the driver's option to say in its log what kernels take; contexts are loaded without it."""
        drivers().check()
        start = time.perf_counter_ns()
        try:
            program = make().build(f"{options} {verbose}".strip())
        except cl.Error as error:
            raise BuildFailed(shortened_log(str(error))) from None
        built = Program(program, time.perf_counter_ns() - start)
        with contextlib.suppress(cl.Error):  # a log that cannot be read says nothing
            built.log = program.get_build_info(self._device, cl.program_build_info.LOG) if verbose else ""
        return built

    def _bind(
        self,
        program: Program,
        entry: str,
        global_size: tuple[int, ...],
        local_size: tuple[int, ...],
        arguments: Sequence[Buffer | Scalar],
        work: Work | None,
    ) -> Bound:
        try:
            kernel = cl.Kernel(program.handle, program.prefix + entry)
        except cl.Error as error:
            raise BuildFailed(f"the program has no kernel {entry!r}: {error}") from None
        with _translated(f"kernel {entry!r}"):
            if kernel.num_args != len(arguments):
                raise LaunchFailed(f"kernel {entry!r} takes {kernel.num_args} arguments, {len(arguments)} are given")
            query, info = kernel.get_work_group_info, cl.kernel_work_group_info
            compiled_for = query(info.COMPILE_WORK_GROUP_SIZE, self._device)  # NVIDIA says 256 and runs this
            allowed = max(query(info.WORK_GROUP_SIZE, self._device), int(np.prod(compiled_for)))
            if (work_items := int(np.prod(local_size))) > allowed:
                raise LimitExceeded(f"work-group of {work_items} work-items, kernel {entry!r} allows {allowed} here")
            local_bytes, limit = query(info.LOCAL_MEM_SIZE, self._device), self.identity.local_memory_bytes
            if local_bytes > limit:
                raise LimitExceeded(f"{local_bytes} bytes of local memory in kernel {entry!r}, the device has {limit}")
            for place, argument in enumerate(arguments):
                if isinstance(argument, Buffer):
                    self._set_argument(kernel, place, argument)
                else:
                    kernel.set_arg(place, np.int32(argument))
        return Bound(kernel, global_size, local_size, buffers_of(arguments))

    def _set_buffer(self, bound: Bound, place: int, buffer: Buffer) -> None:
        try:  # not _translated, which takes longer than the call
            self._set_argument(bound.kernel, place, buffer)
        except cl.Error as error:
            raise LaunchFailed(f"binding a buffer failed: {error}") from None

    def _set_argument(self, kernel: cl.Kernel, place: int, buffer: Buffer) -> None:
        if not buffer.pointer:
            kernel.set_arg(place, buffer.handle)
        elif code := self._set_pointer(kernel.int_ptr, place, buffer.pointer):
            raise LaunchFailed(f"clSetKernelArgSVMPointer failed: {error_name(code)}")


def _wait_until_it_runs(event: cl.Event) -> None:
    """Wait until a launch runs or has run, and no driver generates code for it any more."""
    pause = 20e-6
    while (status := event.command_execution_status) not in (_RUNNING, _COMPLETE):
        if status < 0:
            raise LaunchFailed(f"a launch failed: the driver ended it with status {status}")
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)


def _stamps(events: Sequence[cl.Event], kernels: Sequence[int]) -> Times:
    """Return the times of finished launches, each of so many kernels in their order, as the driver says them."""
    last, info = np.cumsum(kernels), cl.profiling_info
    first = last - kernels
    with _translated("reading the time of a launch"):
        moments = [
            [events[place].get_profiling_info(what) for place in places]
            for what, places in ((info.QUEUED, first), (info.SUBMIT, first), (info.START, first), (info.END, last - 1))
        ]
    return np.array(moments, np.uint64).astype(np.int64).T


@contextlib.contextmanager
def _translated(what: str) -> Iterator[None]:
    """Turn pyopencl's errors into ours. Raises ForkedProcess before anything is done."""
    drivers().check()
    try:
        yield
    except cl.Error as error:
        message = f"{what} failed: {' '.join(str(error).split())[:500]}"
        kind: type[DeviceError] = LimitExceeded if getattr(error, "code", None) in _LIMITS else LaunchFailed
        raise kind(message) from None
