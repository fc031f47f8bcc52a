"""Run one graph of a context. Everything is allocated and every argument is bound when the executor is made.

An inference is one call of the backend, a loop of enqueues, and the reads; programs are loaded side by side. Where the
device shares the host's memory (OpenCL's fine grain buffers, on CPUs only), inputs and outputs are arrays in it, which
the host copies without commands that a worker would have to wake up for. With PoCL large inputs are not copied at all.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from gputune.core.errors import BuildFailed, CannotMark, DeviceError, WrongDevice
from gputune.runtime.backends import Backend, Bound, Buffer, Program
from gputune.runtime.context.format import ContextFile
from gputune.runtime.context.records import STATUS_BYTES, GraphRecord
from gputune.runtime.execution.binding import Binder, Place
from gputune.runtime.execution.marked import MarkedRuns
from gputune.runtime.execution.persistent import PersistentRuns
from gputune.runtime.execution.programs import (
    ProgramRecords,
    load_persistent_programs,
    load_programs,
    persistent_texts,
)
from gputune.runtime.execution.recorded import RecordedRuns, may_record
from gputune.runtime.execution.tensor_memory import TensorMemory
from gputune.runtime.executor import Executor, Runs
from gputune.runtime.profiling.marks import MarkedInferences
from gputune.runtime.profiling.observed import Observed
from gputune.runtime.profiling.recorder import Recorder
from gputune.runtime.profiling.records import Form, Level, LoggedInference
from gputune.runtime.sharing import SharedParts
from gputune.runtime.values import Array, Value

EMPTY_KERNEL = "__kernel void empty(__global int *unused) {}"


class PythonExecutor(Executor):
    """Run a graph on an OpenCL device by the runtime in Python."""

    computes = True
    _tensors: TensorMemory

    def __init__(
        self,
        backend: Backend,
        file: ContextFile,
        graph: GraphRecord,
        binaries: bool,
        strict: bool,
        device_open_ns: int = 0,
        shared: SharedParts | None = None,
    ) -> None:
        """Build from the context's binaries, or from source if `binaries` is False or (unless `strict`) the driver
        refuses one. shared: what the executor shares with other executors on the backend. Raises WrongDevice if the
        device cannot run the graph, BuildFailed, ContextError."""
        start = time.perf_counter_ns()
        self._shared = SharedParts() if shared is None else shared
        super().__init__(backend.identity, file, graph, device_open_ns, self._shared.turn)
        self._backend = backend
        self._binder = Binder(backend)
        try:
            alignment = file.header.alignment_on(backend.identity)
            self._tensors = TensorMemory(backend, graph, self._binder, self._warn, alignment)
            arenas = self._shared.arenas
            if arenas is None:
                arenas = [backend.allocate_arena(nbytes, graph.argument_form) for nbytes in graph.arena_bytes]
            self._binder.use_all("arena", arenas)
            with ThreadPoolExecutor(1) as beside:  # checksums and copies leave the interpreter to the programs
                constants = beside.submit(self._constants, file, binaries, strict)
                known, warn = self._shared.programs, self._warn
                alone = binaries and self._shared.persistent
                persistent = load_persistent_programs(backend, file, graph.persistent, known, warn) if alone else None
                records = ProgramRecords(file, [launch.program for launch in graph.launches], binaries, strict)
                programs = load_programs(backend, records, known, warn) if persistent is None else None
                for (kind, index), buffer in constants.result().items():
                    self._binder.use(kind, index, buffer)
            self._launches: list[Bound] = []
            self._programs = [] if persistent is None else list(persistent.values())
            self._enqueue = backend.in_order(())
            self._recorded: RecordedRuns | None = None
            self._may_record = may_record(file.header, graph)
            self._records: ProgramRecords | None = None
            self._persistent = None if persistent is None else self._persistent_runs(persistent)
            self._markable = None if persistent is None else (persistent, persistent_texts(file, graph.persistent))
            self._marked: MarkedRuns | None = None
            if programs is not None:
                self._bind_launches(programs)
            else:
                self._records = records.read()
            backend.finish()
        except (WrongDevice, BuildFailed):
            raise
        except DeviceError as error:
            raise WrongDevice(f"{file.path}: {self.device.name} cannot run graph {graph.name!r}: {error}") from None
        self.load_ns = time.perf_counter_ns() - start
        self._warn.loading = False

    @property
    def runs(self) -> Runs | None:
        """Return how many inferences ran in which form; None if they all ran by launches one by one."""
        recorded = None if self._recorded is None else self._recorded.runs
        if self._persistent is not None and (self.persistent_kernels or recorded is None):
            return self._persistent.runs
        return recorded if recorded is not None and recorded.recorded else None

    @property
    def has_persistent(self) -> bool:
        """Return whether inferences may run by persistent kernels here."""
        return self._persistent is not None

    # --- profiling ------------------------------------------------------------------------------------

    @property
    def backend(self) -> Backend:
        """Return the open device."""
        return self._backend

    @property
    def last_form(self) -> Form:
        """Return how the last inference ran that was not recorded launch by launch."""
        if self._persistent is not None and self.persistent_kernels:
            return self._persistent.last_form
        return self._launched_form()

    def one_by_one(self) -> Sequence[Bound]:
        """Return the launches of an inference, loaded if they are not the usual form. For recorders, which have the
        turn. Raises DeviceError."""
        self._one_by_one()
        return self._launches

    def make_recorder(
        self, level: Level, graph: int, observed: Observed, write: Callable[[LoggedInference], None]
    ) -> Recorder:
        """Return what records inferences launch by launch; at level basic, as they usually run."""
        return Recorder(self._backend, level, graph, self.one_by_one, lambda: self.last_form, observed, write)

    def marked(self) -> MarkedInferences:
        """Return what records inferences by the persistent form with marks of its launches, which is built when it is
        first requested. Raises CannotMark, DeviceError."""
        with self._turn():
            if self._persistent is None or self._markable is None:
                raise CannotMark("persistent kernels do not run here")
            if self._marked is None:
                backend, binder, graph = self._backend, self._binder, self.graph
                self._marked = MarkedRuns(backend, binder, graph, *self._markable, self._persistent)
            return MarkedInferences(self._backend, self._marked)

    # --- memory ---------------------------------------------------------------------------------------

    def join_output(self, output: str, other: Executor, name: str) -> None:
        """Join an output of this graph and an input of another graph on the same device in one new buffer that only the
        device uses; from now on neither takes or returns it. For pipelines, before the first inference."""
        self._check()
        assert isinstance(other, PythonExecutor)
        record = next(tensor for tensor in self.graph.outputs if tensor.name == output)
        buffer = self._backend.allocate(record.nbytes)
        self._tensors.link("output", output, buffer)
        other._tensors.link("input", name, buffer)

    def wait(self) -> None:
        """Wait until everything that was launched on its queue is over, whatever the result."""
        with suppress(DeviceError):
            self._backend.finish()

    def use_arenas(self, arenas: list[Buffer]) -> None:
        """Let all launches use these arenas, each at least as large as the graph's; for groups, which hold a turn."""
        self._binder.use_all("arena", arenas)
        if self._recorded is not None:
            self._recorded.drop()

    # --- inside ---------------------------------------------------------------------------------------

    def _infer(self, inputs: Mapping[str, Value], outputs: Mapping[str, Value]) -> tuple[dict[str, Array], int]:
        if self.recorder is not None:
            infer = functools.partial(self._tensors.run, inputs, outputs)
            found: tuple[dict[str, Array], int] = self.recorder.infer(infer, self._start)
            return found
        begun_ns = time.perf_counter_ns()
        results = self._tensors.run(inputs, outputs, self._start)
        return results, time.perf_counter_ns() - begun_ns

    def _infer_in_place(self) -> int:
        if self.recorder is not None:
            return int(self.recorder.infer(self._tensors.run_in_place, self._start)[1])
        begun_ns = time.perf_counter_ns()
        self._tensors.run_in_place(self._start)
        return time.perf_counter_ns() - begun_ns

    def _free(self) -> None:
        self.wait()  # for an inference that has failed, or feeds another
        self._enqueue = _closed
        if self._recorded is not None:
            self._recorded.close()  # before what it uses
        self._persistent = self._recorded = None
        self._marked = self._markable = None
        self._launches = []
        self._binder.close()
        self._tensors.close()
        self._programs = []

    def _empty_launch(self) -> Callable[[], None] | None:
        """Launch on a queue of its own."""
        if self.device.device_type == "cpu":
            return None
        beside = self._backend.another_queue()
        launch = beside.bind(beside.build(EMPTY_KERNEL, ""), "empty", (1,), (1,), [beside.allocate(4)])

        def once() -> None:
            beside.enqueue(launch)
            beside.finish()

        return once

    def _start(self) -> bool:
        """Enqueue an inference, and say whether it is over, as that of persistent kernels is."""
        if self._persistent is None or not self.persistent_kernels:
            return bool(self._one_by_one()())
        self._persistent.run(self._one_by_one, self._launched_form)
        return True

    def _one_by_one(self, first: int | None = None) -> Callable[[], object]:
        """Return what enqueues the launches from one on, or all in the form that is faster, and says whether they are
        over. Where they are not the usual form, this loads them before."""
        if self._records is not None:
            known, warn = self._shared.programs, self._warn
            self._bind_launches(load_programs(self._backend, self._records, known, warn))
            self._records = None
        if first is None and self._recorded is not None:
            return self._recorded.start
        return self._backend.in_order(self._launches[first:]) if first else self._enqueue

    def _launched_form(self) -> Form:
        return "launches" if self._recorded is None else self._recorded.last_form

    def _bind_launches(self, programs: Mapping[int, Program]) -> None:
        self._programs += programs.values()
        self._launches = [self._binder.bind(programs[launch.program], launch) for launch in self.graph.launches]
        self._enqueue = self._backend.in_order(self._launches)
        if self._may_record and not isinstance(queue := self._backend.recorded_queue(), str):
            bound = self._launches, self._enqueue
            self._recorded = RecordedRuns(self._backend, queue, self._binder, *bound, self._warn)

    def _constants(self, file: ContextFile, binaries: bool, strict: bool) -> dict[Place, Buffer]:
        """Return the constant buffers that the graph reads: weights as they lie in the file, and what is packed from
        them."""
        header, shared, programs = file.header, self._shared, dict[Hashable, Program]()

        def upload(index: int) -> Buffer:
            return self._backend.upload(file.weights(index))

        def pack(index: int) -> Buffer:
            part = header.packing[index]
            arenas = [self._backend.allocate(nbytes) for nbytes in part.arena_bytes]
            for arena in arenas:
                self._backend.fill(arena, 0)
            alone = SharedParts(arenas=arenas, persistent=False, programs=programs)
            with PythonExecutor(self._backend, file, part, binaries, strict, shared=alone) as packing:
                packing.run()
                self.warnings.extend(packing.warnings)
            return arenas[0]

        found: dict[Place, Buffer] = {}
        for index in self.graph.constants("weights"):
            digest = header.sections[header.weights[index]].sha256
            found["weights", index] = shared.weights_of(digest, functools.partial(upload, index))
        for index in self.graph.constants("packed"):
            part = header.packing[index]
            key = part.name, part.packed_bytes
            found["packed", index] = shared.weights_of(key, functools.partial(pack, index))
        return found

    def _persistent_runs(self, programs: Mapping[int, Program]) -> PersistentRuns:
        """Return the persistent form, and the launches for when it does not pay."""
        backend, launches = self._backend, self.graph.persistent
        counters, status = backend.allocate(self.graph.counter_bytes), backend.allocate_shared(STATUS_BYTES)
        self._binder.use("counters", 0, counters)
        self._binder.use("status", 0, status)
        kernels = [self._binder.bind(programs[launch.program], launch) for launch in launches]
        waiting, groups = next(
            (kernel, math.prod(launch.global_size))
            for kernel, launch in zip(kernels, launches, strict=True)
            if launch.counts
        )
        return PersistentRuns(backend, kernels, waiting, groups, counters, status)


def _closed() -> None:
    """In the place of what enqueues launches."""
