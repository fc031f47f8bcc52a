"""Limit how many threads use a resource at a time, and give them turns."""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Turns:
    """Of the threads that wait, the one with the highest priority goes first, and of equals the one that came first. As
    long as one of a higher priority waits, none of a lower one goes."""

    def __init__(self, at_a_time: int = 1) -> None:
        self._free = at_a_time
        self._lock = threading.Lock()
        self._tickets = itertools.count()
        self._waiting: list[tuple[int, int, threading.Lock]] = []

    @contextmanager
    def turn(self, priority: int) -> Iterator[None]:
        """Wait for a turn and hold it."""
        with self._lock:
            called = self._join(priority)
        if called is not None:
            called.acquire()
        try:
            yield
        finally:
            with self._lock:
                self._pass_on()

    def _join(self, priority: int) -> threading.Lock | None:
        """Return a lock that opens when the turn has come; None where it has already."""
        if self._free:
            self._free -= 1
            return None
        called = threading.Lock()
        called.acquire()
        heapq.heappush(self._waiting, (-priority, next(self._tickets), called))
        return called

    def _pass_on(self) -> None:
        if self._waiting:
            heapq.heappop(self._waiting)[2].release()
        else:
            self._free += 1
