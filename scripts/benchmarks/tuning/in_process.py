"""Stand in for a target without a server: the methods of TargetClient that tuning uses, answered in this process by the
worker's own handlers. Nothing is sent, nothing watches over deadlines, and a variant that crashes takes this process
along.

It is what remote tuning is compared with, so it does for a request what the daemon does, and no more.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, TypeVar, cast

import numpy as np

from gputune.client.errors import TargetError
from gputune.client.target.client import TargetClient
from gputune.core.launches import Launch
from gputune.runtime.backends import Backend, open_backend
from gputune.runtime.devices.discovery import find, wanted_device
from gputune.server.protocol.launches import launches_of, with_launches
from gputune.server.protocol.limits import check_limits
from gputune.server.protocol.messages import (
    KINDS,
    Compiled,
    CompileKernel,
    Error,
    Executed,
    ExecuteKernel,
    Limits,
    Profiled,
    ProfileKernel,
    Progress,
)
from gputune.server.worker.handlers import Handlers
from gputune.server.worker.heartbeat_page import HeartbeatPage
from gputune.server.worker.link import Forget, PutBuffer, PutSources
from gputune.server.workers.compiled_programs import CompiledPrograms

R = TypeVar("R")
OnProgress = Callable[[Progress], None] | None


class InProcess:
    """Opens the device when it is made. Only one may be open in a process, and only of one OpenCL driver."""

    def __init__(self, backend: Backend) -> None:
        self.limits = replace(Limits(), buffer_bytes=backend.identity.max_allocation_bytes)
        self.device: dict[str, object] = backend.identity.to_dict()
        self.server: dict[str, object] = {"settings": backend.settings}
        self.requests: Counter[str] = Counter()
        self.address = "in this process"
        self._handles = itertools.count(1)
        self._on_progress: OnProgress = None
        self._handlers = Handlers(backend, self.limits, HeartbeatPage.create(), self._hear)

    def __enter__(self) -> InProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Nothing outlives this process."""

    def as_client(self) -> TargetClient:
        """Itself, for what is written for a client and calls nothing but the methods below."""
        return cast(TargetClient, self)

    def upload(self, data: Any) -> int:
        """A new buffer with the bytes of an array."""
        handle = next(self._handles)
        content = np.ascontiguousarray(data).reshape(-1).view(np.uint8).data
        self._answer(PutBuffer(handle, content), object)
        return handle

    def free(self, *buffers: int) -> None:
        """Frees buffers."""
        self._answer(Forget(buffers, ()), object)

    def compile_kernels(self, requests: Sequence[CompileKernel], compiled: Callable[[int, Compiled], object]) -> None:
        """As TargetClient does. Raises TargetError."""
        for place, request in enumerate(requests):
            compiled(place, self._ask(request, Compiled))

    def measure_kernel(self, request: ProfileKernel, on_progress: OnProgress = None) -> Profiled:
        """As TargetClient does. Raises TargetError."""
        return self._ask(request, Profiled, on_progress)

    def execute_kernel(self, request: ExecuteKernel) -> dict[str, memoryview]:
        """As TargetClient does. Raises TargetError."""
        return {name: memoryview(data) for name, data in self._ask(request, Executed).outputs.items()}

    def _ask(self, request: Any, expected: type[R], on_progress: OnProgress = None) -> R:
        """The reply to a request; its source texts go in front of it, each once."""
        check_limits(request, self.limits)
        self.requests[KINDS[type(request)]] += 1
        sources = {launch.source_sha256: launch.source for launch in launches_of(request)}

        def without_source(launch: Launch) -> Launch:
            return replace(launch, source="")

        self._answer(PutSources(sources), object)
        self._on_progress = on_progress
        try:
            return self._answer(with_launches(request, without_source), expected)
        finally:
            self._on_progress = None

    def _answer(self, message: object, expected: type[R]) -> R:
        reply = self._handlers.handle(message)
        if isinstance(reply, Error):
            raise TargetError(reply.name, f"{self.address}: {reply.message}", reply.details)
        assert isinstance(reply, expected)
        return reply

    def _hear(self, progress: Progress) -> None:
        if self._on_progress is not None:
            self._on_progress(progress)


def in_process(device: str | None) -> InProcess:
    """The device that a server would choose, opened here as its worker opens it. Raises DeviceNotFound."""
    report = find(wanted_device(device)).report
    return InProcess(open_backend(report, compiled=CompiledPrograms(report).folder))
