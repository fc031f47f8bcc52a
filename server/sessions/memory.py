"""Count and bound the memory that the server holds for all its clients together."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from gputune.server.protocol.errors import ProtocolError, limit_exceeded

SHARE = 2  # half of the machine's memory: a worker has copies of what it was given, and others need some too
_UNKNOWN_BYTES = 4 << 30  # where the machine does not say how much it has


class Memory:
    """Count bytes held for all clients: buffers, registered memories, contexts, source texts and requests of sessions,
    frames that are arriving and replies that are not on their way yet; never more than limits.total_bytes."""

    def __init__(self, allowed: int, registered: int) -> None:
        """Begin with nothing used. registered: how many memories all clients together may have registered."""
        self.bytes = 0
        self._allowed = allowed
        self._registered = 0
        self._registered_allowed = registered

    def hold(self, count: int) -> None:
        """Count so many bytes as used. Raises ProtocolError (limit_exceeded) when they do not go in any more."""
        if self.bytes + count > self._allowed:
            what = "try again when other clients have gone; with this request, all clients together would use bytes:"
            raise limit_exceeded(ProtocolError, what, "total_bytes", self._allowed, self.bytes + count)
        self.bytes += count

    def release(self, count: int) -> None:
        """Count so many bytes as free again."""
        self.bytes -= count

    def register(self) -> None:
        """Count one more registered memory. Raises ProtocolError (limit_exceeded)."""
        if self._registered >= self._registered_allowed:
            what = "all clients together would have registered memories:"
            limit = "total_registered", self._registered_allowed, self._registered + 1
            raise limit_exceeded(ProtocolError, what, *limit)
        self._registered += 1

    def unregister(self) -> None:
        """Count one less."""
        self._registered -= 1


class UnderWay:
    """Count what one connection has under way in both directions, as a part of `memory`."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._bytes = 0

    def become(self, count: int) -> None:
        """Count as so many bytes from now on. Raises ProtocolError when they do not go in; they count as before
        then."""
        if count > self._bytes:
            self._memory.hold(count - self._bytes)
        else:
            self._memory.release(self._bytes - count)
        self._bytes = count


def sensible_bytes(group: Path = Path("/sys/fs/cgroup/memory.max")) -> int:
    """Return how much a server should hold at most: a share of the memory that this machine, or the control group,
    has."""
    has = _UNKNOWN_BYTES * SHARE
    with suppress(OSError, ValueError, AttributeError):  # no such names on this system
        has = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):  # no such group, or one without a limit
        has = min(has, int(group.read_text(encoding="ascii")))
    return has // SHARE
