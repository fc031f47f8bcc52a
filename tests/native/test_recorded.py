"""Test recorded queues of the C runtime on a made-up library, where only launches one by one take time."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from gputune.runtime.native.binding import Graph, Native
from tests.native.failures import FAILURES
from tests.native.fake import ELEMENTS, STAGES, Fake, doubling_context

VALUES = np.arange(ELEMENTS, dtype=np.float32)
COMMAND_BUFFERS, RECORDABLE_QUEUES, MUTABLE, MUTABLE_BY_LIST = range(1, 5)
WAYS = COMMAND_BUFFERS, RECORDABLE_QUEUES, MUTABLE, MUTABLE_BY_LIST
SLOW_NS = 1_000_000
TURNS, MOST_COMPARED, MOST_KNOWN = 11, 50, 4
"""As recorded.c has them."""
DECIDED = 2 * TURNS + 4
"""Inferences after which a form is chosen."""
IN_TURNS = TURNS * ["launches", "recorded"]


@pytest.fixture(autouse=True)
def _all_is_released(fake: Fake) -> Iterator[None]:
    yield
    fake.fail_at(0)
    fake.records(0)
    assert fake.alive == 0


def infer(graph: Graph, number: int = 1) -> str:
    """Runs an inference; the form in which it ran."""
    got = graph.run({"x": VALUES * number})["y"]
    assert got.tobytes() == (VALUES * number * 2**STAGES).tobytes()
    last = graph.counters()[1]
    assert last["inferences"] == last["launches"] + last["recorded"] == 1
    assert graph.last_form == ("recorded" if last["recorded"] else "launches")
    return graph.last_form


@pytest.mark.parametrize("how", WAYS)
def test_the_first_inferences_decide(native: Native, fake: Fake, tmp_path: Path, how: int) -> None:
    path = doubling_context(tmp_path / "a.bin")
    fake.records(how, SLOW_NS)
    with (
        native.open(path) as file,
        native.device(file, opencl=str(fake.path)) as device,
        device.load(file) as graph,
    ):
        forms = [infer(graph, number) for number in range(DECIDED + 5)]
        first = 2 * ["launches"] if how == COMMAND_BUFFERS else ["launches"]
        assert forms == [*first, "recorded", *IN_TURNS, *(DECIDED + 4 - len(first + IN_TURNS)) * ["recorded"]]
        fake.records(how)
        assert graph.warnings == []
        total = graph.counters()[0]
        assert total["recorded"] == forms.count("recorded") and total["launches"] == forms.count("launches")


@pytest.mark.parametrize("how", WAYS)
def test_launches_follow_the_memory(native: Native, fake: Fake, tmp_path: Path, how: int) -> None:
    path = doubling_context(tmp_path / "a.bin")
    fake.records(how, SLOW_NS)
    with (
        native.open(path) as file,
        native.device(file, opencl=str(fake.path)) as device,
        device.load(file) as graph,
    ):
        for number in range(DECIDED):
            infer(graph, number)
        fake.records(how)
        forms: list[str] = []
        for number in range(6):
            with device.allocate(VALUES.nbytes) as x, device.allocate(VALUES.nbytes) as y:
                x.array("float32", (ELEMENTS,))[...] = VALUES * number
                for _ in range(3):
                    graph.run({"x": x}, {"y": y})
                    assert y.array("float32", (ELEMENTS,)).tobytes() == (VALUES * number * 2**STAGES).tobytes()
                    last = graph.counters()[1]
                    assert last["bytes_copied"] == 0
                    forms.append("recorded" if last["recorded"] else "launches")
        first = "launches" if how == COMMAND_BUFFERS else "recorded"
        assert forms == 6 * [first, "recorded", "recorded"]
        assert [infer(graph, number) for number in range(2)] == ["recorded", "recorded"]


@pytest.mark.parametrize("how", WAYS)
def test_memory_that_is_used_in_turns_is_recorded_once(native: Native, fake: Fake, tmp_path: Path, how: int) -> None:
    """Arguments are changed where that is possible; elsewhere a few recordings are kept, which new memory replaces."""
    path = doubling_context(tmp_path / "a.bin")
    fake.records(how, SLOW_NS)
    with (
        native.open(path) as file,
        native.device(file, opencl=str(fake.path)) as device,
        device.load(file) as graph,
        contextlib.ExitStack() as stack,
    ):
        for number in range(DECIDED):
            infer(graph, number)
        fake.records(how)
        memories = [stack.enter_context(device.allocate(VALUES.nbytes)) for _ in range(MOST_KNOWN + 2)]

        def forms_of(numbers: Sequence[int]) -> list[str]:
            """Inferences on these of the memories."""
            found = []
            for number in numbers:
                memories[number].array("float32", (ELEMENTS,))[...] = VALUES * number
                got = graph.run({"x": memories[number]})["y"]
                assert got.tobytes() == (VALUES * number * 2**STAGES).tobytes()
                found.append("recorded" if graph.counters()[1]["recorded"] else "launches")
            return found

        had_recordings, had_updates = fake.recordings, fake.updates
        new, turns = forms_of(range(MOST_KNOWN + 2)), forms_of(3 * [0, 1, 2])
        assert fake.updates - had_updates == (len(new + turns) if how >= MUTABLE else 0)
        if how != COMMAND_BUFFERS:
            assert {*new, *turns} == {"recorded"} and fake.recordings == had_recordings
            return
        assert {*new} == {"launches"}
        assert turns == [*3 * ["launches"], *6 * ["recorded"]] and fake.recordings == had_recordings + 3
        alive = fake.alive
        assert forms_of([3, 3, 4, 4, 5, 5, 0]) == [*3 * ["launches", "recorded"], "launches"], "0 was replaced"
        assert fake.alive == alive
        assert forms_of([5]) == ["recorded"]
        for memory in memories:
            memory.close()  # each with its recording, which is freed before it
        assert fake.alive == alive - len(memories) - (MOST_KNOWN - 1)


@pytest.mark.parametrize(
    ("how", "objects"), [(COMMAND_BUFFERS, 1), (RECORDABLE_QUEUES, 3), (MUTABLE, 1), (MUTABLE_BY_LIST, 1)]
)
def test_a_recording_goes_before_the_memory_that_it_uses(
    native: Native, fake: Fake, tmp_path: Path, how: int, objects: int
) -> None:
    """Of Qualcomm's there are two for three launches, and a queue."""
    path = doubling_context(tmp_path / "a.bin")
    fake.records(how, SLOW_NS)
    with (
        native.open(path) as file,
        native.device(file, opencl=str(fake.path)) as device,
        device.load(file) as graph,
        device.allocate(VALUES.nbytes) as x,
        device.allocate(VALUES.nbytes) as other,
    ):
        for number in range(DECIDED):
            infer(graph, number)
        for memory in (x, x, other, x, other, other):  # Qualcomm's follow, and others are recorded for the last one
            memory.array("float32", (ELEMENTS,))[...] = VALUES
            got = graph.run({"x": memory})["y"]
            assert got.tobytes() == (VALUES * 2**STAGES).tobytes()
            memory.array("float32", (ELEMENTS,))[...] = 0
        assert graph.counters()[1]["recorded"] == 1
        alive = fake.alive
        other.close()
        assert fake.alive == alive - objects - 1


def test_memory_that_is_always_new_runs_by_launches(native: Native, fake: Fake, tmp_path: Path) -> None:
    path = doubling_context(tmp_path / "a.bin")
    fake.records(COMMAND_BUFFERS)
    with (
        native.open(path) as file,
        native.device(file, opencl=str(fake.path)) as device,
        device.load(file) as graph,
    ):
        for _ in range(MOST_COMPARED):
            with device.allocate(VALUES.nbytes) as y:
                graph.run({"x": VALUES}, {"y": y})
                assert y.array("float32", (ELEMENTS,)).tobytes() == (VALUES * 2**STAGES).tobytes()
        assert [infer(graph) for _ in range(4)] == 4 * ["launches"]
        assert graph.counters()[0]["recorded"] == 0


@pytest.mark.parametrize("how", WAYS)
def test_a_replay_that_fails_is_told_once(native: Native, fake: Fake, tmp_path: Path, how: int) -> None:
    path = doubling_context(tmp_path / "a.bin")
    fake.records(how, refuses=True)
    with (
        native.open(path) as file,
        native.device(file, opencl=str(fake.path)) as device,
        device.load(file) as graph,
    ):
        assert {infer(graph, number) for number in range(6)} == {"launches"}
        (warning,) = graph.warnings
        assert warning.startswith("launches are enqueued one by one and not as a recorded queue: replaying failed")


@pytest.mark.parametrize("how", WAYS)
def test_every_call_may_fail(native: Native, fake: Fake, tmp_path: Path, how: int) -> None:
    path = doubling_context(tmp_path / "a.bin")
    fake.records(how)
    with (
        native.open(path) as file,
        native.device(file, opencl=str(fake.path)) as device,
    ):
        with device.load(file) as graph:
            fake.fail_at(0)
            for number in range(4):
                infer(graph, number)
            calls = fake.calls
        for call in range(1, calls + 1):
            with device.load(file) as graph:
                fake.fail_at(call)
                for _ in range(4):
                    with contextlib.suppress(*FAILURES):
                        graph.run({"x": VALUES})
                fake.fail_at(0)
                infer(graph)


def test_what_one_by_one_and_the_configuration_say(native: Native, fake: Fake, tmp_path: Path) -> None:
    fake.records(COMMAND_BUFFERS, SLOW_NS)
    for number, (configuration, one_by_one, wanted) in enumerate(
        [
            ({"graphs": {"main": {"queue_recording": True}}}, False, True),
            ({"graphs": {"other": {"queue_recording": False}}}, False, True),
            ({"graphs": {"main": {"queue_recording": False}}}, False, False),
            ({}, True, False),
        ]
    ):
        path = doubling_context(tmp_path / f"{number}.bin", configuration=configuration)
        with (
            native.open(path) as file,
            native.device(file, opencl=str(fake.path)) as device,
            device.load(file, one_by_one=one_by_one) as graph,
        ):
            assert ("recorded" in [infer(graph) for _ in range(4)]) == wanted
