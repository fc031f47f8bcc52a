"""Handle each request in the worker; names and order are the same as in link.py.

Handlers translate: messages in, gputune.runtime calls, messages out. The daemon has checked who owns what.
"""

from __future__ import annotations

import io
import logging
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from gputune.core.batches import Compiled, Profiled, ProfileKernel
from gputune.core.bounds import Blob
from gputune.core.errors import BuildFailed, ContextError, DeviceError, DeviceNotFound, UnusableMemory, shortened
from gputune.core.launches import Launch
from gputune.runtime.arrays import array_type
from gputune.runtime.backends import Backend, Buffer, ProgramCache
from gputune.runtime.context.format import context_of
from gputune.runtime.context.records import GraphRecord
from gputune.runtime.contexts.device import lost
from gputune.runtime.executor import Executor, StateMemory
from gputune.runtime.measuring import launching, measuring
from gputune.runtime.measuring.building import Ahead
from gputune.runtime.measuring.watcher import Cancelled
from gputune.runtime.memory.handles import MemHandle
from gputune.runtime.memory.passing import WithDescriptor
from gputune.runtime.profiling.profiler import Profiler
from gputune.runtime.values import Array, Value
from gputune.server.agent.contexts import AgentContext, context_on
from gputune.server.protocol import messages
from gputune.server.protocol.errors import ProtocolError, limit_exceeded
from gputune.server.protocol.launches import launches_of, with_launches
from gputune.server.protocol.limits import Limits
from gputune.server.worker import link
from gputune.server.worker.heartbeat_page import HeartbeatPage
from gputune.server.worker.watcher import LinkWatcher

log = logging.getLogger("gputune.server.worker")

T = TypeVar("T")
Loaded = Executor | AgentContext
Ran = tuple[dict[str, Array], int]
Run = Callable[[Mapping[str, Value], Mapping[str, Value]], Ran]
MESSAGE_CHARACTERS = 4000
WARNINGS_AT_MOST = 20
PROGRESS_SECONDS = 1.0


class Handlers:
    """Answer requests on one open device, one at a time. `send` is for Progress."""

    def __init__(
        self,
        backend: Backend,
        limits: Limits,
        page: HeartbeatPage,
        send: Callable[[messages.Progress], None],
    ) -> None:
        self._backend = backend
        self._programs = ProgramCache(backend)
        self._limits = limits
        self._page = page
        self._send = send
        self._buffers: dict[int, Buffer] = {}
        self._memories: dict[int, MemHandle] = {}
        self._contexts: dict[int, Loaded] = {}
        self._states: dict[int, StateMemory] = {}
        self._beside = link.PutBeside({})
        self._ahead: Ahead | None = None
        self._by_message: Mapping[type, Callable[[Any], object]] = {
            messages.CompileKernel: self.compile_kernel,
            ProfileKernel: self.profile_kernel,
            messages.ExecuteKernel: self.execute_kernel,
            messages.ExecuteContext: self.execute_context,
            messages.ProfileContext: self.profile_context,
            messages.ResetState: self.reset_state,
            messages.ReadState: self.read_state,
            messages.ProveFeatures: self.prove_features,
            link.PutBuffer: self.put_buffer,
            link.PutMemory: self.put_memory,
            link.PutContext: self.put_context,
            link.PutState: self.put_state,
            link.Forget: self.forget,
            link.BuildPrograms: self.build_programs,
            link.CompileAhead: self.compile_ahead,
            link.PutBeside: self.put_beside,
        }

    def handle(self, request: Any) -> object:
        """Return the reply to a request; every failure becomes an Error with a name."""
        try:
            if isinstance(request, link.REQUESTS):
                request = self._with_what_is_beside(request)
            self._page.begin("preparing", None, self._limits.request_seconds)
            kind = type(request.message if isinstance(request, WithDescriptor) else request)
            return self._by_message[kind](request)
        except Cancelled as error:
            return messages.Error("cancelled", str(error))
        except ProtocolError as error:
            return messages.Error(error.name, error.message[:MESSAGE_CHARACTERS], error.details)
        except UnusableMemory as error:
            return messages.Error("unusable_memory", str(error)[:MESSAGE_CHARACTERS])
        except DeviceNotFound as error:
            return messages.Error("no_contexts", str(error)[:MESSAGE_CHARACTERS])
        except ContextError as error:
            return messages.Error("bad_context", str(error)[:MESSAGE_CHARACTERS], {"reason": error.name})
        except DeviceError as error:
            self._leave_if_lost()
            name = "build_failed" if isinstance(error, BuildFailed) else "launch_failed"
            return messages.Error(name, str(error)[:MESSAGE_CHARACTERS], {"status": error.status})
        except Exception as error:
            log.exception("internal error while handling %s", type(request).__name__)
            return messages.Error("internal_error", f"{type(error).__name__}: {error}"[:MESSAGE_CHARACTERS])
        finally:
            self._page.rest()

    # --- kernels --------------------------------------------------------------------------------------

    def compile_kernel(self, request: messages.CompileKernel) -> Compiled:
        return launching.compile_variant(self._programs, request.variant, request.buffers, self._watcher())

    def profile_kernel(self, request: ProfileKernel) -> Profiled:
        watcher = self._watcher(request.numbers)
        try:
            return measuring.measure(self._programs, request, self._buffer, watcher, self._ahead)
        except measuring.BadRequest as error:
            raise ProtocolError("bad_message", str(error)) from None

    def execute_kernel(self, request: messages.ExecuteKernel) -> messages.Executed:
        buffers = {name: self._buffer(handle) for name, handle in request.buffers.items()}
        outputs = launching.execute(self._programs, request.launches, buffers, request.outputs, self._watcher())
        return messages.Executed({name: data.data for name, data in outputs.items()})

    # --- contexts -------------------------------------------------------------------------------------

    def execute_context(self, request: messages.ExecuteContext) -> messages.ContextExecuted:
        executor = self._context(request.context)
        inputs, into = self._values(executor, request)
        self._page.begin("launching", None, self._limits.request_seconds)
        with _named_value_errors():
            outputs, elapsed_ns = self._run(executor, request.state, request.length)(inputs, into)
        content: dict[str, Blob] = {
            name: output.reshape(-1).view(np.uint8).data for name, output in outputs.items() if name not in into
        }
        return messages.ContextExecuted(content, elapsed_ns, _copied_bytes(executor, request.memory_inputs, into))

    def profile_context(self, request: messages.ProfileContext) -> messages.ContextProfiled:
        executor = self._context(request.context)
        inputs, into = self._values(executor, request)
        launches = len(executor.graph.launches)
        if (timings := launches * request.inferences) > (allowed := self._limits.timings):
            what = f"{request.inferences} inferences of {launches} launches would take timings:"
            raise limit_exceeded(ProtocolError, what, "timings", allowed, timings)
        told = time.monotonic()

        def after(done: int) -> None:
            nonlocal told
            if self._page.cancelled:
                raise Cancelled("the request was cancelled")
            self._page.begin("launching", None, self._limits.request_seconds)
            if time.monotonic() - told > PROGRESS_SECONDS:
                told = time.monotonic()
                self._send(messages.Progress("running", done, request.inferences, ""))

        self._page.begin("launching", None, self._limits.request_seconds)
        log = io.BytesIO()
        run = self._run(executor, request.state, 0)

        def infer() -> int:
            if request.state:
                self._state(request.state).reset()
            return run(inputs, into)[1]

        asked = (
            infer,
            request.inferences,
            after,
            request.compared,
            request.title,
        )
        with _named_value_errors():
            if isinstance(executor, AgentContext):
                executor.profile(log, request.level, *asked)
            else:
                with Profiler(log, request.level) as profiler:
                    profiler.profile(executor, *asked)
        return messages.ContextProfiled(log.getbuffer())

    # --- states ---------------------------------------------------------------------------------------

    def reset_state(self, request: messages.ResetState) -> messages.Done:
        self._state(request.state).reset()
        return messages.Done()

    def read_state(self, request: messages.ReadState) -> messages.BufferData:
        with _named_value_errors():
            return messages.BufferData(self._state(request.state).read(request.input, "uint8", (request.nbytes,)).data)

    # --- the device -----------------------------------------------------------------------------------

    def prove_features(self, request: messages.ProveFeatures) -> messages.FeaturesProven:
        """Let a process of its own ask the device, which must not die of that here."""
        return messages.FeaturesProven(dict(self._backend.prove(request.features)))

    # --- what the daemon puts on the device -----------------------------------------------------------

    def put_buffer(self, request: link.PutBuffer) -> messages.Done:
        self._buffers[request.buffer] = self._backend.upload(request.data)
        return messages.Done()

    def put_memory(self, given: WithDescriptor) -> messages.Done:
        request, descriptor = given.message, given.descriptor
        if descriptor is None:
            raise UnusableMemory("the worker process cannot open another file descriptor")
        with descriptor:
            self._memories[request.memory] = MemHandle.from_fd(descriptor.fileno(), request.offset, request.nbytes)
        return messages.Done()

    def put_context(self, request: link.PutContext) -> messages.ContextLoaded:
        self._page.begin("building", None, self._limits.request_seconds)
        file = context_of(memoryview(request.data), "the uploaded context")
        wanted = request.request
        try:
            executor = context_on(self._backend, file, wanted.graph or None, wanted.strict)
        except ValueError as error:
            raise ProtocolError("bad_context", str(error)[:MESSAGE_CHARACTERS], {"reason": "unknown_graph"}) from None
        self._contexts[request.context] = executor
        return messages.ContextLoaded(request.context, executor.computes, _some(executor.warnings), executor.load_ns)

    def put_state(self, request: link.PutState) -> messages.StateReady:
        with _named_value_errors():
            executor = self._context(request.context)
            state = self._state(request.other).copy() if request.other else executor.open_state()
        self._states[request.state] = state
        return messages.StateReady(request.state, state.nbytes)

    def forget(self, request: link.Forget) -> messages.Done:
        for handle in request.contexts:
            if (state := self._states.pop(handle, None)) is not None:
                state.close()
            if (executor := self._contexts.pop(handle, None)) is not None:
                executor.close()
        for handle in request.buffers:
            self._buffers.pop(handle, None)
            if (memory := self._memories.pop(handle, None)) is not None:
                for executor in self._contexts.values():
                    executor.release(memory)
                memory.close()
        return messages.Done()

    def build_programs(self, request: link.BuildPrograms) -> link.ProgramsBuilt:
        watcher = self._watcher()
        binaries: dict[str, Blob] = {}
        for key, launch in {link.program_key(launch): launch for launch in request.launches}.items():
            if watcher.cancelled:
                raise Cancelled("the request was cancelled")
            watcher.step("building", None, 0.0)
            try:
                source = _complete(launch, request.sources).source
                binaries[key] = self._backend.harvest(self._backend.build(source, launch.options))
            except DeviceError as error:  # its launch fails again, and says so
                log.info("a program was not built in advance: %s", error)
        return link.ProgramsBuilt(binaries)

    def compile_ahead(self, request: link.CompileAhead) -> link.CompiledAhead:
        variants = [replace(each, main=_complete(each.main, request.sources)) for each in request.variants]
        took = launching.compile_ahead(self._programs, variants, request.buffers, self._watcher())
        return link.CompiledAhead(*zip(*took, strict=True)) if took else link.CompiledAhead((), ())

    def put_beside(self, beside: link.PutBeside) -> messages.Done:
        self._beside = beside
        return messages.Done()

    # --- helpers --------------------------------------------------------------------------------------

    def _watcher(self, variants: Collection[int] = ()) -> LinkWatcher:
        return LinkWatcher(self._page, self._limits, self._send, variants, self._leave_if_lost)

    def _leave_if_lost(self) -> None:
        """End this process where nothing works on its device any more, as a crash would: what comes next must not be
        charged with that, and a new process has the device as before."""
        if lost(self._backend):
            log.error("the device no longer works in this worker, which ends")
            os._exit(link.DEVICE_LOST)

    def _with_what_is_beside(self, request: T) -> T:
        """Return the request with its sources, and take what else the last PutBeside brought for it alone."""
        beside, self._beside = self._beside, link.PutBeside({})
        request = with_launches(request, lambda launch: _complete(launch, beside.sources))
        self._ahead = None if beside.ahead is None else Ahead(beside.ahead, self._page.wait_until_alone)
        self._programs.prebuilt = {
            (launch.source, launch.options): bytes(beside.programs[key])
            for launch in launches_of(request)
            if (key := link.program_key(launch)) in beside.programs
        }
        return request

    def _buffer(self, handle: int) -> Buffer:
        if handle not in self._buffers:
            raise ProtocolError("unknown_buffer", f"the worker has no buffer {handle}", {"buffer": handle})
        return self._buffers[handle]

    def _memory(self, handle: int) -> MemHandle:
        if handle not in self._memories:
            raise ProtocolError("unknown_memory", f"the worker has no memory {handle}", {"memory": handle})
        return self._memories[handle]

    def _values(
        self, executor: Loaded, request: messages.ExecuteContext | messages.ProfileContext
    ) -> tuple[dict[str, Value], dict[str, Value]]:
        """Return what an inference is given, and where its outputs shall be. Raises ProtocolError."""
        inputs: dict[str, Value] = {name: self._memory(memory) for name, memory in request.memory_inputs.items()}
        into: dict[str, Value] = {name: self._memory(memory) for name, memory in request.memory_outputs.items()}
        return {**_arrays(_given(executor, request.state), request.inputs, elsewhere=inputs), **inputs}, into

    def _run(self, executor: Loaded, state: int, length: int) -> Run:
        """Return what runs inferences, with a state behind its first `length` rows, or without (0)."""
        if not state:
            return executor.run_timed
        memory = self._state(state)

        def step(inputs: Mapping[str, Value], into: Mapping[str, Value]) -> Ran:
            if memory.length != length:
                memory.rewind(length)
            return executor.step_timed(memory, inputs, into)

        return step

    def _state(self, handle: int) -> StateMemory:
        if handle not in self._states:
            raise ProtocolError("unknown_state", f"the worker has no state {handle}", {"state": handle})
        return self._states[handle]

    def _context(self, handle: int) -> Loaded:
        if handle not in self._contexts:
            raise ProtocolError("unknown_context", f"the worker has no context {handle}", {"context": handle})
        return self._contexts[handle]


def _complete(launch: Launch, sources: Mapping[str, str]) -> Launch:
    """Return the launch with its source, which all launches that name it share."""
    if launch.source_sha256 not in sources:
        raise ProtocolError("unknown_source", f"the worker has no source {launch.source_sha256}")
    return replace(launch, source=sources[launch.source_sha256])


def _given(executor: Loaded, state: int) -> GraphRecord:
    """Return a graph with the inputs that an inference is given: with a state, those beside it. Raises
    ProtocolError."""
    graph = executor.graph
    if state and graph.states is None:
        raise ProtocolError("bad_message", f"graph {graph.name!r} has no state")
    return graph.beside_state if state else graph


def _arrays(
    graph: GraphRecord, blobs: Mapping[str, Blob], elsewhere: Collection[str] = ()
) -> dict[str, np.ndarray[Any, Any]]:
    """Return the inputs of a graph from their bytes, but for those that lie elsewhere. Raises ProtocolError
    (bad_message) naming the one that does not fit."""
    if twice := sorted(set(elsewhere) & blobs.keys()):
        raise ProtocolError("bad_message", f"input {twice[0][:200]!r} is given both as bytes and as registered memory")
    tensors = {tensor.name: tensor for tensor in graph.inputs if tensor.name not in elsewhere}
    for name in [*blobs, *tensors]:
        if name not in tensors or name not in blobs:
            what = "has no" if name not in tensors else "needs the"
            inputs = shortened(tensors)
            raise ProtocolError(
                "bad_message", f"graph {graph.name!r} {what} input {name[:200]!r}; its inputs are {inputs}"
            )
        got, tensor = memoryview(blobs[name]).nbytes, tensors[name]
        if got != tensor.nbytes:
            shape = f"{tensor.dtype}{list(tensor.shape)}"
            raise ProtocolError("bad_message", f"input {name!r} has {got} bytes, {shape} has {tensor.nbytes}")
    return {
        name: np.frombuffer(blobs[name], array_type(tensor.dtype)).reshape(tensor.shape)
        for name, tensor in tensors.items()
    }


def _copied_bytes(executor: Loaded, inputs: Iterable[str], outputs: Iterable[str]) -> int:
    """Return what the last inference has copied of these tensors."""
    counted = executor.counters.last
    labels = [*inputs, *(f"output {name}" if f"output {name}" in counted else name for name in outputs)]
    return sum(counted[label].bytes_copied for label in labels)


def _some(warnings: Sequence[str]) -> tuple[str, ...]:
    """Return the first of them, and how many more there are."""
    told = tuple(warning[:MESSAGE_CHARACTERS] for warning in warnings[:WARNINGS_AT_MOST])
    more = len(warnings) - len(told)
    return (*told, f"and {more} more such warnings") if more else told


@contextmanager
def _named_value_errors() -> Iterator[None]:
    """Tell the client which tensor is unknown, does not fit its memory, or shares it with another."""
    try:
        yield
    except ValueError as error:
        raise ProtocolError("bad_message", str(error)[:MESSAGE_CHARACTERS]) from None
