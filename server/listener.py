"""The port that the daemon listens on."""

from __future__ import annotations

import asyncio
import socket
from ipaddress import ip_address
from typing import Any


class CannotListen(Exception):
    """The port is taken, or the address is none of this machine's."""


class Exposed(Exception):
    """The address is open to the network, and nothing protects it."""


class Arrival:
    """A connection that was accepted, and that nobody has spoken with yet."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    async def meet(self, protocol: asyncio.BaseProtocol, tls: Any, seconds: float) -> None:
        """Gives the connection to the protocol, after a handshake where there is a context for TLS. Raises OSError,
        also for a handshake that fails or lasts longer than so many seconds."""
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: protocol, self._connection, ssl=tls, ssl_handshake_timeout=seconds if tls else None
        )

    def close(self) -> None:
        """Ends a connection that nobody has met."""
        self._connection.close()


class Listener:
    """A bound port; port 0 picks a free one. Nobody can connect before `listen`, when the daemon has its device.

    `address` is host:port as bound. An address that others than this machine reach needs a token (`protected`).
    Raises CannotListen, Exposed.
    """

    def __init__(self, host: str, port: int, protected: bool = False) -> None:
        try:
            family, kind, protocol, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        except (OSError, UnicodeError) as error:
            raise _cannot_listen(f"{host} port {port}", error) from None
        if not protected and not ip_address(str(where[0]).partition("%")[0]).is_loopback:
            raise Exposed(
                f"--host {host} can be reached from the network, and whoever reaches it can run code here: "
                "give a secret with --token_file or GPUTUNE_TOKEN, or drop --host to listen on this machine only"
            )
        try:
            self.socket = socket.socket(family, kind, protocol)  # asyncio sends at once only where it reads TCP
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

    async def accept(self) -> Arrival:
        """The next connection. Raises OSError."""
        connection, _ = await asyncio.get_running_loop().sock_accept(self.socket)
        return Arrival(connection)

    def listen(self) -> None:
        """Lets clients connect. Raises CannotListen: two may bind a port, but only one may listen."""
        self.socket.setblocking(False)
        try:
            self.socket.listen()
        except OSError as error:
            raise _cannot_listen(self.address, error) from None


def _cannot_listen(where: str, error: Exception) -> CannotListen:
    return CannotListen(f"cannot listen on {where}: {getattr(error, 'strerror', None) or error}")
