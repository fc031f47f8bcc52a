"""The protocol on one page: one dataclass per message, requests in the order of server/handlers.py.

A connection starts with Hello from the client, Hello from the server and, when both name the same protocol
version, Welcome. After that the client sends requests and the server answers each one with the reply named
in REPLIES, or with Error. A request has an id greater than 0 that its reply repeats. Id 0 belongs to the
handshake and to errors that end the connection.

A frame is (framing.py, little endian): magic b"gpt1", u32 header bytes, u32 blob count, u64 bytes of each
blob, the header, the blobs. The header is MsgPack (codec.py): a map of "id", "type" (the class name) and the
fields below. Fields of type Blob never travel in it; it holds ExtType(1, u32 blob index) in their place.

Every field is checked against its type hint when a message arrives (decoder.py): no field may be missing or
unknown (only Hello may grow), numbers keep to their ranges, texts and lists to their lengths.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Literal, TypeAlias

from gputune.server.protocol.decoder import Within

PROTOCOL_VERSION = 1
DEFAULT_PORT = 22598

Blob: TypeAlias = bytes | bytearray | memoryview
Bytes = Annotated[int, Within(0, 2**48)]
Size = Annotated[int, Within(1, 2**32)]
Sizes = Annotated[tuple[Size, ...], Within(1, 3)]
Int32 = Annotated[int, Within(-(2**31), 2**31 - 1)]
Count = Annotated[int, Within(0, 2**31 - 1)]
Nanoseconds = Annotated[int, Within(0, 10**18)]
Sample = Annotated[float, Within(0, 1e18)]  # nanoseconds; the mean of the launches in one sample
Handle = Annotated[int, Within(1, 2**62)]
Name = Annotated[str, Within(1, 200)]
Text = Annotated[str, Within(0, 65536)]
Sha256 = Annotated[str, Within(64, 64)]
Status = Literal["ok", "constraints", "compile", "device_limits", "runtime", "correctness", "timeout", "crash"]

# --- parts of messages ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Limits:
    """What a server accepts; Welcome carries it, and a limit_exceeded error names the field."""

    frame_bytes: Bytes = (1 << 30) + (16 << 20)  # one frame: header and blobs
    header_bytes: Bytes = 8 << 20  # the MsgPack header of one frame
    blobs: Count = 1024  # blobs in one frame
    buffer_bytes: Bytes = 1 << 30  # one device buffer
    buffers: Count = 4096  # device buffers of one connection
    source_bytes: Bytes = 1 << 20  # the source text of one launch, UTF-8
    sources: Count = 256  # source texts kept for one connection; the one used longest ago is forgotten first
    variants: Count = 16  # variants in one ProfileKernel
    launches: Count = 1024  # launches in one ExecuteKernel, or before main in one variant
    samples: Count = 1000  # samples of one variant
    request_seconds: Count = 600  # a request that takes longer ends the worker: worker_timeout


@dataclass(frozen=True)
class Launch:
    """One kernel launch. An empty source means: the text with this SHA-256 that was sent before."""

    source: str
    source_sha256: Sha256
    entry: Name
    options: Text
    global_size: Sizes
    local_size: Sizes
    arguments: Annotated[tuple[Name | Int32, ...], Within(0, 256)]  # a buffer's name, or a 32-bit scalar


@dataclass(frozen=True)
class Variant:
    """One configuration of a kernel: `prepare` fills the packed buffers once, then `main` is what counts."""

    configuration: dict[str, int]
    prepare: tuple[Launch, ...]
    main: Launch
    packed: dict[str, Bytes]  # buffer name -> bytes


@dataclass(frozen=True)
class Work:
    """What a kernel has to do at least, for rates in reports."""

    flops: Bytes
    bytes: Bytes


@dataclass(frozen=True)
class Trial:
    """What became of one variant: samples of the device's clock and of the host's, or why there are none."""

    status: Status
    message: Text
    samples_ns: tuple[Sample, ...]
    wall_ns: tuple[Sample, ...]
    compile_ns: Nanoseconds
    first_launch_ns: Nanoseconds
    measured: dict[str, object]  # how the samples were taken


# --- handshake ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Hello:
    """Both sides say which protocol and which software they speak, and nothing else."""

    protocol: Count
    software: Name


@dataclass(frozen=True)
class Welcome:
    """The server is ready: its limits, its device's identity, itself (software, backend, and the
    settings in its environment that change a driver's code or its time)."""

    limits: Limits
    device: dict[str, object]
    server: dict[str, object]


# --- requests -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class UploadBuffer:
    """Makes a device buffer of these bytes. Buffers live until they are freed or the connection ends."""

    data: Blob


@dataclass(frozen=True)
class DownloadBuffer:
    """Asks for the bytes of a buffer."""

    buffer: Handle


@dataclass(frozen=True)
class FreeBuffers:
    """Frees buffers."""

    buffers: tuple[Handle, ...]


@dataclass(frozen=True)
class CompileKernel:
    """Builds a variant and launches it once with its real sizes, so that the binary holds the final code."""

    variant: Variant
    buffers: dict[str, Bytes]  # name -> bytes of every buffer that is not in variant.packed


@dataclass(frozen=True)
class ProfileKernel:
    """Builds, verifies and races variants of one task; all compute "output" from the same input buffers."""

    task: Name
    buffers: dict[str, Handle]
    output_bytes: Bytes
    reference: Handle  # the right output: |got - want| <= absolute + relative * max|want|
    relative: Annotated[float, Within(0, 1)]
    absolute: Annotated[float, Within(0, 1e30)]
    variants: Annotated[tuple[Variant, ...], Within(1, 65536)]
    work: Work
    samples: Annotated[int, Within(1, 2**31 - 1)]
    sample_ns: Nanoseconds  # least duration of a sample; short kernels are repeated within one
    warm_up_ns: Nanoseconds


@dataclass(frozen=True)
class ExecuteKernel:
    """Runs launches in order and sends back outputs: weight rearrangement and static kernels."""

    launches: Annotated[tuple[Launch, ...], Within(1, 65536)]
    buffers: dict[str, Handle]
    outputs: dict[str, Bytes]


# --- replies --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BufferReady:
    """The handle of a new buffer; it means something on this connection only."""

    buffer: Handle


@dataclass(frozen=True)
class BufferData:
    """The bytes of a buffer."""

    data: Blob


@dataclass(frozen=True)
class Done:
    """It is done."""


@dataclass(frozen=True)
class Compiled:
    """The program binary of the variant's main launch."""

    binary: Blob
    compile_ns: Nanoseconds
    first_launch_ns: Nanoseconds


@dataclass(frozen=True)
class Profiled:
    """Every trial, in the order of the variants, and the binary of the most performant."""

    trials: tuple[Trial, ...]
    best: Count | None
    binary: Blob


@dataclass(frozen=True)
class Executed:
    """The bytes of the outputs asked for."""

    outputs: dict[str, Blob]


@dataclass(frozen=True)
class Error:
    """The request failed; `name` is one of errors.ERROR_NAMES."""

    name: Name
    message: Text
    details: dict[str, object] = field(default_factory=dict)


Reply: TypeAlias = BufferReady | BufferData | Done | Compiled | Profiled | Executed | Error

REPLIES: Mapping[type, type] = MappingProxyType(
    {
        UploadBuffer: BufferReady,
        DownloadBuffer: BufferData,
        FreeBuffers: Done,
        CompileKernel: Compiled,
        ProfileKernel: Profiled,
        ExecuteKernel: Executed,
    }
)
# what requests are called where they are counted
KINDS: Mapping[type, str] = MappingProxyType(
    {
        UploadBuffer: "upload",
        DownloadBuffer: "download",
        FreeBuffers: "free",
        CompileKernel: "compile",
        ProfileKernel: "profile",
        ExecuteKernel: "execute",
    }
)
FROM_CLIENT: tuple[type, ...] = (Hello, *REPLIES)
FROM_SERVER: tuple[type, ...] = (Hello, Welcome, *REPLIES.values(), Error)
