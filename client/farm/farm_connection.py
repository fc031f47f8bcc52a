"""Connect to a device of a farm: requests go to its host as frames, through an engine."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

from gputune.client.errors import TargetError
from gputune.client.farm.engine import Call, DeviceAbsent, DeviceGone, Engine
from gputune.client.farm.frames import ANSWERS, from_bytes, to_bytes
from gputune.core.batches import ProfileKernel
from gputune.core.identity import DeviceIdentity
from gputune.core.version import software_version
from gputune.server.protocol.connection import WELCOME_LIMITS
from gputune.server.protocol.errors import ProtocolError
from gputune.server.protocol.limits import Limits
from gputune.server.protocol.messages import PROTOCOL_VERSION, REPLIES, Error, Hello, Ping, Pong, Progress, Welcome

log = logging.getLogger(__name__)

_OVER = ("connection_lost", "stopping")
"""Errors of a host after which another connection has to be made."""
TURN_SECONDS = 0.2
"""So often a session that waits for its turn looks whether it has to go elsewhere."""


class FarmConnection:
    """Keep a session with the host of a device, opened when it is made. Not for several threads at once, but for
    hang_up.

    Raises TargetError as a connection over TCP does; device_busy when another job has the device.
    """

    local = False
    idle_seconds = 0.0  # hosts keep their connections alive, and a job renews its lease for a whole device

    def __init__(
        self,
        engine: Engine,
        name: str,
        job: str,
        turn: threading.Lock,
        lost: Callable[[Any], bool] = lambda request: False,
        answered: Callable[[Any, Any], None] = lambda request, reply: None,
    ) -> None:
        """name: of the device. turn: held while a batch is on its way to it. lost: hears that the device was lost
        during a request, and says whether that has happened too often. answered: hears of each request and its
        reply."""
        self.name = name
        self.address = f"farm device {name}"
        self.limits: Limits = WELCOME_LIMITS
        self.moving = ""
        """Why the next request has to go to another device; empty while it need not."""
        self.over: Callable[[], bool] | None = None
        """Says when no more requests are to be begun. One that is under way ends: a device has one at a time."""
        self._engine = engine
        self._job = job
        self._turn = turn
        self._lost = lost
        self._answered = answered
        self._session = secrets.token_hex(8)
        self._last = 0
        self.is_open = True
        welcome = self._exchange(Hello(PROTOCOL_VERSION, software_version()), "open")
        if not isinstance(welcome, Welcome):
            self.is_open = False
            raise self.refusal(welcome)
        try:
            DeviceIdentity.from_dict(welcome.device)
        except ValueError as error:
            raise TargetError("bad_message", f"{self.address}: {error}") from None
        self.device: dict[str, object] = dict(welcome.device)
        self.server: dict[str, object] = dict(welcome.server)
        self.limits = welcome.limits

    def ask(
        self, request: Any, on_progress: Callable[[Progress], None] | None = None, descriptor: int | None = None
    ) -> Any:
        """Return the reply, which may be an Error. Interrupted, the request is cancelled and the session ended."""
        if descriptor is not None:
            raise TargetError("not_on_this_connection", f"{self.address}: memory cannot be registered in a farm")
        if type(request) is Ping:
            return Pong()
        if self.over is not None and self.over():
            raise TargetError("cancelled", f"{self.address}: the request is not wanted any more")
        try:
            with self._having_turn() if type(request) is ProfileKernel else nullcontext():
                self._check_open()
                reply = self._exchange(request, "ask", on_progress)
        except BaseException:
            if self.is_open:  # else the device is lost
                self.hang_up()
            raise
        if isinstance(reply, Error) and reply.name in _OVER:
            self.is_open = False
            raise self.refusal(reply, _under_way(request) if reply.name == "connection_lost" else "")
        self._answered(request, reply)
        return reply

    @contextmanager
    def _having_turn(self) -> Iterator[None]:
        """Wait until the device has no other batch; no longer than the session may stay there."""
        while not self._turn.acquire(timeout=TURN_SECONDS):
            self._check_open()
        try:
            yield
        finally:
            self._turn.release()

    def _check_open(self) -> None:
        if not self.is_open or self.moving:
            raise TargetError("stopping", f"{self.address}: {self.moving or 'the session is closed'}")

    def ask_all(self, request_of: Callable[[], tuple[int, Any] | None], answered: Callable[[int, Any], object]) -> None:
        """Ask one after the other: a device has one request at a time."""
        while (following := request_of()) is not None:
            number, request = following
            answered(number, self.ask(request))

    def ping(self) -> None:
        """Ask nothing: a lost device is told by the engine."""
        self.ask(Ping())

    def pings(self, count: int) -> None:
        """Do as `ping`."""
        self.ping()

    def refusal(self, reply: Any, more: str = "") -> TargetError:
        """Return the error for a reply which is not the one that was asked for; `more` follows what an Error says."""
        if isinstance(reply, Error):
            return TargetError(reply.name, f"{self.address}: {reply.message}{more}", reply.details)
        return TargetError("unexpected_message", f"{self.address} sent {type(reply).__name__}")

    def hang_up(self) -> None:
        """Have the request under way cancelled, as far as the device is there."""
        self._tell("cancel")

    def close(self) -> None:
        """End the session at the host. May be called twice."""
        if self.is_open:
            self.is_open = False
            self._tell("close")

    def _tell(self, order: Any) -> None:
        with suppress(DeviceGone):
            self._engine.call(self.name, Call(order, self._job, self._session))

    def _exchange(self, request: Any, order: Any, on_progress: Callable[[Progress], None] | None = None) -> Any:
        self._last = number = self._last + 1
        try:
            frame = to_bytes(request, number, self.limits)
        except ProtocolError as error:
            raise TargetError(error.name, f"{self.address}: {error.message}", error.details) from None
        heard = None if on_progress is None else self._hearing(on_progress, number)
        try:
            answer = self._engine.call(self.name, Call(order, self._job, self._session, frame), heard)
        except DeviceGone as error:
            self.is_open = False
            if isinstance(error, DeviceAbsent):
                raise TargetError("stopping", str(error)) from None
            too_often = order == "ask" and self._lost(request)
            raise TargetError("lost_again" if too_often else "stopping", f"{error}{_under_way(request)}") from None
        return self._understood(answer, number, REPLIES.get(type(request), Welcome))

    def _understood(self, answer: bytes, number: int, expected: type) -> Any:
        """Return the message of a frame that answers a request. Raises TargetError for any other."""
        try:
            told, reply = from_bytes(answer, ANSWERS, self.limits)
        except ProtocolError as error:
            raise TargetError("bad_message", f"{self.address}: {error.message}") from None
        if not isinstance(reply, expected | Error) or told not in (number, 0):
            raise TargetError("bad_message", f"{self.address} sent {type(reply).__name__} for another request")
        return reply

    def _hearing(self, on_progress: Callable[[Progress], None], number: int) -> Callable[[bytes], None]:
        """Return what takes the frames before an answer; nothing that another process sends ends this one."""

        def hear(frame: bytes) -> None:
            try:
                told, progress = from_bytes(frame, ANSWERS, self.limits)
            except ProtocolError as error:
                log.warning(f"{self.address}: {error.message}")
                return
            if isinstance(progress, Progress) and told == number:
                on_progress(progress)

        return hear


def _under_way(request: Any) -> str:
    """Return which part of the work was lost with a request."""
    return f" with a batch of {len(request.variants)} variants" if isinstance(request, ProfileKernel) else ""
