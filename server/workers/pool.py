"""Hold all workers of a daemon: a worker that does everything, and more that compile while nothing is measured.

A driver that compiles on one core at a time, as PoCL does, leaves the other cores idle while a client finalizes a
context. So on a CPU device, requests that measure nothing are spread over several processes. There is at most one for
each processor that the daemon may use, as far as memory allows, and each ends after IDLE_SECONDS without work. Each has
a supervisor and a watchdog of its own, so a crash or a hang costs only its request. If a worker cannot be started, or
the system kills it, another worker takes the request. Any other request has the device alone: it begins when all of
them have ended, and none begins before it is over or has yielded the device.

A batch that yields the device keeps its worker, which waits with all that it has built. Another worker, which opens the
device for that, serves the others meanwhile; at its next turn the batch goes on. So a crash costs its own request only.
Up to BATCHES_AT_ONCE batches share the device. The timing of a batch is never divided, since its times are compared
side by side.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from gputune.core.bounds import Handle
from gputune.runtime.devices.load import usable_processors
from gputune.server.protocol.messages import CompileKernel, Error
from gputune.server.sessions.jobs import Assignment
from gputune.server.workers.compiled_programs import CompiledPrograms
from gputune.server.workers.supervisor import Supervisor

log = logging.getLogger("gputune.server")

WORKERS_AT_MOST = 16
BATCHES_AT_ONCE = 3  # that one after the other have the device in turns, each with a worker
WORKER_BYTES = 512 << 20  # of memory for each: a compiler needs about half of that for a large program
IDLE_SECONDS = 20.0  # further workers are ended when they had nothing to do for so long


class Workers:
    """Hold the supervisors of all workers, at most one request for each at a time.

    first: of the worker that does everything; more: makes one that compiles beside it; at_most: how many of those there
    may be; compiled: the folder that all of them share; another: makes one that does everything while batches wait.
    """

    def __init__(
        self,
        first: Supervisor,
        more: Callable[[], Supervisor] | None = None,
        at_most: int = 0,
        compiled: CompiledPrograms | None = None,
        another: Callable[[], Supervisor] | None = None,
    ) -> None:
        self.first = first
        self._make = more
        self._at_most = at_most
        self._compiled = compiled
        self._make_another = another
        self._more: dict[Supervisor, asyncio.TimerHandle | None] = {}  # what ends those that idle
        self._others: set[Supervisor] = set()  # of these, those that do everything
        self._others_at_most = 0 if another is None else BATCHES_AT_ONCE - 1
        self._busy: dict[Supervisor, bool] = {}  # and whether it is to have the device alone
        self._paused: set[Supervisor] = set()  # of the busy
        self._full = False
        self._ending: set[asyncio.Task[None]] = set()
        self._gone = 0  # workers that were replaced, of supervisors that are no more
        self._last_end = ""  # why the last of those was

    # --- which of them ----------------------------------------------------------------------------------

    def take(self, request: Any, has_state: bool = False) -> Supervisor | None:
        """Return the supervisor that serves a request now, by `run`; None while others have to come to an end before.
        has_state: the first worker has all states, and is never ended for being idle."""
        alone = not isinstance(request, CompileKernel)
        active = [busy for one, busy in self._busy.items() if one not in self._paused]
        if not active:
            taken = self._for_anything() if not has_state else None if self.first in self._busy else self.first
        elif alone or any(active) or self._full:
            return None
        else:
            taken = next((one for one in (self.first, *self._more) if one not in self._busy), None)
            if taken is None and self._make is not None and len(self._more) - len(self._others) < self._at_most:
                taken = self._make()
                self._more[taken] = None
        if taken is not None:
            self._busy[taken] = alone
            self._keep(taken)
        return taken

    def _for_anything(self) -> Supervisor | None:
        """Return an idle supervisor of a worker that does everything; None when all of them wait with their batches."""
        taken = next((one for one in (self.first, *self._others) if one not in self._busy), None)
        if taken is None and self._make_another is not None and len(self._others) < self._others_at_most:
            taken = self._make_another()
            self._more[taken] = None
            self._others.add(taken)
        return taken

    def waits_for_batch(self, has_state: bool) -> bool:
        """Return whether a request about a state has to wait, because a batch that has yielded the device keeps the
        worker."""
        return has_state and self.first in self._paused

    @property
    def room(self) -> bool:
        """Return whether something else can be done when one more batch yields the device."""
        return len(self._paused) < self._others_at_most

    @property
    def all_wait(self) -> bool:
        """Return whether every worker that does everything, or could be started, waits with a batch."""
        return len(self._paused) > self._others_at_most

    def pause(self, supervisor: Supervisor) -> None:
        """Note that its batch has yielded the device."""
        self._paused.add(supervisor)
        supervisor.paused()

    def go_on(self, supervisor: Supervisor) -> bool:
        """Give the device back to a batch that has yielded it, unless others have it. Say whether it has it now."""
        if self._busy.keys() - self._paused:
            return False
        self._paused.discard(supervisor)
        supervisor.go_on()
        return True

    async def run(self, supervisor: Supervisor, work: Assignment) -> Any:
        """Return the reply to the assignment's request, by the supervisor that was taken for it; every failure becomes
        an Error with a name. None when there is no room for a further worker, which could not be started or was killed
        from outside: there are fewer of them from then on, and the request is to be given to another."""
        replaced = supervisor.restarts
        try:
            self._full = self._full or (self._compiled is not None and self._compiled.lost)
            if self._full and len(self._busy) == 1:
                await self._make_folder_room()
            reply = await supervisor.run(work)
            no_room = supervisor in self._more and _had_no_room(reply)
            if supervisor in self._more and (no_room or supervisor.restarts > replaced):
                self._end(supervisor)  # a process that is being started would disturb what is measured next
                await asyncio.gather(*self._ending)
        finally:
            del self._busy[supervisor]
            self._paused.discard(supervisor)
            self._full = self._full or (self._compiled is not None and self._compiled.full())
            if supervisor in self._more:
                loop = asyncio.get_running_loop()
                self._more[supervisor] = loop.call_later(IDLE_SECONDS, self._end, supervisor)
        if no_room:
            log.warning("there are fewer workers from now on: %s", reply.message)
            self._at_most = min(self._at_most, len(self._more) - len(self._others))
            self._others_at_most = min(self._others_at_most, len(self._others))
            return None
        return reply

    # --- all of them ------------------------------------------------------------------------------------

    def forget(self, buffers: Iterable[Handle], contexts: Iterable[Handle]) -> bool:
        """Note that these handles are not used any more, and say whether a worker is to be told. Those that only
        compile have none."""
        handles = list(buffers), list(contexts)
        told = [one.forget(*handles) for one in (self.first, *self._others)]
        return any(told)

    async def tidy(self) -> None:
        """Tell the workers what they can forget, unless some of them are busy."""
        if not self._busy:
            self._busy = dict.fromkeys((self.first, *self._others), True)
            try:
                for one in self._busy:
                    await one.tidy()
            finally:
                self._busy = {}

    async def stop(self) -> None:
        """End all workers; no others are started."""
        for one in list(self._more):
            self._end(one)
        await asyncio.gather(self.first.stop(), *self._ending)

    @property
    def restarts(self) -> int:
        """Return how many workers were replaced."""
        return self._gone + sum(one.restarts for one in (self.first, *self._more))

    @property
    def last_restart(self) -> str:
        """Return why a worker was replaced last, the first one if it was."""
        return self.first.last_restart or self._last_end

    def _keep(self, supervisor: Supervisor) -> None:
        """Keep a further worker from being ended for being idle."""
        if (timer := self._more.get(supervisor)) is not None:
            timer.cancel()

    def _end(self, supervisor: Supervisor) -> None:
        """End a further worker; another is started when there is something to compile."""
        self._keep(supervisor)
        del self._more[supervisor]
        self._others.discard(supervisor)
        self._gone += supervisor.restarts
        self._last_end = supervisor.last_restart or self._last_end
        ending = asyncio.ensure_future(supervisor.stop())
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    async def _make_folder_room(self) -> None:
        """Empty the folder of what was compiled. Programs of living workers are in there, so those are ended
        before."""
        for one in list(self._more):
            self._end(one)
        await asyncio.gather(self.first.end_worker(), *self._ending)
        assert self._compiled is not None
        self._compiled.empty()
        self._full = False


def _had_no_room(reply: Any) -> bool:
    if not isinstance(reply, Error):
        return False
    killed = reply.name == "worker_died" and reply.details.get("ended_with") == "SIGKILL"
    return killed or reply.name == "device_unavailable"


def most_compilers() -> int:
    """Return how many workers can compile on this machine at the same time: one for each processor that this process
    may use, as far as there is memory for them."""
    most = min(int(usable_processors()), WORKERS_AT_MOST)
    with suppress(OSError, StopIteration, ValueError):  # not Linux
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        available = next(line for line in lines if line.startswith("MemAvailable:"))
        most = min(most, int(available.split()[1]) * 1024 // WORKER_BYTES)
    return max(most, 1)
