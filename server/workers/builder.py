"""Build the programs of waiting requests in a separate worker, while the device measures another request.

This is used only for devices that it does not disturb. It only saves time: whatever fails here, the worker that
measures builds by itself.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from gputune.core.batches import ProfileKernel
from gputune.server.protocol.errors import ProtocolError
from gputune.server.protocol.launches import launches_of
from gputune.server.protocol.limits import Limits
from gputune.server.protocol.messages import CompileKernel
from gputune.server.sessions.jobs import Job
from gputune.server.worker.link import BuildPrograms, ProgramsBuilt, program_key
from gputune.server.workers.process import DeviceUnavailable
from gputune.server.workers.watchdog import Worker, WorkerLost, watched

log = logging.getLogger("gputune.server")

AHEAD = 2  # requests whose programs are built before their turn; the rest would only take memory
PAUSE_SECONDS = (1.0, 60.0)  # after a failure, and at most: each one in a row doubles it


class Builder:
    """`start` makes a worker or raises DeviceUnavailable; `waiting` tells the jobs that wait, the next one first."""

    def __init__(
        self, start: Callable[[], Awaitable[Worker]], limits: Limits, waiting: Callable[[], list[Job]]
    ) -> None:
        self._start = start
        self._limits = limits
        self._waiting = waiting
        self._worker: Worker | None = None
        self._building: tuple[Job, asyncio.Future[None]] | None = None  # for what, and done when it is no use any more
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Note that the queue has changed."""
        self._wake.set()
        if self._building is not None:
            job, useless = self._building
            if not useless.done() and job not in self._waiting():
                useless.set_result(None)

    async def serve(self) -> None:
        """Build until it is cancelled."""
        failures = 0
        try:
            while True:
                self._wake.clear()
                job = next((job for job in self._waiting()[:AHEAD] if _can_be_built(job)), None)
                if job is None:
                    await self._wake.wait()
                elif await self._built(job):
                    failures = 0
                else:
                    first, longest = PAUSE_SECONDS
                    await asyncio.sleep(min(first * 2**failures, longest))
                    failures = min(failures + 1, 10)
        finally:
            self._give_up_worker("the server is being stopped")

    async def _built(self, job: Job) -> bool:
        """Build a job's programs, and say whether that, or giving it up in time, has worked."""
        job.programs = {}
        useless = asyncio.get_running_loop().create_future()
        self._building = job, useless
        try:
            await self._build(job, useless)
        except WorkerLost as lost:
            self._worker = None
            log.info("programs could not be built ahead: %s", lost)
            return useless.done()
        except (DeviceUnavailable, OSError, ProtocolError) as error:
            self._give_up_worker("it could not build ahead")
            log.info("programs could not be built ahead: %s", error)
            return False
        except Exception:
            self._give_up_worker("internal error while building ahead")
            log.exception("internal error while building ahead")
            return False
        finally:
            self._building = None
        return True

    async def _build(self, job: Job, useless: asyncio.Future[None]) -> None:
        launches = {program_key(launch): launch for launch in launches_of(job.request)}
        if self._worker is None or self._worker.ended.done():
            self._worker = await self._start()
        until = time.monotonic() + self._limits.total_seconds
        message = BuildPrograms(tuple(launches.values()), dict(job.sources))
        reply = await watched(self._worker, message, self._limits, until, useless)
        if isinstance(reply, ProgramsBuilt):
            job.programs = reply.binaries

    def _give_up_worker(self, why: str) -> None:
        if self._worker is not None:
            self._worker.kill(why)
            self._worker = None


def _can_be_built(job: Job) -> bool:
    return job.programs is None and isinstance(job.request, ProfileKernel | CompileKernel)
