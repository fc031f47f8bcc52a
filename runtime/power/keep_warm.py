"""Keep a device or a processor from falling asleep between inferences, if no file can.

An empty launch at intervals keeps a device's clocks up; spinning keeps a processor out of its idle states. Both cost
power, and spinning costs a processor: `cpu_ns` says how much so far. Keep-warm is off unless requested. On devices of
type CPU it takes the processor that the kernels would run on.
"""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Callable

PERIOD_US = 50
"""Between two launches: shorter than a device or a processor takes to fall asleep."""


class KeepWarm:
    """A thread that works from each `resume` to the next `pause`, at most for longest_ms.

    launch: enqueues an empty kernel and waits for it; without it the thread spins. An error of `launch` ends the
    thread, and `error` has it; cpu_ns: the processor time that the thread has used.
    """

    def __init__(
        self,
        launch: Callable[[], None] | None = None,
        period_us: int = PERIOD_US,
        longest_ms: int = 1000,
    ) -> None:
        if period_us < 1 or longest_ms < 1:
            raise ValueError(f"keep_warm: period_us is {period_us} and longest_ms {longest_ms}; each must be above 0")
        self.error: Exception | None = None
        self.rounds = 0
        self.cpu_ns = 0
        self._round = _spin if launch is None else launch
        self._period_s = 0.0 if launch is None else period_us / 1e6
        self._longest_ns = longest_ms * 1_000_000
        self._change = threading.Condition()
        self._until_ns = 0
        self._closed = self._working = False
        self._thread = threading.Thread(target=self._work, name="keep warm", daemon=True)
        self._thread.start()

    def resume(self) -> None:
        """Start working: an inference is done."""
        with self._change:
            self._until_ns = time.monotonic_ns() + self._longest_ns
            self._change.notify_all()

    def pause(self) -> None:
        """Stop working, and return when no launch of the thread is left: an inference begins."""
        with self._change:
            self._until_ns = 0
            self._change.wait_for(lambda: not self._working)

    def close(self) -> None:
        """End the thread."""
        with self._change:
            self._closed = True
            self._change.notify_all()
        self._thread.join()

    def _work(self) -> None:
        while self._begun():
            try:
                self._round()
            except Exception as error:  # of a driver: the inferences' own launches will say it, too
                self.error = error
                return
            finally:
                self._ended()
            if self._period_s:
                time.sleep(self._period_s)

    def _begun(self) -> bool:
        """Wait until there is something to do; False once it is closed."""
        with self._change:
            self._change.wait_for(lambda: self._closed or time.monotonic_ns() < self._until_ns)
            self._working = not self._closed
            return self._working

    def _ended(self) -> None:
        with self._change:
            self._working = False
            self.rounds += 1
            self.cpu_ns = time.thread_time_ns()
            self._change.notify_all()


def _spin() -> None:
    """Work of some microseconds without the interpreter's lock, which an inference would have to wait for."""
    zlib.crc32(_BYTES)


_BYTES = bytes(1 << 14)
