"""What the worker does for each request; the same names in the same order as in protocol/messages.py.

Handlers translate: messages in, gputune.runtime calls, messages out. Buffers and source texts belong to the
client connection that sent them.
"""

from __future__ import annotations

import itertools
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gputune.runtime import profiler, variant
from gputune.runtime.backends import Backend, Buffer
from gputune.runtime.errors import BuildFailed, DeviceError
from gputune.runtime.measure import Protocol
from gputune.server.protocol import messages
from gputune.server.protocol.errors import ProtocolError
from gputune.server.protocol.launches import source_sha256, with_launches
from gputune.server.worker_link import CloseConnection

log = logging.getLogger("gputune.server.worker")

MESSAGE_CHARACTERS = 4000


@dataclass
class Session:
    """What one client connection owns: device buffers by handle, source texts by hash (oldest use first)."""

    buffers: dict[int, Buffer] = field(default_factory=dict)
    sources: OrderedDict[str, str] = field(default_factory=OrderedDict)


class Handlers:
    """Answers requests on one open device. Buffer handles count up from `first_handle`."""

    def __init__(self, backend: Backend, limits: messages.Limits, first_handle: int = 1) -> None:
        self._backend = backend
        self._limits = limits
        self._handles = itertools.count(first_handle)
        self._sessions: dict[int, Session] = {}
        self._by_message: Mapping[type, Callable[[Session, Any], messages.Reply]] = {
            messages.UploadBuffer: self.upload_buffer,
            messages.DownloadBuffer: self.download_buffer,
            messages.FreeBuffers: self.free_buffers,
            messages.CompileKernel: self.compile_kernel,
            messages.ProfileKernel: self.profile_kernel,
            messages.ExecuteKernel: self.execute_kernel,
        }

    def handle(self, connection: int, request: Any) -> messages.Reply:
        """The reply to a request of a client connection; every failure becomes an Error with a name."""
        if isinstance(request, CloseConnection):
            self._sessions.pop(connection, None)
            return messages.Done()
        session = self._sessions.setdefault(connection, Session())
        try:
            return self._by_message[type(request)](session, self._with_sources(session, request))
        except ProtocolError as error:
            return messages.Error(error.name, error.message, error.details)
        except DeviceError as error:
            name = "build_failed" if isinstance(error, BuildFailed) else "launch_failed"
            return messages.Error(name, str(error)[:MESSAGE_CHARACTERS], {"status": error.status})
        except Exception as error:
            log.exception("a defect while handling %s", type(request).__name__)
            return messages.Error("internal_error", f"{type(error).__name__}: {error}"[:MESSAGE_CHARACTERS])

    # --- requests -------------------------------------------------------------------------------------

    def upload_buffer(self, session: Session, request: messages.UploadBuffer) -> messages.BufferReady:
        if len(session.buffers) >= self._limits.buffers:
            allowed = self._limits.buffers
            raise ProtocolError(
                "limit_exceeded",
                f"this connection has {allowed} buffers, the server's limit buffers; free some first",
                {"limit": "buffers", "allowed": allowed, "got": allowed + 1},
            )
        handle = next(self._handles)
        session.buffers[handle] = self._backend.upload(request.data)
        return messages.BufferReady(handle)

    def download_buffer(self, session: Session, request: messages.DownloadBuffer) -> messages.BufferData:
        return messages.BufferData(self._backend.read(_buffer(session, request.buffer)).data)

    def free_buffers(self, session: Session, request: messages.FreeBuffers) -> messages.Done:
        for handle in request.buffers:
            _buffer(session, handle)
        for handle in request.buffers:
            session.buffers.pop(handle, None)
        return messages.Done()

    def compile_kernel(self, session: Session, request: messages.CompileKernel) -> messages.Compiled:
        compiled = profiler.compile_variant(self._backend, _variant(request.variant), request.buffers)
        return messages.Compiled(compiled.binary, compiled.compile_ns, compiled.first_launch_ns)

    def profile_kernel(self, session: Session, request: messages.ProfileKernel) -> messages.Profiled:
        reference = _buffer(session, request.reference)
        if reference.nbytes != request.output_bytes:
            raise ProtocolError(
                "bad_message",
                f"the reference has {reference.nbytes} bytes, output_bytes is {request.output_bytes}",
            )
        profiled = profiler.profile(
            self._backend,
            profiler.ProfileRequest(
                task=request.task,
                variants=tuple(map(_variant, request.variants)),
                buffers={name: _buffer(session, handle) for name, handle in request.buffers.items()},
                reference=reference,
                relative=request.relative,
                absolute=request.absolute,
                work=variant.Work(request.work.flops, request.work.bytes),
                protocol=Protocol(request.samples, request.sample_ns, request.warm_up_ns),
            ),
        )
        return messages.Profiled(tuple(map(_trial, profiled.trials)), profiled.best, profiled.binary)

    def execute_kernel(self, session: Session, request: messages.ExecuteKernel) -> messages.Executed:
        buffers = {name: _buffer(session, handle) for name, handle in request.buffers.items()}
        launches = tuple(map(_launch, request.launches))
        outputs = profiler.execute(self._backend, launches, buffers, request.outputs)
        return messages.Executed({name: data.data for name, data in outputs.items()})

    # --- sources --------------------------------------------------------------------------------------

    def _with_sources(self, session: Session, request: Any) -> Any:
        """The request with every source text filled in; remembers new ones, forgets the oldest."""
        unknown: list[str] = []

        def fill(launch: messages.Launch) -> messages.Launch:
            digest = launch.source_sha256
            if launch.source and source_sha256(launch.source) != digest:
                raise ProtocolError("bad_message", f"{launch.entry!r}: source_sha256 is not its source's")
            source = launch.source or session.sources.get(digest)
            if source is None:
                unknown.append(digest)
                return launch
            session.sources[digest] = source
            session.sources.move_to_end(digest)
            return replace(launch, source=source)

        request = with_launches(request, fill)
        while len(session.sources) > self._limits.sources:
            session.sources.popitem(last=False)
        if unknown:
            digests = list(dict.fromkeys(unknown))
            raise ProtocolError(
                "unknown_source",
                f"{len(digests)} source texts are not known here",
                {"source_sha256": digests},
            )
        return request


def _buffer(session: Session, handle: int) -> Buffer:
    try:
        return session.buffers[handle]
    except KeyError:
        raise ProtocolError(
            "unknown_buffer", f"this connection has no buffer {handle} (any more)", {"buffer": handle}
        ) from None


def _launch(launch: messages.Launch) -> variant.Launch:
    return variant.Launch(
        launch.source,
        launch.entry,
        launch.options,
        launch.global_size,
        launch.local_size,
        launch.arguments,
    )


def _variant(message: messages.Variant) -> variant.Variant:
    prepare = tuple(map(_launch, message.prepare))
    return variant.Variant(message.configuration, prepare, _launch(message.main), message.packed)


def _trial(trial: variant.Trial) -> messages.Trial:
    return messages.Trial(
        status=trial.status,  # type: ignore[arg-type]  # runtime's statuses are a subset of the protocol's
        message=trial.message,
        samples_ns=trial.samples_ns,
        wall_ns=trial.wall_ns,
        compile_ns=trial.compile_ns,
        first_launch_ns=trial.first_launch_ns,
        measured=dict(trial.measured),
    )
