"""Count and bound what one client owns: buffers, contexts and source texts. No input and output.

Buffers are kept in host memory as they arrived, and workers have copies. Buffers therefore outlive every worker, and
are freed with the client.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import NoReturn, TypeVar

from gputune.core.batches import ProfileKernel
from gputune.core.bounds import Blob, Handle
from gputune.core.errors import UnusableMemory
from gputune.core.launches import Launch, source_sha256
from gputune.runtime.memory.handles import MemHandle
from gputune.runtime.memory.passing import Descriptor, WithDescriptor
from gputune.server.protocol.errors import ProtocolError, limit_exceeded
from gputune.server.protocol.launches import with_launches
from gputune.server.protocol.limits import Limits
from gputune.server.protocol.messages import (
    BufferData,
    BufferReady,
    Done,
    ExecuteContext,
    ExecuteKernel,
    FreeBuffers,
    FreeContexts,
    FreeStates,
    LoadContext,
    MemoryReady,
    OpenState,
    ProfileContext,
    RegisterMemory,
    UploadBuffer,
    states_of,
)
from gputune.server.sessions.memory import Memory

T = TypeVar("T")
_DIGESTS_TOLD = 1024


@dataclass(frozen=True)
class Registered:
    """Hold memory of a client, in a descriptor of this process."""

    descriptor: Descriptor
    nbytes: int
    offset: int


@dataclass(frozen=True)
class Materials:
    """Hold what a request names: buffers, registered memories and contexts by handle, contexts as they are loaded with
    their bytes, source texts by their hash, and states, which only a worker has."""

    buffers: Mapping[Handle, Blob | Registered] = field(default_factory=dict)
    contexts: Mapping[Handle, tuple[LoadContext, Blob]] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    states: tuple[Handle, ...] = ()


@dataclass
class _Context:
    """Hold a context: how it is loaded, from which bytes. They stay whatever becomes of the buffer."""

    request: LoadContext
    data: memoryview
    loaded: bool = False


class Session:
    """Hold the belongings of one client. Handles come from `handles`, which all sessions share.

    bytes: what buffers, registered memories, contexts, states, source texts and queued requests take; never more than
    limits.session_bytes, and a part of `memory`. Every method raises ProtocolError.
    """

    def __init__(self, limits: Limits, handles: Iterator[Handle], memory: Memory) -> None:
        self.bytes = 0
        self._memory = memory
        self._limits = limits
        self._handles = handles
        self._buffers: dict[Handle, memoryview] = {}
        self._registered: dict[Handle, Registered] = {}
        self._contexts: dict[Handle, _Context] = {}
        self._states: dict[Handle, int | None] = {}  # bytes of device memory, of those that are open
        self._sources: OrderedDict[str, str] = OrderedDict()

    # --- memory ---------------------------------------------------------------------------------------

    def hold(self, count: int) -> None:
        """Count so many bytes as used, if they still go in."""
        allowed = self._limits.session_bytes
        if self.bytes + count > allowed:
            what = "with this request, buffers and queued requests of this connection would use bytes:"
            raise limit_exceeded(ProtocolError, what, "session_bytes", allowed, self.bytes + count)
        self._memory.hold(count)
        self.bytes += count

    def release(self, count: int) -> None:
        """Count so many bytes as free again."""
        self._memory.release(count)
        self.bytes -= count

    def end(self) -> None:
        """Let everything go but what is in the worker's hands, which counts until that is done with it."""
        self.free_buffers(FreeBuffers((*self._buffers, *self._registered)))
        self.free_contexts(FreeContexts(tuple(handle for handle, one in self._contexts.items() if one.loaded)))
        self.free_states(FreeStates(tuple(handle for handle, nbytes in self._states.items() if nbytes is not None)))
        while self._sources:
            self.release(memory_of(self._sources.popitem()[1]))

    # --- buffers --------------------------------------------------------------------------------------

    def upload(self, request: UploadBuffer) -> BufferReady:
        data = memoryview(request.data)
        if not data.nbytes:
            raise ProtocolError("bad_message", "a buffer of 0 bytes, at least 1 is needed")
        if len(self._buffers) >= self._limits.buffers:
            raise self._full("buffers", self._limits.buffers)
        self.hold(data.nbytes)
        handle = next(self._handles)
        self._buffers[handle] = data
        return BufferReady(handle)

    def download(self, handle: Handle) -> BufferData:
        return BufferData(self.buffer(handle))

    def buffer(self, handle: Handle) -> memoryview:
        """Return the bytes of a buffer."""
        try:
            return self._buffers[handle]
        except KeyError:
            message = f"this connection has no buffer {handle} (any more)"
            raise ProtocolError("unknown_buffer", message, {"buffer": handle}) from None

    def free_buffers(self, request: FreeBuffers) -> Done:
        """Free all of these buffers and registered memories, or none when one is unknown."""
        for handle in request.buffers:
            if handle not in self._registered:
                self.buffer(handle)
        for handle in set(request.buffers):
            if handle in self._registered:
                memory = self._registered.pop(handle)
                memory.descriptor.close()
                self.release(memory.nbytes)
                self._memory.unregister()
            else:
                self.release(self._buffers.pop(handle).nbytes)
        return Done()

    # --- memory of the client's own --------------------------------------------------------------------

    def register(self, given: WithDescriptor) -> MemoryReady:
        """Keep the descriptor that has come with a RegisterMemory, if it is memory that cannot vanish."""
        request, descriptor = given.message, given.descriptor
        if descriptor is None:
            raise ProtocolError("bad_message", "no descriptor has come with RegisterMemory")
        with ExitStack() as undone:
            undone.callback(descriptor.close)
            if len(self._registered) >= self._limits.registered:
                raise self._full("registered", self._limits.registered)
            try:  # the worker maps it in the same way
                MemHandle.from_fd(descriptor.fileno(), request.offset, request.nbytes).close()
            except UnusableMemory as error:
                raise ProtocolError("unusable_memory", str(error)) from None
            self._memory.register()
            undone.callback(self._memory.unregister)
            self.hold(request.nbytes)
            undone.pop_all()
        handle = next(self._handles)
        self._registered[handle] = Registered(descriptor, request.nbytes, request.offset)
        return MemoryReady(handle)

    def refuse_memory(self, request: RegisterMemory) -> NoReturn:
        """Raise the error of a connection over which no descriptor can come."""
        message = "memory can only be registered over a local socket: start the server with --unix PATH"
        raise ProtocolError("not_on_this_connection", message)

    def registered(self, handle: Handle) -> Registered:
        """Return a registered memory."""
        try:
            return self._registered[handle]
        except KeyError:
            message = f"this connection has no registered memory {handle} (any more)"
            raise ProtocolError("unknown_memory", message, {"memory": handle}) from None

    # --- contexts -------------------------------------------------------------------------------------

    def reserve_context(self, request: LoadContext) -> tuple[Handle, memoryview]:
        """Return the handle and the bytes of a context that is going to be loaded. It counts from now on, and can be
        used once it is `context_loaded`."""
        data = self.buffer(request.buffer)
        if len(self._contexts) >= self._limits.contexts:
            raise self._full("contexts", self._limits.contexts)
        self.hold(data.nbytes)
        handle = next(self._handles)
        self._contexts[handle] = _Context(request, data)
        return handle, data

    def context_loaded(self, handle: Handle, loaded: bool) -> None:
        """Note whether the reserved context could be loaded; if not, it is gone."""
        if loaded:
            self._contexts[handle].loaded = True
        else:
            self.release(self._contexts.pop(handle).data.nbytes)

    def free_contexts(self, request: FreeContexts) -> Done:
        """Free all of these contexts, or none when one is unknown."""
        for handle in request.contexts:
            self._context(handle)
        for handle in set(request.contexts):
            self.release(self._contexts.pop(handle).data.nbytes)
        return Done()

    def _context(self, handle: Handle) -> _Context:
        context = self._contexts.get(handle)
        if context is None or not context.loaded:
            message = f"this connection has no context {handle} (any more)"
            raise ProtocolError("unknown_context", message, {"context": handle})
        return context

    # --- states ---------------------------------------------------------------------------------------

    def reserve_state(self) -> Handle:
        """Return the handle of a state that is going to be opened, and can be used once it is `state_opened`."""
        if len(self._states) >= self._limits.states:
            raise self._full("states", self._limits.states)
        handle = next(self._handles)
        self._states[handle] = None
        return handle

    def state_opened(self, handle: Handle, nbytes: int | None) -> None:
        """Count the bytes of the reserved state. If there are none, because it could not be opened, or they do not go
        in, it is gone."""
        del self._states[handle]
        if nbytes is not None:
            self.hold(nbytes)
            self._states[handle] = nbytes

    def free_states(self, request: FreeStates) -> Done:
        """Free all of these states, or none when one is unknown."""
        for handle in request.states:
            self._bytes_of_state(handle)
        for handle in set(request.states):
            self.release(self._bytes_of_state(handle))
            del self._states[handle]
        return Done()

    def _bytes_of_state(self, handle: Handle) -> int:
        if (nbytes := self._states.get(handle)) is None:
            message = f"this connection has no state {handle} (any more)"
            raise ProtocolError("unknown_state", message, {"state": handle})
        return nbytes

    # --- requests -------------------------------------------------------------------------------------

    def materials(self, request: object) -> Materials:
        """Return the buffers, contexts and states that the request names, as they are now."""
        buffers: Mapping[Handle, Blob | Registered] = {}
        contexts: Mapping[Handle, tuple[LoadContext, Blob]] = {}
        match request:
            case ProfileKernel():
                buffers = {handle: self.buffer(handle) for handle in (*request.buffers.values(), request.reference)}
            case ExecuteKernel():
                buffers = {handle: self.buffer(handle) for handle in request.buffers.values()}
            case ExecuteContext() | ProfileContext():
                context = self._context(request.context)
                named = (*request.memory_inputs.values(), *request.memory_outputs.values())
                buffers = {handle: self.registered(handle) for handle in named}
                contexts = {request.context: (context.request, context.data)}
            case OpenState():
                context = self._context(request.context)
                contexts = {request.context: (context.request, context.data)}
        states = states_of(request)
        for handle in states:
            self._bytes_of_state(handle)
        return Materials(buffers, contexts, states=states)

    def without_sources(self, request: T) -> tuple[T, dict[str, str]]:
        """Return the request with the source texts taken out of its launches, and every text that they name, once. New
        texts are remembered, and those used longest ago forgotten."""
        named: dict[str, str] = {}
        unknown: dict[str, None] = {}

        def take_out(launch: Launch) -> Launch:
            digest = launch.source_sha256
            if digest not in named and digest not in unknown:
                source = self._known_source(launch)
                if source is None:
                    unknown[digest] = None
                else:
                    named[digest] = source
            return replace(launch, source="") if launch.source else launch

        request = with_launches(request, take_out)
        while len(self._sources) > self._limits.sources:
            self.release(memory_of(self._sources.popitem(last=False)[1]))
        if unknown:
            message = f"{len(unknown)} source texts are not known here"
            raise ProtocolError("unknown_source", message, {"source_sha256": list(unknown)[:_DIGESTS_TOLD]})
        if (got := sum(map(len, named.values()))) > (allowed := self._limits.text_bytes):
            what = "the source texts that this request names have characters:"
            raise limit_exceeded(ProtocolError, what, "text_bytes", allowed, got)
        return request, named

    def _known_source(self, launch: Launch) -> str | None:
        digest = launch.source_sha256
        if launch.source and digest not in self._sources:
            if source_sha256(launch.source) != digest:
                raise ProtocolError("bad_message", f"{launch.entry!r}: source_sha256 is not its source's")
            self.hold(memory_of(launch.source))
            self._sources[digest] = launch.source
        if digest in self._sources:
            self._sources.move_to_end(digest)
        return self._sources.get(digest)

    @property
    def handles(self) -> tuple[Iterable[Handle], Iterable[Handle]]:
        """Return the handles of all buffers, registered memories among them, and of all contexts and states."""
        return (*self._buffers, *self._registered), (*self._contexts, *self._states)

    def _full(self, limit: str, allowed: int) -> ProtocolError:
        what = f"free some {limit} first; on this connection there would be"
        return limit_exceeded(ProtocolError, what, limit, allowed, allowed + 1)


def memory_of(text: str) -> int:
    """Return the most bytes of memory that a text takes. Not sys.getsizeof, which says more once a text was sent."""
    return 80 + len(text) * (1 if text.isascii() else 4)
