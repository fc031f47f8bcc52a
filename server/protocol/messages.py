"""Define the protocol on one page: one dataclass per message, requests in the order of server/worker/handlers.py.

A connection starts with Hello from the client and Hello from the server. If both name the same protocol version, Proof
from the client and Welcome from the server follow. If there is a token, every frame after the hellos carries a MAC
(authentication.py), so that Proof and Welcome show that each side knows it. Before that, nothing but the Hello is
revealed or done.

After that the client sends requests, and the server answers each with the reply named in REPLIES, or with Error. A
request has an id greater than 0 that its reply repeats. Several requests may be open at once, and replies come in any
order. Progress may come any number of times before a reply, with the request's id. Id 0 belongs to the handshake and to
errors that end the connection.

A client that waits or idles sends Ping every limits.heartbeat_seconds. A side that hears nothing from the other for
limits.silence_seconds considers it gone; what a client owned is freed then.

A frame is (framing.py, little endian): magic b"gpt1", u32 header bytes, u32 blob count, u64 bytes of each blob, the
header, the blobs. If a MAC follows them, the magic is b"gptm". The header is MsgPack (codec.py): a map of "id", "type"
(the class name) and the fields below. Fields of type Blob never travel in it: ExtType(1, u32 blob index) replaces them.
A text longer than 1024 characters is a blob in UTF-8, and ExtType(2, u32 blob index) replaces it.

Launches, variants and trials in messages are the records of core/launches.py; ProfileKernel, Profiled and Compiled are
those of core/batches.py, and Limits of limits.py. Every field is checked against its type hint when a message arrives
(decoder.py): no field may be unknown (only Hello may grow), no field without a default may be missing, numbers keep to
their ranges, texts and lists to their lengths. Fields that are LATER than their protocol's number travel only if they
differ from their default, so that an older side understands all that it could ask for.

A descriptor travels with the bytes of a frame (SCM_RIGHTS), on local sockets only, and only with RegisterMemory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Literal

from gputune.core.batches import Compiled, Profiled, ProfileKernel
from gputune.core.bounds import (
    LATER,
    Amounts,
    Blob,
    Bytes,
    Count,
    Facts,
    Handle,
    Handles,
    Key,
    Name,
    Nanoseconds,
    Text,
    Within,
)
from gputune.core.launches import Launch, Trial, Variant
from gputune.server.protocol.limits import Limits

PROTOCOL_VERSION = 7
DEFAULT_PORT = 22598

RequestId = Annotated[int, Within(1, 2**63 - 1)]
Blobs = Annotated[dict[Key, Blob], Within(0, 1024)]  # by the name of a tensor
StateOrNone = Annotated[int, Within(0, 2**63 - 1)]  # its handle, 0 for none

# --- handshake ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Hello:
    """Say which protocol and software this side speaks, and send what makes the keys of a connection its own.

    nonce: 64 hexadecimal digits, fresh for each connection. authentication: whether this side has a token. salt: of a
    server with a token, 32 hexadecimal digits that the token is stretched with.
    """

    protocol: Count
    software: Name
    nonce: Annotated[str, Within(0, 64)] = ""
    authentication: Literal["none", "token"] = "none"
    salt: Annotated[str, Within(0, 32)] = ""


@dataclass(frozen=True)
class Proof:
    """Prove that the client knows the token, if there is one: the MAC of this frame shows it."""


@dataclass(frozen=True)
class Welcome:
    """Tell that the server knows the token too, as the MAC shows, and is ready: its limits, its device's identity,
    itself (software, backend, the settings in its environment that change a driver's code or its time, `features`, the
    names of those that it can test, `no_contexts`, which says why it runs none and what to do, and is empty if it runs
    them, `states`, whether it keeps states, and `instance`, which is another one each time the server is started).
    Older servers name less."""

    limits: Limits
    device: Facts
    server: Facts


# --- requests -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ping:
    """Ask whether the server is there. Answered at once, whatever the device does."""


@dataclass(frozen=True)
class Cancel:
    """End an open request, which is answered with the error cancelled unless its reply is on the way."""

    request: RequestId


@dataclass(frozen=True)
class Status:
    """Ask how the server is."""


@dataclass(frozen=True)
class UploadBuffer:
    """Make a buffer of these bytes. Buffers live until they are freed or the connection ends; kernels only read them,
    and they outlive a worker that crashes."""

    data: Blob


@dataclass(frozen=True)
class RegisterMemory:
    """Make known memory of the client's own, which the device then uses as it lies: bytes `offset` to `offset + nbytes`
    of the descriptor that comes with this frame, a memfd sealed against shrinking or a dma-buf. On local sockets only.
    FreeBuffers gives it up, and so does the end of the connection."""

    nbytes: Annotated[int, Within(1, 2**48)]
    offset: Bytes


@dataclass(frozen=True)
class DownloadBuffer:
    """Ask for the bytes of a buffer."""

    buffer: Handle


@dataclass(frozen=True)
class FreeBuffers:
    """Free buffers, and give registered memories up."""

    buffers: Annotated[tuple[Handle, ...], Within(0, 4096)]


@dataclass(frozen=True)
class CompileKernel:
    """Build a variant and launch it once with its real sizes, so that the binary holds the final code."""

    variant: Variant
    buffers: Amounts  # bytes of every buffer that is not in variant.packed


@dataclass(frozen=True)
class ExecuteKernel:
    """Run launches in order and send back outputs: weight rearrangement and static kernels."""

    launches: Annotated[tuple[Launch, ...], Within(1, 1024)]
    buffers: Handles
    outputs: Amounts  # bytes of each


@dataclass(frozen=True)
class LoadContext:
    """Load a graph of a context binary that was uploaded as a buffer. An empty graph is the first; strict refuses
    another device or driver than the one that the context was made for."""

    buffer: Handle
    graph: Annotated[str, Within(0, 1000)]
    strict: bool


@dataclass(frozen=True)
class ExecuteContext:
    """Run one inference: bytes of every input by name, or the registered memory that it lies in. Outputs are sent back
    but for those that have a registered memory to be written to. state: moves on by this inference, behind its first
    `length` rows; what belongs to it is neither given nor sent back. 0: without."""

    context: Handle
    inputs: Blobs
    memory_inputs: Handles = field(default_factory=dict, metadata=LATER)
    memory_outputs: Handles = field(default_factory=dict, metadata=LATER)
    state: StateOrNone = field(default=0, metadata=LATER)
    length: Count = field(default=0, metadata=LATER)


@dataclass(frozen=True)
class ProfileContext:
    """Run inferences on the same inputs, given as for ExecuteContext, and record them at a level of profiling (see
    runtime/profiling/records.py). compared: how many of these take turns with inferences that are not recorded, so that
    the log says what that costs; title: what the log calls the context; state: is reset before each inference, 0
    without."""

    context: Handle
    inputs: Blobs
    inferences: Annotated[int, Within(1, 2**31 - 1)]
    level: Literal["basic", "detailed", "qhas"]
    compared: Count = 0
    title: Annotated[str, Within(0, 200)] = ""
    memory_inputs: Handles = field(default_factory=dict)
    memory_outputs: Handles = field(default_factory=dict)
    state: StateOrNone = field(default=0, metadata=LATER)


@dataclass(frozen=True)
class SetPerfProfile:
    """Have the device asked for clocks and power by a perf profile whenever it works for this connection; the fields
    are those of PerfProfile.to_dict (runtime/power/profiles/perf_profile.py), and none of them ends it."""

    profile: Facts


@dataclass(frozen=True)
class FreeContexts:
    """Free contexts."""

    contexts: Annotated[tuple[Handle, ...], Within(0, 4096)]


@dataclass(frozen=True)
class OpenState:
    """Open memory of the device for what a context's graph, and those like it, remember between inferences: nothing
    yet, or what another state does (0: none). It never leaves the device but by ReadState, lives until it is freed or
    the connection ends, and is lost with a worker that crashes. Older servers do not know this and the next three: send
    them only where Welcome says `states`."""

    context: Handle
    state: StateOrNone = 0


@dataclass(frozen=True)
class ResetState:
    """Have a state forget everything."""

    state: Handle


@dataclass(frozen=True)
class ReadState:
    """Ask for what is remembered for an input, of so many bytes."""

    state: Handle
    input: Key
    nbytes: Bytes


@dataclass(frozen=True)
class FreeStates:
    """Free states."""

    states: Annotated[tuple[Handle, ...], Within(0, 4096)]


@dataclass(frozen=True)
class ProveFeatures:
    """Ask which of these features the device has. Older servers do not know it: ask only for features that Welcome
    names."""

    features: Annotated[tuple[Name, ...], Within(1, 64)]


# --- replies --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Progress:
    """Tell how far an open request has come. A variant that is done for, one way or another, comes with its trial at
    once, so that a client that is cut off knows of it."""

    phase: Literal["queued", "building", "measuring", "recovering", "running"]
    done: Count  # of `total` variants, inferences, or requests that are served before this one
    total: Count
    message: Text
    variant: Count | None = None  # its number
    trial: Trial | None = None


@dataclass(frozen=True)
class Pong:
    """Tell that the server is there."""


@dataclass(frozen=True)
class StatusReport:
    """Tell how the server is; times since it was started."""

    software: Name
    device: Facts
    uptime_seconds: Annotated[float, Within(0, 1e12)]
    clients: Count
    queued: Count  # requests that wait for the device
    running: Text  # what the device does now, empty when nothing
    worker_restarts: Count
    last_restart: Text  # why the worker was restarted last
    requests: Amounts  # answered so far, by kind
    memory_bytes: Bytes  # buffers, registered memories and queued requests of all clients, and frames under way
    state: Facts  # what can be read of clocks, temperatures and load


@dataclass(frozen=True)
class BufferReady:
    """Name a new buffer by its handle; it means something on this connection only."""

    buffer: Handle


@dataclass(frozen=True)
class MemoryReady:
    """Name a registered memory by its handle; it means something on this connection only."""

    memory: Handle


@dataclass(frozen=True)
class BufferData:
    """Bring the bytes of a buffer."""

    data: Blob


@dataclass(frozen=True)
class Done:
    """Tell that it is done."""


@dataclass(frozen=True)
class Executed:
    """Bring the bytes of the outputs asked for."""

    outputs: Blobs


@dataclass(frozen=True)
class ContextLoaded:
    """Name a loaded context by its handle; warnings say why programs were built from source."""

    context: Handle
    computes: bool
    warnings: Annotated[tuple[Text, ...], Within(0, 10_000)]
    load_ns: Nanoseconds


@dataclass(frozen=True)
class ContextExecuted:
    """Bring the bytes of every output by name that has no registered memory, and the time of the target from the first
    input to the last output. copied_bytes: of registered memories, which the device could not use as they lie."""

    outputs: Blobs
    elapsed_ns: Nanoseconds
    copied_bytes: Bytes = field(default=0, metadata=LATER)


@dataclass(frozen=True)
class StateReady:
    """Name a new state by its handle, and its bytes of device memory."""

    state: Handle
    nbytes: Bytes


@dataclass(frozen=True)
class ContextProfiled:
    """Bring a whole profile log (runtime/profiling/log.py), whose host is the target."""

    log: Blob


@dataclass(frozen=True)
class PerfProfileSet:
    """Name what steers the device's clocks and power; where there is none, the profile changes nothing."""

    controls: Annotated[tuple[Name, ...], Within(0, 64)]


@dataclass(frozen=True)
class FeaturesProven:
    """Tell why the device does not have each feature that was asked for; empty if it has it."""

    reasons: Annotated[dict[Key, Text], Within(0, 64)]


@dataclass(frozen=True)
class Error:
    """Tell that the request failed; `name` is one of errors.ERROR_NAMES."""

    name: Name
    message: Text
    details: Facts = field(default_factory=dict)


_REQUESTS: Mapping[type, tuple[str, type]] = {
    Ping: ("ping", Pong),
    Cancel: ("cancel", Done),
    Status: ("status", StatusReport),
    UploadBuffer: ("upload", BufferReady),
    RegisterMemory: ("register_memory", MemoryReady),
    DownloadBuffer: ("download", BufferData),
    FreeBuffers: ("free", Done),
    CompileKernel: ("compile", Compiled),
    ProfileKernel: ("profile", Profiled),
    ExecuteKernel: ("execute", Executed),
    LoadContext: ("load_context", ContextLoaded),
    ExecuteContext: ("execute_context", ContextExecuted),
    ProfileContext: ("profile_context", ContextProfiled),
    FreeContexts: ("free_contexts", Done),
    SetPerfProfile: ("set_perf_profile", PerfProfileSet),
    OpenState: ("open_state", StateReady),
    ResetState: ("reset_state", Done),
    ReadState: ("read_state", BufferData),
    FreeStates: ("free_states", Done),
    ProveFeatures: ("prove_features", FeaturesProven),
}
"""What each request is called where requests are counted, and what answers it."""
REPLIES: Mapping[type, type] = MappingProxyType({kind: reply for kind, (_, reply) in _REQUESTS.items()})
KINDS: Mapping[type, str] = MappingProxyType({kind: name for kind, (name, _) in _REQUESTS.items()})
FROM_CLIENT: tuple[type, ...] = (Hello, Proof, *REPLIES)
FROM_SERVER: tuple[type, ...] = (Hello, Welcome, Progress, *dict.fromkeys(REPLIES.values()), Error)


def states_of(request: object) -> tuple[Handle, ...]:
    """Return the handles of the states that a request is about, but for those that it frees."""
    match request:
        case ResetState() | ReadState():
            return (request.state,)
        case OpenState() | ExecuteContext() | ProfileContext():
            return (request.state,) if request.state else ()
    return ()
