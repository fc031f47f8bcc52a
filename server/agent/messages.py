"""Define what the target server and an agent say to each other: one dataclass for each message.

An agent (runtime/native/agent/) is the device's part of the target server in C. It knows no kernel, no cache and no
rule of measuring: it does what a backend does (runtime/backends/base.py), and the target server decides.

Frames, MACs and the handshake are those of the target protocol (server/protocol/): Hello from the target server, Hello
from the agent, then Proof. After that the target server sends requests, the first of which is Begin, and the agent
answers them in their order, each with the reply named in REPLIES or with Failed. So requests may be sent without
waiting for replies, and the target server chooses the handles of what they make: numbers from 1 that are free, the
smaller the better.
Started may come before a reply, with the request's id. runtime/native/agent/messages.c is written from this file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Literal

from gputune.core.bounds import Amount, Blob, Bytes, Count, CText, Nanoseconds, Size, Within, in_files
from gputune.core.identity import DeviceIdentity
from gputune.core.quirks import DRIVERS
from gputune.runtime.devices.settings import OF_THE_LOADER
from gputune.runtime.profiling.records import Form
from gputune.server.agent.message_parts import (
    Arguments,
    Batch,
    Blobs,
    Expected,
    Found,
    Guarded,
    Handle,
    Handles,
    Seen,
    Spans,
    StateOrNone,
    Texts,
)

AGENT_VERSION = 6
"""The protocol's number in both hellos."""

SESSION_DIGITS = 32

GIVEN_VARIABLES = tuple(sorted({name for driver in DRIVERS for name in driver.unbound}))
"""The environment variables that a target server gives an agent's process."""
TOLD_VARIABLES = tuple(
    sorted(
        {name for names in (OF_THE_LOADER, *(driver.deciding for driver in DRIVERS)) for name in names}
        | {driver.compiled.finds for driver in DRIVERS if driver.compiled is not None}
    )
)
"""Patterns of the names of those that an agent tells: they change code or time, or say whether compiled code is
found."""


# --- requests -------------------------------------------------------------------------------------


@in_files(closed=True)
@dataclass(frozen=True)
class Begin:
    """Name the session of this connection by random digits, and ask how the process of an earlier one ended ("": of
    none). An agent that serves as many connections as it can answers by Failed and ends."""

    session: CText
    earlier: CText


@in_files(closed=True)
@dataclass(frozen=True)
class ListDevices:
    """Name the devices of all platforms."""


@in_files(closed=True)
@dataclass(frozen=True)
class Open:
    """Open the device at a place of the list; `profiling`: launches have the device's clock. variables: of
    GIVEN_VARIABLES, that its driver is to find beside the agent's, each as NAME=VALUE, if this connection has not used
    a driver before."""

    place: Count
    profiling: bool
    variables: Texts


@in_files(closed=True)
@dataclass(frozen=True)
class Allocate:
    """Make a buffer of so many bytes with undefined contents."""

    handle: Handle
    nbytes: Bytes


@in_files(closed=True)
@dataclass(frozen=True)
class Free:
    """Forget handles of any kind; those that are not known are passed over."""

    handles: Handles


@in_files(closed=True)
@dataclass(frozen=True)
class Write:
    """Copy data to spans of buffers, as many bytes as each has."""

    spans: Spans
    data: Blobs


@in_files(closed=True)
@dataclass(frozen=True)
class Fill:
    """Fill spans of buffers with the repeated byte of each."""

    spans: Spans
    patterns: Annotated[tuple[Annotated[int, Within(0, 255)], ...], Within(0, 1024)]


@in_files(closed=True)
@dataclass(frozen=True)
class Copy:
    """Copy spans of buffers to as many bytes of others."""

    spans: Spans
    to: Spans


@in_files(closed=True)
@dataclass(frozen=True)
class Read:
    """Return the contents of spans of buffers."""

    spans: Spans


@in_files(closed=True)
@dataclass(frozen=True)
class ReadFiles:
    """Return what the device's system says in files below /sys, but not those for debugging, and in some of /proc; of a
    folder the names in it, one a line. What cannot be read says nothing, and nothing is begun after so many
    nanoseconds."""

    paths: Annotated[tuple[CText, ...], Within(0, 1024)]
    within_ns: Nanoseconds


@in_files(closed=True)
@dataclass(frozen=True)
class Keep:
    """Keep data beside the device, so that outputs are compared there."""

    handle: Handle
    data: Blob


@in_files(closed=True)
@dataclass(frozen=True)
class Check:
    """Say what lies between guards and whether they are whole. The first zones are compared with what is expected."""

    zones: Annotated[tuple[Guarded, ...], Within(0, 1024)]
    expected: Annotated[tuple[Expected, ...], Within(0, 1024)]


@in_files(closed=True)
@dataclass(frozen=True)
class Build:
    """Build a program: of OpenCL C, or of the binary where that is not empty."""

    handle: Handle
    source: CText
    options: CText
    binary: Blob


@in_files(closed=True)
@dataclass(frozen=True)
class Harvest:
    """Return the binary of a program."""

    program: Handle


@in_files(closed=True)
@dataclass(frozen=True)
class Bind:
    """Set all arguments of a kernel, and its sizes."""

    handle: Handle
    program: Handle
    entry: CText
    global_size: Annotated[tuple[Size, ...], Within(1, 3)]
    local_size: Annotated[tuple[Size, ...], Within(1, 3)]
    arguments: Arguments


@in_files(closed=True)
@dataclass(frozen=True)
class FirstLaunch:
    """Launch a bound kernel once. Started comes when it was enqueued or, if `waits`, when it runs: for drivers that
    compile before that and say so (core/quirks.py)."""

    bound: Handle
    waits: bool


@in_files(closed=True)
@dataclass(frozen=True)
class TimePass:
    """Run batches in their order, and wait for the end of each, until those that are counted add up to `enough_ns` on
    the device's clock, or that says nothing of one. Without batches, wait for all that was asked before."""

    batches: Annotated[tuple[Batch, ...], Within(0, 1024)]
    enough_ns: Nanoseconds


@in_files(closed=True)
@dataclass(frozen=True)
class LoadContext:
    """Load a graph of a context binary as an application does, on the open device. strict: refuse a context that was
    made for another device or driver; features: those that the device has proved."""

    handle: Handle
    data: Blob
    graph: CText
    strict: bool
    features: Texts


@in_files(closed=True)
@dataclass(frozen=True)
class RunContext:
    """Run one inference on inputs in the graph's order. recorded: in the profile, if one is open; persistent: by
    persistent kernels, if the context has them. state: moves on by this, behind its first `length` rows, and what
    belongs to it is neither among inputs nor among outputs. 0: none."""

    context: Handle
    inputs: Blobs
    recorded: bool
    persistent: bool
    state: StateOrNone = 0
    length: Count = 0


@in_files(closed=True)
@dataclass(frozen=True)
class OpenState:
    """Open a state for a context: of zeros, or as another one (0: none)."""

    handle: Handle
    context: Handle
    other: StateOrNone = 0


@in_files(closed=True)
@dataclass(frozen=True)
class ResetState:
    """Have a state forget everything."""

    state: Handle


@in_files(closed=True)
@dataclass(frozen=True)
class ReadState:
    """Return what is remembered for an input, of so many bytes."""

    state: Handle
    input: CText
    nbytes: Bytes


@in_files(closed=True)
@dataclass(frozen=True)
class BeginProfile:
    """Open a profile log for inferences of a context."""

    context: Handle
    level: Literal["basic", "detailed"]


@in_files(closed=True)
@dataclass(frozen=True)
class EndProfile:
    """Close the profile log, and return its bytes."""


@in_files(closed=True)
@dataclass(frozen=True)
class SetVotes:
    """Vote by a perf profile for the clocks of the device at a place of the list, instead of what this connection voted
    by before. settings: PerfProfile.places; none ends that."""

    place: Count
    settings: tuple[Count, ...]


@in_files(closed=True)
@dataclass(frozen=True)
class Vote:
    """Vote as the preset does before an inference, or after it. With the connection all votes end."""

    begins: bool


# --- replies --------------------------------------------------------------------------------------


@in_files(closed=True)
@dataclass(frozen=True)
class Greeting:
    """Tell of a place. ended: how the process of the earlier session ended, if that was not in order."""

    ended: CText


@in_files(closed=True)
@dataclass(frozen=True)
class Devices:
    """Name the devices, in the order of their places."""

    devices: Annotated[tuple[DeviceIdentity, ...], Within(0, 256)]


@in_files(closed=True)
@dataclass(frozen=True)
class Opened:
    """Tell that the device is open. cache_bytes: of its last cache, as the driver says; variables: of the agent's
    environment, those that TOLD_VARIABLES name, each as NAME=VALUE."""

    cache_bytes: Amount
    variables: Texts


@in_files(closed=True)
@dataclass(frozen=True)
class Done:
    """Tell that it is done."""


@in_files(closed=True)
@dataclass(frozen=True)
class Contents:
    """Bring the bytes that were asked for, in their order."""

    data: Blobs


@in_files(closed=True)
@dataclass(frozen=True)
class Built:
    """Tell that a program is built. build_ns: what the driver's compiler took."""

    build_ns: Nanoseconds


@in_files(closed=True)
@dataclass(frozen=True)
class Checked:
    """Say what was seen of each zone, and found in each that was compared."""

    seen: Annotated[tuple[Seen, ...], Within(0, 1024)]
    found: Annotated[tuple[Found, ...], Within(0, 1024)]


@in_files(closed=True)
@dataclass(frozen=True)
class Started:
    """Tell that the launch of the request runs."""


@in_files(closed=True)
@dataclass(frozen=True)
class Timed:
    """Bring the times of batches. wall_ns: a number of 8 bytes for each batch that was run, what it took by the agent's
    clock; times: for each of its kernels four, when it was queued, submitted, started and ended by the device's clock,
    0 without that."""

    wall_ns: Blob
    times: Blob


@in_files(closed=True)
@dataclass(frozen=True)
class Loaded:
    """Tell that a context is ready to run. warnings: causes of unexpected cost; load_ns: the time that loading took."""

    warnings: Texts
    load_ns: Nanoseconds


@in_files(closed=True)
@dataclass(frozen=True)
class Ran:
    """Bring the outputs of an inference in the graph's order. elapsed_ns: by the agent's clock, from before the first
    input is written until the last output is read; form: how it ran, as profile logs say it."""

    outputs: Blobs
    elapsed_ns: Nanoseconds
    form: Form


@in_files(closed=True)
@dataclass(frozen=True)
class Steered:
    """Name the files by which votes steer the device; nothing if none does."""

    controls: Texts


@in_files(closed=True)
@dataclass(frozen=True)
class Failed:
    """Tell of a failure. status: as a trial is recorded with it, or the name of a ContextError; message: why."""

    status: CText
    message: CText


REPLIES: Mapping[type, type] = MappingProxyType(
    {
        Begin: Greeting,
        ListDevices: Devices,
        Open: Opened,
        Allocate: Done,
        Free: Done,
        Write: Done,
        Fill: Done,
        Copy: Done,
        Read: Contents,
        ReadFiles: Contents,
        Keep: Done,
        Check: Checked,
        Build: Built,
        Harvest: Contents,
        Bind: Done,
        FirstLaunch: Timed,
        TimePass: Timed,
        LoadContext: Loaded,
        RunContext: Ran,
        OpenState: Done,
        ResetState: Done,
        ReadState: Contents,
        BeginProfile: Done,
        EndProfile: Contents,
        SetVotes: Steered,
        Vote: Done,
    }
)
"""By request, what answers it."""

UNASKED = (Started, Failed)
"""Messages of an agent that are no reply to a request in order."""
