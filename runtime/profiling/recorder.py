"""Record the inferences of one loaded graph: stamps around the host's steps, timestamps of the device's launches.

When recording is off, none of this is called. At level basic an inference runs as usual, with a stamp on each side of
each step. At the other levels its launches run one by one on a queue with the device's clock. Their timestamps are read
when the inference has ended, and after every MOST_EVENTS launches, because drivers keep an event of each launch until
then. The first, a middle and the last launch are enqueued alone, between two readings of the host's clock. From these
the two clocks are fitted to each other.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

from gputune.runtime.backends import Backend, Bound, Imported, Times
from gputune.runtime.profiling.clocks import BRACKETED, TIMER, ClockFit, ClockTracker, timer_constraints
from gputune.runtime.profiling.observed import Observed
from gputune.runtime.profiling.records import ENDED, QUEUED, STARTED, Form, Level, LoggedInference, Part

T = TypeVar("T")
Start = Callable[[], bool]
"""Enqueues an inference; says whether it is over already."""
Steps = tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any], Callable[..., Any], Callable[..., Any]]
"""What an inference does with memory: gives a tensor's to the device, launches, finishes, gives memory back to the
host, takes an output."""
Stamped = Callable[[Steps], Steps]
MOST_EVENTS = 512
now_ns = time.perf_counter_ns


class Recorder:
    """Of one graph on one backend, whose place in the log is `graph`. Used by one thread at a time, as the graph is."""

    def __init__(
        self,
        backend: Backend,
        level: Level,
        graph: int,
        launches: Callable[[], Sequence[Bound]],
        form: Callable[[], Form],
        observed: Observed,
        write: Callable[[LoggedInference], None],
    ) -> None:
        """graph: its place in the log. launches: loads what runs one by one, which level basic does not ask for; form:
        in which the last inference ran as it always does. write: is given each record, and may raise OSError."""
        self.graph = graph
        self._backend, self._level = backend, level
        self._timed = level != "basic"
        self._launches, self._form = launches, form
        self._observed, self._write = observed, write
        self._clock = ClockTracker()
        self._number = 0
        self._write_ns = 0
        self._begun_ns = 0
        self._parts: list[tuple[int, int, int, int]] = []
        self._bounds: Sequence[Bound] = ()
        self._pieces: list[tuple[int, int]] = []
        self._times = np.zeros((0, 4), np.int64)
        self._pending: list[tuple[int, int, Callable[[], Times]]] = []
        self._not_before: list[tuple[int, int]] = []
        self._not_after: list[tuple[int, int]] = []

    def infer(self, run: Callable[[Start, Stamped], T], usual: Start) -> tuple[T, int]:
        """Has `run` make an inference, whose launches it starts by what it is given, and records it. usual: starts it
        as it runs without a profiler.

        Returns what `run` does, and the inference's ns. Raises as that does, and OSError where it cannot be recorded;
        an inference that fails is not. One without launches is recorded as at level basic."""
        if self._timed:
            self._prepare()
        timed = bool(self._bounds)
        self._parts.clear()
        self._observed.before()
        with self._backend.timing() if timed else nullcontext():
            reads = [self._read_clock()] if timed else []
            self._begun_ns = now_ns()
            result = run(self._enqueue if timed else usual, self._stamped)
            ended_ns = now_ns()
            self._parts.append((Part.HOST, -1, self._parts[-1][3], ended_ns))
            self._observed.after()
            if timed:
                reads.append(self._read_clock())
                self._harvest()
        self._record(ended_ns, self._fit(reads) if timed else None)
        return result, ended_ns - self._begun_ns

    # --- launches -------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Make room for the timestamps of all launches, and cut these into pieces that are enqueued at once."""
        bounds = self._launches()
        if len(bounds) != len(self._bounds):
            self._times = np.zeros((len(bounds), 4), np.int64)
            alone = {0, len(bounds) // 2, len(bounds) - 1}
            cuts = sorted({0, len(bounds), *alone, *(place + 1 for place in alone)} - {len(bounds) + 1})
            cuts = sorted({*cuts, *range(0, len(bounds), MOST_EVENTS // 2)})
            self._pieces = list(pairwise(cuts))
        self._bounds = bounds
        self._pending.clear()
        self._not_before.clear()
        self._not_after.clear()

    def _enqueue(self) -> bool:
        """Enqueue all launches, which are not over then; those of which timestamps are waited for are at most
        MOST_EVENTS at a time."""
        waiting = 0
        for first, end in self._pieces:
            if waiting + end - first > MOST_EVENTS:
                begun_ns = now_ns()
                self._backend.finish()
                self._harvest()
                self._add(Part.PROFILER, begun_ns)
                waiting = 0
            bounds = self._bounds[first:end]
            begun_ns = now_ns()
            times = self._backend.enqueue_timed(bounds)
            self._pending.append((first, end, times))
            self._not_before.append((first, begun_ns))
            self._not_after.append((end - 1, now_ns()))
            waiting += end - first
        return False

    def _harvest(self) -> None:
        """Read the timestamps of launches that are finished."""
        for first, end, times in self._pending:
            self._times[first:end] = times()
        self._pending.clear()

    def _read_clock(self) -> tuple[int, int | None, int]:
        begun_ns = now_ns()
        device_ns = self._backend.device_now_ns()
        return begun_ns, device_ns, now_ns()

    def _fit(self, reads: Sequence[tuple[int, int | None, int]]) -> ClockFit:
        """From the device's clock to the host's in this inference: by readings where the device allows it, else by the
        calls that enqueued launches and waited for the last one."""
        known = [row for row in reads if row[1] is not None]
        if known:
            return self._clock.fit(*timer_constraints(np.array(known, np.int64)), TIMER)
        waited_ns = next(part[3] for part in reversed(self._parts) if part[0] == Part.WAIT)
        not_before = [(int(self._times[place, QUEUED]), host_ns) for place, host_ns in self._not_before]
        not_after = [(int(self._times[place, QUEUED]), host_ns) for place, host_ns in self._not_after]
        not_after.append((int(self._times[-1, ENDED]), waited_ns))
        return self._clock.fit(np.array(not_before, np.int64), np.array(not_after, np.int64), BRACKETED)

    # --- the host -------------------------------------------------------------------------------------

    def _stamped(self, steps: Steps) -> Steps:
        """Return the steps with a stamp on each side."""
        give, launch, finish, give_back, take = steps
        self._add(Part.HOST, self._begun_ns)

        def giving(tensor: Any, value: object, used: object) -> object:
            begun_ns = now_ns()
            held = give(tensor, value, used)
            if held is not None and self._timed:
                self._backend.finish()  # so that a copy is over here, and not in front of the first launch
            self._add(Part.WRITE, begun_ns, tensor.index if tensor.kind == "input" else -1)
            return held

        def launching(start: Start, used: object) -> bool:
            begun_ns = now_ns()
            over: bool = launch(start, used)
            self._add(Part.ENQUEUE, begun_ns)
            return over

        def finishing(used: Sequence[Imported]) -> None:
            begun_ns = now_ns()
            finish(used)
            if not all(imported.coherent for imported in used):
                self._backend.finish()  # else the command that gives memory back would wait for the launches
            self._add(Part.WAIT, begun_ns)

        def giving_back(*used: object) -> None:
            begun_ns = now_ns()
            give_back(*used)
            self._add(Part.READ, begun_ns)

        def taking(tensor: Any, value: object) -> object:
            begun_ns = now_ns()
            taken = take(tensor, value)
            self._add(Part.READ, begun_ns, tensor.index)
            return taken

        return giving, launching, finishing, giving_back, taking

    def _add(self, kind: Part, begun_ns: int, tensor: int = -1) -> None:
        self._parts.append((kind, tensor, begun_ns, now_ns()))

    def _record(self, ended_ns: int, clock: ClockFit | None) -> None:
        launches = self._times[:0] if clock is None else self._times[:, QUEUED if self._level == "qhas" else STARTED :]
        found = self._observed.results()
        recorded_ns = now_ns()
        inference = LoggedInference(
            graph=self.graph,
            number=self._number,
            thread=threading.get_native_id(),
            form=self._form() if clock is None else "launches",
            begun_ns=self._begun_ns,
            ended_ns=ended_ns,
            parts=np.array(self._parts, np.int64),
            launches=launches,
            clock=clock,
            profiler_ns=recorded_ns - ended_ns + self._write_ns,
            **found,
        )
        self._write(inference)
        self._write_ns = now_ns() - recorded_ns
        self._number += 1
