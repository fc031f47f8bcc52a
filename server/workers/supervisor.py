"""Keep a worker alive, give it the clients' requests, and draw the conclusions when it hangs or dies.

The supervisor knows what it has put on the worker's device. With the worker that record is gone. Buffers and contexts
are therefore restored before the next request that names them.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from gputune.core.batches import Profiled, ProfileKernel
from gputune.core.bounds import Blob, Handle
from gputune.core.errors import LimitExceeded, UnusableMemory
from gputune.core.launches import OUTPUT
from gputune.runtime.memory.passing import WithDescriptor
from gputune.server.protocol.errors import ProtocolError
from gputune.server.protocol.limits import Limits
from gputune.server.protocol.messages import REPLIES, ContextLoaded, Done, Error, Progress, StateReady
from gputune.server.sessions.jobs import Assignment
from gputune.server.sessions.session import Materials, Registered
from gputune.server.worker.link import (
    CompileAhead,
    Forget,
    PutBeside,
    PutBuffer,
    PutContext,
    PutMemory,
    PutState,
    WorkerReady,
)
from gputune.server.workers.compiler import Compiler, with_what_it_took
from gputune.server.workers.crash_recovery import THE_AGENT, Batch, Death
from gputune.server.workers.process import DeviceUnavailable, OnProgress, WorkerEnded
from gputune.server.workers.watchdog import Worker, WorkerLost, watched

log = logging.getLogger("gputune.server")

STARTS_AT_MOST = 3  # in a row, when the process is killed from outside while it opens the device
LIVED_SECONDS = 1.0  # a worker that has lived shorter, and was asked nothing, is not replaced before the next request

_UNFINISHED = ("cancelled", "internal_error")  # errors of a batch that may have damaged something by then


@dataclass
class _Handles:
    """Note the handles of buffers, registered memories among them, contexts and states that the worker knows, and
    those of them that it can forget, states among contexts; fresh: nothing was asked of it yet."""

    buffers: set[Handle] = field(default_factory=set)
    contexts: set[Handle] = field(default_factory=set)
    states: set[Handle] = field(default_factory=set)
    freed_buffers: set[Handle] = field(default_factory=set)
    freed_contexts: set[Handle] = field(default_factory=set)
    fresh: bool = True


class Supervisor:
    """Keep one worker at a time, replaced as soon as it dies; one assignment at a time.

    `start` makes a worker or raises DeviceUnavailable; `compiler` compiles half of a batch for workers that find what
    others have compiled; `reachable` asks whether the device's machine answers, if that is another one. agent: how
    people call the agent that has the device, if one has. restarts: how many workers were replaced; last_restart: why
    the last of them was.
    """

    def __init__(
        self,
        start: Callable[[], Awaitable[Worker]],
        limits: Limits,
        compiler: Compiler | None = None,
        reachable: Callable[[], bool] = lambda: True,
        agent: str = THE_AGENT,
    ) -> None:
        self._start = start
        self._limits = limits
        self._compiler = compiler
        self._reachable = reachable
        self._agent = agent
        self._worker: Worker | None = None
        self._known = _Handles()  # to this worker
        self._starting: asyncio.Task[Worker] | None = None
        self._busy = False
        self._may_go_on = asyncio.Event()
        self._may_go_on.set()
        self._stopped = False
        self._until = math.inf  # when what is asked now must be over
        self.restarts = 0
        self.last_restart = ""

    # --- life -----------------------------------------------------------------------------------------

    async def start(self) -> WorkerReady:
        """Start the first worker. Raises DeviceUnavailable."""
        return (await self._living()).ready

    async def stop(self) -> None:
        """End the worker; no other is started."""
        self._stopped = True
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait({self._starting})
        if self._compiler is not None:
            await self._compiler.stop()
        if self._worker is not None:
            await self._worker.stop()

    async def end_worker(self) -> None:
        """End the worker, and what compiles for it, until the next request; all that it had comes back then."""
        worker, self._worker = self._worker, None
        if worker is not None:
            await worker.stop()
        if self._compiler is not None:
            await self._compiler.stop()

    async def _living(self) -> Worker:
        """Return the worker, once there is one. Raises DeviceUnavailable."""
        if self._worker is not None and self._worker.ended.done():
            self._replace(self._worker)
        if self._worker is not None:
            return self._worker
        if self._starting is None:
            self._starting = asyncio.ensure_future(self._start_one())
        return await asyncio.shield(self._starting)

    async def _start_one(self) -> Worker:
        try:
            worker = await self._start_unless_killed()
        finally:
            self._starting = None
        self._worker, self._known = worker, _Handles()
        born = time.monotonic()

        def ended(_: asyncio.Future[int]) -> None:
            # one that dies by itself at once would do so again and again
            self._replace(worker, at_once=self._busy or time.monotonic() - born > LIVED_SECONDS)

        worker.ended.add_done_callback(ended)
        return worker

    async def _start_unless_killed(self) -> Worker:
        for _ in range(STARTS_AT_MOST - 1):
            try:
                return await self._start()
            except DeviceUnavailable as error:
                if not error.killed:
                    raise
        return await self._start()

    def _replace(self, worker: Worker, at_once: bool = True) -> None:
        if worker is not self._worker or self._stopped:
            return
        self._worker = None
        self.restarts += 1
        self.last_restart = str(WorkerEnded(worker.ended.result(), worker.killed_for))
        log.warning("%s; it is started again", self.last_restart)
        if at_once:
            self._starting = asyncio.ensure_future(self._start_one())
            self._starting.add_done_callback(_note_failure)

    # --- work -----------------------------------------------------------------------------------------

    async def run(self, work: Assignment) -> Any:
        """Return the reply to the assignment's request; every failure becomes an Error with a name."""
        self._busy = True
        self._may_go_on.set()
        self._until = time.monotonic() + self._limits.total_seconds
        try:
            return await (self._measure(work) if isinstance(work.request, ProfileKernel) else self._do(work))
        except DeviceUnavailable as error:
            return Error("device_unavailable", f"the worker cannot be started again: {error}")
        except ProtocolError as error:
            return Error(error.name, error.message, error.details)
        finally:
            self._busy = False

    def forget(self, buffers: Iterable[Handle], contexts: Iterable[Handle]) -> bool:
        """Note that these handles are not used any more, and say whether the worker knows any of them. It is told then
        at the next occasion. contexts: and states."""
        known = self._known
        known.freed_buffers |= known.buffers.intersection(buffers)
        known.freed_contexts |= (known.contexts | known.states).intersection(contexts)
        return bool(known.freed_buffers or known.freed_contexts)

    def ask_to_yield(self) -> None:
        """Ask the batch to let others have the device between two variants. It says so by Progress, "queued"."""
        if self._worker is not None:
            self._worker.page.ask_to_yield(True)

    def paused(self) -> None:
        """Note that the batch has yielded the device: a worker that is started again for it, too, waits until it may
        `go_on`."""
        self._may_go_on.clear()

    def give_up(self) -> None:
        """Let a batch that has yielded the device find out, without the device, that it is cancelled."""
        self._may_go_on.set()

    def go_on(self) -> None:
        """Note that the batch has the device again."""
        self._may_go_on.set()
        if self._worker is not None:
            self._worker.page.ask_to_yield(False)

    async def tidy(self) -> None:
        """Tell the worker what it can forget."""
        if self._worker is not None:
            self._until = time.monotonic() + self._limits.total_seconds
            with suppress(WorkerLost, ProtocolError):
                await self._tell_freed(self._worker, self._known)

    async def _do(self, work: Assignment) -> Any:
        death: Death | None = None
        while True:
            worker = await self._living()
            if death is not None and death.agent:
                work.progress(Progress("recovering", 0, 1, f"{death.agent} is back"))
            try:
                return await self._attempt(worker, work, work.request, work.progress)
            except WorkerLost as lost:
                _go_on_unless(work.cancelled)
                again, death = death is not None, self._named(lost.death)
                if again or not death.killed or death.final:
                    return death.error
                # SIGKILL comes from outside, where memory runs out for example
                work.progress(Progress("recovering", 0, 1, f"{death.message}; the request is tried once more"))

    async def _measure(self, work: Assignment) -> Any:
        batch = Batch(work.request)
        recover_ns = 0  # from the loss of a worker until the next one is ready
        lost_ns = None
        back: Progress | None = None  # is told once the agent is there again
        while True:
            await self._may_go_on.wait()
            request, worker = batch.remaining(), await self._living()
            if lost_ns is not None:
                recover_ns += time.perf_counter_ns() - lost_ns
            if back is not None:
                work.progress(back)
            if request is None:
                return batch.result(None, recover_ns)
            fresh = self._known.fresh
            try:
                reply = await self._attempt(worker, work, request, lambda told: work.progress(batch.progress(told)))
                if reply.name in _UNFINISHED if isinstance(reply, Error) else reply.state.get("damaged"):
                    self._renew()
                return reply if isinstance(reply, Error) else batch.result(reply, recover_ns)
            except WorkerLost as lost:
                lost_ns = time.perf_counter_ns()
                _go_on_unless(work.cancelled)
                death = await self._cause(lost.death)
                if (told := batch.lost(death, fresh)) is None:
                    return death.error
                work.progress(told)
                message = f"{death.agent} is back"
                back = replace(told, message=message, variant=None, trial=None) if death.agent else None
            except ValueError as error:
                raise _nonsense(worker, str(error)) from None

    async def _cause(self, death: Death) -> Death:
        """Return a death of which nothing is known instead of one by a missed limit, if the line to the device is lost.
        That may take as long as a machine that does not answer is waited for."""
        if death.missed is None or death.final or await asyncio.to_thread(self._reachable):
            return self._named(death)
        return replace(death, how="a lost agent", killed=True, missed=None, ours="", agent=self._agent)

    def _named(self, death: Death) -> Death:
        return replace(death, agent=self._agent) if death.agent else death

    def _renew(self) -> None:
        """Put the copies on the device there again before the next request that names them: they may be damaged.
        States are lost."""
        self.forget(self._known.buffers, self._known.contexts | self._known.states)

    async def _attempt(self, worker: Worker, work: Assignment, request: Any, progress: OnProgress) -> Any:
        """Return the reply of this worker, once it has all that the request needs. Raises WorkerLost, ProtocolError."""
        known, materials = self._known, work.materials()
        await self._tell_freed(worker, known)
        for handle in materials.states:
            if handle not in known.states:
                what = f"state {handle} is lost with the worker that had it on the device: open another one"
                raise ProtocolError("unknown_state", what, {"state": handle})
        puts = [
            *((known.buffers, handle, _put_of(handle, data)) for handle, data in materials.buffers.items()),
            *((known.contexts, handle, PutContext(handle, *how)) for handle, how in materials.contexts.items()),
        ]
        for there, handle, message in puts:
            if handle not in there:
                reply = await self._put(worker, there, handle, message, work)
                if isinstance(reply, Error) and _no_room(reply) and self._make_room(materials):
                    await self._tell_freed(worker, known)
                    reply = await self._put(worker, there, handle, message, work)
                if isinstance(reply, Error):
                    return reply
        compiler = self._compiler if worker.ready.finds_compiled and isinstance(request, ProfileKernel) else None
        first = None if compiler is None else compiler.first_of(request)
        if materials.sources or work.programs or first is not None:
            beside = PutBeside(dict(materials.sources), dict(work.programs), first)
            await self._ask(worker, beside, work.cancelled)
        known.fresh = False
        if isinstance(request, PutContext | PutState):
            there = known.contexts if isinstance(request, PutContext) else known.states
            return await self._put(worker, there, request.handle, request, work)
        if compiler is not None and first is not None:
            return await self._ask_both(worker, compiler, first, work, request, materials, progress)
        return await self._ask(worker, request, work.cancelled, progress)

    async def _ask_both(
        self,
        worker: Worker,
        compiler: Compiler,
        first: int,
        work: Assignment,
        request: ProfileKernel,
        materials: Materials,
        progress: OnProgress,
    ) -> Any:
        """Return the worker's reply, while the variants from `first` on are compiled for it. Raises WorkerLost."""
        sizes = {name: _nbytes(materials.buffers[handle]) for name, handle in request.buffers.items()}
        variants = tuple(replace(variant, prepare=()) for variant in request.variants[first:])
        ahead = CompileAhead(variants, sizes | {OUTPUT: request.output_bytes}, dict(materials.sources))
        worker.page.accompany(True)
        asking = asyncio.ensure_future(self._ask(worker, request, work.cancelled, progress))
        compiling = asyncio.ensure_future(compiler.compile_half(ahead, worker.page, asking))
        try:
            await asyncio.wait({asking, compiling})
        finally:  # nothing of it is left, also when the server is being stopped
            asking.cancel()
            compiling.cancel()
        reply, took = asking.result(), compiling.result()
        return with_what_it_took(reply, first, took) if isinstance(reply, Profiled) and took is not None else reply

    def _make_room(self, materials: Materials) -> bool:
        """Let the worker forget what this request does not name, and say whether there is any. It comes back when it is
        named."""
        known = self._known
        others = known.buffers - materials.buffers.keys(), known.contexts - materials.contexts.keys()
        return self.forget(*others)

    async def _put(self, worker: Worker, there: set[Handle], handle: Handle, message: Any, work: Assignment) -> Any:
        _go_on_unless(work.cancelled)
        with _own_descriptor(message) as message:
            there.add(handle)  # also while it is on the way, so that it is not forgotten to be freed
            reply = await self._ask(worker, message, work.cancelled)
        if isinstance(reply, Error):
            there.discard(handle)
        return reply

    async def _tell_freed(self, worker: Worker, known: _Handles) -> None:
        buffers, contexts = known.freed_buffers, known.freed_contexts
        if buffers or contexts:
            known.buffers -= buffers
            known.contexts -= contexts
            known.states -= contexts
            known.freed_buffers, known.freed_contexts = set(), set()
            await self._ask(worker, Forget(tuple(buffers), tuple(contexts)))

    async def _ask(
        self,
        worker: Worker,
        message: Any,
        cancelled: asyncio.Future[None] | None = None,
        progress: OnProgress = lambda message: None,
    ) -> Any:
        if cancelled is not None:
            _go_on_unless(cancelled)
        reply = await watched(worker, message, self._limits, self._until, cancelled, progress)
        made = {PutContext: ContextLoaded, PutState: StateReady}
        expected = made.get(type(message)) or REPLIES.get(type(message), Done)
        if not isinstance(reply, (expected, Error)):
            raise _nonsense(worker, f"{type(reply).__name__} in reply to {type(message).__name__}")
        return reply


def _put_of(handle: Handle, data: Blob | Registered) -> Any:
    if isinstance(data, Registered):
        return WithDescriptor(PutMemory(handle, data.nbytes, data.offset), data.descriptor)
    return PutBuffer(handle, data)


@contextmanager
def _own_descriptor(message: Any) -> Iterator[Any]:
    """Yield the message with a descriptor that lasts until it is sent, whatever the client gives up meanwhile."""
    if not isinstance(message, WithDescriptor) or message.descriptor is None:
        yield message
        return
    try:
        own = message.descriptor.duplicate()
    except UnusableMemory as error:
        raise ProtocolError("unusable_memory", str(error)) from None
    with own:
        yield WithDescriptor(message.message, own)


def _nbytes(data: Blob | Registered) -> int:
    return data.nbytes if isinstance(data, Registered) else memoryview(data).nbytes


def _go_on_unless(cancelled: asyncio.Future[None]) -> None:
    if cancelled.done():
        raise ProtocolError("cancelled", "the client has cancelled the request")


def _no_room(error: Error) -> bool:
    return error.details.get("status") == LimitExceeded.status


def _nonsense(worker: Worker, what: str) -> ProtocolError:
    worker.kill(f"it sent nonsense: {what}")
    return ProtocolError("internal_error", f"the worker sent nonsense and was ended: {what}")


def _note_failure(starting: asyncio.Task[Worker]) -> None:
    if not starting.cancelled() and (error := starting.exception()) is not None:
        log.error("no worker can be started: %s", error)
