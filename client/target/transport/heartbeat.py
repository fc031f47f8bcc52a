"""Run a thread that keeps an idle connection from being taken for dead."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Heartbeat:
    """Call `beat` every so many seconds until it is stopped. `beat` must not raise."""

    def __init__(self, seconds: float, beat: Callable[[], None]) -> None:
        self._seconds = seconds
        self._beat = beat
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gputune-heartbeat", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Let no further beat begin."""
        self._over.set()

    def join(self) -> None:
        """Wait for the end of the beat under way, if there is one."""
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(self._seconds):
            self._beat()
