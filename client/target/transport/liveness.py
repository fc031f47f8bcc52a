"""Decide how long a server may be silent before it counts as gone, on links of any speed."""

from __future__ import annotations

import time

SLOWEST_BYTES_PER_SECOND = 64_000
"""What the slowest link that is waited for carries; forwarders take in much more than they have passed on."""
_MUCH_BYTES = 1 << 12  # more than any ping


class LivenessTimeout:
    """Time out when nothing is heard. A server cannot answer what has not reached it, so bytes that move are a sign of
    life, too, and the more was sent, the longer it may take until it arrives.

    seconds: of silence that are allowed; heard: when the last sign of life came, by time.monotonic().
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.heard = time.monotonic()
        self._arrives = 0.0  # when the slowest link has carried all that was sent
        self._queued: int | None = None

    def sent(self, count: int) -> None:
        """Note that the system has taken so many bytes."""
        if count > _MUCH_BYTES:
            self.heard = time.monotonic()
            self._arrives = max(self._arrives, self.heard) + count / SLOWEST_BYTES_PER_SECOND

    def delivered(self) -> None:
        """Note that the server has answered the last of what was sent."""
        self._arrives = 0.0

    def over(self, queued: int | None) -> bool:
        """Return whether the server is to be taken for gone.

        queued: how many bytes the system has still to send; None where it does not say. They must become fewer. Where
        there are none, a forwarder may have them.
        """
        now = time.monotonic()
        if queued is not None and self._queued is not None and queued < self._queued:
            self.heard = now
        self._queued = queued
        alive = self.heard if queued else max(self.heard, self._arrives)
        return now - alive >= self.seconds
