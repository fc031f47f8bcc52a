"""The target server: accepts clients over TCP and passes their requests, one at a time, to the worker.

The daemon never imports pyopencl and touches no device: whatever a driver does to the worker process, the
daemon and its connections live on. The only place in server/ that knows sockets.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import sys
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import asdict, replace
from ipaddress import ip_address
from typing import Any

from gputune.runtime.devices import DeviceReport
from gputune.server.protocol import codec, framing
from gputune.server.protocol.connection import Connection, State, software_version
from gputune.server.protocol.errors import ProtocolError, RemoteProtocolError
from gputune.server.protocol.limits import check_limits
from gputune.server.protocol.messages import KINDS, Error, Limits, Welcome
from gputune.server.worker_link import FROM_WORKER, LINK_LIMITS, CloseConnection, WorkerReady

log = logging.getLogger("gputune.server")

HANDSHAKE_SECONDS = 10.0
LINGER_SECONDS = 1.0
WORKER_STOP_SECONDS = 2.0
WORKER_START_SECONDS = 60.0
_HANDLES_PER_WORKER = 1 << 40  # a restarted worker never repeats the handle of a lost buffer


class DeviceUnavailable(Exception):
    """The worker could not open the device."""


class CannotListen(Exception):
    """The port is taken, or the address is none of this machine's."""


class Listener:
    """A bound port; port 0 picks a free one. Nobody can connect before `listen`, when the daemon has its device.

    `address` is host:port as bound. Raises CannotListen.
    """

    def __init__(self, host: str, port: int) -> None:
        try:
            family, kind, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            self.socket = socket.socket(family, kind)
        except OSError as error:
            raise _cannot_listen(f"{host} port {port}", error) from None
        try:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.socket.bind(where)
        except OSError as error:
            self.socket.close()
            raise _cannot_listen(f"{host} port {port}", error) from None
        bound, number = self.socket.getsockname()[:2]
        self.address = f"[{bound}]:{number}" if family == socket.AF_INET6 else f"{bound}:{number}"
        self.is_loopback = ip_address(bound.partition("%")[0]).is_loopback

    def listen(self) -> None:
        """Lets clients connect. Raises CannotListen: two may bind a port, but only one may listen."""
        self.socket.setblocking(False)
        try:
            self.socket.listen()
        except OSError as error:
            raise _cannot_listen(self.address, error) from None


def _cannot_listen(where: str, error: OSError) -> CannotListen:
    return CannotListen(f"cannot listen on {where}: {error.strerror or error}")


class Worker:
    """The worker process: started when needed, replaced when it dies. One request at a time."""

    def __init__(self, report: DeviceReport, limits: Limits) -> None:
        self._report = report
        self._limits = limits
        self._turn = asyncio.Lock()  # first come, first served
        self._process: asyncio.subprocess.Process | None = None
        self._socket: socket.socket | None = None
        self._reader = framing.FrameReader(LINK_LIMITS)
        self.starts = 0

    async def start(self) -> WorkerReady:
        """Starts the process and waits until it has opened the device. Raises DeviceUnavailable."""
        ours, theirs = socket.socketpair()
        try:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "gputune.server.worker"),
                *("--link", str(theirs.fileno())),
                *("--device", json.dumps(self._report.to_dict())),
                *("--limits", json.dumps(asdict(self._limits))),
                *("--first_handle", str(self.starts * _HANDLES_PER_WORKER + 1)),
                pass_fds=[theirs.fileno()],
                env={**os.environ, **self._report.environment()},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=2,  # what drivers print goes to stderr; the daemon's own stdout is for its callers
                start_new_session=True,  # Ctrl-C reaches the daemon only, which then stops the worker
            )
        except OSError as error:
            ours.close()
            raise DeviceUnavailable(f"the worker process cannot be started: {error}") from None
        finally:
            theirs.close()
        ours.setblocking(False)
        self._socket, self._reader = ours, framing.FrameReader(LINK_LIMITS)
        self.starts += 1
        reply = await self._finish(self._receive(), WORKER_START_SECONDS)
        if isinstance(reply, WorkerReady):
            return reply
        await self.stop()
        raise DeviceUnavailable(reply.message)

    async def request(self, connection: int, message: Any) -> Any:
        """The worker's reply; Error worker_died or worker_timeout when it ends instead of answering."""
        async with self._turn:
            if self._process is None or self._process.returncode is not None:
                await self.stop()
                try:
                    await self.start()
                except DeviceUnavailable as error:
                    return Error("device_unavailable", str(error))
            return await self._finish(self._exchange(connection, message), self._limits.request_seconds)

    async def close_connection(self, connection: int) -> None:
        """Frees what a client connection owns."""
        async with self._turn:
            if self._process is not None:
                await self._finish(self._exchange(connection, CloseConnection()), self._limits.request_seconds)

    async def stop(self) -> None:
        """Ends the process: by closing its link, else by force."""
        process, sock = self._process, self._socket
        self._process = self._socket = None
        if sock is not None:
            sock.close()
        if process is None:
            return
        try:
            await asyncio.wait_for(process.wait(), WORKER_STOP_SECONDS)
        except TimeoutError:
            process.kill()
            await process.wait()

    async def _finish(self, exchange: Coroutine[Any, Any, Any], seconds: float) -> Any:
        try:
            async with asyncio.timeout(seconds):
                return await exchange
        except TimeoutError:
            await self._kill()
            return Error(
                "worker_timeout",
                f"no answer within {seconds:g} s; the worker was ended and its buffers are gone",
                {"limit": "request_seconds", "allowed": int(seconds)},
            )
        except (ConnectionError, EOFError):
            code = await self._kill()
            known = -code in set(signal.Signals)
            name = signal.Signals(-code).name if known else f"signal {-code}"
            how = name if code < 0 else f"exit code {code}"
            log.warning("the worker died with %s", how)
            return Error(
                "worker_died",
                f"the process that runs OpenCL ended with {how}; its buffers are gone, it is started again",
                {"signal": name} if code < 0 else {"exit_code": code},
            )
        except RemoteProtocolError as error:
            await self._kill()
            return Error("internal_error", f"the worker sent nonsense and was ended: {error.message}")
        except asyncio.CancelledError:
            await self._kill()  # its answer would be taken for that to the next request
            raise

    async def _kill(self) -> int:
        process, sock = self._process, self._socket
        self._process = self._socket = None
        assert process is not None and sock is not None
        try:
            # a worker that has just died must keep its own exit code
            await asyncio.wait_for(process.wait(), 0.2)
        except TimeoutError:
            process.kill()
        sock.close()
        return await process.wait()

    async def _exchange(self, connection: int, message: Any) -> Any:
        assert self._socket is not None
        await _send(self._socket, framing.encode(codec.pack(message, connection)))
        return await self._receive()

    async def _receive(self) -> Any:
        assert self._socket is not None
        loop = asyncio.get_running_loop()
        while count := await loop.sock_recv_into(self._socket, self._reader.space()):
            if frame := self._reader.filled(count):
                return codec.unpack(frame.header, frame.blobs, FROM_WORKER)[1]
        raise EOFError


class Daemon:
    """Serves clients on a bound port until `stop` is called."""

    def __init__(self, listener: Listener, report: DeviceReport, limits: Limits | None = None) -> None:
        self._listener = listener
        self.limits = limits or Limits()
        self._worker = Worker(report, self.limits)
        self._stopping = asyncio.Event()
        self._welcome = Welcome(self.limits, {}, {})
        self._clients: set[asyncio.Task[None]] = set()
        self._connections = 0

    def stop(self) -> None:
        """Makes `serve` return after it has stopped the worker."""
        self._stopping.set()

    async def serve(self, announce: Callable[[Welcome], None]) -> None:
        """Opens the device, calls announce(Welcome) once clients can connect, and serves until `stop`.

        Raises DeviceUnavailable, CannotListen.
        """
        try:
            ready = await self._worker.start()
            largest = ready.device["max_allocation_bytes"]
            assert isinstance(largest, int)
            self.limits = replace(self.limits, buffer_bytes=min(self.limits.buffer_bytes, largest))
            server: dict[str, object] = {
                "software": software_version(),
                "backend": ready.backend,
                "settings": ready.settings,
            }
            self._welcome = Welcome(self.limits, ready.device, server)
            self._listener.listen()
            announce(self._welcome)
            accepting = asyncio.ensure_future(self._accept())
            await self._stopping.wait()
            accepting.cancel()
            for client in self._clients:
                client.cancel()
            await asyncio.gather(accepting, *self._clients, return_exceptions=True)
        finally:
            self._listener.socket.close()
            await self._worker.stop()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, address = await loop.sock_accept(self._listener.socket)
            except OSError as error:  # too many open files, or a client that left at once
                log.warning("cannot accept a connection: %s", error)
                await asyncio.sleep(0.1)
                continue
            self._connections += 1
            where = f"{address[0]}:{address[1]}"
            client = asyncio.ensure_future(self._serve_client(sock, self._connections, where))
            self._clients.add(client)
            client.add_done_callback(self._clients.discard)

    async def _serve_client(self, sock: socket.socket, number: int, address: str) -> None:
        requests: Counter[str] = Counter()
        log.info("connection %d from %s", number, address)
        try:
            with sock:
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                connection = Connection("server", software_version())
                async with asyncio.timeout(HANDSHAKE_SECONDS):
                    going = await self._shake_hands(sock, connection)
                while going:
                    going = await self._serve_request(sock, connection, number, requests)
        except OSError as error:  # also the TimeoutError of a handshake that takes too long
            log.info("connection %d broke off: %s", number, str(error) or type(error).__name__)
        except Exception:
            log.exception("a defect while serving connection %d", number)
        finally:
            counts = ", ".join(f"{count} {kind}" for kind, count in sorted(requests.items())) or "no requests"
            log.info("connection %d closed after %s", number, counts)
            if requests and not self._stopping.is_set():
                await self._worker.close_connection(number)

    async def _shake_hands(self, sock: socket.socket, connection: Connection) -> bool:
        try:
            arrived = await _receive(sock, connection)
        except RemoteProtocolError as error:
            await _last_words(sock, connection, error)
            return False
        if arrived is None:
            return False
        await _send(sock, connection.send(connection.hello()))
        if connection.mismatch:
            log.warning("%s", connection.mismatch)
            return False
        await _send(sock, connection.send(self._welcome))
        return connection.state is State.READY

    async def _serve_request(
        self, sock: socket.socket, connection: Connection, number: int, requests: Counter[str]
    ) -> bool:
        """Answers the next request; False when there is none any more."""
        try:
            arrived = await _receive(sock, connection)
        except RemoteProtocolError as error:
            if not error.request_id:
                await _last_words(sock, connection, error)
                return False
            await _send(sock, connection.send(_as_message(error), error.request_id))
            return True
        if arrived is None:
            return False
        request_id, request = arrived
        requests[KINDS[type(request)]] += 1
        try:
            check_limits(request, self.limits)
            reply = await self._worker.request(number, request)
        except ProtocolError as error:
            reply = _as_message(error)
        await _send(sock, connection.send(reply, request_id))
        return True


async def _send(sock: socket.socket, buffers: Sequence[memoryview]) -> None:
    loop = asyncio.get_running_loop()
    for buffer in buffers:
        await loop.sock_sendall(sock, buffer)


async def _receive(sock: socket.socket, connection: Connection) -> tuple[int, Any] | None:
    """The next (request id, message); None when the client closed the connection."""
    loop = asyncio.get_running_loop()
    while count := await loop.sock_recv_into(sock, connection.space()):
        if arrived := connection.filled(count):
            return arrived
    if not connection.between_frames:
        log.info("a client left in the middle of a message")
    return None


async def _last_words(sock: socket.socket, connection: Connection, error: ProtocolError) -> None:
    """Says why the connection ends, and reads on for a moment: closing at once could lose the words."""
    log.info("closing a connection: %s", error)
    await _send(sock, connection.send(_as_message(error)))
    sock.shutdown(socket.SHUT_WR)
    loop = asyncio.get_running_loop()
    waste = bytearray(1 << 16)
    try:
        async with asyncio.timeout(LINGER_SECONDS):
            while await loop.sock_recv_into(sock, waste):
                pass
    except TimeoutError:
        return


def _as_message(error: ProtocolError) -> Error:
    return Error(error.name, error.message, error.details)
