"""Listen on the daemon's port."""

from __future__ import annotations

import asyncio
import errno
import socket
import time
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any

from gputune.server.clients.tenants import address_of, tenant_of

BACKLOG = 1024  # connections that the system holds until they are accepted; those beyond try again a second later


class CannotListen(Exception):
    """Report that the port is taken, or the address is none of this machine's."""


class Exposed(Exception):
    """Report that the address is open to the network, and nothing protects it."""


class Arrival:
    """Hold a connection that was accepted, and that has no protocol yet.

    host: where it comes from; address: the tenant that this is (tenants.py); name: the same for people; began: when it
    was accepted (time.monotonic); descriptor: for the event loop, which says there that something has arrived.
    """

    def __init__(self, connection: socket.socket, host: str, name: str = "") -> None:
        self._connection = connection
        self.host = host
        self.address = address_of(host)
        self.name = name or host
        self.began = time.monotonic()
        self.descriptor = connection.fileno()

    def tenant(self, certificate: bytes | None) -> str:
        """Return the tenant of the connection once it has shown a certificate (DER) that was checked, or none."""
        return tenant_of(self.host, certificate)

    @property
    def hung_up(self) -> bool:
        """Return whether the other side has closed it, and sent nothing before."""
        try:
            return not self._connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    async def meet(self, protocol: asyncio.BaseProtocol, tls: Any, seconds: float) -> None:
        """Give the connection to the protocol, after a handshake where there is a context for TLS. Raises OSError,
        also for a handshake that fails or lasts longer than so many seconds."""
        self._connection.setblocking(False)
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: protocol, self._connection, ssl=tls, ssl_handshake_timeout=seconds if tls else None
        )

    def close(self) -> None:
        """End a connection that has no protocol."""
        self._connection.close()


class Listener:
    """Hold a bound port; port 0 picks a free one. No client can connect before `listen`, when the daemon has its
    device.

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
                f"--host {host} can be reached from the network, and any client that reaches it can run code here: "
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

    def accept(self, at_most: int) -> list[Arrival]:
        """Return the connections that are there, as `accepted`."""
        return accepted(
            self.socket, at_most, lambda connection, where: Arrival(connection, where[0], f"{where[0]}:{where[1]}")
        )

    def listen(self) -> None:
        """Let clients connect. Raises CannotListen: two may bind a port, but only one may listen."""
        self.socket.setblocking(False)
        try:
            self.socket.listen(BACKLOG)
        except OSError as error:
            raise _cannot_listen(self.address, error) from None

    def close(self) -> None:
        """Take no more connections."""
        self.socket.close()


def accepted(listening: socket.socket, at_most: int, arrived: Callable[[socket.socket, Any], Arrival]) -> list[Arrival]:
    """Return the connections that are there, at most so many. Raises OSError when there is none because of it."""
    arrivals: list[Arrival] = []
    try:
        while len(arrivals) < at_most:
            arrivals.append(arrived(*listening.accept()))
    except BlockingIOError:
        pass
    except OSError:
        if not arrivals:  # else it comes again
            raise
    return arrivals


def _cannot_listen(where: str, error: Exception) -> CannotListen:
    taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
    advice = "; --port chooses another, and `gputune target-status` says whether a target server has this one"
    why = getattr(error, "strerror", None) or error
    return CannotListen(f"cannot listen on {where}: {why}{advice if taken else ''}")
