"""Find the limit that a request breaks; the client asks before it sends, the server before it works."""

from __future__ import annotations

from collections.abc import Iterator

from gputune.core.batches import ProfileKernel
from gputune.core.launches import Variant
from gputune.server.protocol.errors import ProtocolError, limit_exceeded
from gputune.server.protocol.launches import launches_of
from gputune.server.protocol.limits import Limits
from gputune.server.protocol.messages import (
    CompileKernel,
    ExecuteContext,
    ExecuteKernel,
    FreeBuffers,
    FreeContexts,
    FreeStates,
    ProfileContext,
    ReadState,
    RegisterMemory,
    UploadBuffer,
)


def check_limits(request: object, limits: Limits) -> None:
    """Raise ProtocolError (limit_exceeded) where a request asks for too much. It names the limit, what is allowed and
    what was asked for."""
    for limit, got in _amounts(request):
        allowed = getattr(limits, limit)
        if got > allowed:
            raise limit_exceeded(ProtocolError, f"{type(request).__name__} asks for", limit, allowed, got)


def _amounts(request: object) -> Iterator[tuple[str, int]]:
    for launch in launches_of(request):
        yield "source_bytes", len(launch.source.encode())
    variants: tuple[Variant, ...] = ()
    match request:
        case UploadBuffer():
            yield "buffer_bytes", memoryview(request.data).nbytes
        case RegisterMemory():
            yield "buffer_bytes", request.nbytes
        case FreeBuffers():
            yield "buffers", len(request.buffers)
        case CompileKernel():
            variants = (request.variant,)
            for size in request.buffers.values():
                yield "buffer_bytes", size
        case ProfileKernel():
            variants = request.variants if request.baseline is None else (*request.variants, request.baseline)
            yield "variants", len(request.variants)
            yield "samples", request.samples
            for nanoseconds in (request.warm_up_ns, request.sample_ns):
                yield "launch_seconds", -(-nanoseconds // 10**9)
            yield "buffer_bytes", request.output_bytes
        case ExecuteKernel():
            yield "launches", len(request.launches)
            yield "buffer_bytes", sum(request.outputs.values())  # they come back in one frame
        case ExecuteContext() | ProfileContext():
            yield "buffer_bytes", sum(memoryview(data).nbytes for data in request.inputs.values())
            if isinstance(request, ProfileContext):
                yield "inferences", request.inferences
        case FreeContexts():
            yield "contexts", len(request.contexts)
        case ReadState():
            yield "buffer_bytes", request.nbytes
        case FreeStates():
            yield "states", len(request.states)
    for variant in variants:
        yield "launches", len(variant.prepare)
        for size in (*variant.packed.values(), *variant.scratch.values()):
            yield "buffer_bytes", size
