"""Connect daemon and worker process: the protocol's frames and messages over one file descriptor.

The daemon sends one request at a time and waits for its reply; Progress may come before it. The worker knows no
clients. The daemon checks who owns what, and puts buffers and contexts on the device before a request names them, so
that a restarted worker needs nothing but the next request. Source texts also go ahead of a request, each once: launches
on this link have none. The messages below exist on this link only.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from gputune.core.batches import ProfileKernel
from gputune.core.bounds import Blob, Handle
from gputune.core.launches import Launch, Variant
from gputune.runtime.memory.passing import DescriptorSocket, WithDescriptor
from gputune.server.agent.agent_connection import LOST
from gputune.server.agent.opening import AWAITED_SECONDS
from gputune.server.protocol import codec, framing
from gputune.server.protocol.limits import UNLIMITED
from gputune.server.protocol.messages import (
    FROM_SERVER,
    CompileKernel,
    Done,
    ExecuteContext,
    ExecuteKernel,
    LoadContext,
    ProfileContext,
    ProveFeatures,
    ReadState,
    ResetState,
    StateOrNone,
)

DEVICE_LOST = 75
"""Exit code of a worker on whose device nothing works any more; another one opens it anew."""
AGENT_LOST, AGENT_AWAITED_SECONDS = LOST, AWAITED_SECONDS
"""Exit code of a worker whose agent has gone, and how long the next one waits for that."""

_BUFFERS_AT_ONCE = 512  # below every system's limit for one sendmsg


@dataclass(frozen=True)
class WorkerReady:
    """Tell that the worker has opened its device (an Error comes instead when it could not). finds_compiled: it finds
    what others have compiled into the folder that it was given."""

    device: dict[str, object]
    backend: str
    settings: dict[str, str]
    finds_compiled: bool = False


@dataclass(frozen=True)
class PutBuffer:
    """Make a device buffer that later requests know by this handle. Answered by Done or Error."""

    buffer: Handle
    data: Blob


@dataclass(frozen=True)
class PutMemory:
    """Make a client's memory known by this handle: bytes `offset` to `offset + nbytes` of the descriptor that comes
    with this frame (WithDescriptor). Answered by Done or Error; Forget closes it."""

    memory: Handle
    nbytes: int
    offset: int


@dataclass(frozen=True)
class PutContext:
    """Load a context that later requests know by this handle. Answered as `request` is, but without a new handle:
    ContextLoaded repeats this one. request.buffer is ignored; the bytes are here."""

    context: Handle
    request: LoadContext
    data: Blob

    @property
    def handle(self) -> Handle:
        """Return what it makes known."""
        return self.context


@dataclass(frozen=True)
class PutState:
    """Open a state that later requests know by this handle: of a context, of zeros or as another one (0: none).
    Answered as OpenState is, but without a new handle: StateReady repeats this one."""

    state: Handle
    context: Handle
    other: StateOrNone

    @property
    def handle(self) -> Handle:
        """Return what it makes known."""
        return self.state


@dataclass(frozen=True)
class Forget:
    """Free buffers, memories among them, and contexts, states among them; handles that are not known are passed over.
    Answered by Done."""

    buffers: tuple[Handle, ...]
    contexts: tuple[Handle, ...]


@dataclass(frozen=True)
class BuildPrograms:
    """Build the programs of launches without launching them; sources by hash. Answered by ProgramsBuilt."""

    launches: tuple[Launch, ...]
    sources: dict[str, str]


@dataclass(frozen=True)
class ProgramsBuilt:
    """Bring the binaries of programs by program_key; those that could not be built are missing."""

    binaries: dict[str, Blob]


@dataclass(frozen=True)
class CompileAhead:
    """Build the main launches of variants and launch each once on zeros, so that a worker with the same folder finds
    the code. buffers: bytes of those that are not in a variant's packed; sources by hash. Answered by CompiledAhead."""

    variants: tuple[Variant, ...]
    buffers: dict[str, int]
    sources: dict[str, str]


@dataclass(frozen=True)
class CompiledAhead:
    """Tell what each variant took to build and to be launched first; 0 for those that failed."""

    compile_ns: tuple[int, ...]
    first_launch_ns: tuple[int, ...]


@dataclass(frozen=True)
class PutBeside:
    """Bring what goes with the next request, and with none after it. Answered by Done.

    sources: the texts that its launches name, by hash. programs: binaries from another worker; a program with one of
    these keys is loaded instead of built. ahead: the first of its variants that another process compiles meanwhile,
    until the page says that this is over; None without that.
    """

    sources: dict[str, str]
    programs: dict[str, Blob] = field(default_factory=dict)
    ahead: int | None = None


REQUESTS = (
    CompileKernel,
    ProfileKernel,
    ExecuteKernel,
    ExecuteContext,
    ProfileContext,
    ResetState,
    ReadState,
    ProveFeatures,
)
# the worker is our own process, so the link has no limits of its own
LINK_LIMITS = UNLIMITED
TO_WORKER = codec.registry(
    (
        *REQUESTS,
        PutBuffer,
        PutMemory,
        PutContext,
        PutState,
        Forget,
        BuildPrograms,
        CompileAhead,
        PutBeside,
    )
)
FROM_WORKER = codec.registry(dict.fromkeys((WorkerReady, *FROM_SERVER, ProgramsBuilt, CompiledAhead, Done)))


def program_key(launch: Launch) -> str:
    """Return what two launches share when one program serves both."""
    return f"{launch.source_sha256} {launch.options}"


class WorkerLink:
    """Speak at the worker's end: blocking, over an inherited file descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._socket = DescriptorSocket.of_descriptor(descriptor)
        self._reader = framing.FrameReader(LINK_LIMITS)
        self._arrived: deque[Any] = deque()

    def receive(self) -> Any | None:
        """Return the next request, PutMemory as WithDescriptor; None when the daemon is gone."""
        while not self._arrived:
            count = self._socket.recv_into(self._reader.space())
            if not count:
                return None
            for frame in self._reader.filled(count):
                self._arrived.append(codec.unpack(frame.header, frame.blobs, TO_WORKER)[1])
        request = self._arrived.popleft()
        if isinstance(request, PutMemory):  # none is here where the process may not have more descriptors
            arrived, self._socket.arrived = self._socket.arrived, []
            return WithDescriptor(request, arrived[0] if arrived else None)
        return request

    def send(self, message: object) -> None:
        """Send a reply or Progress. Raises OSError when the daemon is gone, LocalProtocolError (and sends nothing)
        for a message that does not travel."""
        buffers = framing.encode(codec.pack(message, 0))
        while buffers:
            buffers = framing.unsent(buffers, self._socket.sendmsg(buffers[:_BUFFERS_AT_ONCE]))
