"""Test graphs of the C runtime that feed each other: what is linked, copied, waited for and refused."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from gputune.runtime.native.binding import Device, Graph, Native
from tests.native.failures import FAILURES
from tests.native.fake import ELEMENTS, STAGES, Fake, doubling_context, named_context

pytestmark = pytest.mark.usefixtures("all_is_released")
VALUES = np.arange(ELEMENTS, dtype=np.float32)
COMMAND_BUFFERS = 1
Load = Callable[..., Graph]


@pytest.fixture
def load(native: Native, device: Device, tmp_path: Path) -> Iterator[Load]:
    """Loads graphs of three stages from x to y, or of other inputs and outputs."""
    with contextlib.ExitStack() as graphs:

        def load_one(*names: str, inputs: tuple[str, ...] = ("x",), elements: int = ELEMENTS) -> Graph:
            path = tmp_path / f"{len(list(tmp_path.iterdir()))}.bin"
            made = named_context(path, names, inputs, elements) if names else doubling_context(path)
            with native.open(made) as file:
                return graphs.enter_context(device.load(file))

        yield load_one


def test_what_is_between_graphs_is_neither_given_nor_copied(device: Device, load: Load) -> None:
    first, second, third = load("a", "side"), load(), load()
    first.link("a", second, "x")
    second.link("y", third, "x")
    for number in range(3):
        side = first.run({"x": VALUES * number})
        assert (list(side), list(second.run({}))) == (["side"], [])
        assert side["side"].tobytes() == (VALUES * number * 4).tobytes()
        assert third.run({})["y"].tobytes() == (VALUES * number * 2 ** (1 + 2 * STAGES)).tobytes()
        copied = [graph.counters()[1]["bytes_copied"] for graph in (first, second, third)]
        assert copied == [2 * VALUES.nbytes, 0, VALUES.nbytes]
    with device.allocate(VALUES.nbytes) as y:
        third.run({}, {"y": y})
        assert y.array("float32", VALUES.shape).tobytes() == (VALUES * 2 * 2 ** (1 + 2 * STAGES)).tobytes()


def test_a_graph_whose_outputs_are_all_linked_is_not_waited_for(fake: Fake, load: Load) -> None:
    first, second, third = load(), load(), load()
    first.link("y", second, "x")
    second.link("y", third, "x")
    for number in range(3):
        waits = []
        for graph, given in ((first, {"x": VALUES * number}), (second, {}), (third, {})):
            before = fake.finishes
            outputs = graph.run(given)
            waits.append(fake.finishes - before)
        assert waits == [1, 0, 1], "the first for its input, and the last for its output"
        assert outputs["y"].tobytes() == (VALUES * number * 2 ** (3 * STAGES)).tobytes()


def test_what_is_timed_on_a_queue_of_its_own_follows_what_it_reads(
    fake: Fake, device: Device, load: Load, tmp_path: Path
) -> None:
    first, second = load("a", inputs=("x",)), load()
    third = load()
    first.link("a", second, "x")
    second.link("y", third, "x")
    with device.profile(tmp_path / "a.log", "detailed") as profile:
        third.record(profile)
        waits = []
        for runs in ([], [second]):
            for graph in runs:
                graph.run({})
            before = fake.finishes
            third.run({})
            waits.append(fake.finishes - before)
        third.record(None)
        assert waits[1] == waits[0] + 1


def test_recordings_follow_what_is_linked(fake: Fake, native: Native, tmp_path: Path) -> None:
    fake.records(COMMAND_BUFFERS, delay_ns=1_000_000)
    path = doubling_context(tmp_path / "a.bin")
    with (
        native.open(path) as file,
        native.device(opencl=str(fake.path)) as device,
        device.load(file) as first,
        device.load(file) as second,
    ):
        for number in range(30):
            for graph in (first, second):
                graph.run({"x": VALUES * number})
        assert (first.last_form, second.last_form) == ("recorded", "recorded")
        first.link("y", second, "x")
        for number in range(4):
            first.run({"x": VALUES * number})
            assert second.run({})["y"].tobytes() == (VALUES * number * 2 ** (2 * STAGES)).tobytes()
        assert (first.last_form, second.last_form) == ("recorded", "recorded")


@pytest.mark.parametrize("leaves", [0, 1])
def test_either_graph_may_be_unloaded_first(load: Load, leaves: int) -> None:
    graphs = load(), load()
    graphs[0].link("y", graphs[1], "x")
    graphs[0].run({"x": VALUES})
    graphs[leaves].close()
    outputs = graphs[1 - leaves].run({"x": VALUES} if leaves else {})
    for got in outputs.values():
        assert got.tobytes() == (VALUES * 2 ** (2 * STAGES)).tobytes()


@pytest.mark.parametrize(
    ("output", "name", "words"),
    [
        ("z", "x", "graph 'main' has no output 'z'"),
        ("x", "x", "graph 'main' has no output 'x'"),
        ("a", "y", "graph 'main' has no input 'y'"),
        ("a", "q", r"output 'a' is float32\[64\], input 'q' takes float32\[32\]"),
    ],
)
def test_what_does_not_fit_is_refused(load: Load, output: str, name: str, words: str) -> None:
    first, second = load("a"), load("y") if name != "q" else load("y", inputs=("q",), elements=ELEMENTS // 2)
    with pytest.raises(ValueError, match=words):
        first.link(output, second, name)
    assert first.run({"x": VALUES})["a"].tobytes() == (VALUES * 2).tobytes()


def test_graphs_are_linked_once_and_on_one_stream(native: Native, device: Device, load: Load, tmp_path: Path) -> None:
    first, second, third = load("a"), load("y"), load("y")
    with pytest.raises(ValueError, match="they are one"):
        first.link("a", first, "x")
    first.link("a", second, "x")
    with pytest.raises(ValueError, match="output 'a' of graph 'main' is linked to another graph"):
        first.link("a", third, "x")
    with pytest.raises(ValueError, match="input 'x' of graph 'main' is linked to another graph"):
        third.link("y", second, "x")
    with pytest.raises(ValueError, match="input 'x' of graph 'main' is linked to another graph"):
        second.run({"x": VALUES})
    with pytest.raises(ValueError, match="output 'a' of graph 'main' is linked to another graph"):
        first.run({"x": VALUES}, {"a": VALUES.copy()})
    with (
        native.open(doubling_context(tmp_path / "other.bin")) as file,
        device.group([file], streams=2) as group,
        device.load(file, group=group, stream=1) as beside,
        pytest.raises(ValueError, match="they do not run on one stream of one device"),
    ):
        third.link("y", beside, "x")


def test_a_link_that_fails_leaves_all_as_it_was(fake: Fake, load: Load) -> None:
    first, second = load(), load()
    alive = fake.alive
    for call in range(1, 100):
        fake.fail_at(call)
        try:
            first.link("y", second, "x")
        except FAILURES:
            fake.fail_at(0)
            assert fake.alive == alive, fake.failed
            for graph in (first, second):
                assert graph.run({"x": VALUES})["y"].tobytes() == (VALUES * 2**STAGES).tobytes()
        else:
            break
    assert 4 < call < 99
    fake.fail_at(0)
    first.run({"x": VALUES})
    assert second.run({})["y"].tobytes() == (VALUES * 2 ** (2 * STAGES)).tobytes()
