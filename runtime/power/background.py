"""Run the thread that does what votes leave for later: one in a process, for all devices and instances."""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from typing import Protocol

_log = logging.getLogger(__name__)


class Job(Protocol):
    """What is done at times."""

    def run(self, now: float) -> float:
        """Do what is due by now, in seconds of time.monotonic, and say when to be called again; inf for not at
        all."""


class Background:
    """Calls jobs when they are due, one after the other, on a daemon thread that ends with the last of them."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self._change = threading.Condition(threading.Lock())
        self._times: dict[Job, float] = {}
        self._thread: threading.Thread | None = None
        self._sleeps_until = -math.inf

    def call(self, job: Job, at: float) -> None:
        """Call a job at a time of time.monotonic, or earlier where it is due earlier already: then this makes no
        system call."""
        with self._change:
            if self._times.get(job, math.inf) <= at:
                return
            self._times[job] = at
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="power votes", daemon=True)
                self._thread.start()
            elif at < self._sleeps_until:
                self._change.notify()

    def _work(self) -> None:
        while (job := self._next()) is not None:
            try:
                again = job.run(time.monotonic())
            except Exception as error:  # one device's trouble leaves the others their votes
                _log.warning("power: votes in the background: %s: %s", type(error).__name__, error)
                again = math.inf
            if again < math.inf:
                self.call(job, again)

    def _next(self) -> Job | None:
        """Wait until a job is due, and take its time out; None where none is left."""
        with self._change:
            while self._times:
                job = min(self._times, key=self._times.__getitem__)
                left = self._times[job] - time.monotonic()
                if left <= 0:
                    del self._times[job]
                    return job
                self._sleeps_until = self._times[job]
                self._change.wait(min(left, threading.TIMEOUT_MAX))
                self._sleeps_until = -math.inf
            self._thread = None
            return None


def background() -> Background:
    """Return this process's background; a fork has its own."""
    global _background
    with _making:
        if _background is None or _background.process != os.getpid():
            _background = Background()
        return _background


_making = threading.Lock()
_background: Background | None = None
