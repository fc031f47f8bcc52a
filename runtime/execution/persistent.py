"""Run inferences by persistent kernels, which may be given up, and by launches where launches are faster.

The kernels wait a bounded number of rounds for each other (client/context/persistent.py has their text), because OpenCL
C knows no clock. This module measures at load how long a round takes in that loop. A kernel that is given up says from
which launch on the inference has to run by launches, which begin when all groups have left. Counters and flag are
cleared before the next inference.

How long is too long? The cost of waiting grows with the wait; giving up costs once, the extra time of the remaining
launches. A wait of about that long costs at most twice as much as a choice with foresight, and no rule without
foresight does better (ski rental: Karlin, Manasse, Rudolph, Sleator: Competitive Snoopy Caching, Algorithmica 3, 1988).
The waits that groups always have, because work is not divided evenly, come on top. But no group waits for longer than
all launches would take: on a machine that was busy from the beginning, groups have always waited long.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from gputune.runtime.backends import Backend, Bound, Buffer
from gputune.runtime.context.records import FLAG, LONGEST, ROUNDS, STATUS_BYTES
from gputune.runtime.execution.breaker import Breaker, Usual
from gputune.runtime.executor import Runs
from gputune.runtime.profiling.records import Form

WAIT = 3
"""A group may wait for so many times the longest wait of a usual inference, and for what giving up costs."""
LEAST_COST_NS = 1e5
"""Of giving up: an inference by launches has to be begun."""
BEGUN_NS = 1e5
"""Of processor time: what groups do not have, at most, until they have begun and after they have ended."""
FIRST_WAIT_NS = 1e8
"""How long a group may wait before that is known."""
CALIBRATING_ROUNDS = 1 << 14
CALIBRATIONS, ALIKE = 8, 1.1
"""Launches that measure how long a round takes, at most; as soon as the two quickest are alike, it is known."""
NEVER, TAKEN = -(1 << 30), 1 << 30
"""Counts of arrivals that are never complete, and of groups that have all been taken."""
MOST_ROUNDS = (1 << 31) - 1
Launches = Callable[[int | None], Callable[[], object]]
"""Gives what enqueues launches: those from one on, or for None all of them."""


class PersistentRuns:
    """Runs inferences in the form that does better at the time. runs: what became of them so far; last_form: of the
    last one."""

    def __init__(
        self,
        backend: Backend,
        kernels: Sequence[Bound],
        waiting: Bound,
        groups: int,
        counters: Buffer,
        status: Buffer,
    ) -> None:
        """kernels: all launches of the persistent form; waiting: the one of them whose counters lie at the beginning of
        `counters`; groups: how many it has, each of which keeps a processor busy; status: the other buffer that they
        share, both with undefined contents. Raises DeviceError."""
        self.runs = Runs()
        self.last_form: Form = "launches"
        self._backend = backend
        self._counters = counters
        self._status = status
        self._words = None if status.host is None else status.host.data.cast("B").cast("i")
        self._launched = False
        self._groups = groups
        self._start = backend.in_order(kernels)
        self._breaker = Breaker()
        self._wait = Usual()  # the longest in a kernel that was not given up, in rounds
        self._rounds_per_ns = self._calibrated(waiting)
        backend.fill(counters, 0)

    def run(self, launches: Launches, form: Callable[[], Form]) -> None:
        """One inference: inputs lie in their buffers, and outputs do when it returns. launches: gives, where that is
        needed, what enqueues the launches from one on, or all of them; form: says how all of them ran. Raises
        DeviceError."""
        if self._breaker.persistent:
            self.runs.attempts += not self._breaker.closed
            self._run_persistently(launches)
            return
        self.runs.launches += 1
        self._run_launches(launches, None, 0, persistent=False)
        self.last_form = form()
        if self.last_form == "recorded":
            self.runs.launches -= 1
            self.runs.recorded += 1

    def prepare(self) -> None:
        """For an inference by kernels of this form that are enqueued elsewhere, and of which nothing is learnt. Raises
        DeviceError."""
        self._prepare(self._rounds())

    def gave_up(self) -> bool:
        """Return whether groups have given up in it, when everything is finished. The counters are as `run` needs them
        then. Raises DeviceError."""
        flag, _ = self._status_after()
        if flag:
            self._backend.fill(self._counters, 0)
        return bool(flag)

    def _run_persistently(self, launches: Launches) -> None:
        rounds = self._rounds()
        self._prepare(rounds)
        elapsed_ns = self._watched_ns() if self._breaker.watchful else self._elapsed_ns(self._start)
        flag, longest = self._status_after()
        first = not self.runs.inferences  # which no time is judged by: drivers load code, and caches are empty
        if not first:
            self._wait.add(rounds if flag else max(1, longest))
        if not flag:
            self.runs.persistent += 1
            self.last_form = "persistent"
            if not first:
                self._breaker.record(True, elapsed_ns)
            return
        self.runs.aborted += 1
        self.last_form = "aborted"
        self._backend.fill(self._counters, 0)
        self._run_launches(launches, flag - 1, elapsed_ns, persistent=True)

    def _run_launches(self, launches: Launches, first: int | None, before_ns: int, persistent: bool) -> None:
        """Run those from one on, or all. before_ns: what the inference has taken before; persistent: the form of
        that."""
        if self._launched:
            self._breaker.record(persistent, before_ns + self._elapsed_ns(launches(first)))
            return
        launches(0 if first else first)()  # drivers load code at a first launch: all at once, the time says nothing
        self._backend.finish()
        self._launched = True

    def _watched_ns(self) -> int:
        """Return what the persistent kernels take. The breaker learns how much processor time they lost meanwhile."""
        begun_ns = time.process_time_ns()
        elapsed_ns = self._elapsed_ns(self._start)
        had_ns = time.process_time_ns() - begun_ns
        self._breaker.lose(elapsed_ns, self._groups * elapsed_ns - had_ns - BEGUN_NS)
        return elapsed_ns

    def _rounds(self) -> int:
        """Return how many rounds a group may wait."""
        if not self._wait.value:
            return self._limited(FIRST_WAIT_NS * self._rounds_per_ns)
        cost_ns = max(self._breaker.cost_ns / 2, LEAST_COST_NS)  # on average half of the launches remain
        rounds = WAIT * self._wait.value + cost_ns * self._rounds_per_ns
        return self._limited(min(rounds, self._breaker.launches_ns * self._rounds_per_ns))

    def _limited(self, rounds: float) -> int:
        return min(max(1, int(rounds)), MOST_ROUNDS)

    def _elapsed_ns(self, start: Callable[[], object]) -> int:
        begun_ns = time.perf_counter_ns()
        start()
        self._backend.finish()
        return time.perf_counter_ns() - begun_ns

    def _calibrated(self, kernel: Bound) -> float:
        """Return how many rounds of waiting there are in a nanosecond. The kernel finds all its groups taken and waits
        in vain until the flag is raised. What disturbs it makes it slower, so the quickest launches count."""
        state = np.full(self._counters.nbytes // 4, TAKEN, np.int32)
        state[0] = NEVER
        start = self._backend.in_order([kernel])
        times_ns: list[int] = []
        for _ in range(CALIBRATIONS):
            self._backend.write(self._counters, state)
            self._prepare(CALIBRATING_ROUNDS)
            times_ns.append(self._elapsed_ns(start))
            if len(times_ns) > 1 and sorted(times_ns)[1] < ALIKE * min(times_ns):
                break
        return CALIBRATING_ROUNDS / min(times_ns)

    def _prepare(self, rounds: int) -> None:
        """Lower the flag and set how many rounds a group may wait."""
        if self._words is not None:  # inferences begin and end here, where little Python is in the caches
            self._words[FLAG] = self._words[LONGEST] = 0
            self._words[ROUNDS] = rounds
            return
        status = np.zeros(STATUS_BYTES // 4, np.int32)
        status[ROUNDS] = rounds
        self._backend.write(self._status, status)

    def _status_after(self) -> tuple[int, int]:
        """Return the flag and the longest wait in rounds; when everything is finished."""
        if self._words is not None:
            return self._words[FLAG], self._words[LONGEST]
        status = self._backend.read(self._status).view(np.int32)
        return int(status[FLAG]), int(status[LONGEST])
