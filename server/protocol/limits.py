"""Which limit a request breaks; the client asks before it sends, the server before it works."""

from __future__ import annotations

from collections.abc import Iterator

from gputune.server.protocol.errors import ProtocolError
from gputune.server.protocol.launches import launches_of
from gputune.server.protocol.messages import (
    CompileKernel,
    ExecuteKernel,
    Limits,
    ProfileKernel,
    UploadBuffer,
    Variant,
)


def check_limits(request: object, limits: Limits) -> None:
    """Raises ProtocolError (limit_exceeded) naming the limit, what is allowed and what was asked for."""
    for limit, got in _amounts(request):
        allowed = getattr(limits, limit)
        if got > allowed:
            raise ProtocolError(
                "limit_exceeded",
                f"{type(request).__name__} asks for {got}, the server's limit {limit} is {allowed}",
                {"limit": limit, "allowed": allowed, "got": got},
            )


def _amounts(request: object) -> Iterator[tuple[str, int]]:
    for launch in launches_of(request):
        yield "source_bytes", len(launch.source.encode())
    variants: tuple[Variant, ...] = ()
    match request:
        case UploadBuffer():
            yield "buffer_bytes", memoryview(request.data).nbytes
        case CompileKernel():
            variants = (request.variant,)
            for size in request.buffers.values():
                yield "buffer_bytes", size
        case ProfileKernel():
            variants = request.variants
            yield "variants", len(variants)
            yield "samples", request.samples
            yield "buffer_bytes", request.output_bytes
        case ExecuteKernel():
            yield "launches", len(request.launches)
            yield "buffer_bytes", sum(request.outputs.values())  # they come back in one frame
    for variant in variants:
        yield "launches", len(variant.prepare)
        for size in variant.packed.values():
            yield "buffer_bytes", size
