"""Carry bytes to and from a target server over TCP, plain or with TLS, or over a local socket.

A local socket can also carry file descriptors. Only this module of client/ uses sockets.
"""

from __future__ import annotations

import os
import socket
import ssl
import struct
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

from gputune.client.errors import TargetError
from gputune.core.peers import peer_of
from gputune.runtime.memory.passing import send_with

if sys.platform == "linux":
    import fcntl
    import termios

LOCAL = "unix:"
"""What the address of a local socket begins with, instead of a host."""
_BUFFERS_AT_ONCE = 512  # below every system's limit for one sendmsg
TIMED_OUT = (TimeoutError, BlockingIOError)
"""What `send` and `receive` raise when nothing moved for as long as the timeout allowed."""
_TLS_BYTES_AT_ONCE = 1 << 18  # a TLS socket encrypts all that it is given before it sends any of it


def is_local(host: str) -> bool:
    """Return whether what stands for a host, or an address as it is given in options, is a local socket."""
    return host.startswith(LOCAL)


def address_text(host: str, port: int) -> str:
    """Return host:port, with brackets around an IPv6 address; a local socket's and an agent's stand for themselves."""
    if not port:
        return host
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Stream:
    """Open a connection, encrypted where `tls` says how; to a local socket where the host is unix:PATH, which must be
    of this process's user or of root. Raises TargetError (unreachable, wrong_user, tls_failed, not_a_target_server)
    when it cannot be made before the deadline, a time of time.monotonic(). Afterwards every method raises OSError."""

    def __init__(self, host: str, port: int, deadline: float, tls: ssl.SSLContext | None) -> None:
        self.address = address_text(host, port)
        self.local = is_local(host)
        self._deadline = deadline
        seconds = max(0.001, deadline - time.monotonic())
        try:
            plain = _connected(host, seconds) if self.local else socket.create_connection((host, port), seconds)
        except (OSError, UnicodeError, ValueError) as error:
            raise unreachable(self.address, port, error) from None
        try:
            if not self.local:
                plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            plain.settimeout(max(0.001, deadline - time.monotonic()))
            self._tls = None if tls is None else _encrypted(plain, tls, host, self.address)
        except BaseException:
            plain.close()
            raise
        self._socket: socket.socket = self._tls or plain

    def hurry(self) -> None:
        """Let the next call take until the deadline."""
        self._socket.settimeout(max(0.001, self._deadline - time.monotonic()))

    def liveness(self, seconds: float) -> None:
        """Let each call from now on take so many seconds."""
        self._socket.settimeout(seconds)
        if self._tls is None and os.name == "posix":
            # the system's own limit saves the call that asks, before every other one, whether it would wait
            limit = struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))
            for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
                self._socket.setsockopt(socket.SOL_SOCKET, option, limit)
            self._socket.settimeout(None)

    def send(self, buffers: Sequence[memoryview], descriptor: int | None = None) -> int:
        """Send the first bytes of some buffers, over a local socket with a descriptor where one is given, and return
        how many."""
        if descriptor is not None:
            return send_with(self._socket, buffers, descriptor)
        if self._tls is not None:  # has no sendmsg
            return self._tls.send(buffers[0][:_TLS_BYTES_AT_ONCE])
        if len(buffers) == 1:
            return self._socket.send(buffers[0])
        return self._socket.sendmsg(buffers[:_BUFFERS_AT_ONCE])

    def send_now(self, buffers: Sequence[memoryview]) -> None:
        """Send what goes out at once, without an error where that is nothing; only `close` may follow."""
        with suppress(OSError):
            self._socket.settimeout(0)
            self.send(buffers)

    def queued(self) -> int | None:
        """Return how many bytes the system has still to send, or to send again; None where it does not say."""
        if sys.platform == "linux":
            with suppress(OSError):
                (count,) = struct.unpack("i", fcntl.ioctl(self._socket, termios.TIOCOUTQ, bytes(4)))
                return int(count)
        return None

    def receive(self, space: memoryview) -> int:
        """Fill the first bytes of `space`, and return how many, 0 when the other side has closed."""
        return self._socket.recv_into(space)

    def hang_up(self) -> None:
        """Wake a thread that waits in `receive`; only `close` may follow."""
        with suppress(OSError):
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # not TLS's own, which is for one thread only

    def close(self) -> None:
        """End the connection. May be called twice."""
        self._socket.close()


def _encrypted(plain: socket.socket, context: ssl.SSLContext, host: str, address: str) -> ssl.SSLSocket:
    try:
        return context.wrap_socket(plain, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        raise TargetError(
            "tls_failed",
            f"target {address}: its certificate is not accepted ({error.verify_message}): --tls_ca must name the "
            f"certificate that signed it, and it must be made for {host}",
        ) from None
    except (
        ssl.SSLEOFError,
        ssl.SSLZeroReturnError,
        ConnectionError,
    ) as error:  # a forwarder has no server behind it
        raise TargetError(
            "unreachable",
            f"no target server reached at {address}: the connection ended during the TLS handshake "
            f"({error.strerror or error})",
        ) from None
    except TimeoutError:
        raise TargetError("not_a_target_server", f"{address} takes too long to answer with TLS") from None
    except OSError as error:
        reason = getattr(error, "reason", None) or error.strerror or error
        raise TargetError(
            "tls_failed",
            f"target {address} does not answer with TLS ({reason}): start it with --tls_cert and --tls_key, or drop "
            "--tls_ca here",
        ) from None


def _connected(address: str, seconds: float) -> socket.socket:
    """Connect to a local socket. Raises OSError, ValueError, TargetError (wrong_user)."""
    local = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        local.settimeout(seconds)
        local.connect(address.removeprefix(LOCAL))
        peer = peer_of(local)
        if peer.stranger:
            raise TargetError(
                "wrong_user",
                f"target {address}: process {peer.process} of user {peer.user} listens there, but this command, which "
                f"is of user {os.geteuid()}, trusts only servers of that user and of root",
            )
    except BaseException:
        local.close()
        raise
    return local


def unreachable(address: str, port: int, error: Exception) -> TargetError:
    """Return the error of an address where nothing answers, with what to do there."""
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    if is_local(address):
        path = address.removeprefix(LOCAL)
        return TargetError(
            "unreachable",
            f"no target server reached at {address}: {reason}; start one with `gputune target-server --unix {path}`",
        )
    return TargetError(
        "unreachable", f"no target server reached at {address} over TCP: {reason}; {_remedy(address, port, error)}"
    )


def _remedy(address: str, port: int, error: Exception) -> str:
    """Return what to do where nothing answers: a server listens on its own machine's addresses unless it is told
    otherwise."""
    host = address.rpartition(":")[0].strip("[]")
    if isinstance(error, socket.gaierror):
        return f"check the name {host}, or give an address"
    if host == "localhost" or host == "::1" or host.startswith("127."):
        return (
            f"start one there with `gputune target-server --port {port}`, for a phone on USB run "
            f"`adb forward tcp:{port} tcp:{port}`"
        )
    return (
        f"start one there with `gputune target-server --host {host} --port {port} --token_file F`; for one that "
        f"listens on its own machine alone run `ssh -L {port}:127.0.0.1:{port} {host}`, and give 127.0.0.1:{port} here"
    )
