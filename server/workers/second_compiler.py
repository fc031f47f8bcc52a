"""Compile half of a batch in a second process while the worker compiles the other half; for CPU devices.

What it has compiled lies in the folder that both share, and the worker finds it there. It only saves time: verdicts are
the worker's, which compiles by itself what is missing. Nothing may be compiled while anything is measured, so the
worker waits before it measures until the page says that it is alone. Whatever happens here, that comes soon.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

from gputune.core.batches import Profiled, ProfileKernel
from gputune.core.launches import Trial
from gputune.server.protocol.errors import ProtocolError
from gputune.server.protocol.limits import Limits
from gputune.server.worker.heartbeat_page import HeartbeatPage
from gputune.server.worker.link import CompileAhead, CompiledAhead
from gputune.server.workers.process import DeviceUnavailable
from gputune.server.workers.watchdog import Worker, WorkerLost, watched

log = logging.getLogger("gputune.server")

VARIANTS_AT_LEAST = 4  # of fewer, each half is hardly worth a program of its own
GLANCE_SECONDS = 0.02  # between two looks whether the worker waits
GRACE_SECONDS = 1.0  # for what is being compiled when it is not needed any more
BATCHES_LEFT_OUT = 64  # after failures, at most: each one in a row doubles it


class SecondCompiler:
    """`start` makes a worker or raises DeviceUnavailable; that is done when there is something to compile."""

    def __init__(self, start: Callable[[], Awaitable[Worker]], limits: Limits) -> None:
        self._start = start
        self._limits = limits
        self._worker: Worker | None = None
        self._failures = 0
        self._left_out = 0  # batches that it still leaves out

    def first_of(self, request: ProfileKernel) -> int | None:
        """Return the first of the variants that it compiles, to the last; None when it had better not."""
        if not request.together or len(request.variants) < VARIANTS_AT_LEAST:
            return None
        if self._left_out:
            self._left_out -= 1
            return None
        return (len(request.variants) + 1) // 2

    async def compile(
        self, work: CompileAhead, page: HeartbeatPage, over: asyncio.Future[object]
    ) -> CompiledAhead | None:
        """Compiles, until that is done or not needed: the worker whose page this is waits, or what it does is
        over. Then nothing is compiled any more, and the page says so. What it took, None when it was given up."""
        useless = asyncio.get_running_loop().create_future()
        compiling = asyncio.ensure_future(self._compile(work, useless))
        give_up = math.inf
        try:
            while not compiling.done():
                await asyncio.wait({compiling}, timeout=GLANCE_SECONDS)
                if not useless.done() and (page.waiting or over.done()):
                    useless.set_result(None)
                    give_up = time.monotonic() + GRACE_SECONDS
                if time.monotonic() > give_up and self._worker is not None:
                    self._worker.kill("it compiled programs that are no longer needed")
            return compiling.result()
        finally:
            if not compiling.done():  # the server is being stopped
                compiling.cancel()
                await asyncio.wait({compiling})
            page.accompany(False)

    async def stop(self) -> None:
        """End its process; the next batch starts another."""
        worker, self._worker = self._worker, None
        if worker is not None:
            await worker.stop()

    async def _compile(self, work: CompileAhead, useless: asyncio.Future[None]) -> CompiledAhead | None:
        try:
            if self._worker is None or self._worker.ended.done():
                self._worker = await self._start()
            until = time.monotonic() + self._limits.total_seconds
            reply = await watched(self._worker, work, self._limits, until, useless)
        except WorkerLost as lost:
            self._failed(str(lost))
            return None
        except (DeviceUnavailable, OSError, ProtocolError) as error:
            await self.stop()
            self._failed(str(error))
            return None
        except Exception:
            await self.stop()
            self._failed("internal error")
            log.exception("internal error while half of a batch was compiled")
            return None
        self._failures = 0
        return reply if isinstance(reply, CompiledAhead) else None

    def _failed(self, why: str) -> None:
        self._worker = None
        self._failures += 1
        self._left_out = min(2**self._failures, BATCHES_LEFT_OUT)
        log.info("half of a batch could not be compiled in a process of its own: %s", why)


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
