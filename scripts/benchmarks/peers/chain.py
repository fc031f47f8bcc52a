"""A context's launches on their own: bound as the executor binds them, run over and over without inputs and outputs and
without the conversions of layout that stand at a graph's ends."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from gputune.runtime.backends import Backend, Bound, Buffer, Program
from gputune.runtime.context.format import ContextFile
from gputune.runtime.context.records import BufferRef, LaunchRecord

CONVERSION = "transpose_layout"
MOST_LAUNCHES = 1000
Array = npt.NDArray[Any]


class Chain:
    """The first graph of a context on an open device."""

    def __init__(self, backend: Backend, file: ContextFile) -> None:
        """Raises DeviceError, ContextError."""
        self._backend, self._file = backend, file
        self.graph = file.header.graphs[0]
        self._wholes: dict[tuple[str, int], Buffer] = {}
        self._parts: dict[BufferRef, Buffer] = {}
        self._programs: dict[int, Program] = {}
        self._all = [self._bound(launch) for launch in self.graph.launches]
        self._kept = [
            bound
            for bound, launch in zip(self._all, self.graph.launches, strict=True)
            if CONVERSION not in launch.entry
        ]

    def repeated(self, most_ns: float) -> Callable[[], float]:
        """What runs the launches over and over, for about so long and at most MOST_LAUNCHES of them, and says how many
        nanoseconds of the host's clock they took each time."""
        once = self._timed(1)
        once()
        each_ns = min(once() for _ in range(3))
        return self._timed(max(1, min(round(most_ns / max(each_ns, 1)), MOST_LAUNCHES // len(self._kept))))

    def _timed(self, times: int) -> Callable[[], float]:
        start = self._backend.in_order(times * self._kept)

        def run() -> float:
            begin = time.perf_counter_ns()
            start()
            self._backend.finish()
            return (time.perf_counter_ns() - begin) / times

        return run

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """One inference with everything, so that all buffers hold sensible numbers. Raises DeviceError."""
        for place, tensor in enumerate(self.graph.inputs):
            self._backend.write(self._wholes["input", place], np.ascontiguousarray(inputs[tensor.name]))
        for bound in self._all:
            self._backend.enqueue(bound)
        results = {}
        for place, tensor in enumerate(self.graph.outputs):
            content = self._backend.read(self._wholes["output", place])
            results[tensor.name] = content.view(tensor.dtype).reshape(tensor.shape)
        return results

    def _bound(self, launch: LaunchRecord) -> Bound:
        if launch.program not in self._programs:
            self._programs[launch.program] = self._backend.load_binary(self._file.binary(launch.program))
        arguments = [self._buffer(each) if isinstance(each, BufferRef) else each for each in launch.arguments]
        program = self._programs[launch.program]
        return self._backend.bind(program, launch.entry, launch.global_size, launch.local_size, arguments)

    def _buffer(self, ref: BufferRef) -> Buffer:
        key = (ref.kind, ref.index)
        if key not in self._wholes:
            if ref.kind == "weights":
                self._wholes[key] = self._backend.upload(self._file.weights(ref.index))
            else:
                nbytes = self.graph.arena_bytes[ref.index] if ref.kind == "arena" else ref.nbytes
                self._wholes[key] = self._backend.allocate(nbytes)
        whole = self._wholes[key]
        if ref.nbytes == whole.nbytes:
            return whole
        if ref not in self._parts:
            self._parts[ref] = self._backend.part(whole, ref.offset, ref.nbytes)
        return self._parts[ref]
