"""Keeps a device or a processor from falling asleep between inferences, where no file can.

An empty launch every so often keeps a device's clocks up; spinning keeps a processor out of its idle states. Both cost
power, and spinning costs a processor: `cpu_ns` says how much it has been. Off unless asked for; on devices of type CPU
it takes the processor that the kernels would run on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

PERIOD_US = 200
"""Between two launches: shorter than a device takes to lower its clocks."""


class KeepWarm:
    """A thread that works from each `resume` to the next `pause`, at most for longest_ms.

    launch: enqueues an empty kernel and waits for it; without it the thread spins. An error of `launch` ends the
    thread, and `error` has it.
    """

    def __init__(
        self,
        launch: Callable[[], None] | None = None,
        period_us: int = PERIOD_US,
        longest_ms: int = 1000,
    ) -> None:
        if period_us < 1 or longest_ms < 1:
            raise ValueError(f"keep_warm: period_us is {period_us} and longest_ms {longest_ms}; both start at 1")
        self.error: Exception | None = None
        self.launches = 0
        self.cpu_ns = 0
        self._launch = launch
        self._period_s = period_us / 1e6
        self._longest_ns = longest_ms * 1_000_000
        self._change = threading.Condition()
        self._on = self._closed = self._working = False
        self._thread = threading.Thread(target=self._work, name="keep warm", daemon=True)
        self._thread.start()

    def resume(self) -> None:
        """Starts working: an inference is done."""
        with self._change:
            self._on = True
            self._change.notify_all()

    def pause(self) -> None:
        """Stops working, and returns when no launch of the thread is left: an inference begins."""
        self._on = False
        with self._change:
            self._change.wait_for(lambda: not self._working)

    def close(self) -> None:
        """Ends the thread."""
        with self._change:
            self._closed, self._on = True, False
            self._change.notify_all()
        self._thread.join()

    def _work(self) -> None:
        while self._begun():
            try:
                self._keep()
            except Exception as error:  # of a driver: the inferences' own launches will say it, too
                self.error = error
                return
            finally:
                self._ended()

    def _begun(self) -> bool:
        """Waits for `resume`; False once it is closed."""
        with self._change:
            self._change.wait_for(lambda: self._on or self._closed)
            self._working = self._on
            return self._on

    def _ended(self) -> None:
        with self._change:
            self._on = self._working = False
            self.cpu_ns = time.thread_time_ns()
            self._change.notify_all()

    def _keep(self) -> None:
        until = time.monotonic_ns() + self._longest_ns
        while self._on and time.monotonic_ns() < until:
            if self._launch is not None:
                self._launch()
                self.launches += 1
                time.sleep(self._period_s)
