"""Run instances of contexts in parallel for a time, and compare every result with the first on the same inputs."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait

import numpy as np

from gputune.client.progress import Progress
from gputune.client.run.inferences import Array, Times
from gputune.client.run.throughput.contexts import Instance
from gputune.client.run.throughput.meters import Energy

TICK_S = 1.0
"""How often meters are read and progress is told."""
_NS = 1e9


class InstanceFailed(Exception):
    """An inference of an instance has raised what this one is raised from."""

    def __init__(self, instance: Instance, error: Exception) -> None:
        super().__init__(str(error))
        self.instance, self.error = instance, error


class Counted:
    """What an instance has done. times: of inferences that count; warmup: how many others it ran; waited_ns: for turns;
    wrong: how many outputs of both are not bit for bit what the first inference on the same inputs gave; first_wrong
    says where it began, empty where none is."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.times = Times()
        self.warmup = 0
        self.waited_ns = 0
        self.wrong = 0
        self.first_wrong = ""
        self.ended_ns = 0
        self._first: dict[int, dict[str, Array]] = {}

    def warm_up(self, over: Callable[[], bool]) -> None:
        """One inference that does not count, unless the run is over by the time that its turn comes. Raises as
        executors do."""
        if self._infer(self.warmup, "warm-up inference", over) is not None:
            self.warmup += 1
        self.waited_ns = 0

    def count(self, over: Callable[[], bool]) -> None:
        """Run one that counts, in the same way."""
        if (ran := self._infer(len(self.times.elapsed_ns), "inference", over)) is not None:
            self.times.add(*ran)

    def _infer(self, number: int, what: str, over: Callable[[], bool]) -> tuple[int, int] | None:
        """When it began, its turn having come, and its ns; None where none ran."""
        index = number % len(self.instance.inputs)
        asked_ns = time.perf_counter_ns()
        with self.instance.turns.turn(self.instance.priority):
            begin_ns = time.perf_counter_ns()
            self.waited_ns += begin_ns - asked_ns
            if over():
                return None
            outputs, elapsed_ns = self.instance.infer(self.instance.inputs[index])
        self.ended_ns = time.perf_counter_ns()
        if differing := difference(outputs, self._first.setdefault(index, outputs)):
            self.wrong += 1
            self.first_wrong = self.first_wrong or f"{self.instance.name}: {what} {number}: {differing}"
        return begin_ns, elapsed_ns


def difference(outputs: Mapping[str, Array], wanted: Mapping[str, Array]) -> str:
    """Return which output is not bit for bit as wanted, and in how many bytes; empty where all are."""
    for name, value in outputs.items():
        bytes_, those = (np.ravel(each).view(np.uint8) for each in (value, wanted[name]))
        if not np.array_equal(bytes_, those):
            return f"output {name!r} differs in {np.count_nonzero(bytes_ != those)} of {bytes_.size} bytes"
    return ""


class Throughput:
    """One run. begin_ns: when all instances began, None before; ended_ns: when the last inference ended; both by the
    host's clock. interrupted: whether Ctrl-C ended it; failure: the inference that did, if one has failed."""

    def __init__(self, instances: Sequence[Instance], seconds: float, warmup: int, energy: Energy) -> None:
        """warmup: inferences of each instance before they begin together."""
        self.counted = [Counted(instance) for instance in instances]
        self.seconds = seconds
        self.energy = energy
        self.begin_ns: int | None = None
        self.interrupted = False
        self.failure: InstanceFailed | None = None
        self._warmup = warmup
        self._end_ns = 0
        self._stop = threading.Event()
        self._warm = threading.Barrier(len(self.counted), self._begin)

    @property
    def ended_ns(self) -> int:
        return max(counted.ended_ns for counted in self.counted)

    @property
    def took_s(self) -> float:
        """From the begin to the end of the last inference."""
        return 0.0 if self.begin_ns is None else max(0, self.ended_ns - self.begin_ns) / _NS

    @property
    def inferences(self) -> int:
        return sum(len(counted.times.elapsed_ns) for counted in self.counted)

    def run(self, progress: Progress) -> None:
        """Run until the time is over, Ctrl-C is pressed or an inference has failed, and all instances have stopped."""
        with progress.running("second", math.ceil(self.seconds)), ThreadPoolExecutor(len(self.counted)) as pool:
            threads = [pool.submit(self._work, counted) for counted in self.counted]
            try:
                self._watch(threads, progress)
            except KeyboardInterrupt:
                self.interrupted = True
            finally:
                self._stop.set()
                self._warm.abort()
        self.energy.sample()
        errors = [thread.exception() for thread in threads]
        self.failure = next((error for error in errors if isinstance(error, InstanceFailed)), None)

    def _watch(self, threads: Sequence[Future[None]], progress: Progress) -> None:
        """Until all have ended, or one has failed."""
        told, pending = 0, set(threads)
        while pending and all(thread.exception() is None for thread in threads if thread.done()):
            _, pending = wait(threads, TICK_S, FIRST_EXCEPTION)
            if self.begin_ns is not None:
                self.energy.sample()
                passed_s = (time.perf_counter_ns() - self.begin_ns) / _NS
                done = min(int(passed_s), math.ceil(self.seconds))
                progress.advance(done - told, f"{self.inferences / passed_s:.1f} inferences/s")
                told = done

    def _work(self, counted: Counted) -> None:
        try:
            for _ in range(self._warmup):
                counted.warm_up(self._stop.is_set)
            self._warm.wait()
            while not self._over():
                counted.count(self._over)
        except threading.BrokenBarrierError:
            return  # the run was over before all were warm
        except Exception as error:
            self._stop.set()
            self._warm.abort()
            raise InstanceFailed(counted.instance, error) from error

    def _over(self) -> bool:
        return self._stop.is_set() or time.perf_counter_ns() >= self._end_ns

    def _begin(self) -> None:
        """Begin to count when all are warm; this is called once."""
        self.energy.begin()
        self.begin_ns = time.perf_counter_ns()
        self._end_ns = self.begin_ns + round(self.seconds * _NS)
