"""Test profiles of the C runtime on a made-up library: what is recorded, when, and where records go."""

import io
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gputune.core.errors import CannotMark
from gputune.runtime.native import binding
from gputune.runtime.native.binding import Device, File, Graph, Native
from gputune.runtime.profiling.clocks import BRACKETED
from gputune.runtime.profiling.levels import LEVELS, Level
from gputune.runtime.profiling.log import Log, read_log, read_log_of
from gputune.runtime.profiling.records import ENDED, PART_KIND, QUEUED, STARTED, SUBMITTED, HostPart
from tests.native.fake import ELEMENTS, STAGES, Fake, doubling_context
from tests.native.test_events import NAMES

INFERENCES = 50
MOST_EVENTS = 512
"""As profile.c has it."""
ONES = np.ones(ELEMENTS, np.float32)


@pytest.fixture
def file(native: Native, tmp_path: Path) -> Iterator[File]:
    with native.open(doubling_context(tmp_path / "a.bin")) as opened:
        yield opened


@pytest.fixture
def device(native: Native, fake: Fake, file: File) -> Iterator[Device]:
    with native.device(file, opencl=str(fake.path)) as opened:
        yield opened
    assert fake.alive == 0


def log_of(content: bytes) -> Log:
    return read_log_of(io.BytesIO(content), "taken")


def test_c_has_the_levels_of_python_in_order() -> None:
    assert binding.LEVELS == LEVELS


@pytest.mark.parametrize(("level", "columns"), [("basic", 0), ("detailed", 2), ("qhas", 4)])
def test_a_level_says_what_is_recorded_of_a_launch(device: Device, file: File, level: Level, columns: int) -> None:
    with device.load(file) as graph, device.profile(None, level) as profile:
        graph.record(profile)
        graph.run({"x": ONES})
        log = log_of(profile.take())
    (one,) = log.inferences
    assert log.header.level == level
    assert one.launches.shape == ((STAGES, columns) if columns else (0, 4))
    assert (one.clock is None) == (not columns)


@pytest.mark.parametrize(
    ("stamps", "wanted"),
    [
        ((1, 2, 3, 4), (1, 2, 3, 4)),
        ((9, 8, 7, 6), (7, 7, 7, 7)),
        ((5, 2, 3, 4), (2, 2, 3, 4)),
        ((1, 2, 3, 1), (1, 2, 3, 3)),
    ],
)
def test_no_moment_of_a_launch_is_before_the_one_in_front(
    device: Device, file: File, fake: Fake, stamps: tuple[int, ...], wanted: tuple[int, ...]
) -> None:
    with device.load(file) as graph, device.profile(None, "qhas") as profile:
        graph.record(profile)
        fake.stamp(*(stamps[column] * 1_000_000 for column in (QUEUED, SUBMITTED, STARTED, ENDED)))
        try:
            graph.run({"x": ONES})
        finally:
            fake.stamp(0, 0, 0, 0)
        (one,) = log_of(profile.take()).inferences
    assert (one.launches == np.array(wanted) * 1_000_000).all()


def test_no_more_events_are_kept_than_drivers_can(native: Native, device: Device, fake: Fake, tmp_path: Path) -> None:
    """Drivers keep an event of each launch until it is read."""
    count = 2 * MOST_EVENTS + 100
    path = doubling_context(tmp_path / "long.bin", count=count)
    with native.open(path) as long, device.load(long) as graph, device.profile(None, "detailed") as profile:
        graph.record(profile)
        fake.most_events()
        for _ in range(2):
            graph.run({"x": 0 * ONES})
        assert fake.most_events() == MOST_EVENTS
        log = log_of(profile.take())
    for one in log.inferences:
        assert one.launches.shape == (count, 2) and (np.diff(one.launches.ravel()) >= 0).all()
        assert [*one.parts[:, PART_KIND]].count(HostPart.PROFILER) == 2


@pytest.mark.parametrize("ahead_ns", [0, 1 << 50, -1_000_000_000])
def test_the_devices_clock_is_read_where_that_is_possible(
    device: Device, file: File, fake: Fake, ahead_ns: int
) -> None:
    """Launches lie between the beginning of an inference and its end, by either clock."""
    with device.load(file) as graph, device.profile(None, "detailed") as profile:
        graph.record(profile)
        fake.is_ahead(ahead_ns)
        try:
            for _ in range(5):
                graph.run({"x": ONES})
        finally:
            fake.is_ahead(0)
        log = log_of(profile.take())
    for one in log.inferences:
        assert one.clock is not None and one.clock.method == ("device_and_host_timer" if ahead_ns else BRACKETED)
        assert abs(one.clock.offset_ns + ahead_ns) <= one.clock.bound_ns
        times = one.launches_ns()
        assert one.begun_ns - one.clock.bound_ns <= times[0, 0] and times[-1, 1] <= one.ended_ns + one.clock.bound_ns


def test_the_level_qhas_has_counters_and_the_state_of_the_device(device: Device, file: File) -> None:
    with device.load(file) as graph, device.profile(None, "qhas") as profile:
        graph.record(profile)
        for _ in range(3):
            graph.run({"x": ONES})
        log = log_of(profile.take())
    for one in log.inferences:
        assert {*one.counters, *log.header.unavailable} == {*NAMES}
        assert threading.get_native_id() in one.preemptions
    if "task_clock_ns" not in log.header.unavailable:
        assert all(one.counters["task_clock_ns"] > 0 for one in log.inferences)
    assert "load_1_minute" in log.states[0].values and log.states[0].at_ns < log.inferences[0].begun_ns


def test_records_are_taken_as_they_are_made(device: Device, file: File) -> None:
    """Bytes may be taken in any pieces; what was taken does not come again."""
    with device.load(file) as graph, device.profile(None, "detailed") as profile:
        content = profile.take()
        assert not log_of(content).graphs
        graph.record(profile)
        for count in range(1, 4):
            graph.run({"x": ONES})
            content += profile.take()
            assert len(log_of(content).inferences) == count
        assert profile.take() == b""


def test_what_is_recorded_changes_before_any_inference(device: Device, file: File, tmp_path: Path) -> None:
    """As inferences in turns need it: a profile describes a graph once, and counts its inferences."""
    path = tmp_path / "file.log"
    with (
        device.load(file) as graph,
        device.load(file) as other,
        device.profile(path, "basic") as written,
        device.profile(None, "detailed") as kept,
    ):
        for profile in (kept, None, written, kept, None, kept):
            graph.record(profile)
            graph.run({"x": ONES})
        other.record(kept)
        other.run({"x": ONES})
        log = log_of(kept.take())
    assert [(one.graph, one.number) for one in log.inferences] == [(0, 0), (0, 1), (0, 2), (1, 0)]
    assert [one.name for one in log.graphs] == ["main", "main"]
    assert [one.number for one in read_log(path).inferences] == [0]


def test_graphs_on_different_streams_share_a_profile(device: Device, file: File) -> None:
    """Records are whole, whichever thread takes them in the meantime."""
    with (
        device.group([file], streams=2) as group,
        device.load(file, group=group, stream=0) as first,
        device.load(file, group=group, stream=1) as second,
        device.profile(None, "qhas") as profile,
    ):
        for graph in (first, second):
            graph.record(profile)

        def infer(graph: Graph) -> None:
            for number in range(INFERENCES):
                assert (graph.run({"x": number * ONES})["y"] == number * 2**STAGES).all()

        threads = [threading.Thread(target=infer, args=(graph,)) for graph in (first, second)]
        for thread in threads:
            thread.start()
        content = profile.take()
        while any(thread.is_alive() for thread in threads):
            content += profile.take()
        for thread in threads:
            thread.join()
        log = log_of(content + profile.take())
    for place in range(2):
        own = [one for one in log.inferences if one.graph == place]
        assert [one.number for one in own] == list(range(INFERENCES))
        assert len({one.thread for one in own}) == 1


def test_a_profile_with_a_file_is_not_taken(device: Device, tmp_path: Path) -> None:
    with (
        device.profile(tmp_path / "a.log", "basic") as profile,
        pytest.raises(ValueError, match="this profile's records go into its file"),
    ):
        profile.take()


@pytest.mark.parametrize("level", ["basic", "detailed"])
def test_marks_are_recorded_at_the_level_qhas_alone(device: Device, file: File, level: Level) -> None:
    with (
        device.load(file) as graph,
        device.profile(None, level) as profile,
        pytest.raises(ValueError, match="marks need a profile of level qhas"),
    ):
        graph.record_marked(profile)


def test_a_graph_without_a_persistent_form_has_no_marks(device: Device, file: File) -> None:
    with device.load(file) as graph, device.profile(None, "qhas") as profile:
        graph.record(profile)
        with pytest.raises(CannotMark, match="persistent kernels do not run here"):
            graph.record_marked(profile)
        graph.run({"x": ONES})
        profile.write_marks()
        log = log_of(profile.take())
        assert not log.inferences and not log.marked, "nothing is recorded after a refusal"
