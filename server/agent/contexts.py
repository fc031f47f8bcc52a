"""Load and run contexts on a device behind an agent, which does that with the C runtime, as an application does.

The times of inferences are those of the agent's clock, without the way there. Memory handles are memory of this
machine, so they are copied.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from gputune.core.errors import BuildFailed, DeviceError, LaunchFailed, MalformedLog, WrongDevice, shortened
from gputune.runtime.arrays import array_type
from gputune.runtime.backends import Backend
from gputune.runtime.context.format import ContextFile
from gputune.runtime.context.records import GraphRecord, TensorRecord
from gputune.runtime.contexts.needs import proved_needs
from gputune.runtime.counters import MemoryCounters
from gputune.runtime.executor import DistantState, Executor, StateMemory
from gputune.runtime.loading.executors import executor_on
from gputune.runtime.memory.handles import MemHandle
from gputune.runtime.profiling.levels import Level
from gputune.runtime.profiling.log import Log, LogWriter, read_log_of
from gputune.runtime.profiling.records import Comparison, Form
from gputune.runtime.profiling.turns import in_turns
from gputune.runtime.values import Value
from gputune.server.agent import messages
from gputune.server.agent.agent_connection import AgentLost
from gputune.server.agent.backend import AgentBackend, Handle

Array = npt.NDArray[Any]
UNMARKED = "an agent does not mark launches"
COPIED = "the device is behind an agent, on another machine"


class AgentContext:
    """Run a graph that an agent has loaded. graph, computes, warnings, load_ns, counters, recorder, persistent_kernels:
    as of Executor; last_form: how the last inference in the usual form ran."""

    computes = True

    def __init__(self, backend: AgentBackend, file: ContextFile, graph: str | None, strict: bool) -> None:
        """Send a context, and have the agent load a graph of it (None: the first). Raises as executor_on does, and
        AgentLost."""
        self._backend = backend
        self.graph = file.graph_named(graph)
        self.recorder: object = None
        self.persistent_kernels = True
        self.last_form: Form = "launches"
        inputs = {tensor.name for tensor in self.graph.inputs}
        self._labels = {
            tensor.name: f"output {tensor.name}" if tensor.name in inputs else tensor.name
            for tensor in self.graph.outputs
        }
        self.counters = MemoryCounters.of([*inputs, *self._labels.values()])
        self._handle = backend.new_handle()
        features = tuple(proved_needs(file, self.graph, backend))
        request = messages.LoadContext(self._handle.number, file.content, self.graph.name, strict, features)
        try:
            loaded: messages.Loaded = backend.ask(request)
        except (BuildFailed, AgentLost):
            raise
        except DeviceError as error:
            device, name = backend.identity.name, self.graph.name
            raise WrongDevice(f"{file.path}: {device} cannot run graph {name!r}: {error}") from None
        self.warnings, self.load_ns = list(loaded.warnings), loaded.load_ns

    def run_timed(self, inputs: Mapping[str, Value], into: Mapping[str, Value]) -> tuple[dict[str, Array], int]:
        """Run one inference; return its outputs, and its ns by the agent's clock. inputs: by name, arrays of exactly
        the bytes of each, or memory handles; into: memory handles, to which outputs are copied. Raises ValueError that
        names what is missing or does not fit; DeviceError."""
        return self._run(self.graph, inputs, into)

    def open_state(self) -> StateOnAgent:
        """Open memory there for what this graph, and those that remember the same, keep between inferences. Raises
        DeviceError."""
        return StateOnAgent(self._backend, self._handle, self.graph)

    def step_timed(
        self, state: StateMemory, inputs: Mapping[str, Value], into: Mapping[str, Value]
    ) -> tuple[dict[str, Array], int]:
        """Run an inference that moves a state on, as run_timed does with what is not the state's."""
        assert isinstance(state, StateOnAgent) and self.graph.states is not None
        made = self._run(self.graph.beside_state, inputs, into, state.handle.number, state.length)
        state.length += self.graph.states.tokens
        return made

    def _run(
        self,
        graph: GraphRecord,
        inputs: Mapping[str, Value],
        into: Mapping[str, Value],
        state: int = 0,
        length: int = 0,
    ) -> tuple[dict[str, Array], int]:
        """Run an inference on the inputs that `graph` has, with a state behind so many rows, or without (0)."""
        _check("input", graph.inputs, inputs, missing=True)
        _check("output", graph.outputs, into)
        self.counters.begin()
        with ExitStack() as stack:
            given = tuple(self._bytes_of(tensor, inputs[tensor.name], stack) for tensor in graph.inputs)
            recorded = self.recorder is not None
            how = recorded, self.persistent_kernels, state, length
            request = messages.RunContext(self._handle.number, given, *how)
            ran: messages.Ran = self._backend.ask(request, [tensor.nbytes for tensor in graph.outputs])
        if not recorded and (self.persistent_kernels or not self.graph.persistent):
            self.last_form = ran.form
        outputs = {
            tensor.name: self._placed(tensor, data, into.get(tensor.name))
            for tensor, data in zip(graph.outputs, ran.outputs, strict=True)
        }
        self.counters.end()
        return outputs, ran.elapsed_ns

    def profile(
        self,
        log: BinaryIO,
        level: Level,
        infer: Callable[[], int],
        inferences: int,
        after: Callable[[int], None],
        compared: int,
        title: str,
    ) -> None:
        """Write a log of inferences as Profiler.profile does, at the levels basic and detailed. Raises LaunchFailed for
        another level, and as `infer` does."""
        if level not in ("basic", "detailed"):
            raise LaunchFailed(f"an agent profiles at the levels basic and detailed, and not at level {level}")
        persistent = level == "basic"
        forms = [(self, persistent), (None, persistent)]
        if self.graph.persistent and not persistent:
            forms.append((None, True))
        self._backend.ask(messages.BeginProfile(self._handle.number, level))
        try:
            times_ns = in_turns(self, infer, forms, len(forms) - 1, inferences, compared, after)
        finally:
            (content,) = self._backend.ask(messages.EndProfile()).data
        found = _log_of(content)
        header = replace(found.header, device=self._backend.identity.to_dict(), settings=dict(self._backend.settings))
        writer = LogWriter(log, header)
        for graph in found.graphs:
            writer.add_graph(replace(graph, context=title, unmarked=UNMARKED if graph.persistent else ""))
        for inference in found.inferences:
            writer.add(inference)
        if compared:
            profiled, unprofiled, usual = (tuple(times_ns[place][:compared]) for place in (0, 1, -1))
            writer.add(Comparison(0, profiled, unprofiled, usual, self.last_form))
        writer.end()

    def release(self, handle: MemHandle) -> None:
        """Give up a handle: none is kept."""

    def close(self) -> None:
        """Have the agent free it."""
        self._handle.free()

    def _bytes_of(self, tensor: TensorRecord, value: Value, stack: ExitStack) -> memoryview:
        """Return the bytes of an input, which the host may read until the stack is left."""
        if isinstance(value, MemHandle):
            stack.enter_context(value.host_access())
            self._count(tensor.name, tensor.nbytes)
            value = value.view(np.uint8, [tensor.nbytes])
        return np.ascontiguousarray(value).reshape(-1).view(np.uint8).data

    def _placed(self, tensor: TensorRecord, data: Any, into: Value | None) -> Array:
        """Return an output, in the memory that is wanted for it."""
        content = np.frombuffer(data, array_type(tensor.dtype)).reshape(tensor.shape)
        if not isinstance(into, MemHandle):
            return content
        self._count(self._labels[tensor.name], tensor.nbytes)
        with into.host_access():
            view = into.view(content.dtype, tensor.shape)
            view[...] = content
        return view

    def _count(self, label: str, nbytes: int) -> None:
        self.counters.last[label].copied(nbytes, COPIED)


class StateOnAgent(DistantState):
    """Hold a state that an agent has."""

    def __init__(
        self, backend: AgentBackend, context: Handle, graph: GraphRecord, other: StateOnAgent | None = None
    ) -> None:
        """Open it for a loaded graph. other: a state that it begins like. Raises DeviceError."""
        super().__init__(graph)
        self._backend, self._context, self.handle = backend, context, backend.new_handle()
        self.length = 0 if other is None else other.length
        of = 0 if other is None else other.handle.number
        backend.ask(messages.OpenState(self.handle.number, context.number, of))

    def copy(self) -> StateOnAgent:
        """Return another state that remembers the same. Raises DeviceError."""
        return StateOnAgent(self._backend, self._context, self._graph, self)

    def close(self) -> None:
        """Have the agent free it."""
        self.handle.free()

    def _reset(self) -> None:
        self._backend.ask(messages.ResetState(self.handle.number))

    def _content(self, name: str, nbytes: int) -> Any:
        return self._backend.ask(messages.ReadState(self.handle.number, name, nbytes)).data[0]


def context_on(backend: Backend, file: ContextFile, graph: str | None, strict: bool) -> Executor | AgentContext:
    """Load a graph of a context on an open device, as executor_on does. An agent loads it itself."""
    if isinstance(backend, AgentBackend):
        return AgentContext(backend, file, graph, strict)
    return executor_on(backend, file, graph, strict)


def _check(kind: str, tensors: Sequence[TensorRecord], given: Mapping[str, Value], missing: bool = False) -> None:
    """Raise ValueError for values of no tensor and for memory that is too small; missing: also for tensors without."""
    names = [tensor.name for tensor in tensors]
    if wrong := sorted(given.keys() - names) or (missing and sorted(set(names) - given.keys())):
        raise ValueError(f"{wrong[0]!r} is no {kind} or is not given; the {kind}s are {shortened(names)}")
    for tensor in tensors:
        handle = given.get(tensor.name)
        if isinstance(handle, MemHandle) and handle.nbytes < tensor.nbytes:
            needed = f"tensor {tensor.name!r} needs memory of {tensor.nbytes} bytes"
            raise ValueError(f"{needed}, its handle has {handle.nbytes} bytes")


def _log_of(content: Any) -> Log:
    try:
        return read_log_of(io.BytesIO(content), "the agent's profile")
    except MalformedLog as error:
        raise LaunchFailed(str(error)) from None
