"""Test logs of the C runtime: Python reads them, accounts for their inferences, and recognises their digests."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gputune.client.cli.main import main
from gputune.client.viewer.account import account_of
from gputune.runtime.backends import Backend
from gputune.runtime.context.format import open_context
from gputune.runtime.context.records import GraphRecord
from gputune.runtime.native.binding import Graph, Native
from gputune.runtime.profiling.log import Log, read_log
from gputune.runtime.profiling.records import PART_BEGUN, PART_ENDED, PART_KIND, Part, digest_of, logged_launches
from tests.opencl.contexts import contexts, plan

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


def recorded(native: Native, model: Path, log: Path, detailed: bool, **options: Any) -> Log:
    with native.open(model) as file, native.device(file) as device, device.load(file, **options) as graph:
        inputs = inputs_of(graph)
        (want,) = graph.run(inputs).values()
        with device.profile(log, detailed) as profile:
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
        kinds = [Part(kind) for kind in parts[:, PART_KIND]]
        assert kinds[0] == kinds[-1] == Part.HOST and {Part.WRITE, Part.ENQUEUE, Part.WAIT, Part.READ} <= set(kinds)
        account = account_of(one)
        assert sum(ns for _, ns in account.rows()) == one.elapsed_ns
        assert abs(account.rest_ns) < one.elapsed_ns / 20


@pytest.mark.parametrize("one_by_one", [True, False])
def test_whole_inferences_are_logged(
    native: Native, backend: Backend, model: Path, tmp_path: Path, one_by_one: bool
) -> None:
    graph = graph_of(model)
    log = recorded(native, model, tmp_path / "net.log", detailed=False, one_by_one=one_by_one)
    check(log, graph)
    assert log.header.level == "basic"
    assert not any(one.launches.size for one in log.inferences)
    if one_by_one:
        assert {one.form for one in log.inferences} == {"launches"}


def test_launches_are_logged(
    native: Native, backend: Backend, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph, path = graph_of(model), tmp_path / "net.log"
    log = recorded(native, model, path, detailed=True)
    check(log, graph)
    assert log.header.device["name"] == backend.identity.name
    for one in log.inferences:
        assert one.form == "launches" and one.clock is not None
        times, waited = one.launches_ns(), one.parts[one.parts[:, PART_KIND] == Part.WAIT]
        enqueued = one.parts[one.parts[:, PART_KIND] == Part.ENQUEUE]
        assert times.shape == (len(graph.launches), 2)
        assert enqueued[0, PART_BEGUN] - one.clock.bound_ns <= times[0, 0]
        assert times[-1, 1] <= waited[-1, PART_ENDED] + one.clock.bound_ns
        assert one.clock.bound_ns < one.elapsed_ns
    with pytest.raises(SystemExit) as done:
        main(["profile-viewer", "--input_log", str(path)])
    assert done.value.code == 0
    assert graph.launches[0].operation in capsys.readouterr().out
