"""Provide the smallest client that the protocol allows, for tests of the server's side."""

from __future__ import annotations

import itertools
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from gputune.server.protocol import codec, framing
from gputune.server.protocol.connection import Connection
from gputune.server.protocol.limits import Limits
from gputune.server.protocol.messages import Error, Hello, Ping, Pong, Progress, Proof, UploadBuffer, Welcome
from tests.waiting import PATIENCE_SECONDS, becomes

_ANSWERS = codec.registry((Hello, Welcome, Error, Pong))


class Refused(Exception):
    """The server has answered with an Error; `name` and `details` are its."""

    def __init__(self, error: Error) -> None:
        super().__init__(f"{error.name}: {error.message}")
        self.name = error.name
        self.details = error.details


class Peer:
    """One connection, blocking. A wait of PATIENCE_SECONDS ends with TimeoutError; a closed connection is EOFError."""

    def __init__(
        self,
        address: tuple[str, int],
        token: bytes | None = None,
        tls: ssl.SSLContext | None = None,
        receive_bytes: int | None = None,
    ) -> None:
        local = address[0].startswith("unix:")
        family = socket.AF_UNIX if local else socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        plain = socket.socket(family)
        if receive_bytes is not None:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        plain.settimeout(PATIENCE_SECONDS)
        plain.connect(address[0].removeprefix("unix:") if local else address)
        self.socket = tls.wrap_socket(plain, server_hostname=address[0]) if tls else plain
        self.connection = Connection("client", "peer", token)
        self.progress: list[Progress] = []
        self._arrived: deque[tuple[int, Any]] = deque()
        self._ids = itertools.count(1)
        self.send(self.connection.hello(), 0)
        hello = self.receive()[1]
        if isinstance(hello, Error):
            raise Refused(hello)
        assert isinstance(hello, Hello), hello
        self.send(Proof(), 0)
        welcome = self.receive()[1]
        if isinstance(welcome, Error):
            raise Refused(welcome)
        assert isinstance(welcome, Welcome)
        self.welcome = welcome

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, message: Any, request_id: int | None = None, descriptors: Sequence[int] = ()) -> int:
        """Sends a message, with descriptors over a local socket, and returns its id."""
        number = next(self._ids) if request_id is None else request_id
        for buffer in self.connection.send(message, number):
            if descriptors:
                assert socket.send_fds(self.socket, [buffer], descriptors) == buffer.nbytes
                descriptors = ()
            else:
                self.socket.sendall(buffer)
        return number

    def receive(self) -> tuple[int, Any]:
        """The next message."""
        while not self._arrived:
            count = self.socket.recv_into(self.connection.space())
            if not count:
                raise EOFError
            self._arrived.extend(self.connection.filled(count))
        return self._arrived.popleft()

    def reply(self, request_id: int, progress: Callable[[Progress], None] = lambda message: None) -> Any:
        """The reply to an open request; Progress on the way is collected. Raises Refused."""
        while True:
            number, message = self.receive()
            if isinstance(message, Progress):
                self.progress.append(message)
                progress(message)
            elif isinstance(message, Error) and number in (request_id, 0):
                raise Refused(message)
            elif number == request_id:
                return message
            else:
                assert isinstance(message, Pong), (number, message)

    def ask(self, message: Any, progress: Callable[[Progress], None] = lambda message: None) -> Any:
        """Sends a request and returns its reply. Raises Refused."""
        return self.reply(self.send(message), progress)

    def upload(self, data: bytes) -> int:
        handle = self.ask(UploadBuffer(data)).buffer
        assert isinstance(handle, int)
        return handle

    def ping_until(self, done: Callable[[], bool]) -> None:
        """Waits until something is as it should be, while the server takes this client for alive."""

        def pinged() -> bool:
            self.ask(Ping())
            return done()

        assert becomes(pinged)


def frame(message: object, request_id: int = 0) -> bytes:
    """The bytes of a message."""
    return b"".join(framing.encode(codec.pack(message, request_id)))


def converse(server: Any, *parts: bytes) -> list[Any]:
    """Everything that the server answers before it closes the connection; it answers each part before the next."""
    answers: list[Any] = []
    reader = framing.FrameReader(Limits())
    with socket.create_connection((server.host, server.port), timeout=PATIENCE_SECONDS) as sock:
        for number, part in enumerate(parts, start=1):
            sock.sendall(part)
            if number == len(parts):
                sock.shutdown(socket.SHUT_WR)
            while number == len(parts) or len(answers) < number:
                count = sock.recv_into(reader.space())
                if not count:
                    return answers
                for arrived in reader.filled(count):
                    answers.append(codec.unpack(arrived.header, arrived.blobs, _ANSWERS)[1])
    return answers


def in_threads(work: Callable[[int], None], count: int) -> None:
    """Calls work(0), work(1) ... at the same time and raises what one of them raises."""
    faults: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()
    if faults:
        raise faults[0]
