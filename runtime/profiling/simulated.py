"""Stamp and record the inferences of devices that compute nothing, with the times of their models."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar

import numpy as np

from gputune.runtime.backends import Backend, Bound
from gputune.runtime.profiling.clocks import BRACKETED, ClockFit
from gputune.runtime.profiling.levels import Level
from gputune.runtime.profiling.observers import Observer
from gputune.runtime.profiling.records import ENDED, PART_BEGUN, PART_ENDED, QUEUED, STARTED, HostPart, LoggedInference

T = TypeVar("T")
now_ns = time.perf_counter_ns


class Moments:
    """When an inference and its steps begin and end. timed: whether launches have timestamps."""

    def __init__(self, timed: bool = False) -> None:
        self.timed, self.times = timed, np.zeros((0, 4), np.int64)
        self.clock: ClockFit | None = None
        self.parts: list[tuple[int, int, int, int]] = []
        self.begun_ns = self.ended_ns = now_ns()
        self.add(HostPart.HOST)

    def add(self, part: HostPart, tensor: int = -1) -> None:
        """End a part, which has begun when the one before it ended."""
        begun_ns, self.ended_ns = self.ended_ns, now_ns()
        self.parts.append((part, tensor, begun_ns, self.ended_ns))

    def launch(self, backend: Backend, launches: Sequence[Bound]) -> None:
        """Enqueue launches, and wait for them. Raises DeviceError."""
        timed = self.timed and bool(launches)
        read = backend.enqueue_timed(launches) if timed else None
        for bound in () if timed else launches:
            backend.enqueue(bound)
        self.add(HostPart.ENQUEUE)
        backend.finish()
        self.add(HostPart.WAIT)
        if read is None:
            return
        self.times = read()
        begun_ns = self.parts[-2][PART_BEGUN]
        offset_ns = begun_ns - int(self.times[0, QUEUED])
        late_ns = int(self.times[-1, ENDED]) + offset_ns - self.ended_ns  # of a model without a clock of its own
        bound_ns = max(self.parts[-2][PART_ENDED] - begun_ns, late_ns)
        self.clock = ClockFit(int(self.times[0, QUEUED]), offset_ns, 0, bound_ns, BRACKETED)

    def end(self) -> int:
        """End the inference, and return its ns."""
        self.add(HostPart.HOST)
        return self.ended_ns - self.begun_ns


class SimulatedRecorder:
    """Write the inferences of a graph, whose place in the log is `graph`. Nothing of the system is counted."""

    unavailable: Mapping[str, str] = MappingProxyType({})

    def __init__(self, level: Level, observer: Observer, write: Callable[[LoggedInference], None]) -> None:
        self.graph = 0
        self._level, self._observer, self._write, self._number = level, observer, write, 0

    def infer(self, run: Callable[[Moments], T]) -> tuple[T, int]:
        """Run and write an inference. Raises as it does; one that fails is not written. Raises OSError."""
        self._observer.before()
        moments = Moments(timed=self._level != "basic")
        result, elapsed_ns = run(moments), moments.end()
        self._observer.after()
        self._write(
            LoggedInference(
                graph=self.graph,
                number=self._number,
                thread=threading.get_native_id(),
                form="launches",
                begun_ns=moments.begun_ns,
                ended_ns=moments.ended_ns,
                parts=np.array(moments.parts, np.int64),
                launches=moments.times[:, QUEUED if self._level == "qhas" else STARTED :],
                clock=moments.clock,
                observed=self._observer.results(),
                profiler_ns=now_ns() - moments.ended_ns,
            )
        )
        self._number += 1
        return result, elapsed_ns
