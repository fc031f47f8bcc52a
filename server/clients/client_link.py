"""Handle one client's connection: bytes to messages and back, on asyncio's transports, with TLS or without.

A ping is answered as soon as it arrives, and all replies to one piece of input go out in one write. The server stops
reading from a client that does not read its replies.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, deque
from contextlib import suppress
from typing import Any, Protocol

from gputune.core.version import software_version
from gputune.runtime.memory.passing import WithDescriptor
from gputune.server.clients.guesses import Guesses
from gputune.server.clients.listener import Arrival
from gputune.server.clients.local_socket import LocalArrival
from gputune.server.clients.service import Service, as_message
from gputune.server.protocol.connection import Connection, State
from gputune.server.protocol.errors import LocalProtocolError, ProtocolError, RemoteProtocolError
from gputune.server.protocol.limits import Limits
from gputune.server.protocol.messages import KINDS, Error, Hello, Ping, Pong, Proof, Welcome
from gputune.server.sessions.memory import UnderWay

log = logging.getLogger("gputune.server")

LINGER_SECONDS = 1.0
_WRITE_AT_ONCE_BYTES = 64 << 10
_PONG = Pong()
_WASTE = bytearray(1 << 16)  # what comes after the last words


class Host(Protocol):
    """List what a link needs of the daemon."""

    limits: Limits
    service: Service
    token: bytes | None
    guesses: Guesses

    def enter(self, link: ClientLink) -> int:
        """Return the number of a new connection."""

    def let_in(self, link: ClientLink) -> None:
        """Let in a client that knows the token. Raises ProtocolError (too_many_connections)."""

    def welcome(self) -> Welcome:
        """Return what a client is told that has shown that it knows the token."""

    def leave(self, link: ClientLink) -> None:
        """Note that the connection is gone."""


class ClientLink(asyncio.BufferedProtocol):
    """Serve one client that has connected; the daemon makes it.

    requests: what the client has asked for so far, by kind; tenant: with which other clients it shares the device's
    time; closed: done when the connection is gone.
    """

    def __init__(self, host: Host, arrival: Arrival) -> None:
        self.tenant = ""
        self.requests: Counter[str] = Counter()
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._host = host
        self._name = "a connection"
        self._arrival = arrival
        self._connection = Connection("server", software_version(), host.token)
        self._arrived: deque[tuple[int, Any]] = deque()
        self._out: list[memoryview] = []
        self._out_bytes = 0
        self._busy = False  # with what has arrived; replies are collected meanwhile
        self._blocked = False  # the client does not read
        self._let_in = False  # it has shown that it knows the token
        self._ending = False  # the last words are said
        self._unsent_bytes = 0
        self._under_way = UnderWay(host.service.memory)

    def __str__(self) -> str:
        return self._name

    # --- asyncio's side -------------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self._transport: asyncio.Transport = transport
        self._heard = time.monotonic()
        tls = transport.get_extra_info("ssl_object")
        # a certificate is asked for, and checked, only where there is a --tls_ca
        self.tenant = self._arrival.tenant(None if tls is None else tls.getpeercert(binary_form=True))
        self._name = f"connection {self._host.enter(self)} from {self._arrival.name}"
        log.info("%s", self._name)
        if isinstance(self._arrival, LocalArrival) and self._arrival.stranger:
            self.end(RemoteProtocolError("wrong_user", self._arrival.stranger))

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(_WASTE) if self._ending else self._connection.space()

    def buffer_updated(self, count: int) -> None:
        self._heard = time.monotonic()
        if self._ending:
            self._drop_descriptors()
            return
        try:
            arrived = self._connection.filled(count)
        except RemoteProtocolError as error:
            arrived = [*error.arrived, (0, error)]
            if error.name == "authentication_failed":
                self._host.guesses.failed(self._arrival.host)
        if isinstance(self._arrival, LocalArrival):
            try:
                arrived = self._arrival.paired(arrived, self._connection.between_frames)
            except RemoteProtocolError as error:
                arrived = [*error.arrived, (0, error)]
        self._count()
        if arrived:
            self._arrived.extend(arrived)
            self._serve()

    def eof_received(self) -> bool:
        if not self._ending and not self._connection.between_frames:
            log.info("%s was cut off in the middle of a message", self._name)
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._ending = True
        self._connection.close()
        self._arrived.clear()
        self._drop_descriptors()
        self._under_way.become(0)
        if self._let_in:
            self._host.service.leave(self)
        self._host.leave(self)
        counts = ", ".join(f"{count} {kind}" for kind, count in sorted(self.requests.items())) or "no requests"
        log.info("%s closed after %s%s", self._name, counts, f": {error}" if error else "")
        self.closed.set_result(None)

    def pause_writing(self) -> None:
        self._blocked = True
        self._transport.pause_reading()
        if self._let_in:
            self._host.service.hold_back(self, True)

    def resume_writing(self) -> None:
        self._blocked = False
        self._heard = time.monotonic()  # it reads, so it is there
        self._count()
        self._serve()
        if not self._blocked and not self._transport.is_closing():
            self._transport.resume_reading()
            if self._let_in:
                self._host.service.hold_back(self, False)

    # --- the daemon's side ----------------------------------------------------------------------------

    def send(self, message: Any, request_id: int = 0) -> None:
        """Send a message, if the client is still there."""
        if self._ending:
            return
        try:
            buffers = self._connection.send(message, request_id)
        except LocalProtocolError as error:
            log.error("%s cannot be sent: %s", type(message).__name__, error)
            try:
                buffers = self._connection.send(Error("internal_error", str(error), error.details), request_id)
            except LocalProtocolError:  # nothing was asked under this id
                self.abort()
                return
        for buffer in buffers:
            self._out.append(buffer)
            self._out_bytes += buffer.nbytes
        if not self._busy or self._out_bytes > _WRITE_AT_ONCE_BYTES:
            self._flush()

    def cost(self, request_id: int) -> int:
        """Return about how many bytes a request of the client takes while it waits."""
        return self._connection.cost(request_id)

    def end(self, error: ProtocolError) -> None:
        """Say why the connection ends, and read on for a moment: closing at once could lose the words."""
        if self._ending:
            return
        log.info("closing %s: %s", self._name, error)
        if self._connection.state is not State.CLOSED:
            self.send(as_message(error))
        self._flush()
        self._ending = True
        self._arrived.clear()
        if self._transport.can_write_eof():
            with suppress(OSError):  # the client has gone and the transport has not noticed yet
                self._transport.write_eof()
        asyncio.get_running_loop().call_later(LINGER_SECONDS, self._transport.abort)

    def close(self) -> None:
        """End the connection once all that was sent is on its way."""
        self._ending = True
        self._transport.close()

    def abort(self) -> None:
        """End the connection now."""
        self._ending = True
        self._transport.abort()

    def check(self, now: float) -> None:
        """End the connection of a client that is not heard of any more; before its proof, the admission does."""
        limits = self._host.limits
        if not self._let_in:
            return
        unsent_bytes = self._transport.get_write_buffer_size()
        if unsent_bytes < self._unsent_bytes:
            self._heard = now  # it reads a long reply
        self._unsent_bytes = unsent_bytes
        if now - self._heard > limits.silence_seconds:
            log.warning("%s was silent for %d s and is treated as gone", self._name, limits.silence_seconds)
            self.abort()

    # --- messages -------------------------------------------------------------------------------------

    def _serve(self) -> None:
        self._busy = True
        arrived = self._arrived
        try:
            while arrived and not self._blocked:
                request_id, message = arrived.popleft()
                if type(message) is Ping:
                    self.requests["ping"] += 1
                    self.send(_PONG, request_id)
                else:
                    self._take(request_id, message)
        except Exception:
            log.exception("internal error while serving %s", self._name)
            self.abort()
        finally:
            self._busy = False
        if self._out:
            self._flush()

    def _take(self, request_id: int, message: Any) -> None:
        match message:
            case RemoteProtocolError() if request_id:
                self.send(as_message(message), request_id)
            case RemoteProtocolError():
                self.end(message)
            case Hello():
                self.send(self._connection.hello())
                if self._connection.mismatch:
                    log.info("%s", self._connection.mismatch)
                    self._flush()
                    self.close()
                elif pause := self._host.guesses.seconds(self._arrival.host):
                    self._transport.pause_reading()
                    asyncio.get_running_loop().call_later(pause, self._read_on)
            case Proof():
                try:
                    self._host.let_in(self)
                except ProtocolError as error:
                    self.end(error)
                    return
                self._host.service.join(self)
                self._let_in = True
                self.send(self._host.welcome())
            case _:
                asked = message.message if isinstance(message, WithDescriptor) else message
                self.requests[KINDS[type(asked)]] += 1
                self._host.service.request(self, request_id, message)

    def _read_on(self) -> None:
        if not self._transport.is_closing() and not self._blocked:
            self._transport.resume_reading()

    def _drop_descriptors(self) -> None:
        if isinstance(self._arrival, LocalArrival):
            self._arrival.drop()

    def _flush(self) -> None:
        out, self._out = self._out, []
        small, self._out_bytes = self._out_bytes <= _WRITE_AT_ONCE_BYTES, 0
        if small and len(out) > 1:
            self._transport.write(b"".join(out))
        else:
            for buffer in out:
                self._transport.write(buffer)
            self._count()

    def _count(self) -> None:
        """Count what is under way in both directions, and end the connection where the server has no room for it."""
        try:
            self._under_way.become(self._connection.announced_bytes + self._transport.get_write_buffer_size())
        except ProtocolError as error:
            self.end(error)
