"""Open a session with a target server that outlives its connection.

with TargetClient.connect("127.0.0.1", 22598) as target:
    handle = target.upload(array)
    profiled = target.measure_kernel(ProfileKernel(...))

When the target is lost, the client connects again, restores there what a request needs, and sends the request again.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from gputune.client.errors import TargetError
from gputune.client.target.reconnecting import Reconnecting
from gputune.client.target.session import Link, OnProgress, Session
from gputune.client.target.transport.credentials import NONE, Credentials
from gputune.client.target.transport.target_connection import CONNECT_SECONDS, dial
from gputune.core.batches import Compiled, Profiled, ProfileKernel, Remaining
from gputune.core.bounds import Blob
from gputune.core.opened import Closing
from gputune.runtime.memory.descriptors import duplicate
from gputune.runtime.memory.handles import Lease, MemHandle
from gputune.runtime.power.profiles.chosen import setting_of
from gputune.runtime.power.profiles.perf_profile import PerfProfile
from gputune.server.protocol.amounts import check_limits
from gputune.server.protocol.errors import ProtocolError
from gputune.server.protocol.limits import Limits
from gputune.server.protocol.messages import (
    BufferData,
    BufferReady,
    CompileKernel,
    ContextExecuted,
    ContextLoaded,
    ContextProfiled,
    Done,
    DownloadBuffer,
    ExecuteContext,
    Executed,
    ExecuteKernel,
    FeaturesProven,
    FreeBuffers,
    FreeContexts,
    FreeStates,
    LoadContext,
    MemoryReady,
    OpenState,
    PerfProfileSet,
    ProfileContext,
    Progress,
    ProveFeatures,
    RegisterMemory,
    SetPerfProfile,
    StateReady,
    Status,
    StatusReport,
    UploadBuffer,
)

log = logging.getLogger(__name__)

R = TypeVar("R")
Data: TypeAlias = NDArray[Any] | Blob
NO_MEMORY: Mapping[str, int] = MappingProxyType({})

__all__ = ["TargetClient", "TargetError"]


@dataclass(frozen=True)
class TargetState:
    """A state on a target, which ends with its connection. handle: the server's."""

    link: Link
    handle: int


class TargetClient(Closing):
    """Hold a session with a target, connected when it is made. For one thread; another keeps the connection alive while
    it idles.

    Handles are this client's own: they outlive the connection. Every method raises TargetError: lost_again when the
    server ended twice during one request, connection_lost when the connection did so more often, what Reconnecting
    raises when it does not come back, else the server's error.
    """

    def __init__(self, reconnecting: Reconnecting) -> None:
        self._session = Session(reconnecting)
        self._settings: dict[str, str] = {}
        self._last_handle = 0
        self._data: dict[int, Blob] = {}  # what the caller gave, not a copy
        self._memories: dict[int, tuple[MemHandle, Lease]] = {}
        self._contexts: dict[int, tuple[Blob, str, bool]] = {}  # content, graph, strict

    # --- life -------------------------------------------------------------------------------------

    @classmethod
    def connect(
        cls,
        host: str,
        port: int,
        credentials: Credentials = NONE,
        timeout: float = CONNECT_SECONDS,
        notice: Callable[[str], None] | None = None,
    ) -> TargetClient:
        """Connect and shake hands within `timeout` seconds. notice: hears when the target is lost and when it is
        back."""
        return cls(Reconnecting(partial(dial, host, port, timeout, credentials), notice=notice))

    def close(self) -> None:
        """End the session; the server frees its buffers. May be called twice."""
        self._session.close()
        while self._memories:
            self._memories.popitem()[1][1].release()

    @contextmanager
    def giving_up(self, over: Callable[[], bool]) -> Iterator[None]:
        """Cancel what is under way as soon as `over` says so. It raises TargetError cancelled then, unless its reply
        was on the way."""
        before, self._session.over = self._session.over, over
        try:
            yield
        finally:
            self._session.over = before

    # --- the server -------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """Return HOST:PORT or unix:PATH of the target."""
        return self._session.link.connection.address

    @property
    def device(self) -> dict[str, object]:
        """Return the device's identity, as the server tells it."""
        return self._session.link.connection.device

    @property
    def limits(self) -> Limits:
        """Return what the server accepts."""
        return self._session.link.connection.limits

    @property
    def server(self) -> dict[str, object]:
        """Return what the server says about itself, with the settings that this client has given it."""
        server = self._session.link.connection.server
        settings = server.get("settings")
        if not self._settings or not isinstance(settings, Mapping):
            return server
        return {**server, "settings": {**settings, **self._settings}}

    @property
    def why_no_contexts(self) -> str:
        """Return why the server runs no contexts, and what to do, in one line; empty if it runs them."""
        return str(self.server.get("no_contexts", ""))

    @property
    def requests(self) -> Counter[str]:
        """Return how many requests of each kind were sent: "upload", "profile" and so on."""
        return self._session.requests

    def ping(self) -> None:
        """Return when the server has answered."""
        self._session.through(_ping)
        self.requests["ping"] += 1

    def pings(self, count: int) -> None:
        """Send so many pings, many of them under way at a time."""
        self._session.through(lambda link: link.connection.pings(count))
        self.requests["ping"] += count

    def status(self) -> StatusReport:
        """Return how the server is."""
        return self._session.through(lambda link: self._session.ask(link, Status(), StatusReport))

    def proven(self, features: Collection[str]) -> frozenset[str]:
        """Return which of these features the device has proven. A server that cannot test a feature, because it is
        older, has not proven it."""
        testable = self.server.get("features")
        asked = tuple(sorted(name for name in {*features} if isinstance(testable, list) and name in testable))
        if not asked:
            return frozenset()
        request = ProveFeatures(asked)
        reasons = self._session.through(lambda link: self._session.ask(link, request, FeaturesProven)).reasons
        for name in asked:
            if reason := reasons.get(name, "the target does not answer"):
                log.info(f"the device does not have the feature {name}: {reason}")
        return frozenset(name for name in asked if reasons.get(name) == "")

    # --- buffers ----------------------------------------------------------------------------------

    def upload(self, data: Data) -> int:
        """Make a buffer of the data's bytes in C order. Contiguous data is not copied, and must not be changed until
        the buffer is freed: it may have to be sent again."""
        content = _bytes_of(data)
        self._check(UploadBuffer(content))
        handle = self._last_handle = self._last_handle + 1
        self._data[handle] = content
        try:
            self._session.through(lambda link: self._buffer(link, handle))
        except BaseException:
            del self._data[handle]
            raise
        return handle

    def download(self, buffer: int) -> memoryview:
        """Return the bytes of a buffer."""
        reply = self._session.through(
            lambda link: self._session.ask(link, DownloadBuffer(self._buffer(link, buffer)), BufferData)
        )
        return memoryview(reply.data)

    def free(self, *buffers: int) -> None:
        """Free buffers."""
        for handle in buffers:
            self._known(self._data, handle, "buffer")
        for handle in dict.fromkeys(buffers):
            del self._data[handle]
        self._session.if_connected(lambda link: self._give_back(link, link.buffers, buffers, FreeBuffers))

    # --- memory of one's own --------------------------------------------------------------------------

    @property
    def shares_memory(self) -> bool:
        """Return whether the target is reached over a local socket, so that memory can be registered."""
        return self._session.link.connection.local

    def register_memory(self, handle: MemHandle) -> int:
        """Give the target a handle's descriptor, for inferences whose inputs or outputs lie there. The handle cannot
        be closed until `unregister_memory` or `close`. Raises UnusableMemory for a handle without a descriptor,
        TargetError also for a target that is not reached over a local socket (not_on_this_connection)."""
        if not self.shares_memory:
            raise TargetError(
                "not_on_this_connection",
                f"target {self.address}: memory is shared over a local socket only, and this connection uses TCP; "
                "start the server with --unix PATH and use --target unix:PATH",
            )
        self._check(RegisterMemory(handle.nbytes, handle.offset))
        number = self._last_handle = self._last_handle + 1
        self._memories[number] = handle, handle.hold(f"registered at target {self.address}")
        try:
            self._session.through(lambda link: self._memory(link, number))
        except BaseException:
            self._memories.pop(number)[1].release()
            raise
        return number

    def unregister_memory(self, *memories: int) -> None:
        """End that; the target keeps nothing of the memory."""
        for number in memories:
            self._known(self._memories, number, "memory")
        for number in dict.fromkeys(memories):
            self._memories.pop(number)[1].release()
        self._session.if_connected(lambda link: self._give_back(link, link.buffers, memories, FreeBuffers))

    # --- kernels ----------------------------------------------------------------------------------

    def compile_kernels(self, requests: Sequence[CompileKernel], compiled: Callable[[int, Compiled], object]) -> None:
        """Build variants, several at a time where the server has the cores; binaries are read after a launch with the
        real sizes. compiled(place, reply) hears of each as it is done; the first that fails ends it. What was heard of
        is not built again when the target is lost."""
        for request in requests:
            self._check(request)
        left = dict(enumerate(requests))

        def hear(place: int, reply: Compiled) -> None:
            del left[place]
            compiled(place, reply)

        self._session.through(lambda link: self._session.ask_all(link, dict(left), Compiled, hear))

    def measure_kernel(self, request: ProfileKernel, on_progress: OnProgress = None) -> Profiled:
        """Build, verify and time at most limits.variants variants, and return trials in their order. A variant that
        fails is told to on_progress at once, and only once, also when the request has to be sent again."""
        self._check(request)
        remaining = Remaining(request)

        def hear(progress: Progress) -> None:
            if not remaining.hear(progress.variant, progress.trial):
                raise self._nonsense(f"progress on variant {progress.variant}, which was not asked for")
            if on_progress is not None:
                on_progress(progress)

        def measure(link: Link) -> Profiled | None:
            left = remaining.ask()
            if left is None:
                return None
            buffers = {name: self._buffer(link, handle) for name, handle in left.buffers.items()}
            left = replace(left, buffers=buffers, reference=self._buffer(link, left.reference))
            return self._session.ask(link, left, Profiled, hear)

        reply = self._session.through(measure)
        try:
            return remaining.whole(reply)
        except ValueError as error:
            raise self._nonsense(str(error)) from None

    def execute_kernel(self, request: ExecuteKernel) -> dict[str, memoryview]:
        """Run launches in order, and return the bytes of each output by name."""
        self._check(request)

        def execute(link: Link) -> Executed:
            buffers = {name: self._buffer(link, handle) for name, handle in request.buffers.items()}
            return self._session.ask(link, replace(request, buffers=buffers), Executed)

        return {name: memoryview(data) for name, data in self._session.through(execute).outputs.items()}

    # --- contexts ---------------------------------------------------------------------------------

    def load_context(self, data: Data, graph: str = "", strict: bool = False) -> ContextLoaded:
        """Load a graph of a context binary, the first where `graph` is empty. The data must not be changed until the
        context is freed."""
        content = _bytes_of(data)
        self._check(UploadBuffer(content))
        handle = self._last_handle = self._last_handle + 1
        self._contexts[handle] = content, graph, strict
        try:
            loaded = self._session.through(lambda link: self._load(link, handle))
        except BaseException:
            del self._contexts[handle]
            raise
        return replace(loaded, context=handle)

    def execute_context(
        self,
        context: int,
        inputs: Mapping[str, Data],
        memory_inputs: Mapping[str, int] = NO_MEMORY,
        memory_outputs: Mapping[str, int] = NO_MEMORY,
        state: TargetState | None = None,
        length: int = 0,
    ) -> ContextExecuted:
        """Run one inference on inputs by name, each as data or as a registered memory that it lies in. Outputs come
        back but for those that are written to a registered memory. state: moves on, behind its first `length` rows."""
        given = {name: _bytes_of(data) for name, data in inputs.items()}

        def execute(link: Link) -> ContextExecuted:
            here, there = (self._memories_of(link, memories) for memories in (memory_inputs, memory_outputs))
            theirs = self._context(link, context)
            request = ExecuteContext(theirs, given, here, there, self._state(link, state), length)
            return self._session.ask(link, request, ContextExecuted)

        return self._session.through(execute)

    def profile_context(
        self, request: ProfileContext, on_progress: OnProgress = None, state: TargetState | None = None
    ) -> memoryview:
        """Return the profile log of inferences on the same inputs; context and memories of the request are this
        client's. state: is reset before each."""

        def profile(link: Link) -> ContextProfiled:
            theirs = replace(
                request,
                context=self._context(link, request.context),
                memory_inputs=self._memories_of(link, request.memory_inputs),
                memory_outputs=self._memories_of(link, request.memory_outputs),
                state=self._state(link, state),
            )
            return self._session.ask(link, theirs, ContextProfiled, on_progress)

        return memoryview(self._session.through(profile).log)

    # --- states -----------------------------------------------------------------------------------

    def open_state(self, context: int, other: TargetState | None = None) -> TargetState:
        """Open memory of the device for what a context, and those like it, remember: nothing yet, or what another state
        does. It is lost with the connection, and with the server's process that has the device."""
        if not self.server.get("states"):
            raise TargetError("no_states", f"target {self.address} keeps no states, because it is older")

        def opened(link: Link) -> TargetState:
            request = OpenState(self._context(link, context), self._state(link, other))
            return TargetState(link, self._session.ask(link, request, StateReady).state)

        return self._session.through(opened)

    def ask_state(self, state: TargetState, request: Callable[[int], object], reply: type[R]) -> R:
        """Return the reply to a request, made of the server's handle of a state."""
        return self._session.through(lambda link: self._session.ask(link, request(self._state(link, state)), reply))

    def free_state(self, state: TargetState) -> None:
        """Free a state, if the connection has not done that."""

        def free(link: Link) -> None:
            if link is state.link:
                self._session.ask(link, FreeStates((state.handle,)), Done)

        self._session.if_connected(free)

    def _state(self, link: Link, state: TargetState | None) -> int:
        """Return the server's handle of a state, 0 for none."""
        if state is not None and state.link is not link:
            raise TargetError("unknown_state", f"target {self.address}: the state is lost with its connection")
        return 0 if state is None else state.handle

    # --- clocks and power -------------------------------------------------------------------------

    def set_perf_profile(self, profile: PerfProfile) -> tuple[str, ...]:
        """Have the target ask for clocks and power whenever its device works for this client. Returns the names of what
        steers the device, none where a profile changes nothing; where it does, it becomes one of the target's
        settings."""
        request = SetPerfProfile(dict(profile.to_dict()))

        def put(link: Link) -> PerfProfileSet:
            return self._session.ask(link, request, PerfProfileSet)

        self._session.begin = put  # a new connection has no profile yet
        controls = self._session.through(put).controls
        self._settings = setting_of(profile, controls)
        return controls

    # --- what is given back -----------------------------------------------------------------------

    def free_contexts(self, *contexts: int) -> None:
        """Free contexts."""
        for handle in contexts:
            self._known(self._contexts, handle, "context")
        for handle in dict.fromkeys(contexts):
            del self._contexts[handle]
        self._session.if_connected(lambda link: self._give_back(link, link.contexts, contexts, FreeContexts))

    # --- what belongs to this client, on the server -----------------------------------------------

    def _buffer(self, link: Link, handle: int) -> int:
        """Return the server's handle of a buffer, put there if it is not."""
        if handle not in link.buffers:
            data = self._known(self._data, handle, "buffer")
            link.buffers[handle] = self._session.ask(link, UploadBuffer(data), BufferReady).buffer
        return link.buffers[handle]

    def _memories_of(self, link: Link, memories: Mapping[str, int]) -> dict[str, int]:
        return {name: self._memory(link, number) for name, number in memories.items()}

    def _memory(self, link: Link, number: int) -> int:
        """Return the server's handle of a memory, registered if it is not."""
        if number not in link.buffers:
            handle, _ = self._known(self._memories, number, "memory")
            request = RegisterMemory(handle.nbytes, handle.offset)
            descriptor = duplicate(handle.fileno())  # which raises here, and not on the way, where it is none
            try:
                link.buffers[number] = self._session.ask(link, request, MemoryReady, descriptor=descriptor).memory
            finally:
                os.close(descriptor)
        return link.buffers[number]

    def _context(self, link: Link, handle: int) -> int:
        """Return the server's handle of a context, loaded if it is not."""
        if handle not in link.contexts:
            self._load(link, handle)
        return link.contexts[handle]

    def _load(self, link: Link, handle: int) -> ContextLoaded:
        content, graph, strict = self._known(self._contexts, handle, "context")
        buffer = self._session.ask(link, UploadBuffer(content), BufferReady).buffer
        try:
            loaded = self._session.ask(link, LoadContext(buffer, graph, strict), ContextLoaded)
        finally:
            with suppress(TargetError):  # of a lost connection; the next request meets it
                self._session.ask(link, FreeBuffers((buffer,)), Done)
        link.contexts[handle] = loaded.context
        return loaded

    def _give_back(self, link: Link, table: dict[int, int], handles: tuple[int, ...], kind: Any) -> None:
        if theirs := tuple(table.pop(handle) for handle in dict.fromkeys(handles) if handle in table):
            self._session.ask(link, kind(theirs), Done)

    def _check(self, request: Any) -> None:
        """Refuse what the server would refuse, before it is sent."""
        try:
            check_limits(request, self.limits)
        except ProtocolError as error:
            raise TargetError(error.name, error.message, error.details) from None

    def _nonsense(self, what: str) -> TargetError:
        return TargetError("bad_message", f"target {self.address}: {what}")

    def _known(self, table: Mapping[int, R], handle: int, what: str) -> R:
        if handle not in table:
            raise TargetError(f"unknown_{what}", f"target {self.address}: there is no {what} {handle}", {what: handle})
        return table[handle]


def _ping(link: Link) -> None:
    link.connection.ping()


def _bytes_of(data: Data) -> Blob:
    """Return the bytes of an array in C order, not copied when they lie so."""
    return np.ascontiguousarray(data).reshape(-1).view(np.uint8).data if isinstance(data, np.ndarray) else data
