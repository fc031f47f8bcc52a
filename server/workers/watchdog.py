"""Ask a worker for one thing and watch it meanwhile; end it if it misses a deadline.

The watchdog reads the heartbeat page twice a second and when a deadline has come. The limits are the server's `Limits`:
one for compiling, which a driver may put off until the first launch, and one for a launch. Once a variant of the task
works, a launch or a sample gets only three times its expected time, and 1.5 s at least (server/worker/watcher.py).
"""

from __future__ import annotations

import asyncio
import math
import time
from typing import Any, Protocol

from gputune.server.protocol.limits import Limits
from gputune.server.worker.heartbeat_page import Doing, HeartbeatPage
from gputune.server.worker.link import WorkerReady
from gputune.server.workers.crash_recovery import THE_AGENT, Death, Missed
from gputune.server.workers.process import OnProgress, WorkerEnded

GLANCE_SECONDS = 0.5  # shorter than the shortest limit of a step, so each deadline is known before it passes
CANCEL_SECONDS = 5.0  # for a worker to give a request up by itself
_LIMIT = {
    "building": "compile_seconds",
    "starting": "compile_seconds",
    "launching": "launch_seconds",
    "measuring": "launch_seconds",
}


class Worker(Protocol):
    """List what is needed of a worker process (process.py)."""

    ready: WorkerReady
    page: HeartbeatPage
    ended: asyncio.Future[int]
    killed_for: str

    async def ask(self, message: Any, progress: OnProgress) -> Any:
        """Return the reply. Raises WorkerEnded."""

    def kill(self, why: str) -> None:
        """End it by force; `why` is what people read about it."""

    async def stop(self) -> None:
        """End it and wait for that."""


class WorkerLost(Exception):
    """Report that the worker ended, or had to be ended, instead of answering."""

    def __init__(self, death: Death) -> None:
        super().__init__(death.message)
        self.death = death


async def watched(
    worker: Worker,
    message: Any,
    limits: Limits,
    until: float,
    cancelled: asyncio.Future[None] | None = None,
    progress: OnProgress = lambda message: None,
) -> Any:
    """Return the worker's reply to a message of worker_link. Raises WorkerLost.

    until: when the whole request must be over, limits.total_seconds after it began (time.monotonic); cancelled: done
    when the reply is not wanted any more.
    """
    worker.page.rest()
    worker.page.cancel(False)
    worker.page.ask_to_yield(False)
    asking = asyncio.ensure_future(worker.ask(message, progress))
    missed = None
    try:
        missed = await _watch(worker, asking, cancelled, limits, until)
        return await asking
    except WorkerEnded as ended:
        doing = worker.page.read()
        killed = not ended.ours and (ended.agent_lost or ended.signal == "SIGKILL")
        agent = THE_AGENT if killed and ended.agent_lost else ""
        raise WorkerLost(Death(ended.how, doing.step, doing.variant, killed, missed, ended.ours, agent)) from None
    finally:
        asking.cancel()


async def _watch(
    worker: Worker,
    asking: asyncio.Future[Any],
    cancelled: asyncio.Future[None] | None,
    limits: Limits,
    until: float,
) -> Missed | None:
    """Wait for the reply. Kill a worker that is late, and return the limit that it has missed."""
    waited_for: set[asyncio.Future[Any]] = {asking} if cancelled is None else {asking, cancelled}
    doing, since = worker.page.read(), time.monotonic()
    give_up, looked = math.inf, since
    while not asking.done():
        now = time.monotonic()
        if doing.paused:
            until += now - looked  # others have the device
        looked = now
        if cancelled in waited_for and cancelled is not None and cancelled.done():
            worker.page.cancel(True)
            waited_for, give_up = {asking}, now + CANCEL_SECONDS
        deadline = _deadline(doing, since, limits)
        if now >= min(deadline, give_up, until):
            seen = worker.page.read()
            if seen == doing or now >= min(give_up, until):
                missed = None if now >= give_up else _missed(doing, now >= until, limits)
                worker.kill(
                    missed.message if missed else f"a cancelled request was not given up in {CANCEL_SECONDS:g} s"
                )
                await asyncio.wait({asking})
                return missed
        else:
            seconds = min(deadline - now, give_up - now, until - now, GLANCE_SECONDS)
            await asyncio.wait(waited_for, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            seen = worker.page.read()
        if seen != doing:
            doing, since = seen, time.monotonic()
    return None


def _deadline(doing: Doing, since: float, limits: Limits) -> float:
    """Return when this must be over. What the page says is not trusted: a kernel can write there, and is not to give
    itself a year."""
    if doing.paused:
        return math.inf
    if not doing.deadline_ns:
        return since + limits.request_seconds
    return min(doing.deadline_ns / 1e9, since + _longest_step(limits))


def _longest_step(limits: Limits) -> int:
    return max(limits.compile_seconds, limits.launch_seconds, limits.request_seconds)


def _missed(doing: Doing, in_total: bool, limits: Limits) -> Missed:
    if in_total:
        return Missed(None, "total_seconds", limits.total_seconds)
    if not doing.deadline_ns:
        return Missed(doing.step, "request_seconds", limits.request_seconds)
    seconds = min(max(doing.allowed_ns / 1e9, 0.0), _longest_step(limits))
    limit = _LIMIT.get(doing.step or "", "request_seconds")
    if limit != "request_seconds" and seconds == limits.request_seconds != getattr(limits, limit):
        limit = "request_seconds"  # a context's, where nothing more is known
    return Missed(doing.step, limit, seconds, scaled=limit == "launch_seconds" and seconds < limits.launch_seconds)
