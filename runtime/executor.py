"""Runs one graph of a context. Everything is allocated and every argument is bound when it is made; a run
only writes inputs, launches and reads outputs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from gputune.runtime.backends import Backend, Bound, Buffer, Program
from gputune.runtime.context_format import ContextFile
from gputune.runtime.context_records import BufferRef, ContextHeader, GraphRecord, LaunchRecord
from gputune.runtime.errors import BuildFailed, DeviceError, WrongDevice
from gputune.runtime.measure import LAUNCHES_ENQUEUED

Array = npt.NDArray[Any]


class Executor:
    """A loaded graph, ready to run.

    graph: its name, inputs and outputs (names, shapes, dtypes). header: the whole context's header. device:
    the identity of the open device. computes: False when outputs stay zero because the device is the null
    one. warnings: why programs were built from source, if they were. load_ns: making this object, without
    opening the device, which took device_open_ns.
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
        self.graph = graph
        self.header: ContextHeader = file.header
        self.device = backend.identity
        self.computes = backend.computes
        self.warnings: list[str] = []
        self.device_open_ns = device_open_ns
        try:
            self._inputs = {tensor.name: backend.allocate(tensor.nbytes) for tensor in graph.inputs}
            self._outputs = {tensor.name: backend.allocate(tensor.nbytes) for tensor in graph.outputs}
            self._memory = {
                "input": list(self._inputs.values()),
                "output": list(self._outputs.values()),
                "arena": [backend.allocate(nbytes) for nbytes in graph.arena_bytes],
            }
            self._weights: dict[int, Buffer] = {}
            self._parts: dict[BufferRef, Buffer] = {}
            self._programs: dict[int, Program] = {}
            self._launches = [self._bound(file, launch, binaries, strict) for launch in graph.launches]
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

        Raises ValueError that names the input which is missing, unknown or does not fit; DeviceError."""
        return self.run_timed(inputs)[0]

    def run_timed(self, inputs: Mapping[str, Array]) -> tuple[dict[str, Array], int]:
        """Like run; also the ns of the host's clock from before the first input is written until the last
        output is read."""
        return self._infer(self._checked(inputs), self._backend.enqueue)

    def profile(
        self, inputs: Mapping[str, Array], inferences: int, after: Callable[[int], None] = lambda done: None
    ) -> tuple[list[int], dict[str, list[int]]]:
        """The ns of each of several inferences as run_timed has them, and what every operation took in each, in
        ns of the device's clock. The device must have been opened with profiling.

        `after` is called after each inference with the number of those that are done; what it raises ends the
        profile. Raises as run does.
        """
        ready = self._checked(inputs)
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
        clocks: list[Callable[[], int]] = []

        def enqueue(bound: Bound) -> None:
            clocks.append(self._backend.enqueue_timed(bound))
            if len(clocks) % LAUNCHES_ENQUEUED == 0:
                self._backend.finish()

        _, inference_ns = self._infer(ready, enqueue)
        return inference_ns, [clock() for clock in clocks]

    def _infer(self, ready: Mapping[str, Array], enqueue: Callable[[Bound], None]) -> tuple[dict[str, Array], int]:
        results = {tensor.name: np.empty(tensor.shape, tensor.dtype) for tensor in self.graph.outputs}
        backend = self._backend
        start = time.perf_counter_ns()
        for name, value in ready.items():
            backend.write(self._inputs[name], value)
        for bound in self._launches:
            enqueue(bound)
        for name, result in results.items():
            backend.read(self._outputs[name], into=result.reshape(-1).view(np.uint8))
        return results, time.perf_counter_ns() - start

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

    def _bound(self, file: ContextFile, launch: LaunchRecord, binaries: bool, strict: bool) -> Bound:
        if launch.program not in self._programs:
            self._programs[launch.program] = self._program(file, launch.program, binaries, strict)
        arguments = [self._buffer(file, a) if isinstance(a, BufferRef) else a for a in launch.arguments]
        program = self._programs[launch.program]
        return self._backend.bind(program, launch.entry, launch.global_size, launch.local_size, arguments)

    def _program(self, file: ContextFile, index: int, binaries: bool, strict: bool) -> Program:
        if binaries:
            try:
                return self._backend.load_binary(file.binary(index))
            except BuildFailed as error:
                if strict:
                    raise WrongDevice(
                        f"{file.path}: the driver refuses the binary of program {index}: {error}"
                    ) from None
                self.warnings.append(f"the driver refuses the binary of program {index}; building it from source")
        return self._backend.build(file.source(index), self.header.programs[index].options)

    def _buffer(self, file: ContextFile, ref: BufferRef) -> Buffer:
        """The buffer of an argument: a whole one, or a part that is made once."""
        if ref.kind == "weights":
            if ref.index not in self._weights:
                self._weights[ref.index] = self._backend.upload(file.weights(ref.index))
            whole = self._weights[ref.index]
        else:
            whole = self._memory[ref.kind][ref.index]
        if ref.offset == 0 and ref.nbytes == whole.nbytes:
            return whole
        if ref not in self._parts:
            self._parts[ref] = self._backend.part(whole, ref.offset, ref.nbytes)
        return self._parts[ref]
