"""A client without manners: it sends what it is told, repeats and repairs nothing, and can vanish at any moment."""

import itertools
import secrets
import socket
import struct
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from gputune.server.protocol import authentication, codec, framing
from gputune.server.protocol.messages import (
    FROM_SERVER,
    PROTOCOL_VERSION,
    BufferReady,
    Hello,
    Ping,
    Pong,
    Progress,
    Proof,
    UploadBuffer,
    Welcome,
)

HEARTBEAT_SECONDS = 5.0
_KINDS = codec.registry(FROM_SERVER)
_RESET = struct.pack("ii", 1, 0)


class Closed(ConnectionError):
    """The server has closed the connection."""


def frame(message: object, request_id: int = 0) -> bytes:
    """The bytes of a message."""
    return b"".join(framing.encode(codec.pack(message, request_id)))


def new_hello() -> Hello:
    """A client's hello with a challenge of its own."""
    return Hello(PROTOCOL_VERSION, "wire", secrets.token_hex(32), "token")


def expect(kinds: tuple[type, ...], message: Any) -> Any:
    """The message, which is one of these. Raises RuntimeError when it is not."""
    if not isinstance(message, kinds):
        raise RuntimeError(f"expected {' or '.join(kind.__name__ for kind in kinds)}, got {message}"[:500])
    return message


class Wire:
    """A blocking connection. Every wait ends after `seconds` with TimeoutError, or with Closed; a message that is not
    the expected one raises RuntimeError. first_id: of the first request; the others count on from there.

    hello, proof: the bytes of this side's handshake, once `authenticate` is through.
    """

    def __init__(self, host: str, port: int, seconds: float = 30.0, first_id: int = 1) -> None:
        self.socket = socket.create_connection((host, port), seconds)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.seconds = seconds
        self.hello = self.proof = b""
        self._reader = framing.FrameReader(framing.UNLIMITED)
        self._arrived: list[tuple[int, Any]] = []
        self._replies: dict[int, Any] = {}  # that came while another one was waited for
        self._next_id = first_id

    def authenticate(self, token: str) -> None:
        """Shakes hands."""
        ours = new_hello()
        self.hello = frame(ours)
        self.send(self.hello)
        theirs = expect((Hello,), self.receive()[1])
        self.proof = frame(Proof(authentication.mac(token.encode(), "client", ours, theirs)))
        self.send(self.proof)
        expect((Welcome,), self.receive()[1])

    def send(self, data: bytes, steps: Sequence[int] = ()) -> None:
        """Sends bytes as they are: at once, or in pieces of these sizes, over and over."""
        self.socket.settimeout(self.seconds)
        for step in itertools.cycle(steps or (len(data),)):
            self.socket.sendall(data[:step])
            if not (data := data[step:]):
                return

    def begin(self, request: object) -> int:
        """Sends a request; its id."""
        number, self._next_id = self._next_id, self._next_id + 1
        self.send(frame(request, number))
        return number

    def receive(self, seconds: float | None = None) -> tuple[int, Any]:
        """The next message and its id, whatever it is."""
        while not self._arrived:
            self.socket.settimeout(self.seconds if seconds is None else max(seconds, 0.001))
            count = self.socket.recv_into(self._reader.space())
            if not count:
                raise Closed("the server has closed the connection")
            for arrived in self._reader.filled(count):
                self._arrived.append(codec.unpack(arrived.header, arrived.blobs, _KINDS))
        return self._arrived.pop(0)

    def reply(self, request_id: int) -> Any:
        """The reply to a request, or an error that ends the connection. Sends pings while it waits."""
        deadline = time.monotonic() + self.seconds
        while request_id not in self._replies and 0 not in self._replies:
            if (left := deadline - time.monotonic()) < 0:
                raise TimeoutError(f"no reply within {self.seconds:g} s")
            try:
                arrived, message = self.receive(min(left, HEARTBEAT_SECONDS))
            except TimeoutError:
                self.begin(Ping())
                continue
            if not isinstance(message, Progress) and (not isinstance(message, Pong) or arrived == request_id):
                self._replies[arrived] = message
        return self._replies.pop(request_id if request_id in self._replies else 0)

    def ask(self, request: object) -> Any:
        """The reply to a new request."""
        return self.reply(self.begin(request))

    def upload(self, data: bytes) -> int:
        """The handle of a new buffer."""
        handle: int = expect((BufferReady,), self.ask(UploadBuffer(data))).buffer
        return handle

    def ping(self) -> float:
        """Seconds until a ping was answered."""
        start = time.monotonic()
        expect((Pong,), self.ask(Ping()))
        return time.monotonic() - start

    def vanish(self) -> None:
        """Is gone without a goodbye: the connection is reset."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.socket.close()

    def close(self) -> None:
        """Ends the connection."""
        self.socket.close()

    def __enter__(self) -> "Wire":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
