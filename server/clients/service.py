"""Serve clients: answer at once what needs no device, and have the worker do the rest in turns."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any

from gputune.core.batches import ProfileKernel
from gputune.core.bounds import Handle
from gputune.runtime.memory.passing import WithDescriptor
from gputune.server.clients.fair_queue import FairQueue
from gputune.server.clients.perf_profiles import PerfProfiles
from gputune.server.protocol.amounts import check_limits
from gputune.server.protocol.errors import ProtocolError
from gputune.server.protocol.limits import Limits
from gputune.server.protocol.messages import (
    KINDS,
    Cancel,
    ContextLoaded,
    Done,
    DownloadBuffer,
    Error,
    FreeBuffers,
    FreeContexts,
    FreeStates,
    LoadContext,
    OpenState,
    Progress,
    RegisterMemory,
    SetPerfProfile,
    StateReady,
    Status,
    StatusReport,
    UploadBuffer,
)
from gputune.server.sessions.jobs import Assignment, Client, Job
from gputune.server.sessions.memory import Memory
from gputune.server.sessions.session import Session, memory_of
from gputune.server.worker.link import PutContext, PutState
from gputune.server.workers.pool import Workers
from gputune.server.workers.supervisor import Supervisor

log = logging.getLogger("gputune.server")

SLICE_SECONDS = 2.0  # that a batch has the device at least before it yields it; taking it up again costs about 10 ms


class Service:
    """Answer requests. `status` makes the reply to Status.

    queue_changed: called when something new waits for the device, has its turn, or does not wait any more; memory: what
    is held for all clients.
    """

    def __init__(
        self,
        workers: Workers,
        limits: Limits,
        status: Callable[[], Awaitable[StatusReport]],
        perf_profiles: PerfProfiles,
    ) -> None:
        self.queue_changed: Callable[[], None] = lambda: None
        self.perf_profiles = perf_profiles
        self.memory = Memory(limits.total_bytes, limits.total_registered)
        self._workers = workers
        self._limits = limits
        self._handles = itertools.count(1)
        self._fair_queue: FairQueue[Client, Job] = FairQueue()
        self._sessions: dict[Client, Session] = {}
        self._jobs: dict[Client, dict[int, Job]] = {}
        self._held_back: set[Client] = set()
        self._serving: dict[Job, asyncio.Task[None]] = {}  # what has the device, and what has yielded it
        self._running: dict[Job, Supervisor] = {}  # of these, what has it: several while nothing is measured
        self._paused: dict[Job, Supervisor] = {}  # and what has yielded it, which waits for its next turn
        self._charged = 0.0  # until when their clients have been charged
        self._work = asyncio.Event()
        self._stopping = False
        self._status = status
        self._telling: set[asyncio.Task[None]] = set()  # what is answered soon, without the device
        self._at_once: Mapping[type, Callable[[Session, Any], Any]] = {
            UploadBuffer: Session.upload,
            WithDescriptor: Session.register,
            RegisterMemory: Session.refuse_memory,
            DownloadBuffer: lambda session, request: session.download(request.buffer),
            FreeBuffers: self._free_buffers,
            FreeContexts: self._free_contexts,
            FreeStates: self._free_states,
        }

    # --- clients --------------------------------------------------------------------------------------

    def join(self, client: Client) -> None:
        """Let a client in, which may ask until it leaves."""
        self._jobs[client] = {}
        self._sessions[client] = Session(self._limits, self._handles, self.memory)

    def leave(self, client: Client) -> None:
        """Free what a client that is gone has, and drop or give up what it waits for."""
        for job in self._jobs.pop(client).values():
            _set(job.cancelled)
            if job not in self._serving:
                self._let_go(job)
            elif job in self._paused:
                self._paused[job].give_up()
        self._fair_queue.leave(client)
        self.queue_changed()
        self._held_back.discard(client)
        self.perf_profiles.leave(client)
        session = self._sessions.pop(client)
        self._forget(*session.handles)
        session.end()

    def hold_back(self, client: Client, back: bool) -> None:
        """Return whether the client does not read its replies: no more are made for it then."""
        if back:
            self._held_back.add(client)
        else:
            self._held_back.discard(client)
            self._work.set()

    # --- requests -------------------------------------------------------------------------------------

    def request(self, client: Client, request_id: int, request: Any) -> None:
        """Answer a request now or later; every failure becomes an Error with a name."""
        try:
            check_limits(request.message if isinstance(request, WithDescriptor) else request, self._limits)
            if self._stopping and not isinstance(request, _WHILE_STOPPING):
                raise _stopping()
            if isinstance(request, Cancel):
                self._cancel(client, request)
                client.send(Done(), request_id)
            elif isinstance(request, Status):
                self._later(self._tell_status(client, request_id))
            elif isinstance(request, SetPerfProfile):
                self._later(self._set_perf_profile(client, request_id, request))
            elif (answer := self._at_once.get(type(request))) is not None:
                client.send(answer(self._sessions[client], request), request_id)
            else:
                self._queue(client, request_id, request)
        except ProtocolError as error:
            client.send(as_message(error), request_id)

    def _later(self, answering: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(answering)
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _set_perf_profile(self, client: Client, request_id: int, request: SetPerfProfile) -> None:
        if client not in self._sessions:  # it has left since it has asked
            return
        try:
            reply: Any = await self.perf_profiles.set(client, request)
        except ProtocolError as error:
            reply = as_message(error)
        client.send(reply, request_id)

    async def _tell_status(self, client: Client, request_id: int) -> None:
        try:
            reply: Any = await self._status()
        except Exception as error:
            log.exception("internal error while collecting the server's status")
            reply = _defect(error)
        client.send(reply, request_id)

    def _queue(self, client: Client, request_id: int, request: Any) -> None:
        session = self._sessions[client]
        session.materials(request)  # an unknown handle need not wait to be told
        request, sources = session.without_sources(request)
        message = request
        held_bytes = client.cost(request_id) + sum(map(memory_of, sources.values()))
        session.hold(held_bytes)
        try:
            if isinstance(request, LoadContext):
                handle, data = session.reserve_context(request)
                message = PutContext(handle, request, data)
            elif isinstance(request, OpenState):
                message = PutState(session.reserve_state(), request.context, request.state)
        except ProtocolError:
            session.release(held_bytes)
            raise
        cancelled = asyncio.get_running_loop().create_future()
        job = Job(client, session, request_id, request, message, held_bytes, cancelled, sources)
        self._jobs[client][request_id] = job
        self._fair_queue.add(client, job, client.tenant)
        self._work.set()
        self.queue_changed()

    def _cancel(self, client: Client, request: Cancel) -> None:
        job = self._jobs[client].get(request.request)
        if job is not None and job in self._serving:
            self._give_up(job)
        elif job is not None and self._fair_queue.remove(client, job):
            _set(job.cancelled)
            self._finish(job, Error("cancelled", "the client has cancelled the request"))
            self.queue_changed()

    def _give_up(self, job: Job) -> None:
        _set(job.cancelled)
        if job in self._paused:
            self._fair_queue.remove(job.client, job)
            self._paused[job].give_up()

    def _free_buffers(self, session: Session, request: FreeBuffers) -> Done:
        done = session.free_buffers(request)
        self._forget(request.buffers, ())
        return done

    def _free_contexts(self, session: Session, request: FreeContexts) -> Done:
        done = session.free_contexts(request)
        self._forget((), request.contexts)
        return done

    def _free_states(self, session: Session, request: FreeStates) -> Done:
        done = session.free_states(request)
        self._forget((), request.states)
        return done

    def _forget(self, buffers: Iterable[Handle], contexts: Iterable[Handle]) -> None:
        if self._workers.forget(buffers, contexts):
            self._work.set()  # an idle worker is told at once

    # --- the device -----------------------------------------------------------------------------------

    async def serve(self) -> None:
        """Have the workers do one job after the other; return after `stop`, when those in flight are answered."""
        try:
            while not self._stopping:
                self._work.clear()
                if not self._serve_next():
                    await self._workers.tidy()
                    await self._work.wait()
            await asyncio.gather(*self._serving.values())
        finally:
            for task in self._serving.values():
                task.cancel()
            await asyncio.gather(*self._serving.values(), return_exceptions=True)

    def stop(self) -> None:
        """Take no more requests for the device; those that wait are told so."""
        self._stopping = True
        for job in self._fair_queue.order():
            self._fair_queue.remove(job.client, job)
            if job in self._paused:
                self._give_up(job)
            else:
                _set(job.cancelled)
                self._finish(job, as_message(_stopping()))
        self.queue_changed()
        self._work.set()

    def _serve_next(self) -> bool:
        # a method of its own, so that no variable holds a job, and with it a client's buffers, while nothing is done
        held_back: set[Client] = self._held_back
        if self._workers.all_wait:  # with batches: one of those goes on
            held_back = held_back | (self._jobs.keys() - {job.client for job in self._paused})
        while (job := self._fair_queue.first(held_back)) is not None and self._workers.waits_for_batch(job.has_state):
            held_back = held_back | {job.client}
        if job is None:
            return False
        supervisor = self._paused.get(job) or self._workers.take(job.message, job.has_state)
        if supervisor is None or (job in self._paused and not self._workers.go_on(supervisor)):
            return False
        self._fair_queue.next(held_back)
        self._charge()
        self._running[job], job.since = supervisor, time.monotonic()
        if self._paused.pop(job, None) is None:
            self._serving[job] = asyncio.ensure_future(self._run(job, supervisor))
        self.queue_changed()
        return True

    async def _run(self, job: Job, supervisor: Supervisor) -> None:
        def progress(message: Progress) -> None:
            if message.phase == "queued" and job in self._running:
                self._pause(job)
            else:
                job.progress(message)

        work = Assignment(job.message, job.materials, progress, job.cancelled, job.programs or {})
        job.programs = work.programs  # nothing is built ahead for it any more
        try:
            async with self.perf_profiles.voted(job.client):
                reply = await self._workers.run(supervisor, work)
        except Exception as error:
            log.exception("internal error while serving %s", type(job.request).__name__)
            reply = _defect(error)
        finally:
            self._charge()
            self._running.pop(job, None)
            self._paused.pop(job, None)
            del self._serving[job]
            self._work.set()
        if reply is not None and not (self._stopping and job.cancelled.done()):
            self._finish(job, reply)
        elif self._stopping:
            self._finish(job, as_message(_stopping()))
        elif job.client in self._jobs:
            self._fair_queue.add(job.client, job, job.client.tenant)
        else:
            self._let_go(job)

    # --- batches that yield the device ----------------------------------------------------------------

    def share(self, now: float) -> None:
        """Ask batches that have had the device for a while to let it to those that wait and have used less."""
        self._charge()
        if not self._workers.room and self._fair_queue.first(self._held_back) not in self._paused:
            return
        for job, supervisor in self._running.items():
            if now - job.since >= SLICE_SECONDS and self._fair_queue.before(job.client, self._held_back):
                supervisor.ask_to_yield()

    def _pause(self, job: Job) -> None:
        """Let a batch that has yielded the device wait for its next turn, as the first request of its client."""
        self._charge()
        self._paused[job] = supervisor = self._running.pop(job)
        self._workers.pause(supervisor)
        if not job.cancelled.done():
            self._fair_queue.add(job.client, job, job.client.tenant, first=True)
        else:
            supervisor.give_up()
        self.queue_changed()
        self._work.set()

    def _charge(self) -> None:
        """Charge the time since the last call to those whose jobs are served, in equal shares."""
        now = time.monotonic()
        for job in self._running:
            self._fair_queue.spent(job.client, (now - self._charged) / len(self._running))
        self._charged = now

    def _finish(self, job: Job, reply: Any) -> None:
        jobs = self._jobs.get(job.client)
        try:
            self._let_go(job, None if jobs is None else reply)
        except ProtocolError as error:  # there is no room for the state that it has opened
            reply = as_message(error)
        if jobs is not None:
            del jobs[job.request_id]
            job.client.send(reply, job.request_id)
        if (jobs is None or isinstance(reply, Error)) and isinstance(job.message, PutContext | PutState):
            self._forget((), (job.message.handle,))

    def _let_go(self, job: Job, reply: Any = None) -> None:
        """Free what a job that is over has taken, but for the context or state that its reply names. Raises
        ProtocolError where that state does not go in, which is gone then."""
        job.session.release(job.held_bytes)
        if isinstance(job.message, PutContext):
            job.session.context_loaded(job.message.handle, isinstance(reply, ContextLoaded))
        elif isinstance(job.message, PutState):
            job.session.state_opened(job.message.handle, reply.nbytes if isinstance(reply, StateReady) else None)

    # --- what is going on -----------------------------------------------------------------------------

    def waiting(self) -> list[Job]:
        """Return the jobs that wait, about in the order in which they will be served."""
        return self._fair_queue.order()

    def soon(self) -> list[Job]:
        """Return the waiting jobs that can be served."""
        return self._fair_queue.order(self._held_back)

    @property
    def clients(self) -> int:
        """Return how many may ask."""
        return len(self._sessions)

    @property
    def running(self) -> str:
        """Return what the device does, in words; empty when nothing."""
        kinds = Counter(
            f"{KINDS[type(request)]} {request.task}" if isinstance(request, ProfileKernel) else KINDS[type(request)]
            for request in (job.request for job in self._running)
        )
        return ", ".join(kind if count == 1 else f"{count} x {kind}" for kind, count in kinds.items())

    def tell_places(self, now: float) -> None:
        """Tell those that wait how many are before them, when that has changed and every heartbeat."""
        for before, job in enumerate(self._fair_queue.order(), start=len(self._running)):
            if job.client in self._held_back:
                continue
            if before != job.before or now - job.told >= self._limits.heartbeat_seconds:
                job.before, job.told = before, now
                job.progress(Progress("queued", 0, before, f"{before} requests are served before this one"))


_MESSAGE_CHARACTERS = 4000
_WHILE_STOPPING = (Status, Cancel, DownloadBuffer, FreeBuffers, FreeContexts, FreeStates)


def as_message(error: ProtocolError) -> Error:
    """Return the message that tells a client of an error."""
    return Error(error.name, error.message, error.details)


def _defect(error: Exception) -> Error:
    return Error("internal_error", f"{type(error).__name__}: {error}"[:_MESSAGE_CHARACTERS])


def _stopping() -> ProtocolError:
    return ProtocolError("stopping", "the server is being stopped and takes no more requests")


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
