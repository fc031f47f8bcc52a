"""Builds the programs of requests that wait, in a worker of its own, while the device measures another request.

Only for devices that this does not disturb. It saves time and nothing else: whatever fails here, the worker that
measures builds by itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from gputune.server.jobs import Job
from gputune.server.protocol.errors import ProtocolError
from gputune.server.protocol.launches import launches_of
from gputune.server.protocol.messages import CompileKernel, Limits, ProfileKernel
from gputune.server.watchdog import Worker, WorkerLost, watched
from gputune.server.worker_link import BuildPrograms, ProgramsBuilt, program_key
from gputune.server.worker_process import DeviceUnavailable

log = logging.getLogger("gputune.server")

AHEAD = 2  # requests whose programs are built before their turn; the rest would only take memory
FAILURES_AT_MOST = 3  # in a row


class Builder:
    """`start` makes a worker or raises DeviceUnavailable; `waiting` tells the jobs that wait, the next one first."""

    def __init__(
        self, start: Callable[[], Awaitable[Worker]], limits: Limits, waiting: Callable[[], list[Job]]
    ) -> None:
        self._start = start
        self._limits = limits
        self._waiting = waiting
        self._worker: Worker | None = None
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """The queue has changed."""
        self._wake.set()

    async def serve(self) -> None:
        """Builds until it is cancelled, or has failed too often."""
        failures = 0
        try:
            while failures < FAILURES_AT_MOST:
                self._wake.clear()
                job = next((job for job in self._waiting()[:AHEAD] if _can_be_built(job)), None)
                if job is None:
                    await self._wake.wait()
                    continue
                job.programs = {}
                try:
                    await self._build(job)
                    failures = 0
                except (WorkerLost, DeviceUnavailable, ProtocolError) as error:
                    failures += 1
                    self._worker = None
                    log.info("programs could not be built ahead: %s", error)
        finally:
            if self._worker is not None:
                self._worker.kill()

    async def _build(self, job: Job) -> None:
        launches = {program_key(launch): launch for launch in launches_of(job.request)}
        if self._worker is None:
            self._worker = await self._start()
        seconds = self._limits.compile_seconds * len(launches)
        reply = await watched(self._worker, BuildPrograms(tuple(launches.values()), dict(job.sources)), seconds, job.cancelled)
        if isinstance(reply, ProgramsBuilt):
            job.programs = reply.binaries


def _can_be_built(job: Job) -> bool:
    return job.programs is None and isinstance(job.request, ProfileKernel | CompileKernel)
