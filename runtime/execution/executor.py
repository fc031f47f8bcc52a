"""Run one graph of a context. Everything is allocated and every argument is bound when the executor is made.

An inference is one call of the backend, a loop of enqueues, and the reads; programs are loaded side by side. Where the
device shares the host's memory (OpenCL's fine grain buffers, on CPUs only), inputs and outputs are arrays in it, which
the host copies without commands that a worker would have to wake up for. With PoCL large inputs are not copied at all.
"""

from __future__ import annotations

import functools
import math
import time
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from types import MappingProxyType
from typing import Any, Self

import numpy.typing as npt

from gputune.core.errors import BuildFailed, CannotMark, ContextClosed, DeviceError, WrongDevice
from gputune.core.opened import Closing, Opened
from gputune.runtime.backends import Backend, Bound, Buffer, Program
from gputune.runtime.context.format import ContextFile
from gputune.runtime.context.records import STATUS_BYTES, ContextHeader, GraphRecord, TensorRecord
from gputune.runtime.execution.binding import Binder, Place
from gputune.runtime.execution.marked import MarkedRuns
from gputune.runtime.execution.persistent import PersistentRuns, Runs
from gputune.runtime.execution.programs import (
    ProgramRecords,
    SharedParts,
    load_persistent_programs,
    load_programs,
    persistent_texts,
)
from gputune.runtime.execution.recorded import RecordedRuns, may_record
from gputune.runtime.execution.tensor_memory import TensorMemory, Value
from gputune.runtime.execution.verdict import needed_alignment
from gputune.runtime.memory.counters import MemoryCounters
from gputune.runtime.memory.handles import MemHandle
from gputune.runtime.power.actuators.keep_warm import KeepWarm
from gputune.runtime.power.instances import Power
from gputune.runtime.power.profiles.perf_profile import PerfProfile
from gputune.runtime.profiling.recorder import Recorder
from gputune.runtime.profiling.records import Form

Array = npt.NDArray[Any]
Values = Mapping[str, Value]
NOTHING: Values = MappingProxyType({})
_NO_VOTES = nullcontext()
EMPTY_KERNEL = "__kernel void empty(__global int *unused) {}"


class Executor(Closing):
    """Run a loaded graph.

    If the context has persistent kernels and the device is the context's own, inferences run by persistent kernels as
    long as they pay (`runs` counts them) and persistent_kernels is True. Otherwise they run launch by launch, or as a
    recorded queue if the first inferences were faster so.

    Several threads may use an executor, one inference at a time. close() frees its device memory; so does `with`.

    Attributes:
        graph: its name, inputs and outputs (names, shapes, dtypes).
        header: the whole context's header.
        device: the identity of the open device.
        computes: False if outputs stay zero because the device is the null device.
        warnings: causes of unexpected cost, such as programs that were built from source, or memory that has to be
            copied.
        load_ns: the time to make this object, without the time to open the device.
        device_open_ns: the time to open the device.
        choice: for a package, which context it is, how that fits the device, and why.
        recorder: if set, inferences are recorded; Profiler.watch sets it.
        power: what votes for clocks around inferences and at the end, None for no votes; set_perf_profile sets it.
    """

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
        self._backend = backend
        self._shared = SharedParts() if shared is None else shared
        self._opened = Opened(f"a context on {backend.identity.name}")
        self._closed = False
        self.graph = graph
        self.header: ContextHeader = file.header
        self.choice = file.choice
        self.device = backend.identity
        self.computes = backend.computes
        self.warnings: list[str] = []
        self.recorder: Recorder | None = None
        self.power: Power | None = None
        self._warm: KeepWarm | None = None
        self.persistent_kernels = True
        self.load_ns = 0
        self.device_open_ns = device_open_ns
        self._binder = Binder(backend)
        self._warn = _Warnings(graph.name, self.warnings)
        try:
            alignment = needed_alignment(file.header, backend.identity)
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

    # --- running --------------------------------------------------------------------------------------

    def run(self, inputs: Values = NOTHING, outputs: Values = NOTHING) -> dict[str, Array]:
        """Run one inference.

        Args:
            inputs: by name, an array of exactly the input's shape and dtype, or a memory handle. Every input without a
                registered handle needs a value. Arrays are copied, or read in place until this returns
                (docs/memory.md). Handles are used in place.
            outputs: by name, arrays into which outputs are copied, or memory handles, which are used in place; new
                arrays by default.

        Returns an array by each output's name: a new array, the given array, or a view of a handle, to which the next
        inference writes again. Outputs in memory that the host cannot see are omitted. A value given for one inference
        leaves registered handles as they are. A given handle is kept ready for the next time: `release` gives it up.

        Raises ValueError that names the input or output that is missing, unknown or does not fit; DeviceError, also in
        a fork of the process that loaded the context.
        """
        return self.run_timed(inputs, outputs)[0]

    def run_timed(self, inputs: Values = NOTHING, outputs: Values = NOTHING) -> tuple[dict[str, Array], int]:
        """Run as run does, and also return the ns of the host's clock from before the first input is written until the
        last output is read."""
        self._check()
        tensors = self._tensors
        ready, into = tensors.checked_inputs(inputs), tensors.checked_outputs(outputs)
        with self._shared.turn, self._voted():  # _turn, but for what is checked already
            self._check_open()
            if self.recorder is not None:
                return self.recorder.infer(functools.partial(tensors.run, ready, into), self._start)
            begun_ns = time.perf_counter_ns()
            results = tensors.run(ready, into, self._start)
            return results, time.perf_counter_ns() - begun_ns

    def run_in_place(self) -> int:
        """Run one inference on what registered handles and shared_inputs hold now, and leave its results in the handles
        and shared_outputs of the outputs. Nothing is copied.

        Returns its ns by the host's clock. Raises ValueError if a tensor is in neither; DeviceError.
        """
        with self._turn(), self._voted():
            if self.recorder is not None:
                return self.recorder.infer(self._tensors.run_in_place, self._start)[1]
            begun_ns = time.perf_counter_ns()
            self._tensors.run_in_place(self._start)
            return time.perf_counter_ns() - begun_ns

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

    # --- clocks and power -----------------------------------------------------------------------------

    @property
    def perf_profile(self) -> PerfProfile | None:
        """Return a copy of the perf profile in force; None if none was ever set."""
        return None if self.power is None else self.power.profile.copy()

    def set_perf_profile(self, profile: PerfProfile | str) -> None:
        """Make inferences from now on vote for clocks and power as a perf profile, or the preset of that name, says.
        Raises ValueError for an unknown name, and for corners that are out of order."""
        with self._turn():
            if self.power is None:
                self.power = Power(profile, self.device)
            else:
                self.power.set_profile(profile)

    def keep_warm(self, on: bool = True) -> None:
        """Keep the device awake between inferences, for at most a second after each: by empty launches, or on a CPU by
        a thread that spins, which takes the processor from other programs (`warm_cpu_ns`). on=False ends that. Raises
        DeviceError."""
        with self._turn():
            if self._warm is not None:
                self._warm.close()
            self._warm = KeepWarm(_empty_launch(self._backend)) if on else None

    @property
    def warm_cpu_ns(self) -> int:
        """Return the processor time that keeping warm has taken."""
        return 0 if self._warm is None else self._warm.cpu_ns

    def _voted(self) -> AbstractContextManager[None]:
        return _NO_VOTES if self.power is None and self._warm is None else self._awake()

    @contextmanager
    def _awake(self) -> Iterator[None]:
        """Hold the votes for an inference, and pause what keeps the device warm between inferences."""
        if self._warm is not None:
            self._warm.pause()
        try:
            with _NO_VOTES if self.power is None else self.power.phase("execute"):
                yield
        finally:
            if self._warm is not None:
                self._warm.resume()

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

    def marked(self) -> MarkedRuns:
        """Return the persistent form with marks of its launches, built when it is first requested. For recorders.
        Raises CannotMark, DeviceError."""
        with self._turn():
            if self._persistent is None or self._markable is None:
                raise CannotMark("persistent kernels do not run here")
            if self._marked is None:
                backend, binder, graph = self._backend, self._binder, self.graph
                self._marked = MarkedRuns(backend, binder, graph, *self._markable, self._persistent)
            return self._marked

    # --- memory ---------------------------------------------------------------------------------------

    @property
    def counters(self) -> MemoryCounters:
        """Return what loading, the last inference and all inferences have copied, mapped and allocated, tensor by
        tensor."""
        return self._tensors.counters

    def allocate_for(self, tensor: TensorRecord) -> MemHandle:
        """Allocate memory for one of the graph's inputs or outputs, of the kind that host and device share best; it is
        not registered yet. Raises DeviceError."""
        self._check()
        return self._backend.allocate_handle(tensor.nbytes)

    def register(self, name: str, handle: MemHandle) -> None:
        """Use a handle's memory for an input or output in every inference that is given no other value for it. Memory
        that the device cannot use in place is copied; `warnings` and the counters report that. An output with the name
        of an input is called "output NAME".

        Raises ValueError for an unknown name, for memory that is too small, and for an output whose memory another
        tensor uses; CannotImport for memory that can neither be used nor copied; DeviceError.
        """
        with self._turn():
            self._tensors.register(name, handle)

    def unregister(self, name: str) -> None:
        """End a registration, and give the handle up unless another tensor uses it. Raises ValueError for an unknown
        name."""
        with self._turn():
            self._tensors.unregister(name)

    def release(self, handle: MemHandle) -> None:
        """Give up a handle that was passed to `run`, so that it can be closed; a registered handle stays."""
        with self._turn():
            self._tensors.release(handle)

    @property
    def shared_inputs(self) -> dict[str, Array]:
        """Return, by name, arrays in the memory that the device itself reads, if it shares the host's memory and no
        handle is registered: for run_in_place. An inference on arrays may write there, too."""
        with self._turn():
            return self._tensors.host_arrays("input")

    @property
    def shared_outputs(self) -> dict[str, Array]:
        """Return, by name, arrays in the memory that the device itself writes, as shared_inputs does."""
        with self._turn():
            return self._tensors.host_arrays("output")

    def join_output(self, output: str, other: Executor, name: str) -> None:
        """Join an output of this graph and an input of another graph on the same device in one new buffer that only the
        device uses; from now on neither takes or returns it. For pipelines, before the first inference."""
        self._check()
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

    def close(self) -> None:
        """Free its memory and release registered handles. What it shares with others stays theirs. A second call does
        nothing."""
        with self._shared.turn:
            if self._closed:
                return
            self._closed = True
            with _NO_VOTES if self.power is None else self.power.phase("deinit"):
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
            if self.power is not None:
                self.power.close()
            if self._warm is not None:
                self._warm.close()

    def __enter__(self) -> Self:
        self._check()
        return super().__enter__()

    # --- inside ---------------------------------------------------------------------------------------

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Hold the turn of an executor that is open."""
        self._opened.check()  # a fork would wait for ever
        with self._shared.turn:
            self._check_open()
            yield

    def _check(self) -> None:
        self._opened.check()
        self._check_open()

    def _check_open(self) -> None:
        if self._closed:
            raise ContextClosed(f"graph {self.graph.name!r} on {self.device.name} was closed")

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
            with Executor(self._backend, file, part, binaries, strict, shared=alone) as packing:
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


class _Warnings:
    """Adds to an executor's warnings, without holding it; those of loading are told by what loads."""

    def __init__(self, graph: str, texts: list[str]) -> None:
        self._graph, self._texts = graph, texts
        self.loading = True

    def __call__(self, text: str) -> None:
        self._texts.append(text)
        if not self.loading:
            warnings.warn(f"graph {self._graph!r}: {text}", stacklevel=2)


def _empty_launch(backend: Backend) -> Callable[[], None] | None:
    """Return what launches an empty kernel on a queue of its own and waits for it; None on a processor, which is kept
    awake by what runs on it."""
    if backend.identity.device_type == "cpu":
        return None
    beside = backend.another_queue()
    launch = beside.bind(beside.build(EMPTY_KERNEL, ""), "empty", (1,), (1,), [beside.allocate(4)])

    def once() -> None:
        beside.enqueue(launch)
        beside.finish()

    return once


def _closed() -> None:
    """In the place of what enqueues launches."""
