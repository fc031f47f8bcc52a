"""Runs one graph of a context. Everything is allocated and every argument is bound when it is made; a run
only writes inputs, launches and reads outputs."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from gputune.core.errors import BuildFailed, DeviceError, WrongDevice
from gputune.core.opened import Opened
from gputune.core.quirks import groups_at_once
from gputune.runtime.backends import LAUNCHES_ENQUEUED, Backend, Bound, Buffer, Program, Stamps
from gputune.runtime.context.format import ContextFile
from gputune.runtime.context.persistent import PersistentRuns, Runs
from gputune.runtime.context.records import (
    STATUS_BYTES,
    BufferRef,
    ContextHeader,
    GraphRecord,
    LaunchRecord,
    TensorRecord,
)

Array = npt.NDArray[Any]


class Executor:
    """A loaded graph, ready to run.

    graph: its name, inputs and outputs (names, shapes, dtypes). header: the whole context's header. device:
    the identity of the open device. computes: False when outputs stay zero because the device is the null
    one. warnings: why programs were built from source, if they were. load_ns: making this object, without
    opening the device, which took device_open_ns.

    Where the context has persistent kernels and the device is the context's own, runs are those as long as they pay
    (`runs` says how many were), and launches one by one at other times; a profile is of the launches.

    shared_inputs, shared_outputs: by name, arrays in the memory that the device itself reads and writes, as far as it
    shares the host's; for run_in_place. Another run writes there, too.
    """

    def __init__(
        self,
        backend: Backend,
        file: ContextFile,
        graph: GraphRecord,
        binaries: bool,
        strict: bool,
        device_open_ns: int = 0,
    ) -> None:
        """Builds from the context's binaries, or from source when `binaries` is False or (unless `strict`)
        the driver refuses one. Raises WrongDevice when the device cannot run the graph, BuildFailed,
        ContextError."""
        start = time.perf_counter_ns()
        self._backend = backend
        self._turn = threading.Lock()  # buffers are one inference's at a time
        self._opened = Opened(f"a context on {backend.identity.name}")
        self.graph = graph
        self.header: ContextHeader = file.header
        self.device = backend.identity
        self.computes = backend.computes
        self.warnings: list[str] = []
        self.device_open_ns = device_open_ns
        try:
            self._inputs = {tensor.name: backend.allocate_shared(tensor.nbytes) for tensor in graph.inputs}
            self._outputs = {tensor.name: backend.allocate_shared(tensor.nbytes) for tensor in graph.outputs}
            self.shared_inputs = _arrays(graph.inputs, self._inputs)
            self.shared_outputs = _arrays(graph.outputs, self._outputs)
            self._memory = {
                "input": list(self._inputs.values()),
                "output": list(self._outputs.values()),
                "arena": [backend.allocate(nbytes) for nbytes in graph.arena_bytes],
            }
            self._parts: dict[BufferRef, Buffer] = {}
            with ThreadPoolExecutor(1) as beside:  # checksums and copies leave the interpreter to the programs
                weights = beside.submit(self._uploaded, file)
                persistent = self._persistent_programs(file) if binaries else None
                records = _Records(file, [launch.program for launch in graph.launches], binaries, strict)
                programs = self._programs(records) if persistent is None else None
                self._weights = weights.result()
            self._launches: list[Bound] = []
            self._enqueue = backend.in_order(())
            self._records: _Records | None = None
            self._persistent = None if persistent is None else self._persistent_runs(persistent)
            if programs is not None:
                self._bind_launches(programs)
            else:
                self._records = records.read()
            for buffer in self._outputs.values() if not self.computes else ():
                backend.fill(buffer, 0)
            backend.finish()
        except (WrongDevice, BuildFailed):
            raise
        except DeviceError as error:
            raise WrongDevice(f"{file.path}: {self.device.name} cannot run graph {graph.name!r}: {error}") from None
        self.load_ns = time.perf_counter_ns() - start

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """One inference: input name -> array of exactly its shape and dtype, to output name -> new array.

        Raises ValueError that names the input which is missing, unknown or does not fit; DeviceError, also in a fork of
        the process that has loaded the context."""
        return self.run_timed(inputs)[0]

    def run_timed(self, inputs: Mapping[str, Array]) -> tuple[dict[str, Array], int]:
        """Like run; also the ns of the host's clock from before the first input is written until the last
        output is read."""
        return self._infer(self._checked(inputs), self._start)

    def _start(self) -> None:
        """Enqueues an inference; persistent kernels are finished when it returns."""
        if self._persistent is None:
            self._one_by_one()()
        else:
            self._persistent.run(self._one_by_one)

    def _one_by_one(self, first: int = 0) -> Callable[[], None]:
        """what enqueues the launches from one on. Where they are not the usual form, this loads them before."""
        if self._records is not None:
            self._bind_launches(self._programs(self._records))
            self._records = None
        return self._enqueue if first == 0 else self._backend.in_order(self._launches[first:])

    def _bind_launches(self, programs: Mapping[int, Program]) -> None:
        self._launches = [self._bound(programs, launch) for launch in self.graph.launches]
        self._enqueue = self._backend.in_order(self._launches)

    @property
    def runs(self) -> Runs | None:
        """How many inferences ran in which form; None where there is only one form."""
        return None if self._persistent is None else self._persistent.runs

    @property
    def shares_memory(self) -> bool:
        """Whether all inputs and outputs are shared."""
        return len(self.shared_inputs) == len(self._inputs) and len(self.shared_outputs) == len(self._outputs)

    def run_in_place(self) -> int:
        """One inference on what shared_inputs hold now; leaves what it computes in shared_outputs. Nothing is copied.

        Returns its ns by the host's clock. Raises ValueError where not all are shared; DeviceError.
        """
        if not self.shares_memory:
            raise ValueError(f"{self.device.name} shares no memory with its host: inputs and outputs must be copied")
        self._opened.check()
        with self._turn:
            begun_ns = time.perf_counter_ns()
            self._start()
            self._backend.finish()
            return time.perf_counter_ns() - begun_ns

    def profile(
        self, inputs: Mapping[str, Array], inferences: int, after: Callable[[int], None] = lambda done: None
    ) -> tuple[list[int], dict[str, list[int]]]:
        """The ns of each of several inferences as run_timed has them, and what every operation took in each, in
        ns of the device's clock. The device must have been opened with profiling.

        `after` is called after each inference with the number of those that are done; what it raises ends the
        profile. Raises as run does, and ValueError without that clock.
        """
        if not self._backend.profiles:
            raise ValueError("the device was opened without the clock that a profile needs: load with profiling=True")
        ready = self._checked(inputs)
        self._opened.check()
        with self._turn:
            self._one_by_one()  # which may load their programs
        inference_ns: list[int] = []
        operation_ns: dict[str, list[int]] = {launch.operation: [] for launch in self.graph.launches}
        for done in range(1, inferences + 1):
            whole_ns, launches_ns = self._timed(ready)
            inference_ns.append(whole_ns)
            for samples_ns in operation_ns.values():
                samples_ns.append(0)
            for launch, launch_ns in zip(self.graph.launches, launches_ns, strict=True):
                operation_ns[launch.operation][-1] += launch_ns
            after(done)
        return inference_ns, operation_ns

    def _timed(self, ready: Mapping[str, Array]) -> tuple[int, list[int]]:
        """One inference: its ns by the host's clock, and those of every launch by the device's."""
        clocks: list[Callable[[], Stamps]] = []

        def start() -> None:
            for bound in self._launches:
                clocks.append(self._backend.enqueue_timed(bound))
                if len(clocks) % LAUNCHES_ENQUEUED == 0:
                    self._backend.finish()

        _, inference_ns = self._infer(ready, start)
        return inference_ns, [clock().duration_ns for clock in clocks]

    def _infer(self, ready: Mapping[str, Array], start: Callable[[], None]) -> tuple[dict[str, Array], int]:
        self._opened.check()
        results = {tensor.name: np.empty(tensor.shape, tensor.dtype) for tensor in self.graph.outputs}
        backend = self._backend
        with self._turn:
            begun_ns = time.perf_counter_ns()
            writes = [self._write(name, value) for name, value in ready.items()]
            start()
            if self.shared_outputs:  # others are read by a command that waits itself
                backend.finish()
            for name, result in results.items():
                self._read(name, result)
            inference_ns = time.perf_counter_ns() - begun_ns
            del writes
        return results, inference_ns

    def _write(self, name: str, value: Array) -> object:
        """Has the input in its buffer before the next launch; what this returns must be held until that is over."""
        if name not in self.shared_inputs:
            return self._backend.begin_write(self._inputs[name], value)
        self.shared_inputs[name][...] = value
        return None

    def _read(self, name: str, into: Array) -> None:
        """An output; those that are shared when everything is finished."""
        if name in self.shared_outputs:
            into[...] = self.shared_outputs[name]
        else:
            self._backend.read(self._outputs[name], into=into.reshape(-1).view(np.uint8))

    def _checked(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        known = [tensor.name for tensor in self.graph.inputs]
        for name in inputs:
            if name not in known:
                raise ValueError(f"graph {self.graph.name!r} has no input {name!r}; its inputs are {known}")
        ready = {}
        for tensor in self.graph.inputs:
            if tensor.name not in inputs:
                raise ValueError(f"graph {self.graph.name!r} needs the input {tensor.name!r}")
            value = np.asarray(inputs[tensor.name])
            if value.shape != tensor.shape or value.dtype != np.dtype(tensor.dtype):
                raise ValueError(
                    f"input {tensor.name!r} is {value.dtype.name}{list(value.shape)}, "
                    f"the graph takes {tensor.dtype}{list(tensor.shape)}"
                )
            ready[tensor.name] = np.ascontiguousarray(value)
        return ready

    def _uploaded(self, file: ContextFile) -> dict[int, Buffer]:
        """The weights that the graph reads, by their index."""
        refs = {ref for launch in self.graph.launches for ref in launch.refs}
        read = sorted({ref.index for ref in refs if ref.kind == "weights"})
        return {index: self._backend.upload(file.weights(index)) for index in read}

    def _programs(self, records: _Records) -> dict[int, Program]:
        """The programs of the graph's launches by their index."""
        backend, indices = self._backend, records.indices
        programs: dict[int, Program] = {}
        found = backend.load_binaries([records.binary(index) for index in indices]) if records.binaries else []
        for index, loaded in zip(indices, found, strict=False):
            if isinstance(loaded, Program):
                programs[index] = loaded
            elif records.strict:
                raise WrongDevice(f"{records.path}: the driver refuses the binary of program {index}: {loaded}")
            else:
                self.warnings.append(f"the driver refuses the binary of program {index}; building it from source")
        for index in indices:
            if index not in programs:
                programs[index] = backend.build(records.source(index), self.header.programs[index].options)
        return programs

    def _persistent_programs(self, file: ContextFile) -> dict[int, Program] | None:
        """The programs of the persistent launches by their index. None where there are none, or, with a warning, where
        groups might wait for others that do not run."""
        launches = self.graph.persistent
        waiting = [math.prod(launch.global_size) for launch in launches if launch.counts]
        processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        at_once = min(groups_at_once(self.device), processors)
        if not waiting:
            return None
        if not all(launch.yields for launch in launches if launch.counts):
            self.warnings.append(
                "launches run one by one: the persistent kernels are of an older gputune and cannot yield to other "
                "programs; generate the context again"
            )
            return None
        if max(waiting) > at_once:
            self.warnings.append(
                f"launches run one by one: the persistent kernel needs {max(waiting)} processors, there are {at_once}"
            )
            return None
        indices = sorted({launch.program for launch in launches})
        programs: dict[int, Program] = {}
        for index, loaded in zip(
            indices, self._backend.load_binaries([file.binary(index) for index in indices]), strict=True
        ):
            if not isinstance(loaded, Program):
                self.warnings.append(f"launches run one by one: the driver refuses the binary of program {index}")
                return None
            programs[index] = loaded
        return programs

    def _persistent_runs(self, programs: Mapping[int, Program]) -> PersistentRuns:
        """The persistent form, and the launches for when it does not pay."""
        backend, launches = self._backend, self.graph.persistent
        counters, status = backend.allocate(self.graph.counter_bytes), backend.allocate_shared(STATUS_BYTES)
        self._memory |= {"counters": [counters], "status": [status]}
        kernels = [self._bound(programs, launch) for launch in launches]
        waiting = next(kernel for kernel, launch in zip(kernels, launches, strict=True) if launch.counts)
        return PersistentRuns(backend, kernels, waiting, counters, status)

    def _bound(self, programs: Mapping[int, Program], launch: LaunchRecord) -> Bound:
        arguments = [self._buffer(a) if isinstance(a, BufferRef) else a for a in launch.arguments]
        program = programs[launch.program]
        return self._backend.bind(program, launch.entry, launch.global_size, launch.local_size, arguments)

    def _buffer(self, ref: BufferRef) -> Buffer:
        """The buffer of an argument: a whole one, or a part that is made once."""
        whole = self._weights[ref.index] if ref.kind == "weights" else self._memory[ref.kind][ref.index]
        if ref.offset == 0 and ref.nbytes == whole.nbytes:
            return whole
        if ref not in self._parts:
            self._parts[ref] = self._backend.part(whole, ref.offset, ref.nbytes)
        return self._parts[ref]


class _Records:
    """What programs are made of: in an open context file, or as it was read from one that may be closed.

    binaries, strict: whether binaries are loaded at all, and whether one that is refused is an error."""

    def __init__(self, file: ContextFile, programs: Iterable[int], binaries: bool, strict: bool) -> None:
        self.path, self.binaries, self.strict = file.path, binaries, strict
        self.indices = sorted(set(programs))
        self.binary: Callable[[int], bytes] = file.binary
        self.source: Callable[[int], str] = file.source

    def read(self) -> Self:
        """Itself, with everything kept and its checksums verified. Raises ContextError."""
        binaries = {index: self.binary(index) for index in self.indices}
        sources = {index: self.source(index) for index in self.indices}
        self.binary, self.source = binaries.__getitem__, sources.__getitem__
        return self


def _arrays(tensors: Sequence[TensorRecord], buffers: Mapping[str, Buffer]) -> dict[str, Array]:
    """Those whose memory is the host's, too."""
    hosts = {tensor: buffers[tensor.name].host for tensor in tensors}
    return {
        tensor.name: host.view(tensor.dtype).reshape(tensor.shape) for tensor, host in hosts.items() if host is not None
    }
