"""Act as an ill-behaved client: send what it is given, repeat and repair nothing, and vanish at any moment."""

import itertools
import secrets
import socket
import struct
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from gputune.server.protocol import authentication, codec, framing
from gputune.server.protocol.frame_mac import FrameMac
from gputune.server.protocol.limits import UNLIMITED
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
_PREFIX = struct.Struct("<4sII")


class Closed(ConnectionError):
    """The server has closed the connection."""


def frame(message: object, request_id: int = 0, mac: FrameMac | None = None) -> bytes:
    """The bytes of a message."""
    return b"".join(framing.encode(codec.pack(message, request_id), mac=mac))


def whole_frame(data: bytes) -> tuple[int, int] | None:
    """(bytes before the blobs, bytes) of the frame without a MAC that `data` begins with; None when it is not whole."""
    if len(data) < _PREFIX.size or not data.startswith(framing.MAGIC):
        return None
    _, header_bytes, count = _PREFIX.unpack_from(data)
    if len(data) < _PREFIX.size + 8 * count:
        return None
    front = _PREFIX.size + 8 * count + header_bytes
    end = front + sum(struct.unpack_from(f"<{count}Q", data, _PREFIX.size))
    return None if len(data) < end else (front, end)


def signed(data: bytes, mac: FrameMac) -> bytes:
    """The same frames with MACs under a session's key; what is no whole frame stays as it is."""
    out = []
    while (sizes := whole_frame(data)) is not None:
        front, end = sizes
        header = framing.MAC_MAGIC + data[len(framing.MAGIC) : front]
        blobs, place = [], front
        for size in struct.unpack_from(f"<{_PREFIX.unpack_from(data)[2]}Q", data, _PREFIX.size):
            blobs.append(memoryview(data)[place : place + size])
            place += size
        out.append(header + data[front:end] + mac.sign_later(header, blobs)())
        data = data[end:]
    rest = framing.MAC_MAGIC + data[len(framing.MAGIC) :] if data.startswith(framing.MAGIC) else data
    return b"".join((*out, rest))


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

    hello, proof: the bytes of this side's handshake, once `authenticate` is through; mac: for what it sends then.
    """

    def __init__(self, host: str, port: int, seconds: float = 30.0, first_id: int = 1) -> None:
        self.socket = socket.create_connection((host, port), seconds)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.seconds = seconds
        self.hello = self.proof = b""
        self.mac: FrameMac | None = None
        self._reader = framing.FrameReader(UNLIMITED)
        self._arrived: list[tuple[int, Any]] = []
        self._replies: dict[int, Any] = {}  # that came while another one was waited for
        self._pings = set[int]()  # that keep the connection alive, beside what is waited for
        self._next_id = first_id

    def authenticate(self, token: str) -> None:
        """Shakes hands."""
        ours = new_hello()
        self.hello = frame(ours)
        self.send(self.hello)
        theirs = expect((Hello,), self.receive()[1])
        self.mac = FrameMac(authentication.frame_key(token.encode(), "client", ours, theirs))
        self.proof = frame(Proof(), mac=self.mac)
        self._reader.mac = FrameMac(authentication.frame_key(token.encode(), "server", ours, theirs))
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
        self.send(frame(request, number, self.mac))
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
                self._pings.add(self.begin(Ping()))
                continue
            if not isinstance(message, Progress) and arrived not in self._pings:
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

    def finish(self) -> None:
        """Sends nothing more."""
        self.socket.shutdown(socket.SHUT_WR)

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
