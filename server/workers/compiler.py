"""Compile in a further process what the worker needs next.

On devices that this does not disturb, it builds the programs of waiting requests while the worker measures another one
(`serve`). On CPU devices it compiles half of a batch while the worker compiles the other half (`compile_half`). That
lies in the folder that both share, and the worker finds it there. Nothing may be compiled there while anything is
measured, so the worker waits before it measures until the page says that it is alone. Whatever happens here, that comes
soon. It only saves time: verdicts are the worker's, which compiles by itself what is missing.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from gputune.core.batches import Profiled, ProfileKernel
from gputune.core.launches import Trial
from gputune.server.protocol.errors import ProtocolError
from gputune.server.protocol.launches import launches_of
from gputune.server.protocol.limits import Limits
from gputune.server.protocol.messages import CompileKernel
from gputune.server.sessions.jobs import Job
from gputune.server.worker.heartbeat_page import HeartbeatPage
from gputune.server.worker.link import BuildPrograms, CompileAhead, CompiledAhead, ProgramsBuilt, program_key
from gputune.server.workers.process import DeviceUnavailable
from gputune.server.workers.watchdog import Worker, WorkerLost, watched

log = logging.getLogger("gputune.server")

AHEAD = 2  # requests whose programs are built before their turn; the rest would only take memory
VARIANTS_AT_LEAST = 4  # of fewer, each half is hardly worth a program of its own
GLANCE_SECONDS = 0.02  # between two looks whether the worker waits
GRACE_SECONDS = 1.0  # for what is being compiled when it is not needed any more
PAUSE_SECONDS = (1.0, 60.0)  # after a failure, and at most: each one in a row doubles it


class Compiler:
    """Compile in one process, started when there is something to compile. After a failure it pauses.

    `start` makes a worker or raises DeviceUnavailable.
    """

    def __init__(self, start: Callable[[], Awaitable[Worker]], limits: Limits) -> None:
        self._start = start
        self._limits = limits
        self._worker: Worker | None = None
        self._failures = 0
        self._pauses_until = 0.0
        self._waiting: Callable[[], list[Job]] = list
        self._building: tuple[Job, asyncio.Future[None]] | None = None  # for what, and done when it is no use any more
        self._wake = asyncio.Event()

    async def stop(self) -> None:
        """End its process; what comes next starts another."""
        worker, self._worker = self._worker, None
        if worker is not None:
            await worker.stop()

    # --- waiting requests -----------------------------------------------------------------------------

    async def serve(self, waiting: Callable[[], list[Job]]) -> None:
        """Build the programs of waiting requests until it is cancelled. waiting: tells the jobs, the next one first."""
        self._waiting = waiting
        try:
            while True:
                await asyncio.sleep(self._pauses_until - time.monotonic())
                self._wake.clear()
                job = next((job for job in waiting()[:AHEAD] if _can_be_built(job)), None)
                if job is None:
                    await self._wake.wait()
                else:
                    await self._build(job)
        finally:
            self._give_up_worker("the server is being stopped")

    def wake(self) -> None:
        """Note that the queue has changed."""
        self._wake.set()
        if self._building is not None:
            job, useless = self._building
            if not useless.done() and job not in self._waiting():
                useless.set_result(None)

    async def _build(self, job: Job) -> None:
        job.programs = {}
        launches = {program_key(launch): launch for launch in launches_of(job.request)}
        useless = asyncio.get_running_loop().create_future()
        self._building = job, useless
        try:
            reply = await self._ask(BuildPrograms(tuple(launches.values()), dict(job.sources)), useless)
        finally:
            self._building = None
        if isinstance(reply, ProgramsBuilt):
            job.programs = reply.binaries

    # --- half of a batch ------------------------------------------------------------------------------

    def first_of(self, request: ProfileKernel) -> int | None:
        """Return the first of the variants that it compiles, to the last; None when it had better not."""
        worth_it = request.together and len(request.variants) >= VARIANTS_AT_LEAST
        return (len(request.variants) + 1) // 2 if worth_it and time.monotonic() >= self._pauses_until else None

    async def compile_half(
        self, work: CompileAhead, page: HeartbeatPage, over: asyncio.Future[object]
    ) -> CompiledAhead | None:
        """Compile until that is done or not needed: the worker whose page this is waits, or what it does is over. Then
        nothing is compiled any more, and the page says so. Return what it took, None when it was given up."""
        useless = asyncio.get_running_loop().create_future()
        compiling = asyncio.ensure_future(self._ask(work, useless))
        give_up = math.inf
        try:
            while not compiling.done():
                await asyncio.wait({compiling}, timeout=GLANCE_SECONDS)
                if not useless.done() and (page.waiting or over.done()):
                    useless.set_result(None)
                    give_up = time.monotonic() + GRACE_SECONDS
                if time.monotonic() > give_up and self._worker is not None:
                    self._worker.kill("it compiled programs that are no longer needed")
            reply = compiling.result()
            return reply if isinstance(reply, CompiledAhead) else None
        finally:
            if not compiling.done():  # the server is being stopped
                compiling.cancel()
                await asyncio.wait({compiling})
            page.accompany(False)

    # --- its process ----------------------------------------------------------------------------------

    async def _ask(self, message: Any, useless: asyncio.Future[None]) -> Any:
        """Return the reply; None after a failure. useless: done when it is no use any more."""
        try:
            if self._worker is None or self._worker.ended.done():
                self._worker = await self._start()
            until = time.monotonic() + self._limits.total_seconds
            reply = await watched(self._worker, message, self._limits, until, useless)
        except (WorkerLost, DeviceUnavailable, OSError, ProtocolError) as error:
            log.info("programs could not be compiled ahead: %s", error)
        except Exception:
            log.exception("internal error while programs were compiled ahead")
        else:
            self._failures = 0
            return reply
        first, longest = PAUSE_SECONDS
        self._pauses_until = time.monotonic() + min(first * 2**self._failures, longest)
        self._failures = min(self._failures + 1, 10)
        self._give_up_worker("it could not compile ahead")
        return None

    def _give_up_worker(self, why: str) -> None:
        if self._worker is not None:
            self._worker.kill(why)
            self._worker = None


def _can_be_built(job: Job) -> bool:
    return job.programs is None and isinstance(job.request, ProfileKernel | CompileKernel)


def with_what_it_took(reply: Profiled, first: int, ahead: CompiledAhead) -> Profiled:
    """Return the reply with the times of what was compiled ahead: the worker has only found it."""

    def told(trial: Trial, index: int) -> Trial:
        place = index - first
        if trial.compile_ns == 0 or not 0 <= place < min(len(ahead.compile_ns), len(ahead.first_launch_ns)):
            return trial  # its program was still there, or it was compiled by the worker
        compile_ns = max(trial.compile_ns, ahead.compile_ns[place])
        return replace(
            trial, compile_ns=compile_ns, first_launch_ns=max(trial.first_launch_ns, ahead.first_launch_ns[place])
        )

    return replace(reply, trials=tuple(told(trial, index) for index, trial in enumerate(reply.trials)))
