"""Inferences by persistent kernels that may be given up, and by launches where those do better.

The kernels wait a bounded number of rounds for each other (client/persistent.py has their text); how long a round takes
is measured here when they are loaded. An inference that they give up leaves counters and flag in any state, and its
tensors half computed: all groups have left once the queue is empty, so the host clears the counters and runs the same
inference by launches, which read nothing but inputs and weights that no launch has written.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gputune.runtime.backends import Backend, Bound, Buffer
from gputune.runtime.breaker import JITTER_NS, Breaker
from gputune.runtime.context_records import FLAG, ROUNDS, STATUS_BYTES

WAIT = 2
"""A group may wait for so many times what an inference usually takes, and JITTER_NS: in slow ones only."""
FIRST_WAIT_NS = 100e6
"""How long it may wait before anything is known of the usual time."""
CALIBRATING_ROUNDS = 1 << 14
CALIBRATIONS, ALIKE = 8, 1.1
"""Launches that measure how long a round takes, at most; as soon as the two quickest are alike, it is known."""
NEVER, TAKEN = -(1 << 30), 1 << 30
"""Counts of arrivals that are never complete, and of groups that have all been taken."""
MOST_ROUNDS = (1 << 31) - 1


@dataclass
class Runs:
    """What became of the inferences of a context that has persistent kernels. persistent: those that ran so to their
    end; aborted: begun so, given up and run by launches; launches: run by launches from the beginning; attempts: those
    of the persistent and aborted ones that were to show whether persistent kernels pay again."""

    persistent: int = 0
    aborted: int = 0
    launches: int = 0
    attempts: int = 0

    @property
    def inferences(self) -> int:
        """All of them."""
        return self.persistent + self.aborted + self.launches


class PersistentRuns:
    """Runs inferences in the form that does better at the time. runs: what became of them so far."""

    def __init__(
        self,
        backend: Backend,
        kernels: Sequence[Bound],
        waiting: Bound,
        counters: Buffer,
        status: Buffer,
    ) -> None:
        """kernels: all launches of the persistent form; waiting: the one of them whose counters lie at the beginning of
        `counters`; status: the other buffer that they share, both with undefined contents. Raises DeviceError."""
        self.runs = Runs()
        self._backend = backend
        self._counters = counters
        self._status = status
        self._launched = False
        self._start = backend.in_order(kernels)
        self._breaker = Breaker()
        self._rounds = 0
        self._rounds_per_ns = self._calibrated(waiting)
        self._clear()

    def run(self, launches: Callable[[], Callable[[], None]]) -> None:
        """One inference: inputs lie in their buffers, and outputs do when it returns. launches: gives, where that is
        needed, what enqueues the launches of the other form. Raises DeviceError."""
        if self._breaker.persistent:
            self.runs.attempts += not self._breaker.closed
            if self._completes():
                self.runs.persistent += 1
                return
            self._clear()
            self.runs.aborted += 1
        else:
            self.runs.launches += 1
        start = launches()
        if not self._launched:
            start()  # drivers load code at the first launch: this one is not to be judged by its time
            self._launched = True
        self._breaker.record(False, self._elapsed_ns(start))

    def _completes(self) -> bool:
        """Whether the persistent kernels have run to their end."""
        usual_ns = self._breaker.usual_ns
        wait_ns = WAIT * usual_ns + JITTER_NS if usual_ns else FIRST_WAIT_NS
        rounds = min(max(1, int(wait_ns * self._rounds_per_ns)), MOST_ROUNDS)
        if not rounds / 2 < self._rounds < rounds * 2:
            self._allow(rounds)
        elapsed_ns = self._elapsed_ns(self._start)
        aborted = self._flag()
        self._breaker.record(True, elapsed_ns, aborted)
        return not aborted

    def _elapsed_ns(self, start: Callable[[], None]) -> int:
        begun_ns = time.perf_counter_ns()
        start()
        self._backend.finish()
        return time.perf_counter_ns() - begun_ns

    def _calibrated(self, kernel: Bound) -> float:
        """Rounds of waiting in a nanosecond. The kernel finds all its groups taken and waits in vain until the flag is
        raised; what disturbs it makes it slower, so the quickest launches count."""
        state = np.full(self._counters.nbytes // 4, TAKEN, np.int32)
        state[0] = NEVER
        start = self._backend.in_order([kernel])
        times_ns: list[int] = []
        for _ in range(CALIBRATIONS):
            self._backend.write(self._counters, state)
            self._allow(CALIBRATING_ROUNDS)
            times_ns.append(self._elapsed_ns(start))
            if len(times_ns) > 1 and sorted(times_ns)[1] < ALIKE * min(times_ns):
                break
        return CALIBRATING_ROUNDS / min(times_ns)

    def _clear(self) -> None:
        self._backend.fill(self._counters, 0)
        self._allow(self._rounds)

    def _allow(self, rounds: int) -> None:
        """Lowers the flag and sets how many rounds a group may wait."""
        self._rounds = rounds
        status = np.zeros(STATUS_BYTES // 4, np.int32)
        status[ROUNDS] = rounds
        if self._status.host is None:
            self._backend.write(self._status, status)
        else:
            self._status.host[...] = status.view(np.uint8)

    def _flag(self) -> bool:
        """Whether the kernels were given up; when everything is finished."""
        status = self._backend.read(self._status) if self._status.host is None else self._status.host
        return bool(status[4 * FLAG])
