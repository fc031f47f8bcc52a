"""Read the state of the device's clocks, temperatures and load, as a status shows it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from gputune.runtime.devices import load, state

FRESH_SECONDS = 0.2
"""Less than what lies between two looks at the load."""
WAIT_SECONDS = 0.5  # a driver that sleeps may answer late, and then what is known already is told


def _state_and_load() -> dict[str, float]:
    return state.read() | load.read()


class RecentState:
    """Read what `state` and `load` say, or another source of another machine, beside the event loop and at most once in
    FRESH_SECONDS."""

    def __init__(self, source: Callable[[], dict[str, float]] = _state_and_load) -> None:
        self._source = source
        self._state: dict[str, object] = {}
        self._reading: asyncio.Future[dict[str, float]] | None = None
        self._began = 0.0

    async def read(self) -> dict[str, object]:
        """Return plain numbers by name, as far as they can be read."""
        now = time.monotonic()
        if self._reading is None or (self._reading.done() and now - self._began >= FRESH_SECONDS):
            self._reading, self._began = asyncio.ensure_future(asyncio.to_thread(self._source)), now
        await asyncio.wait({self._reading}, timeout=WAIT_SECONDS)
        if self._reading.done() and not self._reading.cancelled():
            self._state = dict(self._reading.result())
        return self._state
