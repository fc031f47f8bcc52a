"""Define the limits of the protocol."""

from __future__ import annotations

from dataclasses import dataclass, field

from gputune.core.bounds import LATER, Bytes, Count


@dataclass(frozen=True)
class Limits:
    """Bound what a server accepts; Welcome carries it, and a limit_exceeded error names the field."""

    frame_bytes: Bytes = (1 << 30) + (16 << 20)  # one frame: header and blobs
    header_bytes: Bytes = 512 << 10  # the MsgPack header of one frame
    blobs: Count = 1024  # blobs in one frame
    nesting: Count = 16  # lists and maps within each other in a header
    items: Count = 1 << 14  # elements of one list or map in a header
    text_bytes: Bytes = 4 << 20  # all long texts of one frame together, and all source texts that one request names
    connections: Count = 256  # clients at a time
    authenticate_seconds: Count = 10  # from the connection to the proof
    heartbeat_seconds: Count = 5  # a client that waits or idles sends Ping this often
    silence_seconds: Count = 30  # a side that has sent nothing for so long is taken for gone
    requests: Count = 64  # open requests of one connection
    buffer_bytes: Bytes = 1 << 30  # one buffer
    buffers: Count = 4096  # buffers of one connection
    session_bytes: Bytes = 4 << 30  # all buffers, memories, states and queued requests of one connection
    total_bytes: Bytes = 1 << 40  # those of all connections, and frames under way; at most half of the machine's memory
    source_bytes: Bytes = 1 << 20  # the source text of one launch, UTF-8
    sources: Count = 256  # source texts kept for one connection; the one used longest ago is forgotten first
    variants: Count = 16  # variants in one ProfileKernel
    launches: Count = 1024  # launches in one ExecuteKernel, or before main in one variant
    samples: Count = 256  # samples of one variant
    contexts: Count = 16  # loaded contexts of one connection
    inferences: Count = 100_000  # inferences in one ProfileContext
    timings: Count = 4_000_000  # inferences times launches in one ProfileContext
    compile_seconds: Count = 120  # building one program, its code generation at the first launch included
    launch_seconds: Count = 30  # one launch, or one sample of launches, at most; less once a variant is known to work
    request_seconds: Count = 600  # any other step of a request on the device, such as one inference of a context
    total_seconds: Count = 3600  # one request on the device, all its steps, inferences and new attempts together
    registered: Count = field(default=64, metadata=LATER)  # registered memories of one connection
    total_registered: Count = field(default=128, metadata=LATER)  # those of all connections; each takes a descriptor
    states: Count = field(default=64, metadata=LATER)  # open states of one connection


# for a link to a process of our own; `nesting` only keeps a defect from exhausting the stack
UNLIMITED = Limits(
    frame_bytes=2**48, header_bytes=2**32 - 1, blobs=2**20, nesting=64, items=2**31 - 1, text_bytes=2**31 - 1
)
