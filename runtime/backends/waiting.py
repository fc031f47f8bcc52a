"""Simulate a device that waits: it computes nothing, and takes the time that the null device's model says.

Each queue runs in order, in parallel with other queues. A launch starts when it was submitted and the launches before
it have ended. Nothing runs meanwhile; a call that waits for an end sleeps until then. The device's clock counts from
its opening, and may run faster or slower than the host's, so that code that reads timestamps can be tested.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from gputune.core.identity import DeviceIdentity
from gputune.runtime.backends.answers import Bytes, Times, Timing
from gputune.runtime.backends.base import Bound, Buffer
from gputune.runtime.backends.null import NullBackend, time_ns
from gputune.runtime.devices.discovery import DeviceReport

COPIED_BYTES_PER_NS = 10.0
AWAKE_NS = 100_000
"""How long before an end it does not sleep any more, because systems wake a process that late."""
_GIGA = 1_000_000_000


def open_device(report: DeviceReport, profiling: bool = True, compiled: Path | None = None) -> WaitingNullBackend:
    """Return the null device that waits: it always has a clock, and compiles nothing."""
    assert report.identity is not None
    return WaitingNullBackend(report.identity)


class WaitingNullBackend(NullBackend):
    """No device at all, but its times pass."""

    def __init__(self, identity: DeviceIdentity, zero_ns: int = 0, drift_ppb: int = 0) -> None:
        """zero_ns: what its clock shows now. drift_ppb: how many ns a second it is faster than the host's."""
        super().__init__(identity)
        self._opened_ns = time.perf_counter_ns()
        self._zero_ns = zero_ns
        self._drift_ppb = drift_ppb
        self._free_ns = self._opened_ns
        """When all that was enqueued has ended, by the host's clock."""

    def another_queue(self) -> Self:
        other = copy.copy(self)
        other._free_ns = time.perf_counter_ns()
        return other

    def write(self, buffer: Buffer, data: Any) -> None:
        super().write(buffer, data)
        self._pass(memoryview(data).nbytes / COPIED_BYTES_PER_NS)
        self.finish()

    def read(self, buffer: Buffer, into: Bytes | None = None) -> Bytes:
        self._pass(buffer.nbytes / COPIED_BYTES_PER_NS)
        result = super().read(buffer, into)
        self.finish()
        return result

    def fill(self, buffer: Buffer, pattern: int) -> None:
        super().fill(buffer, pattern)
        self._pass(buffer.nbytes / COPIED_BYTES_PER_NS)

    def enqueue(self, bound: Bound) -> None:
        self._pass(time_ns(bound))

    def enqueue_timed(self, bounds: Sequence[Bound]) -> Callable[[], Times]:
        rows = [[*map(self._device_ns, (time.perf_counter_ns(), *self._pass(time_ns(bound))))] for bound in bounds]
        return lambda: np.array(rows, np.int64)

    def finish(self) -> None:
        _wait_until(self._free_ns)

    def first_launch(self, bound: Bound, started: Callable[[], None]) -> Timing:
        begun_ns = time.perf_counter_ns()
        _, started_ns, ended_ns = self._pass(time_ns(bound))
        _wait_until(started_ns)
        started()
        _wait_until(ended_ns)
        return Timing(1, ended_ns - started_ns, time.perf_counter_ns() - begun_ns)

    def time(self, bound: Bound, launches: int) -> Timing:
        begun_ns = time.perf_counter_ns()
        clock = self.enqueue_timed([bound] * launches)
        self.finish()
        return Timing(launches, launches * time_ns(bound), time.perf_counter_ns() - begun_ns, time_ns(bound), clock())

    def _pass(self, duration_ns: float) -> tuple[int, int, int]:
        """Put something of that duration behind all else in the queue. Return when it is submitted, starts and ends, by
        the host's clock."""
        submitted_ns = time.perf_counter_ns()
        started_ns = max(submitted_ns, self._free_ns)
        self._free_ns = started_ns + round(duration_ns)
        return submitted_ns, started_ns, self._free_ns

    def _device_ns(self, host_ns: int) -> int:
        since_ns = host_ns - self._opened_ns
        return self._zero_ns + since_ns + since_ns * self._drift_ppb // _GIGA


def _wait_until(moment_ns: int) -> None:
    while (left_ns := moment_ns - time.perf_counter_ns()) > 0:
        time.sleep(max(left_ns - AWAKE_NS, 0) / _GIGA)  # 0 lets others run
