"""Listen on a local socket instead of a port: a file that only the server's own user can open.

The system says which user is at the other end, and each side asks before it says anything (core/peers.py). Descriptors
come with the bytes of a frame; each is taken by the RegisterMemory whose frame brought it, or ends the connection
(runtime/memory/passing.py). The session keeps the descriptor next to its buffers. A worker gets its own before the
first request that names the memory, and again after it was started again.
"""

from __future__ import annotations

import os
import socket
import stat
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from gputune.core.peers import peer_of, tells_peers
from gputune.runtime.memory.passing import Descriptor, DescriptorSocket, WithDescriptor
from gputune.server.clients.listener import BACKLOG, Arrival, CannotListen, accepted
from gputune.server.protocol.errors import RemoteProtocolError
from gputune.server.protocol.messages import RegisterMemory

LOCK_SECONDS = 5.0  # for another server that starts in the same folder, which takes a millisecond
_POLL_SECONDS = 0.001


class LocalListener:
    """Hold a socket file of mode 600, with a Listener's methods. Clients can connect at once, and wait until they are
    served.

    `address` is unix:PATH. The file is removed by `close`, unless there is another one in its place by then. Raises
    CannotListen.
    """

    def __init__(self, path: Path) -> None:
        self.address = f"unix:{path}"
        self._path = path
        if not tells_peers():
            raise self._cannot_listen("this system does not say which user a connection belongs to")
        try:
            with _locked(path.parent):  # of servers that start at once, one looks and binds before the next one looks
                self._remove_stale()
                self.socket, self._made = self._bound()
        except (OSError, ValueError) as error:
            raise self._cannot_listen(getattr(error, "strerror", None) or str(error)) from None

    def listen(self) -> None:
        """Serve clients from now on."""
        self.socket.setblocking(False)

    def accept(self, at_most: int) -> list[Arrival]:
        """Return the connections that are there, as `accepted`."""
        return accepted(self.socket, at_most, lambda connection, _: LocalArrival(connection))

    def close(self) -> None:
        """Take no more connections, and remove the file."""
        if self.socket.fileno() >= 0 and self._file() == self._made is not None:
            with suppress(OSError):  # of a folder that is gone, say
                self._path.unlink()
        self.socket.close()

    def _file(self) -> tuple[int, int] | None:
        with suppress(OSError):
            status = self._path.lstat()
            return status.st_dev, status.st_ino
        return None

    def _remove_stale(self) -> None:
        """Remove the socket of a server that has ended without doing so. Raises CannotListen, OSError, ValueError."""
        try:
            status = self._path.lstat()
        except FileNotFoundError:
            return
        if not stat.S_ISSOCK(status.st_mode):
            raise self._cannot_listen("there is a file that is no socket; give another path")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
            asking.setblocking(False)
            try:
                asking.connect(os.fspath(self._path))
            except ConnectionRefusedError:
                self._path.unlink(missing_ok=True)
                return
            except BlockingIOError:  # many are waiting to be served
                pass
        raise self._cannot_listen("a program listens there already")

    def _bound(self) -> tuple[socket.socket, tuple[int, int] | None]:
        """Return a socket that listens at the path, and which file that is. Raises OSError, ValueError."""
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        mask = os.umask(0o177)  # so that no other user can connect in between
        try:
            made.bind(os.fspath(self._path))
            made.listen(BACKLOG)
        except BaseException:
            made.close()
            raise
        finally:
            os.umask(mask)
        return made, self._file()

    def _cannot_listen(self, why: str) -> CannotListen:
        return CannotListen(f"cannot listen on {self.address}: {why}")


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder, which leaves no file there. Raises OSError, also where another process keeps it."""
    import fcntl  # exists wherever a system tells peers

    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        until = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    words = f"another process has kept the folder {folder} locked for {LOCK_SECONDS:g} s"
                    raise TimeoutError(words) from None
            except OSError as error:
                raise OSError(
                    f"the folder {folder} cannot be locked ({error.strerror}); give a path on a local file system"
                ) from None
            time.sleep(_POLL_SECONDS)
        yield
    finally:
        os.close(descriptor)


class LocalArrival(Arrival):
    """Hold a connection over a local socket."""

    def __init__(self, connection: socket.socket) -> None:
        try:
            self._peer = peer_of(connection)
        except OSError:
            connection.close()
            raise
        self._descriptors = DescriptorSocket.of(connection)
        self._waiting: deque[Descriptor] = deque()  # for the rest of their message
        user = f"user {self._peer.user}"
        super().__init__(self._descriptors, user, f"process {self._peer.process} of {user}")

    @property
    def stranger(self) -> str:
        """Return why the connection is refused, whatever it says; empty when it is not."""
        if not self._peer.stranger:
            return ""
        return f"this server is of user {os.geteuid()}, and serves that user and root only, not user {self._peer.user}"

    def paired(self, arrived: Sequence[tuple[int, Any]], between_frames: bool) -> list[tuple[int, Any]]:
        """Return what has arrived with the last bytes, every RegisterMemory with its descriptor. between_frames:
        whether no further message has begun. Raises RemoteProtocolError (bad_descriptor), which closes all that have
        come."""
        came, self._descriptors.arrived = self._descriptors.arrived, []
        early = len(self._waiting)  # it belongs to the first message, and no other
        self._waiting.extend(came)
        paired: list[tuple[int, Any]] = []
        if self._descriptors.truncated and not came:
            raise self._unexpected("this server cannot open another file descriptor", paired)
        if self._descriptors.truncated or len(came) > 1:
            raise self._unexpected("more than one descriptor came with a message", paired)
        for request_id, message in arrived:
            if isinstance(message, RegisterMemory):
                descriptor = self._waiting.popleft() if self._waiting else None
                paired.append((request_id, WithDescriptor(message, descriptor)))
            elif early:
                raise self._unexpected("a descriptor came with a message that asks for none", paired)
            else:
                paired.append((request_id, message))
            early = 0
        if self._waiting and between_frames:
            raise self._unexpected("a descriptor came with a message that asks for none", paired)
        if len(self._waiting) > 1:
            raise self._unexpected("more than one descriptor came with a message", paired)
        return paired

    def drop(self) -> None:
        """Close descriptors that nothing is made of any more."""
        for descriptor in (*self._waiting, *self._descriptors.arrived):
            descriptor.close()
        self._waiting.clear()
        self._descriptors.arrived.clear()

    def _unexpected(self, what: str, before: list[tuple[int, Any]]) -> RemoteProtocolError:
        self.drop()
        error = RemoteProtocolError("bad_descriptor", f"{what}; only RegisterMemory brings one")
        error.arrived = before
        return error
