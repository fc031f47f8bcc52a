"""A blocking connection to a target server. The only place in client/ that knows sockets.

with TargetClient.connect("127.0.0.1", 22598) as target:
    handle = target.upload(array)
    profiled = target.profile_kernel(ProfileKernel(...))
"""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from gputune.client.errors import GputuneError
from gputune.runtime.identity import DeviceIdentity
from gputune.server.protocol.connection import Connection, State, software_version
from gputune.server.protocol.errors import ProtocolError
from gputune.server.protocol.framing import unsent
from gputune.server.protocol.launches import with_launches
from gputune.server.protocol.limits import check_limits
from gputune.server.protocol.messages import (
    KINDS,
    Blob,
    BufferData,
    BufferReady,
    Compiled,
    CompileKernel,
    Done,
    DownloadBuffer,
    Error,
    Executed,
    ExecuteKernel,
    FreeBuffers,
    Launch,
    Limits,
    Profiled,
    ProfileKernel,
    UploadBuffer,
    Welcome,
)

R = TypeVar("R")

CONNECT_SECONDS = 10.0
_NO_HELLO = ("bad_frame", "bad_message", "connection_lost")
_BUFFERS_AT_ONCE = 512  # below every system's limit for one sendmsg


class TargetError(GputuneError):
    """What went wrong with a target, in one line that ends with its name.

    `name` is a name of gputune.server.protocol.errors.ERROR_NAMES, or one of: unreachable,
    not_a_target_server, connection_lost, bad_address, contradiction, server_not_started.
    `reason` is the line without the name, `details` are the server's numbers.
    """

    exit_code = 4

    def __init__(self, name: str, reason: str, details: Mapping[str, object] | None = None) -> None:
        super().__init__(f"{reason} [{name}]")
        self.name = name
        self.reason = reason
        self.details = dict(details or {})


def address_text(host: str, port: int) -> str:
    """host:port, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def probe(host: str, port: int, timeout: float) -> str:
    """The software that the target server at host:port names in its hello. Raises TargetError."""
    with TargetClient._greet(host, port, timeout) as client:
        return client._software


class TargetClient:
    """A connection to a target server, made with `connect`. Not for use by several threads at once.

    device: the device's identity as the server tells it; limits: what the server accepts;
    server: what the server says about itself; requests: how many requests of each kind were sent
    ("upload", "download", "free", "compile", "profile", "execute").
    Every method raises TargetError.
    """

    def __init__(self, sock: socket.socket, address: str, last_words: Callable[[], str] | None = None) -> None:
        self.address = address
        self._last_words = last_words
        self.device: dict[str, object] = {}
        self.limits = Limits()
        self.server: dict[str, object] = {}
        self.requests: Counter[str] = Counter()
        self._socket = sock
        self._connection = Connection("client", software_version())
        self._software = ""
        self._last_id = 0
        self._sent_sources: set[str] = set()

    # --- life -------------------------------------------------------------------------------------

    @classmethod
    def connect(
        cls,
        host: str,
        port: int,
        timeout: float = CONNECT_SECONDS,
        last_words: Callable[[], str] | None = None,
    ) -> TargetClient:
        """Connects and shakes hands within `timeout` seconds; requests wait as long as the server needs.

        last_words: what is known of the server's end, for the error when the connection is lost; may be empty.
        """
        client = cls._greet(host, port, timeout, last_words)
        try:
            client._welcome()
        except BaseException:
            client.close()
            raise
        return client

    @classmethod
    def _greet(cls, host: str, port: int, timeout: float, last_words: Callable[[], str] | None = None) -> TargetClient:
        address = address_text(host, port)
        deadline = time.monotonic() + timeout
        try:
            sock = socket.create_connection((host, port), timeout)
        except (OSError, UnicodeError) as error:
            if last_words is not None and (words := last_words()):
                raise TargetError("unreachable", f"target {address} cannot be reached: {words}") from None
            raise _unreachable(address, port, error) from None
        client = cls(sock, address, last_words)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            sock.settimeout(max(0.001, deadline - time.monotonic()))
            client._transmit(client._connection.send(client._connection.hello()))
            client._software = client._receive()[1].software
        except BaseException as error:
            sock.close()
            if isinstance(error, TargetError) and error.name in _NO_HELLO:
                raise TargetError(
                    "not_a_target_server",
                    f"{address} answers, but not as a gputune target server: {error.reason}",
                ) from None
            raise
        return client

    def _welcome(self) -> None:
        _, welcome = self._receive()
        if not isinstance(welcome, Welcome):
            raise self._refusal(welcome)
        try:
            DeviceIdentity.from_dict(welcome.device)
        except ValueError as error:
            raise self._nonsense(str(error)) from None
        self.device, self.limits, self.server = welcome.device, welcome.limits, welcome.server
        self._socket.settimeout(None)

    def close(self) -> None:
        """Ends the connection; the server frees its buffers. May be called twice."""
        self._connection.close()
        self._socket.close()

    def __enter__(self) -> TargetClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- requests ---------------------------------------------------------------------------------

    def upload(self, data: NDArray[Any] | Blob) -> int:
        """Makes a device buffer of the data's bytes in C order (contiguous data is not copied)."""
        if isinstance(data, np.ndarray):
            data = np.ascontiguousarray(data).reshape(-1).view(np.uint8).data
        return self._request(UploadBuffer(data), BufferReady).buffer

    def download(self, buffer: int) -> memoryview:
        """The bytes of a device buffer."""
        return memoryview(self._request(DownloadBuffer(buffer), BufferData).data)

    def free(self, *buffers: int) -> None:
        """Frees device buffers."""
        self._request(FreeBuffers(buffers), Done)

    def compile_kernel(self, request: CompileKernel) -> Compiled:
        """Builds a variant; its binary is read after a launch with the real sizes."""
        return self._request(request, Compiled)

    def profile_kernel(self, request: ProfileKernel) -> Profiled:
        """Builds, verifies and races at most limits.variants variants; trials in their order."""
        profiled = self._request(request, Profiled)
        wanted, got, best = len(request.variants), len(profiled.trials), profiled.best
        if got != wanted:
            raise self._nonsense(f"{got} trials for {wanted} variants")
        if best is not None and not (0 <= best < got and profiled.trials[best].status == "ok"):
            raise self._nonsense(f"the best of {got} variants is {best}, which is none that is ok")
        return profiled

    def execute_kernel(self, request: ExecuteKernel) -> dict[str, memoryview]:
        """Runs launches in order; returns the bytes of each output by name."""
        return {name: memoryview(data) for name, data in self._request(request, Executed).outputs.items()}

    def _request(self, request: Any, expected: type[R]) -> R:
        try:
            check_limits(request, self.limits)
        except ProtocolError as error:
            raise TargetError(error.name, error.message, error.details) from None
        reply = self._ask(with_launches(request, self._only_new_source))
        if isinstance(reply, Error) and reply.name == "unknown_source":
            # a restarted worker, or one that had to forget: send the texts again
            self._sent_sources.clear()
            reply = self._ask(with_launches(request, self._only_new_source))
        if not isinstance(reply, expected):
            raise self._refusal(reply)
        return reply

    def _only_new_source(self, launch: Launch) -> Launch:
        if launch.source_sha256 in self._sent_sources:
            return replace(launch, source="")
        self._sent_sources.add(launch.source_sha256)
        return launch

    def _refusal(self, reply: Any) -> TargetError:
        if isinstance(reply, Error):
            return TargetError(reply.name, f"target {self.address}: {reply.message}", reply.details)
        return TargetError("unexpected_message", f"target {self.address} sent {type(reply).__name__}")

    def _nonsense(self, what: str) -> TargetError:
        return TargetError("bad_message", f"target {self.address}: {what}")

    # --- bytes ------------------------------------------------------------------------------------

    def _ask(self, message: Any) -> Any:
        if self._connection.state is not State.READY:
            raise TargetError("connection_lost", f"the connection to target {self.address} is closed")
        self._last_id += 1
        try:
            buffers = self._connection.send(message, self._last_id)
        except ProtocolError as error:
            raise TargetError(error.name, error.message) from None
        self.requests[KINDS[type(message)]] += 1
        try:
            self._transmit(buffers)
            return self._receive()[1]
        except BaseException:  # also Ctrl-C: the answer to this would be taken for the next one's
            self.close()
            raise

    def _transmit(self, buffers: list[memoryview]) -> None:
        try:
            while buffers:
                buffers = unsent(buffers, self._socket.sendmsg(buffers[:_BUFFERS_AT_ONCE]))
        except TimeoutError:
            raise self._lost("took too long to answer") from None
        except OSError as error:
            self._receive_last_words()
            raise self._lost(f"broke off: {error.strerror or error}") from None

    def _receive(self) -> tuple[int, Any]:
        connection = self._connection
        try:
            while True:
                count = self._socket.recv_into(connection.space())
                if count == 0:
                    raise self._lost("closed the connection")
                arrived = connection.filled(count)
                if arrived is not None:
                    break
        except TimeoutError:
            raise self._lost("took too long to answer") from None
        except OSError as error:
            raise self._lost(f"broke off: {error.strerror or error}") from None
        except ProtocolError as error:
            raise TargetError(error.name, f"target {self.address}: {error.message}", error.details) from None
        request_id, message = arrived
        if isinstance(message, Error) and request_id == 0:
            raise self._refusal(message)
        return arrived

    def _receive_last_words(self) -> None:
        """A server that cuts us off says why before it does; raises that, if it came through."""
        try:
            self._receive()
        except TargetError as error:
            if error.name != "connection_lost":
                raise

    def _lost(self, what: str) -> TargetError:
        words = self._last_words() if self._last_words is not None else ""
        return TargetError("connection_lost", f"target {self.address} {what}" + (f": {words}" if words else ""))


def _unreachable(address: str, port: int, error: Exception) -> TargetError:
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return TargetError(
        "unreachable",
        f"no target server reached at {address} over TCP: {reason}; start one there with "
        f"`gputune target-server --port {port}`, for a phone on USB run `adb forward tcp:{port} tcp:{port}`",
    )
