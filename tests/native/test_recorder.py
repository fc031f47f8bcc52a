"""Test that Python gets the records of inferences in C as they are made, with what its observers measure."""

from typing import Any

import numpy as np
import pytest

from gputune.core.errors import CannotMark
from gputune.runtime.contexts.recording import NativeMarks, NativeRecorder
from gputune.runtime.native.binding import Device, File
from gputune.runtime.profiling.levels import Level
from gputune.runtime.profiling.records import LoggedInference, StateSample
from gputune.runtime.profiling.turns import in_turns
from tests.native.failures import FAILURES
from tests.native.fake import ELEMENTS, STAGES, Fake
from tests.native.test_events import NAMES
from tests.native.test_profile import device, file

__all__ = ["device", "file"]

ONES = np.ones(ELEMENTS, np.float32)


class Observing:
    """Note what happens, and how often."""

    def __init__(self) -> None:
        self.noted: list[str] = []

    def before(self) -> None:
        self.noted.append("before")

    def after(self) -> None:
        self.noted.append("after")

    def results(self) -> dict[str, float]:
        return {"noted": float(len(self.noted))}


@pytest.mark.parametrize(("level", "columns"), [("basic", 0), ("detailed", 2), ("qhas", 4)])
def test_observers_are_called_around_an_inference_and_their_results_are_in_its_record(
    device: Device, file: File, level: Level, columns: int
) -> None:
    observing, everything = Observing(), list[Any]()
    with device.load(file) as graph:
        recorder = NativeRecorder(device, graph, level, observing, everything.append)
        recorder.graph = 5

        def run() -> None:
            observing.noted.append("run")
            graph.run({"x": ONES})

        for count in range(1, 4):
            recorder.infer(run)
            inferences = [one for one in everything if isinstance(one, LoggedInference)]
            assert len(inferences) == count, "it is there right behind the inference"
            graph.run({"x": ONES})
    assert observing.noted == 3 * ["before", "run", "after"]
    assert [(one.graph, one.number, one.observed["noted"]) for one in inferences] == [(5, 0, 3), (5, 1, 6), (5, 2, 9)]
    assert {one.launches.shape for one in inferences} == {(STAGES if columns else 0, columns or 4)}
    measured = {*inferences[0].counters, *recorder.unavailable}
    states = [one for one in everything if isinstance(one, StateSample)]
    assert (measured, len(states)) == (({*NAMES}, 1) if level == "qhas" else (set(), 0))


def test_an_inference_that_fails_is_not_recorded(device: Device, file: File, fake: Fake) -> None:
    written = list[Any]()
    with device.load(file) as graph:
        recorder = NativeRecorder(device, graph, "detailed", Observing(), written.append)
        recorder.infer(lambda: graph.run({"x": ONES}))
        fake.fail_at(2)
        with pytest.raises(FAILURES):
            recorder.infer(lambda: graph.run({"x": ONES}))
        fake.fail_at(0)
        recorder.infer(lambda: graph.run({"x": ONES}))
        graph.run({"x": ONES})
    assert [one.number for one in written] == [0, 1]


def test_inferences_in_several_forms_take_turns(device: Device, file: File) -> None:
    """As net-run compares them; two recorders of a graph keep apart."""

    class Executor:
        recorder: Any = None
        persistent_kernels = True

    executor, first, second = Executor(), list[Any](), list[Any]()
    with device.load(file) as graph:

        def infer() -> int:
            if executor.recorder is None:
                graph.run({"x": ONES})
            else:
                executor.recorder.infer(lambda: graph.run({"x": ONES}))
            return graph.counters()[1]["elapsed_ns"]

        recorders = [
            NativeRecorder(device, graph, "basic", Observing(), first.append),
            NativeRecorder(device, graph, "detailed", Observing(), second.append),
        ]
        forms = [(recorders[0], False), (None, False), (recorders[1], False)]
        times_ns = in_turns(executor, infer, forms, 2, 6, 4, lambda done: None)
    assert [len(each) for each in times_ns] == [6, 4, 4]
    assert ([one.number for one in first], [one.number for one in second]) == ([*range(6)], [*range(5)])


def test_a_graph_that_cannot_be_marked_says_so(device: Device, file: File) -> None:
    with device.load(file) as graph, pytest.raises(CannotMark, match="persistent kernels do not run here"):
        NativeMarks(device, graph)
