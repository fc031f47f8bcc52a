"""Test which arrays C keeps as buffers that launches read in place, on a made-up device that does so."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gputune.runtime.native.binding import Graph, Native
from gputune.runtime.native.memory import Array
from tests.native.compiling import OPTIMISED, SOURCES, compiled, sanitizers
from tests.native.failures import FAILURES
from tests.native.fake import ELEMENTS, NBYTES, STAGES, Fake, doubling_context
from tests.native.test_descriptors import fake

__all__ = ["fake"]
LENDING = (*OPTIMISED, "-shared", f"-DLEAST_LENT={NBYTES}", *sanitizers())
MOST_LENT = 8
COMMAND_BUFFERS, RECORDABLE_QUEUES, SLOW_NS, DECIDED = 1, 2, 1_000_000, 30
KNOWN = {"FAKE_PLATFORM": "Portable Computing Language", "FAKE_NAME": "pthread-fake"}


@pytest.fixture(scope="module")
def lends(c_compiler: str) -> Native:
    """Provide the library with arrays of one row as large ones."""
    return Native(compiled("libgputune_lends.so", SOURCES, LENDING))


@pytest.fixture
def graph(lends: Native, fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Graph]:
    for name, value in KNOWN.items():
        monkeypatch.setenv(name, value)
    with (
        lends.open(doubling_context(tmp_path / "a.bin")) as file,
        lends.device(opencl=str(fake.path)) as device,
        device.load(file) as graph,
    ):
        yield graph
        fake.fail_at(0)


def arrays(count: int, offset: int = 0) -> list[Array]:
    """Return arrays at multiples of the device's alignment, and so many bytes behind."""
    found = []
    for number in range(count):
        room = np.zeros(NBYTES + 256, np.uint8)
        begin = -room.ctypes.data % 128 + offset
        found.append(room[begin : begin + NBYTES].view(np.float32))
        found[-1][...] = number + np.arange(ELEMENTS)
    return found


def copies(graph: Graph, x: Array) -> int:
    """Run an inference; return how often its input was copied."""
    want = x * 2**STAGES
    np.testing.assert_array_equal(graph.run({"x": x})["y"], want)
    return int(graph.counters()[1]["writes"])


def test_the_ninth_array_gives_up_the_first(graph: Graph, fake: Fake) -> None:
    given = arrays(MOST_LENT + 1)
    before, alive = fake.alive, []
    for array in (*given, *given[1:], given[0], *given[2:]):
        assert copies(graph, array) == 0
        alive.append(fake.alive - before)
    assert alive == [*range(1, MOST_LENT + 1), *(MOST_LENT + 1 + MOST_LENT) * [MOST_LENT]]


def test_each_kept_array_takes_no_new_buffer(graph: Graph, fake: Fake) -> None:
    """Binding it again is all: two calls for each array, with the launches and the wait."""
    given = arrays(2)
    for array in (*given, *given):
        copies(graph, array)
    fake.fail_at(0)
    copies(graph, given[0])
    first = fake.calls
    fake.fail_at(0)
    copies(graph, given[0])
    assert first - fake.calls == 1, "an argument of the launch that reads it"


def test_what_is_written_later_is_read(graph: Graph) -> None:
    (x,) = arrays(1)
    for value in range(3):
        x[...] = value
        assert copies(graph, x) == 0


def test_arrays_that_have_to_be_copied_are(graph: Graph, fake: Fake) -> None:
    """Where the driver has no room, where kernels ask for an aligned address, and where memory is written."""
    lent, odd = arrays(1)[0], arrays(1, 4)[0]
    assert [copies(graph, odd), copies(graph, lent)] == [1, 0]
    fake.fail_at(1)  # the buffer
    assert copies(graph, arrays(1)[0]) == 1
    fake.fail_at(0)


def test_no_array_is_lent_beside_memory_that_is_written(
    lends: Native, fake: Fake, graph: Graph, tmp_path: Path
) -> None:
    (x,) = arrays(1)
    with (
        lends.open(doubling_context(tmp_path / "b.bin")) as file,
        lends.device(opencl=str(fake.path)) as device,
        device.load(file) as second,
        device.allocate(NBYTES) as y,
    ):
        for _ in range(2):
            second.run({"x": x}, {"y": y})
            assert second.counters()[1]["writes"] == 1
            assert copies(second, x) == 0


def test_a_failing_call_leaves_nothing_behind(graph: Graph, fake: Fake) -> None:
    given = arrays(MOST_LENT + 2)
    for array in given[: MOST_LENT + 1]:
        copies(graph, array)
    before = fake.alive
    fake.fail_at(0)
    copies(graph, given[-1])
    calls = fake.calls
    for number in range(1, calls + 1):
        (x,) = arrays(1)
        fake.fail_at(number)
        with contextlib.suppress(*FAILURES):
            copies(graph, x)
        fake.fail_at(0)
        assert fake.alive == before
        assert copies(graph, x) == 0


@pytest.mark.parametrize("how", [COMMAND_BUFFERS, RECORDABLE_QUEUES])
def test_recordings_have_no_array_that_was_given_up(
    lends: Native, fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: int
) -> None:
    for name, value in KNOWN.items():
        monkeypatch.setenv(name, value)
    fake.records(how, SLOW_NS)
    with (
        lends.open(doubling_context(tmp_path / "a.bin")) as file,
        lends.device(opencl=str(fake.path)) as device,
        device.load(file) as graph,
    ):
        (first,) = arrays(1)
        assert {copies(graph, first) for _ in range(DECIDED)} == {0}
        assert graph.counters()[1]["recorded"], "recorded queues are faster by far"
        fake.records(how)
        for array in 3 * [each for each in arrays(MOST_LENT + 2) for _ in range(3)]:
            assert copies(graph, array) == 0
        assert graph.counters()[1]["recorded"], "the third inference on an array is recorded again"
        assert len(graph.warnings) == 1, "of another device"
    fake.records(0)


@pytest.mark.parametrize("other", [{"FAKE_PLATFORM": "Fake"}, {"FAKE_NAME": "Fake GPU"}])
def test_other_drivers_are_not_trusted(
    lends: Native, fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: dict[str, str]
) -> None:
    for name, value in (KNOWN | other).items():
        monkeypatch.setenv(name, value)
    with (
        lends.open(doubling_context(tmp_path / "a.bin")) as file,
        lends.device(opencl=str(fake.path)) as device,
        device.load(file) as graph,
    ):
        assert copies(graph, arrays(1)[0]) == 1
