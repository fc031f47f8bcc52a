"""Test recording inferences on the null device: what the log holds of them, whichever way they run."""

from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

from gputune.core.errors import LaunchFailed
from gputune.runtime import MemHandle, load, load_group
from gputune.runtime.backends.null import NullBackend
from gputune.runtime.context.format import write_context
from gputune.runtime.context.records import Context
from gputune.runtime.profiling.log import Log, read_log, read_log_of
from gputune.runtime.profiling.profiler import Profiler
from gputune.runtime.profiling.records import HostPart, LoggedInference

X = np.ones((2, 4), np.float32)


def logged(log: BytesIO) -> Log:
    return read_log_of(BytesIO(log.getvalue()), "the log")


@pytest.mark.parametrize(("level", "columns"), [("basic", 0), ("detailed", 2), ("qhas", 4), ("linting", 4)])
def test_a_level_says_how_much_of_an_inference_is_in_the_log(context_path: Path, level: str, columns: int) -> None:
    log = BytesIO()
    with load(context_path, "null") as executor, Profiler(log, level) as profiler:
        profiler.watch(executor, context="net")
        executor.run({"x": X})
        executor.run({"x": X})
    found = logged(log)
    assert found.complete and [one.number for one in found.inferences] == [0, 1]
    (graph,) = found.graphs
    assert (graph.name, graph.context, graph.inputs, graph.outputs) == ("main", "net", {"x": 32}, {"y": 32})
    assert [each.operation for each in graph.launches] == ["first", "second"]
    for one in found.inferences:
        assert one.launches.shape == ((2, columns) if columns else (0, 4))
        assert in_order(one)


def in_order(inference: LoggedInference) -> bool:
    """The parts are those of an inference, one behind the other, within it."""
    kinds, tensors, begun, ended = inference.parts.T.tolist()
    assert kinds[0] == HostPart.HOST == kinds[-1]
    steps = [HostPart.WRITE, HostPart.ENQUEUE, HostPart.WAIT, HostPart.READ]
    assert [kind for kind in dict.fromkeys(kinds) if kind != HostPart.HOST] == steps
    assert tensors[kinds.index(HostPart.WRITE)] == 0
    moments = [inference.begun_ns, *(moment for pair in zip(begun, ended, strict=True) for moment in pair)]
    return moments == sorted(moments) and moments[-1] == inference.ended_ns


def test_every_way_to_run_is_recorded(context_path: Path) -> None:
    log = BytesIO()
    x, y = MemHandle.allocate(32), MemHandle.allocate(32)
    with load_group([context_path], "null") as group, Profiler(log) as profiler:
        executor = group["context"]
        profiler.watch(executor)
        group.run("context", {"x": X})
        executor.run_timed({"x": x}, {"y": y})
        executor.register("x", x)
        executor.register("y", y)
        executor.run_in_place()
    x.close()
    y.close()
    found = logged(log).inferences
    assert len(found) == 3 and all(len(one.launches) == 2 for one in found)
    assert executor.recorder is None


def test_every_stream_of_a_group_is_recorded(context_path: Path) -> None:
    log = BytesIO()
    with load_group([context_path], "waiting", streams=2) as group, Profiler(log, "qhas") as profiler:
        executors = group.executors("context")
        profiler.watch(*executors)
        with ThreadPoolExecutor(2) as pool:  # group.run takes the one that is free
            list(pool.map(lambda number: executors[number % 2].run({"x": X}), range(10)))
    found = logged(log).inferences
    assert Counter(one.graph for one in found) == {0: 5, 1: 5}
    assert all(in_order(one) for one in found)


def test_an_inference_that_outlives_the_profiler_is_not_in_the_log(context_path: Path, tmp_path: Path) -> None:
    class Closing:
        def before(self) -> None:
            profiler.close()

        def after(self) -> None: ...
        def results(self) -> dict[str, float]:
            return {}

    profiler = Profiler(tmp_path / "a.log", "qhas", [Closing()])
    with load(context_path, "null") as executor:
        profiler.watch(executor)
        executor.run({"x": X})
        with pytest.raises(ValueError, match="the profile log has ended"):
            profiler.watch(executor)
    found = read_log(tmp_path / "a.log")
    assert found.complete and found.inferences == []


def test_no_log_replaces_a_context(context_path: Path, tmp_path: Path) -> None:
    before = context_path.read_bytes()
    (tmp_path / "link").symlink_to(context_path)
    for path in (context_path, tmp_path / "link"):
        with load(context_path, "null") as executor, pytest.raises(FileExistsError, match="would overwrite a context"):
            Profiler(path).watch(executor)
    assert context_path.read_bytes() == before
    for _ in range(2):
        Profiler(tmp_path / "net.log").close()  # an earlier log is replaced


@pytest.mark.parametrize("level", ["basic", "detailed", "qhas"])
def test_a_graph_without_launches_is_recorded_as_a_whole(level: str, context: Context, tmp_path: Path) -> None:
    write_context(tmp_path / "idle.bin", replace(context, graphs=(replace(context.graphs[0], launches=()),)))
    log = BytesIO()
    with load(tmp_path / "idle.bin", "null") as executor, Profiler(log, level) as profiler:
        profiler.watch(executor)
        executor.run({"x": X})
    (one,) = logged(log).inferences
    assert in_order(one) and not len(one.launches) and one.clock is None


def test_what_fails_is_not_recorded(context_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = BytesIO()
    with load(context_path, "null") as executor, Profiler(log) as profiler:
        profiler.watch(executor)
        with pytest.raises(ValueError, match="needs the input 'x'"):
            executor.run({})
        with monkeypatch.context() as patched:
            patched.setattr(NullBackend, "enqueue_timed", _fail)
            with pytest.raises(LaunchFailed, match="the device is gone"):
                executor.run({"x": X})
        executor.run({"x": X})
    assert [one.number for one in logged(log).inferences] == [0]


def _fail(*arguments: object) -> None:
    raise LaunchFailed("the device is gone")


def test_inferences_take_turns_with_others_that_are_not_recorded(context_path: Path) -> None:
    log = BytesIO()
    done: list[int] = []
    with load(context_path, "null") as executor, Profiler(log) as profiler:
        profiler.profile(executor, lambda: executor.run_timed({"x": X})[1], 5, done.append, compared=3)
    found = logged(log)
    (compared,) = found.comparisons
    assert done == [1, 2, 3, 4, 5] and len(found.inferences) == 5
    assert compared.profiled_ns == tuple(one.elapsed_ns for one in found.inferences[:3])
    assert len(compared.unprofiled_ns) == 3 and compared.usual_ns == compared.unprofiled_ns


class Meter:
    """Counts inferences."""

    begun = ended = 0

    def before(self) -> None:
        self.begun += 1

    def after(self) -> None:
        self.ended += 1

    def results(self) -> Mapping[str, float]:
        return {"energy_uj": 10 * self.ended + self.begun}


def test_an_observer_adds_measurements_of_its_own(context_path: Path, tmp_path: Path) -> None:
    with load(context_path, "null") as executor, Profiler(tmp_path / "net.log", observers=[Meter()]) as profiler:
        profiler.watch(executor)
        executor.run({"x": X})
        executor.run({"x": X})
    with (tmp_path / "net.log").open("rb") as file:
        assert [one.observed for one in read_log_of(file, "net.log").inferences] == [
            {"energy_uj": 11.0},
            {"energy_uj": 22.0},
        ]


def test_an_unknown_level_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'all' is no profiling level; there are basic, detailed, qhas"):
        Profiler(tmp_path / "net.log", "all")
    assert not (tmp_path / "net.log").exists()
