"""Find out which user is at the other end of a local socket.

Both sides of a connection ask before they send anything: a client sends tensors and makes programs of the answers, and
a server runs what its clients send. Each side therefore continues only with a process of its own user or of root. The
system says which user it is, and no process can pretend.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from typing import NamedTuple

ROOT = 0
_CREDENTIALS = struct.Struct("iII")  # struct ucred: process, user, group


class Peer(NamedTuple):
    """Name the process at the other end, as it was when it connected or began to listen, and its user."""

    process: int
    user: int

    @property
    def stranger(self) -> bool:
        """Return whether it is of another user, and not of root."""
        return self.user not in (ROOT, os.geteuid())


def tells_peers() -> bool:
    """Return whether this system says which process is at the other end."""
    return hasattr(socket, "SO_PEERCRED")


def peer_of(connection: socket.socket) -> Peer:
    """Return the process at the other end of a local socket. Raises OSError, also where the system does not say."""
    if not tells_peers():
        raise OSError(errno.ENOTSUP, "this system does not say which user a connection belongs to")
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    process, user, _ = _CREDENTIALS.unpack(data)
    return Peer(int(process), int(user))
