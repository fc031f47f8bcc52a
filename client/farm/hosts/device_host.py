"""Hold one target for a farm: locked and checked, lent to one job at a time until its lease ends, with that job's
sessions."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from gputune.client.errors import TargetError
from gputune.client.farm.engine import Announced, Call, checked_name
from gputune.client.farm.frames import OPEN_LIMITS, REQUESTS, error_frame, from_bytes, to_bytes
from gputune.client.farm.hosts.device_lock import DeviceLock
from gputune.client.farm.hosts.health import Speed, measure
from gputune.client.target.connecting import Target
from gputune.client.target.several import settings_of
from gputune.client.target.transport.target_connection import TargetConnection
from gputune.core.batches import ProfileKernel
from gputune.core.identity import DeviceIdentity
from gputune.core.opened import Closing
from gputune.core.version import software_version
from gputune.runtime.devices.discovery import REPLAY, SIMULATED
from gputune.server.protocol.errors import ProtocolError
from gputune.server.protocol.messages import (
    PROTOCOL_VERSION,
    Error,
    Hello,
    Ping,
    Pong,
    Progress,
    Status,
    StatusReport,
    Welcome,
)

log = logging.getLogger(__name__)

LEASE_SECONDS = 15.0
"""A job that has not been heard of for so long has the device no more."""
CHECK_SECONDS = 30.0
"""So often, at most, the health check is repeated while batches are measured."""
TICK_SECONDS = 1.0


@dataclass
class _Session:
    """Hold one client's connection to the device's server. asked: whether a request is under way."""

    connection: TargetConnection
    lock: threading.Lock = field(default_factory=threading.Lock)
    asked: bool = False


@dataclass
class _Counts:
    """Hold what a worker tells of its work."""

    batches: int = 0
    trials: int = 0
    failures: int = 0
    busy_ns: int = 0
    running: str = ""
    problem: str = ""
    speed: Speed | None = None
    recent: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=1000))
    state: Mapping[str, object] = field(default_factory=dict)


class DeviceHost(Closing):
    """Answer the calls of clients for one device. Any thread may call it; at most one request of a session, and one
    batch of all sessions, is under way."""

    def __init__(self, name: str, target: Target, lock: DeviceLock | None = None) -> None:
        """Own target and lock. Raises FarmError, TargetError (unhealthy and what connecting raises)."""
        self._target = target
        self._lock = lock
        self._sessions: dict[str, _Session] = {}
        self._job, self._until = "", 0.0
        self._guarded = threading.RLock()
        self._device = threading.Lock()
        self._counts = _Counts()
        self._draining = threading.Event()
        self._stop = threading.Event()
        self._checked = 0.0
        try:
            self._own = _Session(target.dial())
            self._announced = _announced(checked_name(name, "a worker's name"), self._own.connection)
            self._check_health()
        except BaseException:
            self._give_back()
            raise
        self._keeper = threading.Thread(target=self._keep, name=f"host of {name}", daemon=True)
        self._keeper.start()

    # --- life -------------------------------------------------------------------------------------

    @property
    def announced(self) -> Announced:
        """Return what is said of the device, with how it is now."""
        return replace(self._announced, report=self.report())

    @property
    def drained(self) -> bool:
        """Return whether it was asked to leave and no job has it any more."""
        return self._draining.is_set() and not self._sessions

    @property
    def draining(self) -> bool:
        """Return whether it was asked to leave."""
        return self._draining.is_set()

    def report(self) -> dict[str, object]:
        """Return how the device is, as plain values."""
        counts = self._counts
        return {
            "job": self._job,
            "draining": self.draining,
            "running": counts.running,
            "batches": counts.batches,
            "trials": counts.trials,
            "failures": counts.failures,
            "trials_per_minute": self._recent_trials(),
            "busy_seconds": counts.busy_ns / 1e9,
            "problem": counts.problem,
            "speed": [] if counts.speed is None else counts.speed.to_list(),
            "state": dict(counts.state),
        }

    def close(self) -> None:
        """End all sessions and give the device back."""
        self._stop.set()
        self._end_job()
        self._give_back()

    def _give_back(self) -> None:
        if (own := getattr(self, "_own", None)) is not None:
            own.connection.close()
        self._target.close()
        if self._lock is not None:
            self._lock.close()

    # --- calls ------------------------------------------------------------------------------------

    def answer(self, call: Call, tell: Callable[[bytes], None]) -> bytes:
        """Return the frame that answers a call; `tell` takes those that come before it. Raises nothing: what goes wrong
        is the frame of an Error."""
        try:
            return self._orders[call.order](self, call, tell)
        except ProtocolError as error:
            return error_frame(error, error.request_id)
        except TargetError as error:
            return error_frame(None, 0, error.name, error.reason)

    def _open(self, call: Call, tell: Callable[[bytes], None]) -> bytes:
        number, hello = from_bytes(call.frame, REQUESTS, OPEN_LIMITS)
        if not isinstance(hello, Hello):
            raise TargetError("unexpected_message", f"{type(hello).__name__} instead of a Hello, which opens a session")
        if hello.protocol != PROTOCOL_VERSION or hello.software != software_version():
            mine = f"{software_version()}, protocol {PROTOCOL_VERSION}"
            raise TargetError(
                "version_mismatch", f"the client is {hello.software}, protocol {hello.protocol}; the worker {mine}"
            )
        with self._guarded:
            if self.draining or self._stop.is_set():
                raise TargetError("stopping", "the worker is leaving")
            if self._job not in ("", call.job):
                raise TargetError("device_busy", f"job {self._job} has the device")
            self._take(call.job)
            connection = self._dialled()
            self._sessions[call.session] = _Session(connection)
        return to_bytes(Welcome(connection.limits, connection.device, connection.server), number)

    def _ask(self, call: Call, tell: Callable[[bytes], None]) -> bytes:
        session = self._session(call)
        number, request = from_bytes(call.frame, REQUESTS, session.connection.limits)
        if isinstance(request, Hello):
            raise TargetError("unexpected_message", "Hello in a session that is open already")
        try:
            with session.lock:
                session.asked = True
                try:
                    reply = self._asked(session, request, lambda progress: tell(to_bytes(progress, number)))
                finally:
                    session.asked = False
        except TargetError as error:  # whatever it was, the connection is closed
            self._drop(call.session)
            if error.name == "connection_lost":
                self._drop_idle(session.connection.server.get("instance"))
            raise
        self._renew(call.job)
        if isinstance(request, ProfileKernel):
            self._after_batch()
        return to_bytes(reply, number)

    def _asked(self, session: _Session, request: Any, tell: Callable[[Progress], None]) -> Any:
        if not isinstance(request, ProfileKernel):
            return session.connection.ask(request, tell)
        with self._device:
            began, self._counts.running = time.monotonic_ns(), request.task
            try:
                reply = session.connection.ask(request, tell)
            finally:
                self._counts.busy_ns += time.monotonic_ns() - began
                self._counts.running = ""
        self._count(reply)
        return reply

    def _close(self, call: Call, tell: Callable[[bytes], None]) -> bytes:
        self._drop(call.session)
        return to_bytes(Pong(), 1)

    def _cancel(self, call: Call, tell: Callable[[bytes], None]) -> bytes:
        """End the request under way, with the session: the server frees what belongs to it."""
        session = self._sessions.get(call.session)
        if session is not None and session.asked:
            session.connection.hang_up()
        return to_bytes(Pong(), 1)

    def _renewed(self, call: Call, tell: Callable[[bytes], None]) -> bytes:
        if not self._renew(call.job):
            raise TargetError("connection_lost", f"job {call.job} no longer has this device")
        return to_bytes(Pong(), 1)

    def _drain(self, call: Call, tell: Callable[[bytes], None]) -> bytes:
        self._draining.set()
        return to_bytes(Pong(), 1)

    _orders: Mapping[str, Callable[[DeviceHost, Call, Callable[[bytes], None]], bytes]] = {
        "open": _open,
        "ask": _ask,
        "close": _close,
        "cancel": _cancel,
        "renew": _renewed,
        "drain": _drain,
    }

    # --- jobs and sessions ------------------------------------------------------------------------

    def _take(self, job: str) -> None:
        self._job, self._until = job, time.monotonic() + LEASE_SECONDS

    def _renew(self, job: str) -> bool:
        """Return whether the job has the device; for some time more then."""
        with self._guarded:
            if not job or self._job != job:
                return False
            self._take(job)
            return True

    def _session(self, call: Call) -> _Session:
        """Return the session that a call is for. Raises TargetError (stopping), since the request has not begun: no
        variant of it is to blame."""
        with self._guarded:
            session = self._sessions.get(call.session)
            if session is None or self._job != call.job:
                raise TargetError("stopping", "the worker does not know this session (any more)")
            if self.draining:
                raise TargetError("stopping", "the worker is leaving")
            self._take(call.job)
            return session

    def _drop(self, name: str) -> None:
        with self._guarded:
            session = self._sessions.pop(name, None)
            if not self._sessions:
                self._job = ""
        if session is not None:
            session.connection.hang_up()
            with session.lock:
                session.connection.close()

    def _drop_idle(self, instance: object) -> None:
        """End the idle sessions with a server that was lost: a batch that was sent there would seem to have ended
        it."""
        for name, session in list(self._sessions.items()):
            if not session.asked and session.connection.server.get("instance") == instance:
                self._drop(name)

    def _end_job(self) -> None:
        for name in list(self._sessions):
            self._drop(name)

    def _dialled(self) -> TargetConnection:
        """Return a connection to the device's server, which is started again where it is our own and has ended."""
        try:
            return self._target.dial()
        except TargetError as error:
            if error.name not in ("unreachable", "connection_lost") or self._target.server is None:
                raise
            self._target.revive()
            return self._target.dial()

    # --- beside the calls -------------------------------------------------------------------------

    def _keep(self) -> None:
        """Keep idle sessions alive, take the device back from a job that is gone, and read the device's state."""
        while not self._stop.wait(TICK_SECONDS):
            with self._guarded:
                over = bool(self._job) and time.monotonic() > self._until
            if over:
                log.warning(f"job {self._job} was silent for {LEASE_SECONDS:g} s: its device is free again")
                self._end_job()
            for name, session in list(self._sessions.items()):
                self._beat(name, session)
            self._look()

    def _beat(self, name: str, session: _Session) -> None:
        idle = session.connection.idle_seconds >= session.connection.limits.heartbeat_seconds / 2
        if idle and session.lock.acquire(blocking=False):
            try:
                session.connection.ask(Ping())
            except TargetError:
                with self._guarded:
                    self._sessions.pop(name, None)
            finally:
                session.lock.release()

    def _look(self) -> None:
        """Read clocks, temperatures and load; connect again where the server was lost."""
        if not self._own.lock.acquire(blocking=False):
            return
        try:
            reply = self._own.connection.ask(Status())
            if isinstance(reply, StatusReport):
                self._counts.state = reply.state
        except TargetError:
            with suppress(TargetError), self._guarded:
                self._own.connection = self._dialled()
        finally:
            self._own.lock.release()

    def _after_batch(self) -> None:
        """Repeat the health check now and then."""
        if time.monotonic() - self._checked < CHECK_SECONDS or not self._device.acquire(blocking=False):
            return
        try:
            self._check_health()
        except TargetError as error:
            self._counts.problem = error.reason
        finally:
            self._device.release()

    def _check_health(self) -> None:
        if self._announced.device["platform"] == REPLAY:
            return  # it runs nothing that was not recorded, and is as fast as it was then
        number = 1 if self._counts.speed is None else self._counts.speed.number + 1
        with self._own.lock:
            self._counts.speed = measure(self._own.connection.ask, number)
        self._checked = time.monotonic()

    def _recent_trials(self) -> int:
        """Return how many variants were measured in the last minute."""
        since = time.monotonic() - 60
        return sum(count for when, count in list(self._counts.recent) if when > since)

    def _count(self, reply: Any) -> None:
        self._counts.batches += 1
        trials = () if isinstance(reply, Error) else reply.trials
        self._counts.trials += len(trials)
        self._counts.recent.append((time.monotonic(), len(trials)))
        self._counts.failures += sum(trial.status != "ok" for trial in trials)


def _announced(name: str, connection: TargetConnection) -> Announced:
    identity = DeviceIdentity.from_dict(connection.device)
    settings = settings_of(connection.server)
    return Announced(name, identity.tier.name, identity.to_dict(), settings, identity.platform in SIMULATED)
