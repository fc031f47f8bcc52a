"""Test that Profiler records what the C runtime runs."""

import io
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from gputune.runtime.contexts.device import NativeDevice
from gputune.runtime.executor import Executor
from gputune.runtime.profiling.log import Log, read_log_of
from gputune.runtime.profiling.profiler import Profiler
from tests.native.fake import CPU, ELEMENTS, STAGES, doubling_context
from tests.runtime.contexts.test_executor import X, c_compiler, executor, fake, loaded, native, opened

__all__ = ["c_compiler", "executor", "fake", "native", "opened"]


class Meter:
    """Measure how often inferences began and ended."""

    def __init__(self) -> None:
        self.begun = self.ended = 0

    def before(self) -> None:
        self.begun += 1

    def after(self) -> None:
        self.ended += 1

    def results(self) -> Mapping[str, float]:
        return {"begun": self.begun, "ended": self.ended}


def log_of(stream: io.BytesIO) -> Log:
    return read_log_of(io.BytesIO(stream.getvalue()), "log")


@pytest.mark.parametrize(("level", "columns"), [("basic", 0), ("detailed", 2), ("qhas", 4)])
def test_watched_inferences_are_in_the_log_at_once_with_what_observers_measure(
    executor: Executor, level: str, columns: int
) -> None:
    stream, meter = io.BytesIO(), Meter()
    with Profiler(stream, level, [meter]) as profiler:
        executor.run({"x": X})
        profiler.watch(executor, context="a.bin")
        for count in range(1, 4):
            executor.run({"x": X})
            assert len(log_of(stream).inferences) == count
    executor.run({"x": X})
    log = log_of(stream)
    assert log.complete and log.header.level == level and log.header.device["name"] == CPU.name
    assert [(one.name, one.context) for one in log.graphs] == [("main", "a.bin")]
    assert [dict(one.observed) for one in log.inferences] == [{"begun": n, "ended": n} for n in range(1, 4)]
    assert {one.launches.shape for one in log.inferences} == {(STAGES if columns else 0, columns or 4)}
    counted = {*log.inferences[0].counters, *log.header.unavailable}
    assert ("task_clock_ns" in counted, len(log.states) > 0) == ((columns == 4,) * 2)


def test_several_executors_have_places_of_their_own(opened: NativeDevice, tmp_path: Path) -> None:
    path, stream = doubling_context(tmp_path / "a.bin", device=CPU), io.BytesIO()
    with loaded(opened, path) as first, loaded(opened, path) as second, Profiler(stream, "detailed") as profiler:
        profiler.watch(first, second)
        for one in (first, second, first):
            np.testing.assert_array_equal(one.run({"x": X})["y"], X * 2**STAGES)
    found = log_of(stream)
    assert [(one.graph, one.number) for one in found.inferences] == [(0, 0), (1, 0), (0, 1)]
    assert len(X) == ELEMENTS


def test_recorded_inferences_are_compared_with_others(executor: Executor) -> None:
    stream = io.BytesIO()
    with Profiler(stream, "qhas") as profiler:
        profiler.profile(executor, lambda: executor.run_timed({"x": X})[1], 6, compared=4, context="a.bin")
    log = log_of(stream)
    (comparison,) = log.comparisons
    assert [len(comparison.profiled_ns), len(comparison.unprofiled_ns), len(comparison.usual_ns)] == [4, 4, 4]
    assert [one.number for one in log.inferences] == list(range(6))
    assert log.graphs[0].unmarked == "" and not log.marked
