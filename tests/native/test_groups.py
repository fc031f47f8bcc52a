"""Test groups of the C runtime on a made-up library: what they allocate, share and refuse, and what runs at a time."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from gputune.core.errors import ArenaTooSmall, LimitExceeded
from gputune.runtime.native.binding import Device, File, Graph, Native
from tests.native.failures import FAILURES
from tests.native.fake import ELEMENTS, STAGES, WEIGHTS_BYTES, Fake, doubling_context, weighted_context

pytestmark = pytest.mark.usefixtures("all_is_released")
VALUES = np.arange(ELEMENTS, dtype=np.float32)
COMMAND_BUFFERS = 1
Make = Callable[..., File]


@pytest.fixture
def make(native: Native, tmp_path: Path) -> Iterator[Make]:
    """Writes and opens a context whose graphs have these arenas, of which each uses 512 bytes of the first."""
    with contextlib.ExitStack() as files:

        def open_new(*needs: Sequence[int]) -> File:
            names = tuple(f"g{number}" for number in range(len(needs)))
            path = tmp_path / f"{len(list(tmp_path.iterdir()))}.bin"
            return files.enter_context(native.open(doubling_context(path, names, needs=needs)))

        yield open_new


def check(graph: Graph, number: int = 1) -> None:
    """Looks whether a graph computes what it should."""
    assert graph.run({"x": VALUES * number})["y"].tobytes() == (VALUES * number * 2**STAGES).tobytes()


@pytest.mark.parametrize("streams", [1, 3])
def test_arenas_are_as_large_as_the_largest_in_each_place_wherever_it_stands(
    device: Device, make: Make, streams: int
) -> None:
    files = [make([512]), make([4096, 256], [512, 2048]), make([1024, 1024, 128])]
    with device.group(files, streams) as group, contextlib.ExitStack() as graphs:
        assert group.arenas == (4096, 2048, 128)
        assert group.nbytes == streams * (4096 + 2048 + 128)
        for file in files:
            for graph in file.graphs():
                for stream in range(streams):
                    check(graphs.enter_context(device.load(file, graph.name, group=group, stream=stream)))


def test_equal_weights_and_programs_are_held_once_and_go_with_the_last(
    native: Native, fake: Fake, device: Device, tmp_path: Path
) -> None:
    paths = [weighted_context(tmp_path / name, value) for name, value in (("a", 1.0), ("b", 1.0), ("c", 2.0))]
    with contextlib.ExitStack() as opened, device.group([], streams=2) as group:
        files = [opened.enter_context(native.open(path)) for path in paths]
        held, x = [], {"x": VALUES}
        for _ in range(2):
            graphs = [device.load(file, group=group, stream=number % 2) for number, file in enumerate(files)]
            assert group.weights == 2 * WEIGHTS_BYTES
            assert [set(graph.run(x)["y"]) for graph in graphs] == [{2}, {2}, {4}]
            graphs.pop().close()
            assert group.weights == WEIGHTS_BYTES
            graphs.pop(0).close()
            assert set(graphs[0].run(x)["y"]) == {2}
            graphs.pop().close()
            assert group.weights == 0
            held.append(fake.alive)
        assert held[0] == held[1]


def test_what_needs_more_is_refused_with_both_sizes_until_the_arenas_grow(device: Device, make: Make) -> None:
    small, large = make([512]), make([512, 1024])
    with device.group([small], streams=2) as group:
        graphs = [device.load(small, group=group, stream=stream) for stream in range(2)]
        with pytest.raises(ArenaTooSmall, match="needs an arena of 1024 bytes, the group has 0"):
            device.load(large, group=group)
        group.grow(large)
        assert (group.arenas, group.nbytes) == ((512, 1024), 2 * 1536)
        graphs += [device.load(large, group=group, stream=stream) for stream in range(2)]
        group.grow(make([2048]))
        assert group.arenas == (2048, 1024)
        for graph in graphs:
            check(graph)
            graph.close()


def test_recordings_do_not_outlive_the_arenas_that_they_use(fake: Fake, device: Device, make: Make) -> None:
    fake.records(COMMAND_BUFFERS, delay_ns=1_000_000)
    small = make([512])
    with device.group([small]) as group, device.load(small, group=group) as graph:
        while graph.last_form != "recorded" or graph.counters()[0]["recorded"] < 20:
            check(graph)
        group.grow(make([8192]))
        for number in range(4):
            check(graph, number)
        assert graph.last_form == "recorded"


@pytest.mark.parametrize("streams", [1, 2])
def test_a_group_that_cannot_grow_stays_as_it_is(fake: Fake, device: Device, make: Make, streams: int) -> None:
    small, large = make([512]), make([4096, 256])
    with contextlib.ExitStack() as stack:
        group = stack.enter_context(device.group([small], streams))
        graphs = [stack.enter_context(device.load(small, group=group, stream=each)) for each in range(streams)]
        alive = fake.alive
        for call in range(1, 100):
            fake.fail_at(call)
            try:
                group.grow(large)
            except FAILURES:
                fake.fail_at(0)
                assert (group.arenas, fake.alive) == ((512,), alive), fake.failed
                for graph in graphs:
                    check(graph, call)
            else:
                break
        assert call > 3 * streams
        assert group.arenas == (4096, 256)
        fake.fail_at(0)
        for graph in graphs:
            check(graph)


@pytest.mark.parametrize("needs", [[1 << 29], [512, 1 << 40]])
def test_arenas_that_the_device_has_no_memory_for_are_refused(device: Device, make: Make, needs: list[int]) -> None:
    small, huge = make([512]), make(needs)
    with pytest.raises(LimitExceeded):
        device.group([small, huge])
    with device.group([small], streams=2) as group:
        with pytest.raises(LimitExceeded):
            group.grow(huge)
        assert group.arenas == (512,)


@pytest.mark.parametrize(("streams", "stream"), [(0, 0), (1, 1), (2, 2), (None, 1)])
def test_a_stream_that_is_not_there_is_refused(device: Device, make: Make, streams: int | None, stream: int) -> None:
    file = make([512])
    with contextlib.ExitStack() as stack:
        words = "streams is 0, at least 1" if streams == 0 else f"there is no stream {stream}, .* has {streams or 1}"
        with pytest.raises(ValueError, match=words):
            group = None if streams is None else stack.enter_context(device.group([file], streams))
            device.load(file, group=group, stream=stream)


def test_a_group_of_another_device_is_refused(native: Native, fake: Fake, device: Device, make: Make) -> None:
    file = make([512])
    with (
        native.device(opencl=str(fake.path)) as other,
        other.group([file]) as group,
        pytest.raises(ValueError, match="the group and the graph are for different devices"),
    ):
        device.load(file, group=group)


def work(graph: Graph, count: int) -> int:
    for number in range(count):
        check(graph, number)
    return count


@pytest.mark.parametrize("streams", [1, 2, 3])
def test_as_many_run_at_a_time_as_there_are_streams(fake: Fake, device: Device, make: Make, streams: int) -> None:
    files = [make([512]), make([1024])]
    with device.group(files, streams) as group, contextlib.ExitStack() as stack:
        graphs = [
            [stack.enter_context(device.load(file, group=group, stream=stream)) for file in files]
            for stream in range(streams)
        ]
        fake.meet(streams)
        with ThreadPoolExecutor(2 * streams) as threads:
            runs = [threads.submit(work, graph, 10) for each in graphs for graph in each]
            assert [run.result() for run in runs] == 2 * streams * [10]
        assert fake.met == streams
        fake.meet(0)  # unloading waits for a queue, too


def test_memory_that_is_mapped_is_used_by_one_stream_at_a_time(native: Native, fake: Fake, make: Make) -> None:
    """The library refuses a launch on memory that the host has meanwhile."""
    fake.records(COMMAND_BUFFERS, delay_ns=1_000_000)  # by a device without memory of its own
    file = make([512])
    with contextlib.ExitStack() as stack:
        shared = stack.enter_context(native.device(opencl=str(fake.path)))
        group = stack.enter_context(shared.group([file], streams=2))
        x = stack.enter_context(shared.allocate(VALUES.nbytes))
        assert x.kind == "mapped"
        x.array("float32", VALUES.shape)[...] = VALUES
        outputs = [stack.enter_context(shared.allocate(VALUES.nbytes)) for _ in range(2)]
        graphs = [
            stack.enter_context(shared.load(file, group=group, stream=stream, one_by_one=True)) for stream in range(2)
        ]

        fake.meet(1)

        def use(place: int) -> None:
            for _ in range(8):
                graphs[place].run({"x": x}, {"y": outputs[place]})
                got = outputs[place].array("float32", VALUES.shape)
                assert got.tobytes() == (VALUES * 2**STAGES).tobytes()

        with ThreadPoolExecutor(2) as threads:
            for run in [threads.submit(use, place) for place in range(2)]:
                run.result()
        assert fake.met == 1
        fake.meet(0)


def test_contexts_that_join_at_once_all_fit(device: Device, make: Make) -> None:
    sizes = [512 * (1 + number % 5) for number in range(10)]
    files, first = [make([size]) for size in sizes], make([512])
    with device.group([first]) as group, device.load(first, group=group) as graph:

        def join(file: File) -> None:
            group.grow(file)
            with device.load(file, group=group) as joined:
                work(joined, 3)

        with ThreadPoolExecutor(4) as threads:
            for each in [threads.submit(join, file) for file in files]:
                each.result()
        assert group.arenas == (max(sizes),)
        check(graph)
