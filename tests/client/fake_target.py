"""Run a target server in a thread that answers as a test decides, and can be lost at any moment."""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from gputune.core.batches import Profiled, ProfileKernel
from gputune.core.launches import Trial
from gputune.runtime.devices.discovery import NULL_REPORT
from gputune.server.protocol.connection import Connection
from gputune.server.protocol.errors import ProtocolError
from gputune.server.protocol.limits import Limits
from gputune.server.protocol.messages import (
    PROTOCOL_VERSION,
    BufferReady,
    ContextExecuted,
    ContextLoaded,
    Done,
    Error,
    ExecuteContext,
    FeaturesProven,
    FreeBuffers,
    FreeContexts,
    FreeStates,
    Hello,
    LoadContext,
    Ping,
    Pong,
    Progress,
    Proof,
    ProveFeatures,
    ResetState,
    UploadBuffer,
    Welcome,
)
from tests.waiting import PATIENCE_SECONDS

HANG_UP = object()
"""Given as an answer: the connection is closed."""
SILENCE = object()
"""Given as an answer: nothing is said."""
FAST = Limits(heartbeat_seconds=1, silence_seconds=4)
"""For tests that wait for heartbeats."""

Answer = Callable[[int, Any], Any]


def ok(nanoseconds: float = 100.0) -> Trial:
    return Trial("ok", "", (nanoseconds,) * 3, (nanoseconds,) * 3, 5, 5, {"timing": "event"})


def failed(status: Any, message: str = "") -> Trial:
    return Trial(status, message or f"it ended with {status}", (), (), 0, 0, {})


def plain_answer(connection: int, request: Any) -> Any:
    """What a server answers where nothing is wrong; handles say on which connection they were made."""
    match request:
        case Ping():
            return Pong()
        case UploadBuffer():
            return BufferReady(1000 * connection + len(bytes(request.data)))
        case FreeBuffers() | FreeContexts() | FreeStates() | ResetState():
            return Done()
        case ProfileKernel():
            return Profiled(tuple(ok() for _ in request.variants), request.variants[0].number, b"binary", None, {}, {})
        case LoadContext():
            return ContextLoaded(1000 * connection + 1, True, (), 5)
        case ExecuteContext():
            return ContextExecuted(dict(request.inputs), 5)
        case ProveFeatures():
            return FeaturesProven(dict.fromkeys(request.features, ""))
    return Error("internal_error", f"the test did not expect {type(request).__name__}")


@dataclass(frozen=True)
class Cancelled:
    """Part of the answer to a Cancel: the reply to the request that it names."""

    request: int


class FakeTarget:
    """Listens on `port` until it is closed. `answer(connection, request)` gives a reply, HANG_UP, SILENCE, or a list of
    Progress with one of those at its end. `heard` holds (connection, message) in order; connections count from 1."""

    def __init__(
        self, answer: Answer = plain_answer, token: str | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        assert NULL_REPORT.identity is not None
        self.answer = answer
        self.device: dict[str, object] = dict(NULL_REPORT.identity.to_dict())
        self.server: dict[str, object] = {"settings": {}}
        self.restarts = False
        """Whether each connection finds a server that was started for it."""
        self.limits = Limits()
        self.protocol = PROTOCOL_VERSION
        self.heard: list[tuple[int, Any]] = []
        self.something = threading.Condition()
        self.ended = 0
        self._token = None if token is None else token.encode()
        self._tls = tls
        self._count = 0
        self._listen(0)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def requests(self, connection: int) -> list[Any]:
        """What was asked on a connection, pings left out."""
        kinds = (Hello, Proof, Ping)
        return [message for number, message in self.heard if number == connection and not isinstance(message, kinds)]

    def wait_for(self, condition: Callable[[], object]) -> None:
        """Waits until something that this server hears makes the condition true."""
        with self.something:
            assert self.something.wait_for(condition, PATIENCE_SECONDS), f"it never came to that; heard {self.heard}"

    def close(self) -> None:
        """Listens no more."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(PATIENCE_SECONDS)

    def reopen(self) -> None:
        """Listens on the same port again."""
        self._listen(self.port)

    def _listen(self, port: int) -> None:
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, args=(self._listener,), daemon=True)
        self._thread.start()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                sock, _ = listener.accept()
                self._count += 1
                threading.Thread(target=self._serve, args=(self._count, sock), daemon=True).start()

    def _serve(self, number: int, sock: socket.socket) -> None:
        with suppress(OSError, _HungUp):
            try:
                if self._tls is not None:
                    sock = self._tls.wrap_socket(sock, server_side=True)
                self._talk(number, sock)
            finally:
                sock.close()
        with self.something:
            self.ended += 1
            self.something.notify_all()

    def _talk(self, number: int, sock: socket.socket) -> None:
        machine = Connection("server", "gputune fake", self._token, protocol=self.protocol)

        def send(message: Any, request_id: int = 0) -> None:
            for buffer in machine.send(message, request_id):
                sock.sendall(buffer)

        while count := sock.recv_into(machine.space()):
            try:
                arrived = machine.filled(count)
            except ProtocolError as error:
                arrived = list(getattr(error, "arrived", ()))
                fault: ProtocolError | None = error
            else:
                fault = None
            for request_id, message in arrived:
                with self.something:
                    self.heard.append((number, message))
                    self.something.notify_all()
                if isinstance(message, Hello):
                    send(machine.hello())
                elif isinstance(message, Proof):
                    server = {"instance": f"started for {number}" if self.restarts else "the only one", **self.server}
                    send(Welcome(self.limits, self.device, server))
                else:
                    self._reply(number, message, request_id, send)
            if fault is not None:
                send(Error(fault.name, fault.message))
                return

    def _reply(self, number: int, message: Any, request_id: int, send: Callable[[Any, int], None]) -> None:
        answer = self.answer(number, message)
        for part in answer if isinstance(answer, list) else [answer]:
            if part is HANG_UP:
                raise _HungUp
            if isinstance(part, Cancelled):
                with suppress(ProtocolError):  # of a request that has its reply
                    send(Error("cancelled", "the client has cancelled the request"), part.request)
            elif part is not SILENCE:
                send(part, request_id)


class _HungUp(Exception):
    pass


@contextmanager
def fake_target(*arguments: Any, **options: Any) -> Iterator[FakeTarget]:
    target = FakeTarget(*arguments, **options)
    try:
        yield target
    finally:
        with suppress(OSError):
            target.close()


def dies_at(*places: tuple[int, type], otherwise: Answer = plain_answer) -> Answer:
    """Hangs up on the first request of a kind on each of the connections named."""

    def answer(connection: int, request: Any) -> Any:
        return HANG_UP if (connection, type(request)) in places else otherwise(connection, request)

    return answer


def gave_up(variant: int, status: Any) -> Progress:
    """Progress on a variant that has failed."""
    return Progress("recovering", variant, 0, "", variant, failed(status))
