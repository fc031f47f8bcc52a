"""Run contexts on devices that compute nothing: null, waiting and replayed ones.

Outputs are zeros. Launches take the time that the device's model says, and profiles of all levels show that. Files,
inputs and outputs are checked as everywhere, and memory is counted as if the device had memory of its own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, MutableMapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from weakref import WeakValueDictionary

import numpy as np

from gputune.core.bounds import Scalar
from gputune.core.errors import BuildFailed, DeviceError, WrongDevice
from gputune.core.launches import OFFSET_BYTES
from gputune.core.statuses import ContextVerdict
from gputune.runtime.backends import Bound, Buffer, Program
from gputune.runtime.backends.null import Imported, NullBackend
from gputune.runtime.context.format import ContextFile
from gputune.runtime.context.memory_need import largest_arenas
from gputune.runtime.context.records import CONSTANT_KINDS, BufferKind, BufferRef, GraphRecord, LaunchRecord
from gputune.runtime.counters import TensorCounters
from gputune.runtime.executor import Executor
from gputune.runtime.loading.verdict import verdict_on
from gputune.runtime.memory.handles import MemHandle
from gputune.runtime.profiling.levels import Level
from gputune.runtime.profiling.observers import Observer
from gputune.runtime.profiling.records import HostPart, LoggedInference
from gputune.runtime.profiling.simulated import Moments, SimulatedRecorder
from gputune.runtime.values import MOST_KNOWN, RAW, Array, Kind, Known, Tensor, Tensors, Value, Values

Place = tuple[BufferKind, int]


@dataclass(eq=False)
class Shared:
    """What executors on a queue have in common. turn: held during an inference, and while arenas are exchanged;
    weights: by their digests, those that an executor holds."""

    turn: threading.Lock = field(default_factory=threading.Lock)
    arenas: list[Buffer] = field(default_factory=list)
    weights: MutableMapping[Hashable, Buffer] = field(default_factory=WeakValueDictionary)

    def weights_of(self, digest: Hashable, upload: Callable[[], Buffer]) -> Buffer:
        """Return the weights of that digest, uploaded where no executor holds them."""
        found = self.weights.get(digest)
        if found is None:
            found = self.weights[digest] = upload()
        return found


class SimulatedExecutor(Executor):
    """Run a loaded graph on a device that computes nothing. Persistent kernels never run."""

    computes = False
    _tensors: _Tensors

    def __init__(
        self,
        backend: NullBackend,
        file: ContextFile,
        graph: GraphRecord,
        device_open_ns: int = 0,
        shared: Shared | None = None,
    ) -> None:
        """Load as every executor does. shared: what it has in common with others. Raises WrongDevice, BuildFailed,
        ContextError."""
        begun_ns = time.perf_counter_ns()
        self._shared = Shared() if shared is None else shared
        super().__init__(backend.identity, file, graph, device_open_ns, self._shared.turn)
        self._backend = backend
        verdict, reason = verdict_on(file.header, [graph], backend.identity, computes=False)
        if verdict is ContextVerdict.UNSUPPORTED:
            raise WrongDevice(f"{file.path}: {reason}")
        try:
            self._tensors = _Tensors(backend, graph, self._warn)
            if shared is None:
                self._shared.arenas = [backend.allocate(nbytes) for nbytes in graph.arena_bytes]
            self._constants = self._loaded_constants(file)
            programs = {launch.program: file.header.programs[launch.program] for launch in graph.launches}
            built = {index: backend.build(file.source(index), program.options) for index, program in programs.items()}
            self._launches = [self._bound(built[launch.program], launch) for launch in graph.launches]
        except (WrongDevice, BuildFailed):
            raise
        except DeviceError as error:
            raise WrongDevice(f"{file.path}: {self.device.name} cannot run graph {graph.name!r}: {error}") from None
        self.load_ns = time.perf_counter_ns() - begun_ns
        self._warn.loading = False

    @property
    def backend(self) -> NullBackend:
        """Return the open device."""
        return self._backend

    def make_recorder(
        self, level: Level, observer: Observer, write: Callable[[LoggedInference], None]
    ) -> SimulatedRecorder:
        """Return what records inferences, with the times of the model at each level but basic."""
        return SimulatedRecorder(level, observer, write)

    def join_output(self, output: str, other: Executor, name: str) -> None:
        """Let neither graph take or return the tensor from now on."""
        self._check()
        assert isinstance(other, SimulatedExecutor)
        self._tensors.link("output", output)
        other._tensors.link("input", name)

    # --- an inference ----------------------------------------------------------------------------------

    def _infer(self, inputs: Values, outputs: Values) -> tuple[dict[str, Array], int]:
        return self._recorded(self._tensors.given(inputs, outputs))

    def _infer_in_place(self) -> int:
        return self._recorded(self._tensors.in_place())[1]

    def _recorded(self, given: Sequence[tuple[Tensor, Value]]) -> tuple[dict[str, Array], int]:
        if self.recorder is None:
            moments = Moments()
            return self._run(given, moments), moments.end()
        found: tuple[dict[str, Array], int] = self.recorder.infer(partial(self._run, given))
        return found

    def _run(self, given: Sequence[tuple[Tensor, Value]], moments: Moments) -> dict[str, Array]:
        """Copy inputs, launch, wait, and copy zeros to outputs."""
        tensors, results = self._tensors, dict[str, Array]()
        tensors.begin(given)
        for tensor, value in given:
            tensors.give(tensor, value)
            moments.add(HostPart.WRITE, tensor.index if tensor.kind == "input" else -1)
        moments.launch(self._backend, self._launches)
        for tensor, value in given:
            if tensor.kind == "output":
                results[tensor.name] = tensors.take(tensor, value)
                moments.add(HostPart.READ, tensor.index)
        tensors.end()
        return results

    # --- loading ---------------------------------------------------------------------------------------

    def _free(self) -> None:
        self._launches, self._shared, self._constants = [], Shared(), {}
        self._tensors.close()

    def _loaded_constants(self, file: ContextFile) -> dict[Place, Buffer]:
        """Return memory for weights, which are read from the file and copied nowhere, and for what is packed."""
        header, found = file.header, dict[Place, Buffer]()

        def read(index: int) -> Buffer:
            return self._backend.allocate(file.weights(index).nbytes)

        def pack(part: GraphRecord) -> Buffer:
            with SimulatedExecutor(self._backend, file, part) as packing:
                packing.run()
                return packing._shared.arenas[0]

        for index in self.graph.constants("weights"):
            digest = header.sections[header.weights[index]].sha256
            found["weights", index] = self._shared.weights_of(digest, partial(read, index))
        for index in self.graph.constants("packed"):
            part = header.packing[index]
            found["packed", index] = self._shared.weights_of((part.name, part.packed_bytes), partial(pack, part))
        return found

    def _bound(self, program: Program, launch: LaunchRecord) -> Bound:
        """Return a launch on buffers that have a size and no memory, which is all that models read."""
        arguments: list[Buffer | Scalar] = []
        for each in launch.arguments:
            if not isinstance(each, BufferRef):
                arguments.append(each)
            elif launch.offsets:
                arguments += [Buffer(self._size_of(each), None), each.offset // OFFSET_BYTES]
            else:
                arguments.append(Buffer(each.nbytes if each.offset else self._size_of(each), None))
        return self._backend.bind(program, launch.entry, launch.global_size, launch.local_size, arguments)

    def _size_of(self, ref: BufferRef) -> int:
        """Return the bytes of the whole memory that an argument is a part of."""
        if ref.kind in CONSTANT_KINDS:
            return self._constants[ref.kind, ref.index].nbytes
        if ref.kind == "arena":
            return self._shared.arenas[ref.index].nbytes
        return (self.graph.inputs if ref.kind == "input" else self.graph.outputs)[ref.index].nbytes


class _Tensors(Tensors[Tensor, Imported]):
    """Inputs and outputs, whose memory is the host's."""

    def __init__(self, backend: NullBackend, graph: GraphRecord, warn: Callable[[str], None]) -> None:
        super().__init__(graph, Tensor, warn)
        self._backend, self._own = backend, dict[str, Buffer]()
        for tensor in self.all():
            if tensor.record.memory_type == "raw":
                self._memory_of(tensor)
        self.counters.load, self.counters.last = self.counters.last, self.counters.load

    def _import(self, handle: MemHandle) -> Known[Imported]:
        return Known(handle, self._backend.import_memory(handle))

    def _give_up(self, imported: Imported) -> None: ...

    def give(self, tensor: Tensor, value: Value) -> None:
        """Copy an input, or make an output zero that stays in its handle."""
        if isinstance(value, MemHandle):
            self._know(value, tensor)
            if tensor.kind == "output":
                tensor.seen_in(value)[...] = 0
            return
        memory = self._memory_of(tensor)
        if tensor.kind == "input":
            self._copied(tensor).writes += 1
            self._backend.write(memory, value)

    def take(self, tensor: Tensor, value: Value) -> Array:
        """Return an output."""
        if isinstance(value, MemHandle):
            return tensor.seen_in(value)
        self._copied(tensor).reads += 1
        self._backend.read(self._own[tensor.label], into=value.reshape(-1).view(np.uint8))
        return value

    def given(self, inputs: Values, outputs: Values) -> list[tuple[Tensor, Value]]:
        """Return the tensors of an inference with their checked values."""
        tensors = [tensor for tensor in self.all() if not tensor.linked]
        return [(tensor, (inputs if tensor.kind == "input" else outputs)[tensor.name]) for tensor in tensors]

    def in_place(self) -> list[tuple[Tensor, Value]]:
        """Return them with their registered handles. Raises ValueError for one without."""
        tensors = [tensor for tensor in self.all() if not tensor.linked]
        for tensor in tensors:
            if tensor.registered is None:
                raise self._not_shared(tensor)
        return [(tensor, tensor.registered) for tensor in tensors if tensor.registered is not None]

    def begin(self, given: Sequence[tuple[Tensor, Value]]) -> None:
        """Begin an inference. Raises ValueError where an output would have another tensor's memory."""
        self.counters.begin()
        self._check_apart({tensor.label: value for tensor, value in given if isinstance(value, MemHandle)})
        self._apart.clear()  # handles that are not kept may give their ids to others

    def end(self) -> None:
        """End an inference."""
        self.counters.end()
        self._forget_unused(MOST_KNOWN)

    def link(self, kind: Kind, name: str) -> None:
        """Neither take nor return a tensor from now on."""
        self._own.pop(self._linked_tensor(kind, name).label, None)

    def close(self) -> None:
        """Give up all memory."""
        self._forget_all()
        self._own.clear()

    def _memory_of(self, tensor: Tensor) -> Buffer:
        if tensor.label not in self._own:
            self._own[tensor.label] = self._backend.allocate(tensor.record.nbytes)
            self._own_memory(tensor, asked=False)
        return self._own[tensor.label]

    def _copied(self, tensor: Tensor) -> TensorCounters:
        """Count the bytes of a copy."""
        counted = self.counters.last[tensor.label]
        counted.copied(tensor.record.nbytes, RAW)
        return counted


class SimulatedArenas:
    """Load the executors of a group, one for each stream. Arenas grow with the contexts that are loaded."""

    def __init__(self, backend: NullBackend, streams: int) -> None:
        first = Shared()
        others = [(backend.another_queue(), Shared(weights=first.weights)) for _ in range(streams - 1)]
        self._streams = [(backend, first), *others]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return the bytes of each arena of a stream."""
        return tuple(buffer.nbytes for buffer in self._streams[0][1].arenas)

    @property
    def weights(self) -> int:
        """Return the bytes of weights that executors hold."""
        return sum(buffer.nbytes for buffer in self._streams[0][1].weights.values())

    states = 0
    """Bytes of states, which nothing keeps here."""

    def load(self, file: ContextFile, graph: GraphRecord, strict: bool, device_open_ns: int) -> list[Executor]:
        """Load a graph for each stream, and replace arenas that are too small for it; if that fails, all have what they
        had before. Raises as executor_on does."""
        self._grow(graph)
        loaded: list[Executor] = []
        with ExitStack() as undo:
            for backend, shared in self._streams:
                loaded.append(SimulatedExecutor(backend, file, graph, device_open_ns, shared))
                undo.callback(loaded[-1].close)
            undo.pop_all()
        return loaded

    def close(self) -> None:
        """Give the arenas up."""
        for _, shared in self._streams:
            shared.arenas = []

    def _grow(self, graph: GraphRecord) -> None:
        wanted = largest_arenas([self.sizes, graph.arena_bytes])
        if wanted == self.sizes:
            return
        larger = [[backend.allocate(nbytes) for nbytes in wanted] for backend, _ in self._streams]
        for (_, shared), arenas in zip(self._streams, larger, strict=True):
            with shared.turn:
                shared.arenas = arenas
