"""Slow down guesses at the token: after a few wrong tokens, an address has to wait."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from .tenants import address_of

FREE = 3  # wrong tokens of an address in a row that cost nothing: a mistake is found out at once
FIRST_SECONDS = 0.1
LONGEST_SECONDS = 2.0
FORGET_SECONDS = 60.0
ADDRESSES = 1024


class Guesses:
    """Delay the next proof from an address: twice as long after each wrong one, up to LONGEST_SECONDS, which is
    bearable for others behind the same address. Addresses beyond ADDRESSES are forgotten, the one that failed longest
    ago first."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failed: OrderedDict[str, tuple[int, float]] = OrderedDict()  # how often in a row, and when last

    def failed(self, address: str) -> None:
        """Note that a proof from there was wrong."""
        network = address_of(address)
        count, _ = self._recent(network)
        self._failed[network] = count + 1, self._clock()
        self._failed.move_to_end(network)
        while len(self._failed) > ADDRESSES:
            self._failed.popitem(last=False)

    def seconds(self, address: str) -> float:
        """Return how long to wait before the next proof from there is read; 0 for an address without wrong proofs."""
        count, since = self._recent(address_of(address))
        if count < FREE:
            return 0.0
        pause = min(LONGEST_SECONDS, FIRST_SECONDS * 2.0 ** min(count - FREE, 10))
        return max(0.0, pause - since)

    def _recent(self, network: str) -> tuple[int, float]:
        """Return (wrong proofs in a row, seconds since the last one)"""
        count, last = self._failed.get(network, (0, 0.0))
        since = self._clock() - last
        return (count, since) if since < FORGET_SECONDS else (0, since)
