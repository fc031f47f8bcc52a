"""Speak with a target server over one connection: the handshake, then one request and reply at a time."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from gputune.client.errors import TargetError
from gputune.client.target.transport.credentials import NONE, Credentials
from gputune.client.target.transport.liveness import LivenessTimeout
from gputune.client.target.transport.stream import TIMED_OUT, Stream, is_local
from gputune.core.identity import DeviceIdentity
from gputune.core.version import software_version
from gputune.server.protocol.connection import Connection, State
from gputune.server.protocol.errors import ProtocolError, RemoteProtocolError
from gputune.server.protocol.framing import unsent
from gputune.server.protocol.limits import Limits
from gputune.server.protocol.messages import Cancel, Error, Hello, Ping, Pong, Progress, Proof, Welcome

CONNECT_SECONDS = 10.0
LOCAL_SECONDS = 60.0
"""Over a local socket, where no network can have lost what was sent: a server that is silent there is busy."""
ADVICE = {
    "token_required": "the server asks for a token: give the one that it was started with, by --token_file or "
    "GPUTUNE_TOKEN",
    "token_unused": "a token was given, but the server asks for none and may be another user's: start it with "
    "--token_file, or drop --token_file and GPUTUNE_TOKEN here",
    "authentication_failed": "the tokens of the two sides differ: give both the same --token_file or GPUTUNE_TOKEN",
}
"""What is said instead of the protocol's own words, which do not know this side's options."""
_NO_HELLO = ("bad_frame", "bad_message", "connection_lost")
_WITHOUT_TLS = "; a server with --tls_cert needs --tls_ca here"
_WITH_TLS = "; a server with --tls_ca needs --tls_cert and --tls_key here"
_ONE_TOKEN = ("token_required", "token_unused")
_PING = Ping()
_PING_ID = 1 << 62  # no other request comes that far


def probe(host: str, port: int, timeout: float, credentials: Credentials | None = None) -> str:
    """Return the software that the target server at host:port names in its hello. Raises TargetError, with credentials
    also when the server asks for a token and there is none, or the other way round."""
    connection = TargetConnection(host, port, timeout, credentials or NONE)
    connection.close()
    if credentials is not None and connection.fault is not None:
        raise connection.fault
    return connection.software


def dial(
    host: str,
    port: int,
    timeout: float = CONNECT_SECONDS,
    credentials: Credentials = NONE,
    last_words: Callable[[], str] | None = None,
) -> TargetConnection:
    """Return a connection that is ready for requests; arguments are those of TargetConnection. Raises TargetError."""
    connection = TargetConnection(host, port, timeout, credentials, last_words)
    connection.welcome()
    return connection


class TargetConnection:
    """Connect and exchange hellos when it is made; `welcome` makes it ready for requests. Not for several threads at
    once. Every method raises TargetError; connection_lost means that the server, or the way there, is gone.

    software: what the server calls itself; device: its device's identity; limits: what it accepts; server: what it
    says about itself; fault: why nothing more is read from it; over: says when the replies to what is under way are
    not wanted any more, so that it is cancelled, None for never.
    """

    def __init__(
        self,
        host: str,
        port: int,
        timeout: float = CONNECT_SECONDS,
        credentials: Credentials = NONE,
        last_words: Callable[[], str] | None = None,
    ) -> None:
        """Take at most `timeout` seconds, over a local socket LOCAL_SECONDS, `welcome` included.

        last_words: what is known of the server's end, for the error when the connection is lost; may be empty.
        """
        self.device: dict[str, object] = {}
        self.limits = Limits()
        self.server: dict[str, object] = {}
        self.fault: TargetError | None = None
        self._last_words = last_words
        token = None if credentials.token is None else credentials.token.encode()
        self._machine = Connection("client", software_version(), token)
        self._arrived: deque[tuple[int, Any]] = deque()
        self._last_id = 0
        self._liveness = LivenessTimeout()
        self._beat_seconds = math.inf  # the server hears of this side so often, once it has said how often
        self._asked = False  # by a ping whether it lives, since the server was heard last
        self._silent = False
        self.over: Callable[[], bool] | None = None
        self._under_way: Collection[int] = ()  # requests that may be given up
        self._withdrawn: set[int] = set()  # those of them that were
        self._sent = time.monotonic()
        timeout = max(timeout, LOCAL_SECONDS) if is_local(host) else timeout
        try:
            self._stream = Stream(host, port, self._sent + timeout, credentials.tls)
        except TargetError as error:
            if error.name == "unreachable" and last_words is not None and (words := last_words()):
                raise TargetError(error.name, f"no target server reached: {words}") from None
            raise
        self.address = self._stream.address
        with self._closing():
            self.software = self._greet(_WITH_TLS if credentials.tls else _WITHOUT_TLS, timeout)

    # --- handshake --------------------------------------------------------------------------------

    def _greet(self, hint: str, seconds: float) -> str:
        try:
            self._stream.hurry()
            self._transmit(self._machine.send(self._machine.hello()))
            hello = self._next()[1]
            if self.fault is not None and self.fault.name not in _ONE_TOKEN:
                raise self.fault
        except TargetError as error:
            if error.name not in _NO_HELLO:
                raise
            if self._silent:
                why = f"took too long to answer: it said nothing for {seconds:g} s; it may be busy, or no target server"
                raise TargetError("connection_lost", f"{self.address} {why}") from None
            reason = f"answers, but not as a gputune target server: {error.reason}{hint}"
            raise TargetError("not_a_target_server", f"{self.address} {reason}") from None
        if not isinstance(hello, Hello):
            raise self.refusal(hello)
        return hello.software

    def welcome(self) -> None:
        """Prove the token and wait for the server's welcome."""
        with self._closing():
            if self.fault is not None:
                raise self.fault
            self._stream.hurry()
            if not self._arrived:  # a server that sends an error right behind its hello wants no proof
                self._transmit(self._machine.send(Proof()))
            welcome = self._next()[1]
            if not isinstance(welcome, Welcome):
                raise self.refusal(welcome)
            try:
                DeviceIdentity.from_dict(welcome.device)
            except ValueError as error:
                raise self.nonsense(str(error)) from None
        self.device, self.limits, self.server = dict(welcome.device), welcome.limits, dict(welcome.server)
        self._ping_front, self._pong_front = (self._machine.front(message, _PING_ID) for message in (_PING, Pong()))
        self._beat_seconds = max(1, self.limits.heartbeat_seconds)
        self._stream.liveness(self._beat_seconds)
        self._liveness.seconds = max(1, self.limits.silence_seconds)

    # --- life -------------------------------------------------------------------------------------

    @property
    def idle_seconds(self) -> float:
        """Return how long nothing has been sent."""
        return time.monotonic() - self._sent

    @property
    def local(self) -> bool:
        """Return whether this is a local socket, over which descriptors can be sent."""
        return self._stream.local

    def hang_up(self) -> None:
        """Wake a thread that waits for a reply; only `close` may follow."""
        self._stream.hang_up()

    def close(self) -> None:
        """End the connection; the server frees what belongs to it. May be called twice."""
        self._machine.close()
        self._stream.close()

    @contextmanager
    def _closing(self) -> Iterator[None]:
        """Close when what is inside fails, Ctrl-C included: the rest of a reply would be taken for the next one's."""
        try:
            yield
        except BaseException:
            self.close()
            raise

    # --- requests ---------------------------------------------------------------------------------

    def ask(
        self, request: Any, on_progress: Callable[[Progress], None] | None = None, descriptor: int | None = None
    ) -> Any:
        """Return the reply to a request, which may be an Error. Waits as long as the server shows that it lives.
        descriptor: goes with the request, over a local socket.

        When the wait is interrupted, by Ctrl-C or by on_progress, the connection is closed; a request that had gone out
        is cancelled before.
        """
        self._last_id = request_id = self._last_id + 1
        begun = self._begin(request, request_id)
        whole = False
        try:
            self._transmit(*begun, descriptor)
            whole = True
            self._liveness.heard = self._sent
            self._under_way, self._withdrawn = () if type(request) is Ping else (request_id,), set()
            while True:
                message = self._about(request_id, request_id if type(request) is Ping else _PING_ID)
                self._liveness.delivered()
                if type(message) is not Progress:
                    return message
                if on_progress is not None:
                    on_progress(message)
        except BaseException as error:
            if whole and not isinstance(error, TargetError):
                self._cancel(request_id)
            self.close()
            raise

    def ask_all(self, request_of: Callable[[], tuple[int, Any] | None], answered: Callable[[int, Any], object]) -> None:
        """Ask several requests, many of them at a time: request_of gives the next one with a number of
        the caller's, None when there is none for now, and answered(number, reply) hears of each reply as it comes.

        A TargetError that `answered` raises ends it: what is under way is cancelled, and its replies waited for. When
        the wait is interrupted, by Ctrl-C or otherwise, the connection is closed as in `ask`, which cancels all.
        """
        window = max(1, (self.limits.requests - 2) // 2)  # there must be room for a cancel of each, and for pings
        under_way: dict[int, int] = {}
        self._under_way, self._withdrawn = under_way, set()
        failure: TargetError | None = None
        with self._closing():
            while True:
                while failure is None and len(under_way) < window and (following := request_of()) is not None:
                    number, request = following
                    under_way[self._send(request)] = number
                if not under_way:
                    break
                request_id, message = self._next()
                if request_id == self._last_id:
                    self._liveness.delivered()
                if request_id not in under_way or type(message) is Progress:
                    continue
                number = under_way.pop(request_id)
                if failure is not None:
                    continue
                try:
                    answered(number, message)
                except TargetError as error:
                    failure = error
                    self._withdraw()
        if failure is not None:
            raise failure

    def _send(self, request: Any) -> int:
        """Send a request, and return the number under which it was sent."""
        self._last_id = request_id = self._last_id + 1
        self._transmit(*self._begin(request, request_id))
        self._liveness.heard = self._sent
        return request_id

    def ping(self) -> None:
        """Return when the server has answered.

        The same two frames every time but for their MACs, so that nothing is encoded or decoded; anything else that
        comes goes the way of all messages.
        """
        machine = self._machine
        if machine.state is not State.READY or self._arrived or not machine.between_frames:
            self.ask(_PING)
            return
        newest = self._last_id
        try:
            self._transmit([memoryview(machine.sign(self._ping_front))])
            self._liveness.heard = self._sent
            pong_frame = machine.expected(self._pong_front)
            count = self._read()
            if machine.space()[:count] == pong_frame:
                machine.passed()
            else:
                machine.sent(_PING, _PING_ID)
                self._take(count)
                pong = self._about(_PING_ID, newest)
                if not isinstance(pong, Pong):
                    raise self.refusal(pong)
        except BaseException:
            self.close()
            raise

    def pings(self, count: int) -> None:
        """Send so many pings, with as many under way as the server allows."""
        window = max(1, self.limits.requests)
        sent = answered = 0
        with self._closing():
            while answered < count:
                buffers: list[memoryview] = []
                while sent < count and sent - answered < window:
                    self._last_id += 1
                    buffers += self._begin(_PING, self._last_id)[0]
                    sent += 1
                self._transmit(buffers)
                self._next()
                answered += 1 + len(self._arrived)
                self._arrived.clear()

    def _begin(self, request: Any, request_id: int) -> tuple[list[memoryview], Callable[[], bytes] | None]:
        if self._machine.state is not State.READY:
            raise self.fault or TargetError("connection_lost", f"the connection to target {self.address} is closed")
        try:
            return self._machine.begin(request, request_id)
        except ProtocolError as error:
            raise TargetError(error.name, error.message, error.details) from None

    def _give_up(self) -> None:
        """Cancel what is under way when its replies are not wanted any more. Each is answered all the same."""
        if self.over is not None and self._under_way and self.over():
            self._withdraw()

    def _withdraw(self) -> None:
        """Cancel each request that is under way, once."""
        for each in [one for one in self._under_way if one not in self._withdrawn]:
            self._withdrawn.add(each)
            self._send(Cancel(each))

    def _cancel(self, request_id: int) -> None:
        with suppress(ProtocolError):
            self._last_id += 1
            self._stream.send_now(self._machine.send(Cancel(request_id), self._last_id))

    # --- errors -----------------------------------------------------------------------------------

    def refusal(self, reply: Any) -> TargetError:
        """Return the error for a reply which is not the one that was asked for."""
        if isinstance(reply, Error):
            return self._named(reply.name, reply.message, reply.details)
        return TargetError("unexpected_message", f"target {self.address} sent {type(reply).__name__}")

    def nonsense(self, what: str) -> TargetError:
        """Return the error for a message that is well formed and cannot be true."""
        return TargetError("bad_message", f"target {self.address}: {what}")

    def _named(self, name: str, message: str, details: Mapping[str, object]) -> TargetError:
        return TargetError(name, f"target {self.address}: {ADVICE.get(name, message)}", details)

    def _lost(self, what: str) -> TargetError:
        words = self._last_words() if self._last_words is not None else ""
        return TargetError("connection_lost", f"target {self.address} {what}" + (f": {words}" if words else ""))

    # --- bytes ------------------------------------------------------------------------------------

    def _transmit(
        self, buffers: list[memoryview], end: Callable[[], bytes] | None = None, descriptor: int | None = None
    ) -> None:
        """Send buffers, a descriptor with their first bytes, and then what `end` gives."""
        self._sent = time.monotonic()
        while buffers:
            try:
                count = self._stream.send(buffers, descriptor)
                descriptor = None
            except TIMED_OUT:
                if self._liveness.over(self._stream.queued()):
                    raise self._lost("took too long to answer") from None
            except OSError as error:
                self._receive_last_words()
                raise self._lost(f"broke off: {error.strerror or error}") from None
            else:
                self._liveness.sent(count)
                buffers = unsent(buffers, count)
                self._sent = time.monotonic()
        if end is not None:
            self._transmit([memoryview(end())])

    def _next(self) -> tuple[int, Any]:
        """Return the next message from the server."""
        while not self._arrived:
            if self.fault is not None:
                raise self.fault
            self._take(self._read())
        message = self._arrived.popleft()
        if message[0] == 0 and isinstance(message[1], Error):
            raise self.refusal(message[1])
        return message

    def _about(self, request_id: int, newest: int) -> Any:
        """Return the next message about a request; answers to pings that were sent meanwhile come between.

        newest: the last id that may come before it. A server answers pings in their order, so a ping that is overtaken
        by a later one's answer is lost on the way, and would be waited for as long as the server lives.
        """
        while (arrived := self._next())[0] != request_id:
            if arrived[0] > newest:
                raise self._lost("answered a later ping before this one: something was lost on the way")
        return arrived[1]

    def _take(self, count: int) -> None:
        """Make messages of what was read."""
        try:
            self._arrived.extend(self._machine.filled(count))
        except RemoteProtocolError as error:
            self._arrived.extend(error.arrived)
            self.fault = self._named(error.name, error.message, error.details)

    def _read(self) -> int:
        """Wait for bytes; meanwhile the server hears that this side lives, and is asked whether it does."""
        while True:
            self._give_up()
            try:
                count = self._stream.receive(self._machine.space())
            except TIMED_OUT:
                if self._liveness.over(self._stream.queued()):
                    self._silent = True
                    raise self._lost("took too long to answer") from None
                if not self._asked:  # it cannot hear more than one before what is on its way to it
                    self._asked = True
                    self._show_life()
            except OSError as error:
                raise self._lost(f"broke off: {error.strerror or error}") from None
            else:
                if count == 0:
                    raise self._lost("closed the connection")
                self._liveness.heard = time.monotonic()
                self._asked = False
                if self.idle_seconds >= self._beat_seconds:  # what comes may be about requests that only wait
                    self._show_life()
                return count

    def _show_life(self) -> None:
        self._last_id += 1
        self._transmit(*self._begin(_PING, self._last_id))

    def _receive_last_words(self) -> None:
        """Raise what a server that cuts us off has said before, if that came through."""
        try:
            while True:
                self._next()
        except TargetError as error:
            if error.name != "connection_lost":
                raise
