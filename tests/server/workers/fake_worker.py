"""Provide made-up workers for a supervisor: they work, hang, die or talk nonsense."""

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from gputune.core.batches import Compiled, Profiled, ProfileKernel
from gputune.core.launches import Trial
from gputune.server.protocol.limits import Limits
from gputune.server.protocol.messages import (
    ContextExecuted,
    ContextLoaded,
    Done,
    Error,
    ExecuteContext,
    Executed,
    ExecuteKernel,
    Progress,
    ResetState,
    StateReady,
)
from gputune.server.sessions.jobs import Assignment
from gputune.server.sessions.session import Materials
from gputune.server.worker.heartbeat_page import HeartbeatPage
from gputune.server.worker.link import Forget, PutBeside, PutBuffer, PutContext, PutState, WorkerReady
from gputune.server.workers.process import DeviceUnavailable, OnProgress, WorkerEnded
from gputune.server.workers.supervisor import Supervisor

Behaviour = Callable[["FakeWorker", Any, OnProgress], Coroutine[Any, Any, Any]]
OK = Trial("ok", "", (), (), 0, 0, {})


class FakeWorker:
    """Answers what belongs to the link; `behave` answers the requests."""

    ready = WorkerReady({}, "fake", {})

    def __init__(self, behave: Behaviour) -> None:
        self.page = HeartbeatPage.create()
        self.page.detach()
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.killed_for = ""
        self.asked: list[Any] = []
        self._behave = behave

    async def ask(self, message: Any, progress: OnProgress) -> Any:
        self.asked.append(message)
        if isinstance(message, PutBuffer) and bytes(message.data) == b"too large":
            return Error("launch_failed", "no room")
        if isinstance(message, PutBuffer | PutBeside | Forget):
            return Done()
        if isinstance(message, PutContext):
            return ContextLoaded(message.context, True, (), 1)
        if isinstance(message, PutState):
            return StateReady(message.state, 64)
        acting = asyncio.ensure_future(self._behave(self, message, progress))
        await asyncio.wait({acting, self.ended}, return_when=asyncio.FIRST_COMPLETED)
        if self.ended.done():
            acting.cancel()
            raise WorkerEnded(self.ended.result(), self.killed_for)
        return acting.result()

    def kill(self, why: str) -> None:
        self.killed_for = why
        self.die(-signal.SIGKILL)

    def die(self, code: int) -> None:
        if not self.ended.done():
            self.ended.set_result(code)

    async def stop(self) -> None:
        self.kill("stopped")


class Stage:
    """A supervisor whose workers behave one after the other as listed, the last one for ever."""

    def __init__(self, *behaviours: Behaviour | None, limits: Limits | None = None, **options: Any) -> None:
        self.workers: list[FakeWorker] = []
        self.told: list[Progress] = []
        self.cancelled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._behaviours = behaviours
        self.supervisor = Supervisor(self._start, limits or Limits(), **options)

    async def _start(self) -> FakeWorker:
        behave = self._behaviours[min(len(self.workers), len(self._behaviours) - 1)]
        if behave is None:
            raise DeviceUnavailable("the cable is out")
        self.workers.append(FakeWorker(behave))
        return self.workers[-1]

    async def run(self, request: Any, materials: Materials | None = None, **options: Any) -> Any:
        work = Assignment(request, lambda: materials or Materials(), self.told.append, self.cancelled, **options)
        return await asyncio.wait_for(self.supervisor.run(work), 20)


async def works(worker: FakeWorker, message: Any, progress: OnProgress) -> Any:
    if isinstance(message, ResetState):
        return Done()
    if isinstance(message, ExecuteContext):
        return ContextExecuted({}, 1)
    if isinstance(message, ExecuteKernel):
        return Executed({name: bytes(nbytes) for name, nbytes in message.outputs.items()})
    if not isinstance(message, ProfileKernel):
        return Compiled(b"binary", 1, 1)
    return Profiled((OK,) * len(message.variants), message.variants[0].number, b"binary", None, {}, {})


class Gate:
    """Hold the requests of a made-up worker while it is closed."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._open.set()

    async def behave(self, worker: FakeWorker, message: Any, progress: OnProgress) -> Any:
        while not self._open.is_set():
            await asyncio.sleep(0.005)
        return await works(worker, message, progress)

    @contextmanager
    def closed(self) -> Iterator[None]:
        self._open.clear()
        try:
            yield
        finally:
            self._open.set()


def hits(configuration: int, act: Callable[[FakeWorker, int], None]) -> Behaviour:
    """Works, but a batch with this configuration comes to an end there: `act` is given its number."""

    async def behave(worker: FakeWorker, message: Any, progress: OnProgress) -> Any:
        for variant in message.variants:
            if variant.configuration["N"] == configuration:
                act(worker, variant.number)
                await asyncio.sleep(60)
        return await works(worker, message, progress)

    return behave


def dies(code: int) -> Callable[[FakeWorker, int], None]:
    def act(worker: FakeWorker, number: int) -> None:
        worker.page.begin("launching", number, 30)
        worker.die(code)

    return act


def hangs(worker: FakeWorker, number: int) -> None:
    worker.page.begin("launching", number, 0.2)
