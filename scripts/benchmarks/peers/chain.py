"""Run a context's launches on their own: bound as the executor binds them, over and over, without inputs and outputs
and without the layout conversions at a graph's ends. Where the device has persistent kernels, they run as a network's
do: as parts of one."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.result import NotTimed
from gputune.client.context.persistent import Persistent, in_fewer_launches
from gputune.client.context.resuming import Access
from gputune.core.quirks import device_fence, groups_at_once
from gputune.runtime.backends import Backend, Bound, Buffer, Program
from gputune.runtime.context.format import ContextFile
from gputune.runtime.context.records import FLAG, ROUNDS, STATUS_BYTES, BufferRef, LaunchRecord, ProgramRecord

CONVERSION = "transpose_layout"
MOST_LAUNCHES = 1000
IN_ONE = 16
"""Fewer launches are repeated in a persistent kernel until they are so many: its start, 7 us on PoCL, costs each little
then."""
Array = npt.NDArray[Any]


class Chain:
    """The first graph of a context on an open device. launches: all of it, in order."""

    def __init__(self, backend: Backend, file: ContextFile) -> None:
        """Raises DeviceError, ContextError."""
        self._backend, self._file = backend, file
        self.graph = file.header.graphs[0]
        self._wholes: dict[tuple[str, int], Buffer] = {}
        self._parts: dict[BufferRef, Buffer] = {}
        self._programs: dict[int, Program] = {}
        self._status: Buffer | None = None
        self.launches = [self._bound(launch) for launch in self.graph.launches]

    def repeated(self, most_ns: float) -> Callable[[], float]:
        """What runs the launches over and over, for about so long and at most MOST_LAUNCHES of them, and says how many
        nanoseconds of the host's clock they took each time; that raises NotTimed. Raises DeviceError, BuildFailed."""
        kept = [place for place, launch in enumerate(self.graph.launches) if CONVERSION not in launch.entry]
        copies, each = 1, [self.launches[place] for place in kept]
        if groups := groups_at_once(self._backend.identity):
            copies = max(1, IN_ONE // len(kept))
            each = self._persistent(copies * [self.graph.launches[place] for place in kept], groups)
        once = self._timed(each, 1)
        once()
        each_ns = min(once() for _ in range(3))
        most = MOST_LAUNCHES // (copies * len(kept))
        return self._timed(each, max(1, min(round(most_ns / max(each_ns, 1)), most)), copies)

    def _timed(self, launches: Sequence[Bound], times: int, copies: int = 1) -> Callable[[], float]:
        """copies: how often everything is in the launches."""
        sequence = times * list(launches)

        def run() -> float:
            begin = time.perf_counter_ns()
            for launch in sequence:
                self._backend.enqueue(launch)
            self._backend.finish()
            elapsed_ns = time.perf_counter_ns() - begin
            if self._status is not None and self._backend.read(self._status).view(np.int32)[FLAG]:
                raise NotTimed("groups of a persistent kernel have given up waiting for each other")
            return elapsed_ns / (times * copies)

        return run

    def _persistent(self, launches: Sequence[LaunchRecord], groups: int) -> list[Bound]:
        """The launches in order, those as persistent kernels that can be."""
        file, backend = self._file, self._backend
        programs = [
            ProgramRecord(b"", file.source(index), entry.options) for index, entry in enumerate(file.header.programs)
        ]
        self._status = backend.allocate(STATUS_BYTES)
        status = np.zeros(STATUS_BYTES // 4, np.int32)
        status[ROUNDS] = np.iinfo(np.int32).max  # as long as it takes: what is given up is nothing to be timed
        backend.write(self._status, status)
        refs = {(ref.kind, ref.index): ref for launch in launches for ref in launch.refs}
        found = []
        fence = device_fence(backend.identity)
        assert fence is not None
        for one in in_fewer_launches(launches, programs, groups, [Access((), ())] * len(launches), fence):
            if not isinstance(one, Persistent):
                found.append(self._bound(one))
                continue
            counters = backend.allocate(one.counter_bytes)
            backend.fill(counters, 0)
            wholes = [self._whole(refs[buffer]) for buffer in one.buffers]
            program = backend.build(one.source, one.options)
            found.append(backend.bind(program, one.entry, (groups,), (1,), [counters, self._status, *wholes]))
        return found

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """One inference with everything, so that all buffers hold sensible numbers. Raises DeviceError."""
        for place, tensor in enumerate(self.graph.inputs):
            self._backend.write(self._wholes["input", place], np.ascontiguousarray(inputs[tensor.name]))
        for bound in self.launches:
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
        whole = self._whole(ref)
        if ref.nbytes == whole.nbytes:
            return whole
        if ref not in self._parts:
            self._parts[ref] = self._backend.part(whole, ref.offset, ref.nbytes)
        return self._parts[ref]

    def _whole(self, ref: BufferRef) -> Buffer:
        """What the buffer is a part of."""
        key = (ref.kind, ref.index)
        if key not in self._wholes:
            if ref.kind == "weights":
                self._wholes[key] = self._backend.upload(self._file.weights(ref.index))
            else:
                nbytes = self.graph.arena_bytes[ref.index] if ref.kind == "arena" else ref.nbytes
                self._wholes[key] = self._backend.allocate(nbytes)
        return self._wholes[key]
