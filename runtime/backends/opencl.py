"""Drive an OpenCL device."""

from __future__ import annotations

import contextlib
import functools
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from gputune.core.errors import BuildFailed, DeviceError, DeviceNotFound, LaunchFailed, LimitExceeded
from gputune.core.quirks import quirks_of
from gputune.core.resources import UNKNOWN, Resources
from gputune.runtime.backends.answers import Bytes, Times, Timing, in_order_of_time, timing_of
from gputune.runtime.backends.base import Backend, Bound, Buffer, Call, Program, buffers_of
from gputune.runtime.backends.compiled_kernels import code_of, spare_general_code
from gputune.runtime.backends.merging import OWN_NAMES
from gputune.runtime.backends.opencl_devices import cl, drivers, identity_of, query_kernel, visible_devices
from gputune.runtime.backends.sources import shortened_log
from gputune.runtime.devices.caches import last_cache_bytes
from gputune.runtime.devices.discovery import DeviceReport
from gputune.runtime.devices.resources import asked_resources, ptxas_resources
from gputune.runtime.devices.scratch import scratch_environment
from gputune.runtime.devices.settings import deciding, scarce_processors

Error = cl.Error
LONGEST_PAUSE_SECONDS = 1e-3  # between two looks at a first launch

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
        self._device = device
        self.device_pointer = int(device.int_ptr)
        self.compiled: Path | None = None  # where the driver keeps what it compiles for each kernel and local size
        with _translated("opening the device"):
            self._context = cl.Context([device])
            self.context_pointer = int(self._context.int_ptr)
            clock = {"properties": cl.command_queue_properties.PROFILING_ENABLE} if profiling else {}
            self._queue = cl.CommandQueue(self._context, self._device, **clock)
        quirks = quirks_of(self.identity)
        self._verbose = quirks.verbose
        self._generates_late = self.identity.device_type in quirks.compiles_at_first_launch

    @property
    def settings(self) -> dict[str, str]:
        """The variables that change code or time as they are in this process, and a want of processors."""
        scarce = scarce_processors(self.identity.compute_units) if self.identity.device_type == "cpu" else {}
        return deciding(os.environ) | scarce

    def write(self, buffer: Buffer, data: Any) -> None:
        with _translated("writing a buffer"):
            cl.enqueue_copy(self._queue, buffer.handle, data, is_blocking=True)

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
        said, ask = ptxas_resources(program.log), functools.partial(query_kernel, self.device_pointer)
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

    def _bind(self, call: Call) -> Bound:
        entry, arguments = call.entry, call.arguments
        try:
            kernel = cl.Kernel(call.program.handle, call.program.prefix + entry)
        except cl.Error as error:
            raise BuildFailed(f"the program has no kernel {entry!r}: {error}") from None
        with _translated(f"kernel {entry!r}"):
            if kernel.num_args != len(arguments):
                raise LaunchFailed(f"kernel {entry!r} takes {kernel.num_args} arguments, {len(arguments)} are given")
            query, info = kernel.get_work_group_info, cl.kernel_work_group_info
            compiled_for = query(info.COMPILE_WORK_GROUP_SIZE, self._device)  # NVIDIA says 256 and runs this
            allowed = max(query(info.WORK_GROUP_SIZE, self._device), int(np.prod(compiled_for)))
            if (work_items := int(np.prod(call.local_size))) > allowed:
                raise LimitExceeded(f"work-group of {work_items} work-items, kernel {entry!r} allows {allowed} here")
            local_bytes, limit = query(info.LOCAL_MEM_SIZE, self._device), self.identity.local_memory_bytes
            if local_bytes > limit:
                raise LimitExceeded(f"{local_bytes} bytes of local memory in kernel {entry!r}, the device has {limit}")
            for place, argument in enumerate(arguments):
                if isinstance(argument, Buffer):
                    kernel.set_arg(place, argument.handle)
                else:
                    kernel.set_arg(place, np.int32(argument))
        return Bound(kernel, call.global_size, call.local_size, buffers_of(arguments))


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
