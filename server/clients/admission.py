"""Admit connections: from accepting a connection until it has shown that it knows the token.

Everything here can be asked for by anyone who reaches the port, any number of times, so it is bounded three times over.
A connection that has sent nothing holds a descriptor and nothing else (SILENT_AT_MOST). A connection that has sent
something gets a link, which has memory and may begin a TLS handshake (UNPROVEN_AT_MOST). Both kinds of slots are shared
evenly between addresses (slots.py). And the event loop is given back after a few of either, so that a flood keeps no
session waiting. Until the token is known to be right, frames are small, have no blobs, and are not decoded further than
the hello and the proof need.
"""

from __future__ import annotations

import asyncio
import logging
import selectors
from collections.abc import Callable
from itertools import islice

from gputune.server.clients.authentication import Authentication
from gputune.server.clients.client_link import ClientLink
from gputune.server.clients.listener import Arrival, Listener
from gputune.server.clients.local_socket import LocalListener
from gputune.server.clients.slots import Slots

log = logging.getLogger("gputune.server")

SILENT_AT_MOST = 512  # connections that have sent nothing; below the 1024 descriptors that a process may usually have
UNPROVEN_AT_MOST = 64  # links that have not proven yet that they know the token, TLS handshakes included
ACCEPTED_AT_ONCE = 16  # connections in one round of the event loop, less than a millisecond's work
MET_AT_ONCE = 4  # links made in one round, a little more
PAUSE_SECONDS = 0.5  # after a connection that could not be accepted, for lack of descriptors for example


class Admission:
    """Accept connections on a port that listens, for each that says something a link from `make`.

    A link stands here until it has `passed` or `left`. When the slots are taken, the next one takes that of the one
    that has stood longest (slots.py): with the token a moment is enough. seconds: from the connection to the proof.
    """

    def __init__(
        self,
        listener: Listener | LocalListener,
        authentication: Authentication,
        seconds: float,
        make: Callable[[Arrival], ClientLink],
    ) -> None:
        self._listener = listener
        self._authentication = authentication
        self._seconds = seconds
        self._make = make
        self._silent: Slots[Arrival] = Slots(SILENT_AT_MOST)
        self._unproven: Slots[ClientLink] = Slots(UNPROVEN_AT_MOST)
        self._meetings: dict[ClientLink, asyncio.Task[None]] = {}  # of the unproven
        self._began: dict[ClientLink, float] = {}  # the same: when they were accepted
        # of the listening socket and of the silent: one reader of the event loop for all of them, because a flood makes
        # and ends thousands of them a second, which takes several times as long there
        self._selector = selectors.DefaultSelector()
        self._defect: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def standing(self) -> int:
        """Return how many connections have not proven themselves."""
        return len(self._silent) + len(self._unproven)

    async def serve(self) -> None:
        """Accept until it is cancelled; then no connection is left standing here."""
        loop = asyncio.get_running_loop()
        self._selector.register(self._listener.socket, selectors.EVENT_READ)
        loop.add_reader(self._selector.fileno(), self._look)
        try:
            await self._defect
        finally:
            loop.remove_reader(self._selector.fileno())
            for silent in list(self._silent):
                self._dismiss(silent)
            for newcomer in list(self._unproven):
                self._turn_away(newcomer)
            self._selector.close()

    def passed(self, newcomer: ClientLink) -> None:
        """Note that a newcomer has proven itself."""
        self._unproven.leave(newcomer)
        self._meetings.pop(newcomer, None)
        self._began.pop(newcomer, None)

    def left(self, newcomer: ClientLink) -> None:
        """Note that a newcomer is gone."""
        self.passed(newcomer)

    def check(self, now: float) -> None:
        """Turn away what has not proven itself in time."""
        for silent in [arrival for arrival in self._silent if now - arrival.began > self._seconds]:
            self._dismiss(silent)
        for newcomer in [link for link, began in self._began.items() if now - began > self._seconds]:
            log.info("%s did not complete the handshake within %d s", newcomer, self._seconds)
            self._turn_away(newcomer)

    # --- connections that have sent nothing -----------------------------------------------------------

    def _look(self) -> None:
        """Do some of what there is to do. The loop serves the others then, and calls again while there is more."""
        try:
            ready = [key.data for key, _ in self._selector.select(0)]
            speaking = (arrival for arrival in ready if arrival is not None and not self._hung_up(arrival))
            for arrival in islice(speaking, MET_AT_ONCE):
                self._forget(arrival)
                self._meet(arrival, self._make(arrival))
            if None in ready:  # last, because it dismisses others
                self._accept()
        except Exception as error:
            if not self._defect.done():
                self._defect.set_exception(error)

    def _hung_up(self, arrival: Arrival) -> bool:
        if arrival.hung_up:
            self._dismiss(arrival)
            return True
        return False

    def _accept(self) -> None:
        try:
            arrivals = self._listener.accept(ACCEPTED_AT_ONCE)
        except OSError as error:
            log.error("a connection cannot be accepted: %s", error.strerror or error)
            self._selector.unregister(self._listener.socket)
            asyncio.get_running_loop().call_later(PAUSE_SECONDS, self._resume)
            return
        for arrival in arrivals:
            if (gone := self._silent.take(arrival, arrival.address)) is not None:
                self._dismiss(gone)
            self._selector.register(arrival.descriptor, selectors.EVENT_READ, arrival)

    def _resume(self) -> None:
        if self._selector.get_map() is not None:  # not closed
            self._selector.register(self._listener.socket, selectors.EVENT_READ)

    def _dismiss(self, arrival: Arrival) -> None:
        self._forget(arrival)
        arrival.close()

    def _forget(self, arrival: Arrival) -> None:
        self._selector.unregister(arrival.descriptor)
        self._silent.leave(arrival)

    # --- links that have not proven themselves --------------------------------------------------------

    def _meet(self, arrival: Arrival, newcomer: ClientLink) -> None:
        def met(meeting: asyncio.Task[None]) -> None:
            if meeting.cancelled() or (error := meeting.exception()) is not None:
                if not meeting.cancelled():
                    log.info("a connection was lost during its handshake: %s", error)
                arrival.close()
                self.left(newcomer)

        meeting = asyncio.ensure_future(arrival.meet(newcomer, self._authentication.tls, self._seconds))
        self._meetings[newcomer], self._began[newcomer] = meeting, arrival.began
        meeting.add_done_callback(met)
        if (gone := self._unproven.take(newcomer, arrival.address)) is not None:
            self._turn_away(gone)

    def _turn_away(self, newcomer: ClientLink) -> None:
        meeting = self._meetings[newcomer]
        self.passed(newcomer)
        if meeting.done():
            newcomer.abort()
        else:
            meeting.cancel()
