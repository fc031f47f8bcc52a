"""Where connections come in. Nobody has shown who they are yet, so only few of them may stand here at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from gputune.server.client_link import ClientLink
from gputune.server.guard import Guard
from gputune.server.listener import Arrival, Listener

log = logging.getLogger("gputune.server")

UNPROVEN_AT_MOST = 64  # connections that have not proven yet that they know the token, TLS handshakes included
PAUSE_SECONDS = 0.5  # after a connection that could not be accepted, for want of descriptors for example


class Entrance:
    """Accepts connections on a port that listens, for each a link from `make`.

    They stand here until they have `passed`, or are gone (`left`). When UNPROVEN_AT_MOST do, the next one takes the
    place of the one that has stood longest: who has the token needs a moment only, and is not kept out by those who
    have not. seconds: for a TLS handshake.
    """

    def __init__(self, listener: Listener, guard: Guard, seconds: float, make: Callable[[], ClientLink]) -> None:
        self._listener = listener
        self._guard = guard
        self._seconds = seconds
        self._make = make
        self._standing: dict[ClientLink, asyncio.Task[None]] = {}  # the oldest first

    async def serve(self) -> None:
        """Accepts until it is cancelled; then nobody is left standing here."""
        try:
            while True:
                try:
                    arrival = await self._listener.accept()
                except OSError as error:
                    log.error("a connection cannot be accepted: %s", error.strerror or error)
                    await asyncio.sleep(PAUSE_SECONDS)
                    continue
                if len(self._standing) >= UNPROVEN_AT_MOST:
                    self._turn_away(next(iter(self._standing)))
                self._meet(arrival, self._make())
        finally:
            for newcomer in list(self._standing):
                self._turn_away(newcomer)

    def passed(self, newcomer: ClientLink) -> None:
        """It has proven itself."""
        self._standing.pop(newcomer, None)

    def left(self, newcomer: ClientLink) -> None:
        """It is gone."""
        self._standing.pop(newcomer, None)

    def _meet(self, arrival: Arrival, newcomer: ClientLink) -> None:
        def met(meeting: asyncio.Task[None]) -> None:
            if meeting.cancelled() or (error := meeting.exception()) is not None:
                if not meeting.cancelled():
                    log.info("a connection was lost during its handshake: %s", error)
                arrival.close()
                self.left(newcomer)

        meeting = asyncio.ensure_future(arrival.meet(newcomer, self._guard.tls, self._seconds))
        self._standing[newcomer] = meeting
        meeting.add_done_callback(met)

    def _turn_away(self, newcomer: ClientLink) -> None:
        meeting = self._standing.pop(newcomer)
        if meeting.done():
            newcomer.abort()
        else:
            meeting.cancel()
