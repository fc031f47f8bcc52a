"""Asks a worker one thing and watches it meanwhile: whoever misses a deadline is ended."""

from __future__ import annotations

import asyncio
import math
import time
from typing import Any, Protocol

from gputune.server.activity import Activity
from gputune.server.batch import Death
from gputune.server.worker_link import WorkerReady
from gputune.server.worker_process import OnProgress, WorkerEnded

GLANCE_SECONDS = 0.5  # shorter than the shortest limit of a step, so each deadline is known before it passes
CANCEL_SECONDS = 5.0  # for a worker to give a request up by itself


class Worker(Protocol):
    """What is needed of a worker process (worker_process.py)."""

    ready: WorkerReady
    activity: Activity
    ended: asyncio.Future[int]

    async def ask(self, message: Any, progress: OnProgress) -> Any:
        """The reply. Raises WorkerEnded."""

    def kill(self) -> None:
        """Ends it by force."""

    async def stop(self) -> None:
        """Ends it and waits for that."""


class WorkerLost(Exception):
    """The worker ended, or had to be ended, instead of answering."""

    def __init__(self, death: Death) -> None:
        super().__init__(death.message)
        self.death = death


async def watched(
    worker: Worker,
    message: Any,
    request_seconds: float,
    cancelled: asyncio.Future[None] | None = None,
    progress: OnProgress = lambda message: None,
) -> Any:
    """The worker's reply to a message of worker_link. Raises WorkerLost.

    request_seconds: for what has no deadline of its own; cancelled: done when nobody wants the reply any more.
    """
    worker.activity.rest()
    worker.activity.cancel(False)
    asking = asyncio.ensure_future(worker.ask(message, progress))
    late_seconds = None
    try:
        late_seconds = await _watch(worker, asking, cancelled, request_seconds)
        return await asking
    except WorkerEnded as ended:
        doing = worker.activity.read()
        killed = late_seconds is None and ended.signal == "SIGKILL"
        raise WorkerLost(Death(ended.how, doing.step, doing.variant, killed, late_seconds)) from None
    finally:
        asking.cancel()


async def _watch(
    worker: Worker, asking: asyncio.Future[Any], cancelled: asyncio.Future[None] | None, request_seconds: float
) -> float | None:
    """Waits for the reply. Kills a worker that is late, and returns the seconds that it was allowed."""
    waited_for: set[asyncio.Future[Any]] = {asking} if cancelled is None else {asking, cancelled}
    doing, since = worker.activity.read(), time.monotonic()
    give_up = math.inf
    while not asking.done():
        now = time.monotonic()
        if cancelled in waited_for and cancelled is not None and cancelled.done():
            worker.activity.cancel(True)
            waited_for, give_up = {asking}, now + CANCEL_SECONDS
        allowed = doing.allowed_ns / 1e9 if doing.deadline_ns else request_seconds
        deadline = doing.deadline_ns / 1e9 if doing.deadline_ns else since + request_seconds
        if now >= min(deadline, give_up):
            worker.kill()
            await asyncio.wait({asking})
            return allowed
        seconds = min(deadline - now, give_up - now, GLANCE_SECONDS)
        await asyncio.wait(waited_for, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        seen = worker.activity.read()
        if seen != doing:
            doing, since = seen, time.monotonic()
    return None
