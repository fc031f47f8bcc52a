"""Speak with an agent: the handshake, then requests, which the agent answers in their order.

The handshake has one deadline. A machine that was switched off is noticed because the system asks for it meanwhile
(TCP's keepalive). An answer may take as long as a kernel takes, unless a connection has a limit for that.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gputune.core.errors import (
    BuildFailed,
    ContextError,
    DeviceError,
    DeviceNotFound,
    InvalidLaunch,
    LaunchFailed,
    LimitExceeded,
)
from gputune.core.version import software_version
from gputune.runtime.backends.sources import shortened_log
from gputune.runtime.devices.discovery import AGENT_PREFIX, AGENT_TOKEN_VARIABLE
from gputune.server.agent.messages import (
    AGENT_VERSION,
    REPLIES,
    SESSION_DIGITS,
    UNASKED,
    Begin,
    Done,
    Failed,
    FirstLaunch,
    Greeting,
    Started,
)
from gputune.server.agent.replies import wrong_in
from gputune.server.protocol import codec, framing
from gputune.server.protocol.authentication import read_token
from gputune.server.protocol.connection import HANDSHAKE_LIMITS
from gputune.server.protocol.errors import ProtocolError
from gputune.server.protocol.handshake import Handshake
from gputune.server.protocol.limits import Limits
from gputune.server.protocol.messages import DEFAULT_PORT, Hello, Proof

LOST = 76
"""The exit code of a worker whose agent has gone, or the connection to it: nothing that was under way is to blame."""

GREETING_SECONDS = 20.0
"""From the connection to the agent's greeting."""
ANSWER_SECONDS = 20.0
"""That those wait who can do without an answer."""
KEEP_ALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""Seconds of silence after which the system asks whether the agent's machine is there, and how often it does."""
LIMITS = Limits()
_BUFFERS_AT_ONCE = 512  # below every system's limit for one sendmsg
_MOST_OPEN = 256
"""Requests without a reply; their replies fit into what systems hold of a connection."""
_CONTEXT_ERRORS = {kind.name: kind for kind in ContextError.__subclasses__()}
_ARRIVING = codec.registry(dict.fromkeys([*REPLIES.values(), *UNASKED]))


class AgentLost(DeviceError):
    """Report that the connection to an agent has ended."""


@dataclass
class _Open:
    """Hold a request without a reply: its number, what takes the reply, whether that is waited for, and what is called
    when its launch runs. request: None if the reply has nothing that could not fit it, so that its data can go."""

    number: int
    kind: type
    request: Any
    take: Callable[[Any], None]
    waited: bool = False
    started: Callable[[], None] | None = None
    outputs: Sequence[int] | None = None


class AgentConnection:
    """Speak with an agent. `ask` waits for a reply, and `post` does not; replies come in the order of requests.

    address: HOST:PORT, HOST, either with [IPV6], or the path of a local socket; earlier: the session of an earlier
    connection, of which `ended` says how its process ended; answer_seconds: that a reply may take. Raises
    DeviceNotFound when the agent cannot be reached, does not know the token, or has no place."""

    def __init__(
        self, address: str, token: str | None = None, earlier: str = "", answer_seconds: float | None = None
    ) -> None:
        self.address = address
        self.session = secrets.token_hex(SESSION_DIGITS // 2)
        self._token = token
        self._answer_seconds = answer_seconds
        self._until: float | None = None  # when what is waited for has to be there
        self._open: deque[_Open] = deque()
        self._failed: DeviceError | ContextError | None = None  # of a request that is not waited for
        self._number = 0
        self._reader = framing.FrameReader(HANDSHAKE_LIMITS)
        self._frames: deque[framing.Frame] = deque()
        self._sending: Any = None
        self._turn = threading.Lock()  # a context is loaded by two threads
        try:
            secret = read_token(token or os.environ.get(AGENT_TOKEN_VARIABLE, ""))
        except ValueError as error:
            raise DeviceNotFound(
                f"{AGENT_PREFIX}{address}: set {AGENT_TOKEN_VARIABLE} to the agent's token: {error}"
            ) from None
        try:
            self._socket = _connected(address)
        except (OSError, ValueError) as error:
            raise DeviceNotFound(f"{AGENT_PREFIX}{address} cannot be reached: {error}") from None
        self._until = time.monotonic() + GREETING_SECONDS
        try:
            self._agree(secret)
            greeting: Greeting = self.ask(Begin(self.session, earlier))
        except (OSError, ProtocolError, AgentLost) as error:
            self._socket.close()
            raise DeviceNotFound(
                f"{AGENT_PREFIX}{address} is no agent of this version that knows the token: {error}"
            ) from None
        except DeviceError as error:
            self._socket.close()
            raise DeviceNotFound(f"{AGENT_PREFIX}{address}: {error}") from None
        self.ended = greeting.ended
        self._until = None
        self._socket.settimeout(None)  # a kernel takes as long as it takes; who watches ends this process

    @property
    def closed(self) -> bool:
        """Return whether the connection has ended."""
        return self._socket.fileno() < 0

    def close(self) -> None:
        """End the connection; the agent gives back what it has of the device."""
        self._socket.close()

    def abort(self) -> None:
        """End the connection for a thread that waits, too; that raises AgentLost."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def ending(self) -> str:
        """Return how the agent's process for this connection ended, once that is lost; empty if it ended in order, or
        the agent does not know. Raises DeviceNotFound."""
        again = AgentConnection(self.address, self._token, self.session)
        again.close()
        return again.ended

    def ask(
        self, request: Any, started: Callable[[], None] = lambda: None, outputs: Sequence[int] | None = None
    ) -> Any:
        """Return the reply to a request. started: called when its launch runs; outputs: bytes of those that an
        inference has. Raises DeviceError, also of requests that were posted before; ContextError."""
        replies: list[Any] = []
        with self._turn:
            if self._answer_seconds is not None and self._until is None:
                self._until = time.monotonic() + self._answer_seconds
            self._send(request, replies.append, True, started, outputs)
            while not replies:
                self._receive()
            failed, self._failed = self._failed, None
            if self._answer_seconds is not None:
                self._until = None
        if failed is not None:
            raise failed
        if isinstance(replies[0], Failed):
            raise _error_of(replies[0])
        return replies[0]

    def post(self, request: Any, take: Callable[[Any], None] = lambda reply: None) -> None:
        """Send a request whose reply goes to `take` while another one is waited for. Raises AgentLost."""
        with self._turn:
            self._send(request, take)

    def _agree(self, token: bytes) -> None:
        handshake = Handshake("client", AGENT_VERSION, software_version(), token)
        self._write(handshake.hello)
        handshake.said("client", handshake.hello)
        _, hello = self._read(codec.registry([Hello]))
        if (error := handshake.said("server", hello)) is not None:
            raise error
        self._sending, self._reader.mac = handshake.frame_mac("client"), handshake.frame_mac("server")
        self._write(Proof())
        self._reader.limits = LIMITS

    def _send(
        self,
        request: Any,
        take: Callable[[Any], None],
        waited: bool = False,
        started: Callable[[], None] | None = None,
        outputs: Sequence[int] | None = None,
    ) -> None:
        while len(self._open) >= _MOST_OPEN:  # else each side may wait for the other to read
            self._receive()
        self._number += 1
        try:
            self._write(request, self._number)
        except OSError as error:
            raise self._lost(error) from None
        kind = type(request)
        kept = None if REPLIES[kind] is Done else request
        # not before: a request beyond a limit is not sent
        self._open.append(_Open(self._number, kind, kept, take, waited, started, outputs))

    def _receive(self) -> None:
        """Read one message, which answers the oldest request or says that its launch runs."""
        try:
            number, message = self._read(_ARRIVING)
        except (OSError, ProtocolError) as error:
            raise self._lost(error) from None
        opened, told = self._open[0], type(message).__name__
        if number != opened.number:
            raise self._lost(f"a {told} answers request {number}, not {opened.number}")
        if isinstance(message, Started) and opened.kind is FirstLaunch and opened.started is not None:
            started, opened.started = opened.started, None
            started()
            return
        if not isinstance(message, (Failed, REPLIES[opened.kind])):
            raise self._lost(f"a {told} answers a {opened.kind.__name__}")
        if not isinstance(message, Failed) and (why := wrong_in(opened.request, message, opened.outputs)):
            raise self._lost(f"its {told} has {why}")
        self._open.popleft()
        if isinstance(message, Failed) and not opened.waited:
            self._failed = self._failed or _error_of(message)
        else:
            opened.take(message)

    def _lost(self, why: object) -> AgentLost:
        self._socket.close()
        return AgentLost(f"the connection to {AGENT_PREFIX}{self.address} has ended: {why}")

    def _write(self, message: Any, number: int = 0) -> None:
        buffers = framing.encode(codec.pack(message, number), LIMITS, self._sending)
        while buffers:
            self._bound()
            buffers = framing.unsent(buffers, self._socket.sendmsg(buffers[:_BUFFERS_AT_ONCE]))

    def _read(self, kinds: Any) -> tuple[int, Any]:
        while not self._frames:
            self._bound()
            count = self._socket.recv_into(self._reader.space())
            if not count:
                raise ConnectionResetError("the agent has closed it")
            self._frames.extend(self._reader.filled(count))
        frame = self._frames.popleft()
        return codec.unpack(frame.header, frame.blobs, kinds, LIMITS)

    def _bound(self) -> None:
        """Have the socket wait until the deadline, if there is one. Raises TimeoutError."""
        if self._until is not None:
            left = self._until - time.monotonic()
            if left <= 0:
                raise TimeoutError("it does not answer in time")
            self._socket.settimeout(left)


def _connected(address: str) -> socket.socket:
    if "/" in address:
        local = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        local.settimeout(GREETING_SECONDS)
        local.connect(address)
        return local
    host, _, port = address.removeprefix("[").partition("]" if address.startswith("[") else ":")
    port = port.removeprefix(":")
    connected = socket.create_connection((host, int(port or DEFAULT_PORT)), GREETING_SECONDS)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEP_ALIVE.items():
        if hasattr(socket, name):
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return connected


def _error_of(failed: Failed) -> DeviceError | ContextError:
    """Return the error that a backend raises for what an agent says."""
    if (wrong := _CONTEXT_ERRORS.get(failed.status)) is not None:
        return wrong(failed.message)
    if failed.status == BuildFailed.status:
        return BuildFailed(shortened_log(failed.message))
    kinds: tuple[type[DeviceError], ...] = (LimitExceeded, InvalidLaunch)
    return next((kind for kind in kinds if kind.status == failed.status), LaunchFailed)(failed.message)
