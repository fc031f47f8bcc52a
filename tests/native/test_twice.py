"""Test objects of the C runtime on second use or after a failure: nothing of their earlier state is left."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gputune.core.errors import BuildFailed, LaunchFailed, LimitExceeded, UnusableMemory
from gputune.runtime.memory.handles import MemHandle
from gputune.runtime.native.binding import Device, File, Native
from gputune.runtime.native.memory import Memory
from gputune.runtime.profiling.log import read_log
from tests.native.failures import FAILURES
from tests.native.fake import ELEMENTS, NBYTES, STAGES, Fake, doubling_context

ONES = np.ones(ELEMENTS, np.float32)
TIMES = 2.0**STAGES


@pytest.fixture(scope="module")
def fake(native: Native) -> Iterator[Fake]:
    made = Fake()
    yield made
    assert made.alive == 0


@pytest.fixture
def opened(native: Native, fake: Fake, tmp_path: Path) -> Iterator[tuple[File, Device]]:
    with (
        native.open(doubling_context(tmp_path / "a.bin")) as file,
        native.device(file, opencl=str(fake.path)) as device,
    ):
        yield file, device
    fake.fail_at(0)


def holds(memory: Memory, value: float) -> bool:
    return set(memory.array("float32", (ELEMENTS,))) == {np.float32(value)}


def test_memory_that_was_freed_is_not_used_again(opened: tuple[File, Device]) -> None:
    file, device = opened
    with device.load(file) as graph:
        for value in (1, 2):
            with device.allocate(NBYTES) as y:
                graph.run({"x": value * ONES}, {"y": y})
                assert holds(y, value * TIMES)
            graph.run({"x": 3 * ONES}, {})
            assert set(graph.run({"x": 4 * ONES})["y"]) == {4 * TIMES}


@pytest.mark.parametrize("given", ["arrays", "memory"])
def test_a_run_after_one_that_has_failed_is_like_the_first(opened: tuple[File, Device], fake: Fake, given: str) -> None:
    file, device = opened
    with device.load(file) as graph, device.allocate(NBYTES) as y:
        outputs = {"y": y if given == "memory" else ONES.copy()}
        fake.fail_at(0)
        graph.run({"x": ONES}, outputs)
        calls = fake.calls
        assert calls
        for call in range(1, calls + 1):
            fake.fail_at(call)
            with pytest.raises(LimitExceeded):
                graph.run({"x": 9 * ONES}, outputs)
            fake.fail_at(0)
            assert set(graph.run({"x": 2 * ONES})["y"]) == {2 * TIMES}
            counted = graph.counters()
            assert counted[0]["inferences"] == 1 + call and counted[1]["inferences"] == 1


def test_values_that_were_refused_are_forgotten(opened: tuple[File, Device]) -> None:
    file, device = opened
    with device.load(file) as graph, device.allocate(NBYTES) as y:
        for _ in range(2):
            with pytest.raises(ValueError, match="needs the input 'x'"):
                graph.run({}, {"y": y})
        assert set(graph.run({"x": ONES})["y"]) == {TIMES}
        assert not holds(y, TIMES)


def test_a_load_after_one_that_has_failed_is_like_the_first(opened: tuple[File, Device], fake: Fake) -> None:
    file, device = opened
    fake.fail_at(0)
    device.load(file).close()
    calls = fake.calls
    for call in range(1, calls + 1):
        fake.fail_at(call)
        try:
            device.load(file).close()
        except FAILURES as error:
            assert isinstance(error, (LimitExceeded, BuildFailed, LaunchFailed)), fake.failed
        fake.fail_at(0)
        with device.load(file) as graph:
            assert not graph.warnings
            assert set(graph.run({"x": ONES})["y"]) == {TIMES}


def test_recording_may_end_and_begin_again(opened: tuple[File, Device], tmp_path: Path) -> None:
    file, device = opened
    with device.load(file) as graph:
        for number in range(2):
            with device.profile(tmp_path / f"{number}.log", level="detailed") as profile:
                for _ in range(2):
                    graph.record(profile)
                    graph.run({"x": ONES})
                    graph.record(None)
                    graph.run({"x": ONES})
            log = read_log(tmp_path / f"{number}.log")
            assert log.complete and len(log.graphs) == 1
            assert [one.number for one in log.inferences] == [0, 1]


def test_a_launch_never_ends_before_it_begins(opened: tuple[File, Device], fake: Fake, tmp_path: Path) -> None:
    """Whatever the driver says; as in Python."""
    file, device = opened
    fake.stamp(2_000, 2_000, 2_000, 1_500)
    try:
        with device.load(file) as graph, device.profile(tmp_path / "a.log", level="detailed") as profile:
            graph.record(profile)
            graph.run({"x": ONES})
    finally:
        fake.stamp(0, 0, 0, 0)
    (inference,) = read_log(tmp_path / "a.log").inferences
    assert inference.launches.tolist() == [[2_000, 2_000]] * STAGES


def test_a_descriptor_has_as_much_memory_as_it_has(opened: tuple[File, Device]) -> None:
    """More would be SIGBUS when it is used."""
    device = opened[1]
    with MemHandle.allocate(NBYTES) as handle:
        size = os.fstat(handle.fileno()).st_size
        for _ in range(2):
            wrong = f"bytes 0 to {size + 1} are asked for, the descriptor's memory has {size}"
            with pytest.raises(UnusableMemory, match=wrong):
                device.import_(handle.fileno(), size + 1)
            with device.import_(handle.fileno(), size) as memory:
                assert memory.array("uint8", (size,)).sum() == 0


def test_objects_that_are_not_there_are_closed(native: Native) -> None:
    for name in ("close", "close_device", "free", "close_group", "unload"):
        native.call(name, None)
    native.checked("close_profile", None)
