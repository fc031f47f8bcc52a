"""Run the target server: let clients in over TCP or a local socket, and keep everything going that serves them.

The daemon never imports pyopencl and touches no device: whatever a driver does to a worker process, the daemon and its
connections live on.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

from gputune.core.identity import DeviceIdentity
from gputune.core.quirks import quirks_of
from gputune.core.version import software_version
from gputune.runtime.contexts.device import why_no_contexts
from gputune.runtime.devices.discovery import DeviceReport
from gputune.runtime.devices.features import PROBES
from gputune.runtime.power.profiles.chosen import setting_of
from gputune.runtime.power.profiles.perf_profile import PerfProfile
from gputune.server.agent.opening import answers, power_of, state_of
from gputune.server.clients.admission import Admission
from gputune.server.clients.authentication import Authentication
from gputune.server.clients.client_link import ClientLink
from gputune.server.clients.guesses import Guesses
from gputune.server.clients.listener import Listener
from gputune.server.clients.local_socket import LocalListener
from gputune.server.clients.perf_profiles import PerfProfiles
from gputune.server.clients.service import Service
from gputune.server.device_state import RecentState
from gputune.server.protocol.authentication import SALT, stretched
from gputune.server.protocol.errors import ProtocolError
from gputune.server.protocol.limits import Limits
from gputune.server.protocol.messages import StatusReport, Welcome
from gputune.server.sessions.memory import sensible_bytes
from gputune.server.worker.link import WorkerReady
from gputune.server.workers.compiled_programs import CompiledPrograms
from gputune.server.workers.compiler import Compiler
from gputune.server.workers.crash_recovery import THE_AGENT
from gputune.server.workers.pool import Workers, most_compilers
from gputune.server.workers.process import DeviceUnavailable, WorkerProcess
from gputune.server.workers.supervisor import Supervisor

log = logging.getLogger("gputune.server")

T = TypeVar("T")
TICK_SECONDS = 0.5
FLUSH_SECONDS = 5.0  # for the last replies, when the server is stopped


class Daemon:
    """Serve clients on a bound port or local socket until `stop` or `stop_now` is called.

    overlap: programs of waiting requests are built in a second worker while the first one measures; only for devices
    that this does not disturb. limits: what clients are told, once the device is known. perf_profile: for clients that
    set none.
    """

    def __init__(
        self,
        listener: Listener | LocalListener,
        report: DeviceReport,
        limits: Limits | None = None,
        authentication: Authentication | None = None,
        overlap: bool = False,
        perf_profile: PerfProfile | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self._listener = listener
        self._report = report
        authentication = authentication or Authentication()
        self.token = authentication.token
        self.guesses = Guesses()
        seconds = self.limits.authenticate_seconds
        self._admission = Admission(listener, authentication, seconds, lambda arrival: ClientLink(self, arrival))
        self._overlap = overlap
        self._perf_profile = perf_profile
        self._links: set[ClientLink] = set()
        self._connections = 0  # until now
        self._device: dict[str, object] = {}
        self._server: dict[str, object] = {}
        self._began = time.monotonic()
        self._compiled = CompiledPrograms(report)
        further = _further_compilers(report)
        half = Compiler(self._start_compiler, self.limits) if further else None
        self._reachable = functools.partial(answers, report)
        self._agent = report.driver_file if report.remote else THE_AGENT
        first = Supervisor(self._start_worker, self.limits, half, self._reachable, self._agent)
        self._workers = Workers(first, self._further_supervisor, further, self._compiled, self._another_supervisor)
        self._requests: Counter[str] = Counter()  # of the clients that are gone
        self._far_state = state_of(report)
        self._state = RecentState() if self._far_state is None else RecentState(self._far_state.read)
        self._stopping = asyncio.Event()
        self._stopping_now = asyncio.Event()

    def stop(self) -> None:
        """Make `serve` return once the batch in flight is answered; called again, at once."""
        if self._stopping.is_set():
            self._stopping_now.set()
        self._stopping.set()

    def stop_now(self) -> None:
        """Make `serve` return as soon as the worker is stopped."""
        self._stopping.set()
        self._stopping_now.set()

    async def serve(self, announce: Callable[[Welcome], None]) -> None:
        """Open the device, call announce(Welcome) once clients can connect, and serve until it is stopped.

        Raises DeviceUnavailable, CannotListen.
        """
        stretching: asyncio.Future[bytes] | None = None
        if self.token is not None:  # now, so that no client has to wait for it
            stretching = asyncio.get_running_loop().run_in_executor(None, stretched, self.token, SALT)
        try:
            if (ready := await self._unless_stopped(self._workers.first.start())) is None:
                return
            if (why := await self._unless_stopped(asyncio.to_thread(_why_no_contexts, self._report))) is None:
                return
            if stretching is not None:
                await stretching
            largest = ready.device["max_allocation_bytes"]
            assert isinstance(largest, int)
            total = min(self.limits.total_bytes, sensible_bytes())
            self.limits = replace(
                self.limits,
                buffer_bytes=min(self.limits.buffer_bytes, largest, total),
                session_bytes=min(self.limits.session_bytes, total),
                total_bytes=total,
            )
            self._device = ready.device
            self._server = {
                "software": software_version(),
                "backend": ready.backend,
                "settings": ready.settings,
                "features": sorted(PROBES),
                "no_contexts": why,
                "states": not why,
                "instance": secrets.token_hex(8),  # tells a server that was started again from a lost connection
            }
            await self._serve_clients(announce, ready)
        finally:
            self._listener.close()
            await self._workers.stop()
            self._compiled.remove()
            if self._far_state is not None:
                self._far_state.close()

    async def _unless_stopped(self, starting: Awaitable[T]) -> T | None:
        """Return what is waited for; None when the server is stopped before it is there."""
        ready, stopping = asyncio.ensure_future(starting), asyncio.ensure_future(self._stopping.wait())
        try:
            await _first(ready, stopping)
            return ready.result() if ready.done() else None
        finally:
            ready.cancel()
            stopping.cancel()

    async def _serve_clients(self, announce: Callable[[Welcome], None], ready: WorkerReady) -> None:
        device = DeviceIdentity.from_dict(self._device)
        try:
            far = power_of(self._report)
            profiles = await asyncio.to_thread(PerfProfiles, device, self._perf_profile, far)
        except ValueError as error:
            raise DeviceUnavailable(f"perf profile: {error}") from None
        if self._perf_profile is not None:
            controls = await asyncio.to_thread(lambda: profiles.default_controls)
            settings = setting_of(self._perf_profile, controls)
            self._server["settings"] = {**ready.settings, **settings}
        self.service = Service(self._workers, self.limits, self._status, profiles)
        serving = asyncio.ensure_future(self.service.serve())
        others = [asyncio.ensure_future(self._tick())]
        if self._overlap:
            compiler = Compiler(self._start_worker, self.limits)
            self.service.queue_changed = compiler.wake
            others.append(asyncio.ensure_future(compiler.serve(self.service.soon)))
        self._listener.listen()
        accepting = asyncio.ensure_future(self._admission.serve())
        try:
            announce(self.welcome())
            await self._until_stopped(accepting, serving)
        finally:
            for task in (accepting, serving, *others):
                task.cancel()
            for link in list(self._links):
                link.abort()
            await asyncio.gather(accepting, serving, *others, return_exceptions=True)
            await asyncio.to_thread(self.service.perf_profiles.close)

    async def _until_stopped(self, accepting: asyncio.Future[None], serving: asyncio.Future[None]) -> None:
        """Wait for the end, then finish what is in flight unless it has to be at once."""
        now = asyncio.ensure_future(self._stopping_now.wait())
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await _first(serving, stopping, accepting)
            accepting.cancel()
            await asyncio.wait({accepting})
            self._listener.close()
            if not accepting.cancelled():
                accepting.result()  # a defect is not hidden
            if not serving.done():
                self.service.stop()
                await _first(serving, now)
            if serving.done():
                serving.result()  # nor here
                for link in list(self._links):
                    link.close()
                await _first(now, asyncio.gather(*(link.closed for link in self._links)), seconds=FLUSH_SECONDS)
        finally:
            now.cancel()
            stopping.cancel()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            try:
                now = time.monotonic()
                for link in list(self._links):
                    link.check(now)
                self._admission.check(now)
                self.service.share(now)
                self.service.tell_places(now)
            except Exception:
                log.exception("internal error while checking the clients")

    async def _start_worker(self) -> WorkerProcess:
        return await WorkerProcess.start(self._report, self.limits, self._compiled.folder)

    def _further_supervisor(self) -> Supervisor:
        return Supervisor(self._start_compiler, self.limits)

    def _another_supervisor(self) -> Supervisor:
        return Supervisor(self._start_worker, self.limits, reachable=self._reachable, agent=self._agent)

    async def _start_compiler(self) -> WorkerProcess:
        # it measures nothing, and keeps to no core, so that it takes one which other workers leave
        assert self._report.identity is not None
        unbound = quirks_of(self._report.identity).unbound
        return await WorkerProcess.start(self._report, self.limits, self._compiled.folder, **unbound)

    # --- for the links --------------------------------------------------------------------------------

    def enter(self, link: ClientLink) -> int:
        """Return the number of a new connection."""
        self._links.add(link)
        self._connections += 1
        return self._connections

    def let_in(self, link: ClientLink) -> None:
        """Let in a client that knows the token. Raises ProtocolError (too_many_connections)."""
        allowed = self.limits.connections
        if self.service.clients >= allowed:
            details = {"limit": "connections", "allowed": allowed, "got": allowed + 1}
            message = f"the server serves {allowed} clients already, its limit connections; try again later"
            raise ProtocolError("too_many_connections", message, details)
        self._admission.passed(link)

    def welcome(self) -> Welcome:
        """Return what a client is told that has shown that it knows the token."""
        return Welcome(self.limits, self._device, self._server)

    def leave(self, link: ClientLink) -> None:
        """Note that the connection is gone."""
        self._admission.left(link)
        self._links.discard(link)
        self._requests += link.requests

    async def _status(self) -> StatusReport:
        state = await self._state.read()
        return StatusReport(
            software=software_version(),
            device=self._device,
            uptime_seconds=time.monotonic() - self._began,
            clients=self.service.clients,
            queued=len(self.service.waiting()),
            running=self.service.running,
            worker_restarts=self._workers.restarts,
            last_restart=self._workers.last_restart,
            requests=dict(sum((link.requests for link in self._links), self._requests)),
            memory_bytes=self.service.memory.bytes,
            state=state | self.service.perf_profiles.state(),
        )


def _why_no_contexts(report: DeviceReport) -> str:
    """Return why no context can run on the device, after building what that takes, so that no worker has to. Raises
    DeviceUnavailable."""
    try:
        why = why_no_contexts(report)
    except ValueError as error:
        raise DeviceUnavailable(str(error)) from None
    if why:
        log.warning("no contexts run here: %s", why)
    return why


def _further_compilers(report: DeviceReport) -> int:
    """Return how many further processes can compile for this device, and would disturb it while it measures."""
    if report.identity is None or report.identity.device_type != "cpu" or report.simulated:
        return 0
    if report.remote:  # an agent does not say how much memory there is
        return min(report.identity.compute_units - 1, 1)
    return most_compilers() - 1


async def _first(*futures: asyncio.Future[Any], seconds: float | None = None) -> None:
    """Wait until one of them is done, or so many seconds."""
    await asyncio.wait(futures, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
