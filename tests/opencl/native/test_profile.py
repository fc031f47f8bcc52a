"""Test logs of the C runtime: Python reads them, accounts for their inferences, and recognises their digests."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gputune.client.cli.main import main
from gputune.client.viewer.account import account_of
from gputune.core.errors import CannotMark, ChecksumMismatch
from gputune.runtime.backends import Backend
from gputune.runtime.context.format import open_context, write_context
from gputune.runtime.context.records import Context, GraphRecord
from gputune.runtime.contexts.device import beside
from gputune.runtime.contexts.recording import NativeMarks
from gputune.runtime.loading.executors import executor_on
from gputune.runtime.native.binding import Graph, Native
from gputune.runtime.profiling.levels import Level
from gputune.runtime.profiling.log import Log, read_log, read_log_of
from gputune.runtime.profiling.profiler import Profiler
from gputune.runtime.profiling.records import PART_BEGUN, PART_ENDED, PART_KIND, HostPart, digest_of, logged_launches
from tests.opencl.contexts import contexts, plan
from tests.opencl.known import has_ticks

__all__ = ["plan"]

INFERENCES = 4


@pytest.fixture
def model(backend: Backend, plan: Any, tmp_path: Path) -> Path:
    return contexts(backend, plan, tmp_path / "model.bin")


def graph_of(model: Path) -> GraphRecord:
    with open_context(model) as file:
        return file.header.graphs[0]


def inputs_of(graph: Graph) -> dict[str, Any]:
    generator = np.random.default_rng(1)
    return {tensor.name: generator.standard_normal(tensor.shape).astype(tensor.dtype) for tensor in graph.info.inputs}


def recorded(native: Native, model: Path, log: Path, level: Level, **options: Any) -> Log:
    with native.open(model) as file, native.device(file) as device, device.load(file, **options) as graph:
        inputs = inputs_of(graph)
        (want,) = graph.run(inputs).values()
        with device.profile(log, level) as profile:
            graph.record(profile)
            for _ in range(INFERENCES):
                (got,) = graph.run(inputs).values()
                assert (got == want).all()
            assert not read_log(log).complete, "what was measured is there before the log ends"
        graph.run(inputs)
    return read_log(log)


def check(log: Log, graph: GraphRecord) -> None:
    assert log.complete
    assert [one.number for one in log.inferences] == list(range(INFERENCES))
    (described,) = log.graphs
    assert described.launches == logged_launches(graph)
    assert described.digest == digest_of(described.launches)
    assert (described.inputs, described.outputs) == tuple(
        {tensor.name: tensor.nbytes for tensor in tensors} for tensors in (graph.inputs, graph.outputs)
    )
    assert (described.arena_bytes, described.persistent) == (graph.arena_bytes, len(graph.persistent))
    assert described.load_ns > 0
    for one in log.inferences:
        parts = one.parts
        assert parts[0, PART_BEGUN] == one.begun_ns and parts[-1, PART_ENDED] == one.ended_ns
        kinds = [HostPart(kind) for kind in parts[:, PART_KIND]]
        assert kinds[0] == kinds[-1] == HostPart.HOST
        assert {HostPart.WRITE, HostPart.ENQUEUE, HostPart.WAIT, HostPart.READ} <= set(kinds)
        account = account_of(one)
        assert sum(ns for _, ns in account.rows()) == one.elapsed_ns
        assert abs(account.rest_ns) < one.elapsed_ns / 20


@pytest.mark.parametrize("one_by_one", [True, False])
def test_whole_inferences_are_logged(
    native: Native, backend: Backend, model: Path, tmp_path: Path, one_by_one: bool
) -> None:
    graph = graph_of(model)
    log = recorded(native, model, tmp_path / "net.log", "basic", one_by_one=one_by_one)
    check(log, graph)
    assert log.header.level == "basic"
    assert not any(one.launches.size for one in log.inferences)
    if one_by_one:
        assert {one.form for one in log.inferences} == {"launches"}


def test_launches_are_logged(
    native: Native, backend: Backend, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph, path = graph_of(model), tmp_path / "net.log"
    log = recorded(native, model, path, "detailed")
    check(log, graph)
    assert log.header.device["name"] == backend.identity.name
    for one in log.inferences:
        assert one.form == "launches" and one.clock is not None
        times, waited = one.launches_ns(), one.parts[one.parts[:, PART_KIND] == HostPart.WAIT]
        enqueued = one.parts[one.parts[:, PART_KIND] == HostPart.ENQUEUE]
        assert times.shape == (len(graph.launches), 2)
        assert enqueued[0, PART_BEGUN] - one.clock.bound_ns <= times[0, 0]
        assert times[-1, 1] <= waited[-1, PART_ENDED] + one.clock.bound_ns
        assert one.clock.bound_ns < one.elapsed_ns
    with pytest.raises(SystemExit) as done:
        main(["profile-viewer", "--input_log", str(path)])
    assert done.value.code == 0
    assert graph.launches[0].operation in capsys.readouterr().out


def marked(native: Native, model: Path, inferences: int, level: Level = "qhas") -> Log:
    """Return a log of inferences with and without marks in turns, whose outputs are right."""
    with native.open(model) as file, native.device(file) as device, device.load(file) as graph:
        inputs = inputs_of(graph)
        (want,) = graph.run(inputs).values()
        with device.profile(None, level) as profile:
            for number in range(2 * inferences + 1):
                (graph.record if number % 2 else graph.record_marked)(profile)
                (got,) = graph.run(inputs).values()
                assert (got == want).all()
            content = profile.take()
            assert not read_log_of(io.BytesIO(content), "taken").marked
            profile.write_marks()
            return read_log_of(io.BytesIO(content + profile.take()), "taken")


def test_launches_inside_of_persistent_kernels_are_marked(native: Native, backend: Backend, model: Path) -> None:
    if not has_ticks(backend.identity):
        pytest.skip("this driver has no clock for kernels")
    log, graph = marked(native, model, 20), graph_of(model)
    (described,) = log.graphs
    assert (described.unmarked, described.persistent) == ("", len(graph.persistent))
    assert len(log.inferences) == 20 >= len(log.marked) > 0, "on a busy machine some give up, and those have no marks"
    assert [one.number for one in log.inferences] == list(range(20))
    for one in log.inferences:
        assert one.form == "launches" and one.launches.shape == (len(graph.launches), 4)
    for each in log.marked:
        moments = each.launches_ns().ravel()
        assert each.form == "persistent"
        assert len(moments) == 2 * len(graph.launches) and (np.diff(moments) >= 0).all()
        assert each.begun_ns < moments[0] and moments[-1] < each.ended_ns
        assert each.took_ns().sum() > 0
    assert len({one.number for one in log.marked}) == len(log.marked)


@pytest.mark.parametrize(
    ("ticks", "function", "reason"),
    [
        ("OLDER_TICKS", "", "the persistent kernels are of an older gputune"),
        (
            "GPUTUNE_TICKS",
            "\n#ifdef GPUTUNE_TICKS\n#error no\n#endif\n",
            r"the driver refuses marks in persistent kernels \(",
        ),
    ],
)
def test_what_cannot_be_marked_has_a_reason(
    native: Native,
    backend: Backend,
    plan: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ticks: str,
    function: str,
    reason: str,
) -> None:
    if not has_ticks(backend.identity):
        pytest.skip("this driver has no clock for kernels")

    def changed(path: Path, context: Context) -> None:
        own = [replace(one, source=one.source.replace("GPUTUNE_TICKS", ticks) + function) for one in context.programs]
        write_context(path, replace(context, programs=tuple(own)))

    monkeypatch.setattr("tests.opencl.contexts.write_context", changed)
    model = contexts(backend, plan, tmp_path / "other.bin")
    for _ in range(2):
        with pytest.raises(CannotMark, match=reason):
            marked(native, model, 1)


def test_python_gets_inferences_with_marks(native: Native, backend: Backend, model: Path) -> None:
    if not has_ticks(backend.identity):
        pytest.skip("this driver has no clock for kernels")
    with native.open(model) as file, native.device(file) as device, device.load(file) as graph:
        marks, inputs = NativeMarks(device, graph), inputs_of(graph)
        for rounds in range(3):
            assert list(marks.of_graph(3)) == []
            for _ in range(1 if rounds == 0 else 10):  # the first one loads code
                marks.recorder.infer(lambda: graph.run(inputs))
            if rounds == 1:
                marks.forget()
        graph.run(inputs)
        found = list(marks.of_graph(3))
    assert 0 < len(found) <= 10 and {(one.graph, one.form) for one in found} == {(3, "persistent")}
    assert {len(one.launches) for one in found} == {len(graph_of(model).launches)}


def test_marks_are_written_when_the_graph_goes_or_the_profile(
    native: Native, backend: Backend, model: Path, tmp_path: Path
) -> None:
    if not has_ticks(backend.identity):
        pytest.skip("this driver has no clock for kernels")
    for graph_first in (False, True):
        path = tmp_path / f"{graph_first}.log"
        with native.open(model) as file, native.device(file) as device:
            graph, profile = device.load(file), device.profile(path, "qhas")
            graph.record_marked(profile)
            inputs = inputs_of(graph)
            for _ in range(10):
                graph.run(inputs)
            for one in (graph, profile) if graph_first else (profile, graph):
                one.close()
        log = read_log(path)
        assert log.complete and log.marked and not log.inferences


def test_a_text_that_was_damaged_is_not_built(native: Native, backend: Backend, model: Path, tmp_path: Path) -> None:
    """It is copied when the graph is loaded, which needs only the binary, and checked when it is used."""
    if not has_ticks(backend.identity):
        pytest.skip("this driver has no clock for kernels")
    other, changed = tmp_path / "other.bin", bytearray(model.read_bytes())
    with open_context(model) as file:
        marking = [
            one.source for place, one in enumerate(file.header.programs) if "GPUTUNE_TICKS" in file.source(place)
        ]
        for text in map(file.stored, marking):
            changed[changed.index(text) + len(text) // 2] ^= 1
    assert marking
    other.write_bytes(changed)
    with pytest.raises(ChecksumMismatch, match=r"source section [0-9]+ is damaged"):
        marked(native, other, 1)


def test_profiler_compares_all_forms_of_what_c_runs(backend: Backend, model: Path) -> None:
    """As net-run has it: recorded launches, launches, persistent kernels, and those with marks take turns."""
    if not has_ticks(backend.identity):
        pytest.skip("this driver has no clock for kernels")
    stream = io.BytesIO()
    with open_context(model) as file, executor_on(beside(backend), file, None, strict=True) as executor:
        generator = np.random.default_rng(1)
        inputs = {
            tensor.name: generator.standard_normal(tensor.shape).astype(tensor.dtype)
            for tensor in executor.graph.inputs
        }
        with Profiler(stream, "qhas") as profiler:
            profiler.profile(executor, lambda: executor.run_timed(inputs)[1], 12, compared=10)
    log = read_log_of(io.BytesIO(stream.getvalue()), "log")
    (comparison,) = log.comparisons
    assert log.graphs[0].unmarked == "" and 0 < len(log.marked) <= 10
    assert len(log.inferences) == 12 and {one.form for one in log.inferences} == {"launches"}
    assert {len(each) for each in (comparison.profiled_ns, comparison.unprofiled_ns, comparison.usual_ns)} == {10}
