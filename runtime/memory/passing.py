"""Pass file descriptors between processes over local sockets (SCM_RIGHTS), together with the bytes of a frame."""

from __future__ import annotations

import array
import os
import socket
import struct
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gputune.core.errors import UnusableMemory
from gputune.core.opened import Closing
from gputune.runtime.memory.descriptors import duplicate

_ROOM = socket.CMSG_SPACE(struct.calcsize("i")) if hasattr(socket, "CMSG_SPACE") else 0
_CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
_TRUNCATED = getattr(socket, "MSG_CTRUNC", 0)


class Descriptor(Closing):
    """A descriptor of this process that has arrived: closed by `close`, by the end of a `with`, or when nothing has
    this object any more."""

    def __init__(self, number: int) -> None:
        """Take the descriptor over."""
        self._number = number
        self._close = weakref.finalize(self, os.close, number)

    def fileno(self) -> int:
        """Return its number. Raises UnusableMemory when it was closed."""
        if not self._close.alive:
            raise UnusableMemory("the descriptor was closed")
        return self._number

    def duplicate(self) -> Descriptor:
        """Return another descriptor of the same. Raises UnusableMemory."""
        return Descriptor(duplicate(self.fileno()))

    def close(self) -> None:
        """Doing so again does nothing."""
        self._close()


@dataclass(frozen=True)
class WithDescriptor:
    """A message and the descriptor that travels with it; None where none has come."""

    message: Any
    descriptor: Descriptor | None


class DescriptorSocket(socket.socket):
    """A connected local socket whose recv_into takes in descriptors, too: `arrived`, in their order, to be taken out by
    the owner. truncated: whether more came than fit, which the system has closed."""

    arrived: list[Descriptor]
    truncated: bool

    @classmethod
    def of(cls, connection: socket.socket) -> DescriptorSocket:
        """Return the same connection; the socket given must not be used any more."""
        return cls.of_descriptor(connection.detach())

    @classmethod
    def of_descriptor(cls, number: int) -> DescriptorSocket:
        """Return the connection of a descriptor, which it takes over."""
        self = cls(fileno=number)
        self.arrived, self.truncated = [], False
        return self

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        """As a socket's own. Raises OSError."""
        space = memoryview(buffer)[:nbytes] if nbytes else buffer
        count, ancillary, flags, _ = self.recvmsg_into([space], _ROOM, flags | _CLOSE_ON_EXEC)
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                numbers = array.array("i")
                numbers.frombytes(data[: len(data) - len(data) % numbers.itemsize])
                self.arrived.extend(map(Descriptor, numbers))
        if flags & _TRUNCATED:
            self.truncated = True
        return count


def send_with(connection: socket.socket, buffers: Sequence[memoryview], descriptor: int) -> int:
    """Send the first bytes of some buffers over a local socket, and a descriptor with the first of them; return how
    many bytes. Raises OSError."""
    return connection.sendmsg(
        buffers, [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]).tobytes())]
    )
