"""Test contexts with persistent kernels on a real device: what runs in which form, and what is given up and resumed."""

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.kernels import gemm
from benchmarks.peers.chain import Chain
from benchmarks.result import NotTimed
from gputune.client.cli.main import main
from gputune.client.model.importer import read_model
from gputune.client.model.lowering import lower
from gputune.client.model.plan import Plan
from gputune.client.model.reference import evaluate
from gputune.core.errors import UnsupportedFormatVersion
from gputune.core.quirks import groups_at_once
from gputune.runtime.backends import Backend, Bound
from gputune.runtime.context.format import open_context, write_context
from gputune.runtime.context.records import STATUS_BYTES, BufferRef, Context, GraphRecord, LaunchRecord, ProgramRecord
from gputune.runtime.executor import Executor
from gputune.runtime.profiling.log import Log, read_log_of
from gputune.runtime.profiling.profiler import Profiler
from tests.client.model.test_alternatives import two_blocks
from tests.client.models import save
from tests.opencl.contexts import contexts, inputs_of, loaded, plan
from tests.opencl.known import has_ticks
from tests.strategies.files.contexts import of_version

__all__ = ["plan"]


SEVERAL = 34_000
"""Characters of a text with some of the plan's kernels, and not with all of them."""


@pytest.fixture(autouse=True)
def _groups_at_once(backend: Backend) -> None:
    if groups_at_once(backend.identity) < 2:
        pytest.skip("this driver does not say that groups run at the same time")


def assert_right(executor: Executor, plan: Plan, inputs: dict[str, np.ndarray], in_place: bool = False) -> None:
    (want,) = evaluate(plan, inputs).values()
    if in_place:
        for name, array in executor.shared_inputs.items():
            array[...] = inputs[name]
        executor.run_in_place()
        (got,) = executor.shared_outputs.values()
    else:
        (got,) = executor.run(inputs).values()
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * np.abs(want).max())


def test_a_context_runs_them_and_profiles_what_they_stand_for(backend: Backend, plan: Plan, tmp_path: Path) -> None:
    executor = loaded(backend, contexts(backend, plan, tmp_path / "model.bin"))
    assert not executor.warnings
    assert 0 < len(executor.graph.persistent) < len(executor.graph.launches)
    generator = np.random.default_rng(1)
    for _ in range(3):
        inputs = {t.name: generator.standard_normal(t.shape).astype(t.dtype) for t in executor.graph.inputs}
        assert_right(executor, plan, inputs)
    assert executor.runs is not None
    assert executor.runs.inferences == 3
    assert executor.runs.persistent + executor.runs.aborted >= 2, "a busy machine may have the third by launches"
    log = BytesIO()
    with Profiler(log) as profiler:
        profiler.profile(executor, lambda: executor.run_timed(inputs)[1], 2, compared=2)
    recorded = read_log_of(BytesIO(log.getvalue()), "the log")
    assert [len(one.launches) for one in recorded.inferences] == 2 * [len(executor.graph.launches)]
    assert recorded.graphs[0].persistent == len(executor.graph.persistent)
    (compared,) = recorded.comparisons
    assert (len(compared.usual_ns), compared.usual_form) == (2, executor.last_form)
    assert executor.recorder is None and executor.persistent_kernels


def profiled(executor: Executor, level: str, inferences: int = 3) -> Log:
    inputs, log = inputs_of(executor, 1), BytesIO()
    with Profiler(log, level) as profiler:
        profiler.profile(executor, lambda: executor.run_timed(inputs)[1], inferences, compared=3)
    return read_log_of(BytesIO(log.getvalue()), "the log")


def test_a_loaded_context_needs_its_file_no_more(backend: Backend, plan: Plan, tmp_path: Path) -> None:
    path = contexts(backend, plan, tmp_path / "model.bin")
    executor, other = loaded(backend, path), loaded(backend, path)
    inputs = inputs_of(executor, 1)
    other.persistent_kernels = False
    wanted = executor.run(inputs), other.run(inputs)
    other.close()
    path.write_bytes(bytes(path.stat().st_size))
    for whole, outputs in zip((True, False), wanted, strict=True):
        executor.persistent_kernels = whole  # launches are loaded when they are needed
        for name, got in executor.run(inputs).items():
            np.testing.assert_array_equal(got, outputs[name])
    executor.close()


@pytest.mark.parametrize("kernels", ["one", pytest.param("several", marks=pytest.mark.night)])
def test_launches_inside_of_persistent_kernels_are_marked(
    backend: Backend, plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kernels: str
) -> None:
    if not has_ticks(backend.identity):
        pytest.skip("this driver has no clock for kernels")
    if kernels == "several":
        monkeypatch.setattr("gputune.client.context.persistent.CHARACTERS_AT_MOST", SEVERAL)
    executor = loaded(backend, contexts(backend, plan, tmp_path / "model.bin"))
    found = profiled(executor, "qhas", 20)  # on a busy machine some give up, and those have no marks
    assert found.graphs[0].unmarked == ""
    assert len(found.inferences) == 20 >= len(found.marked) > 0
    for one in found.marked:
        moments = one.launches_ns().ravel()
        assert len(moments) == 2 * len(executor.graph.launches) and (np.diff(moments) >= 0).all()
        assert one.begun_ns < moments[0] and moments[-1] < one.ended_ns
        assert one.took_ns().sum() > 0
    assert_right(executor, plan, inputs_of(executor, 2))


def test_a_log_says_why_launches_inside_have_no_marks(backend: Backend, plan: Plan, tmp_path: Path) -> None:
    executor = loaded(backend, contexts(backend, plan, tmp_path / "model.bin"))
    assert profiled(executor, "detailed").graphs[0].unmarked == "--profiling_level qhas records them"


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="a thread's processors are chosen on Linux")
def test_without_a_processor_for_each_group_launches_run_one_by_one(
    backend: Backend, plan: Plan, tmp_path: Path
) -> None:
    path = contexts(backend, plan, tmp_path / "model.bin")
    usual = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(usual)})
    try:
        executor = loaded(backend, path)
    finally:
        os.sched_setaffinity(0, usual)
    (warning,) = executor.warnings
    assert warning.startswith("launches run one by one: the persistent kernel needs ")
    assert_right(executor, plan, inputs_of(executor, 1))


def rewritten(path: Path, change: Callable[[GraphRecord], GraphRecord]) -> Context:
    """What a context file holds, with its graphs changed."""
    with open_context(path) as file:
        header = file.header
        return Context(
            graphs=tuple(map(change, header.graphs)),
            programs=[
                ProgramRecord(file.binary(place), file.source(place), entry.options)
                for place, entry in enumerate(header.programs)
            ],
            weights=[bytes(file.weights(place)) for place in range(len(header.weights))],
            packing=header.packing,
            device=header.device.to_dict(),
            tier=header.tier,
            configuration=header.configuration,
            versions=header.versions,
        )


def test_kernels_of_an_older_context_that_cannot_yield_do_not_run(backend: Backend, plan: Plan, tmp_path: Path) -> None:

    def older(graph: GraphRecord) -> GraphRecord:
        def without(launch: LaunchRecord) -> LaunchRecord:
            arguments = (a for a in launch.arguments if not (isinstance(a, BufferRef) and a.kind == "status"))
            return dataclasses.replace(launch, arguments=tuple(arguments))

        return dataclasses.replace(graph, persistent=tuple(map(without, graph.persistent)))

    path = contexts(backend, plan, tmp_path / "model.bin")
    write_context(path, rewritten(path, older))
    executor = loaded(backend, path)
    (warning,) = executor.warnings
    assert "an older gputune" in warning
    assert executor.runs is None
    assert_right(executor, plan, inputs_of(executor, 0))
    path.write_bytes(of_version(path.read_bytes(), 1))
    with pytest.raises(UnsupportedFormatVersion, match="format version 1, this gputune reads 3 and 4"):
        loaded(backend, path)


PINNED = """
import os, sys
import numpy as np
import gputune.runtime
executor = gputune.runtime.load(sys.argv[1])
inputs = dict(np.load(sys.argv[2]))
wanted = inputs.pop("wanted")
core = min(os.sched_getaffinity(0))
for thread in os.listdir("/proc/self/task"):
    os.sched_setaffinity(int(thread), {core})
for _ in range(300):
    (got,) = executor.run(inputs).values()
    assert np.abs(got - wanted).max() <= 1e-5 * np.abs(wanted).max()
print(executor.runs.launches, executor.runs.inferences)
"""


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads are found in /proc")
def test_on_one_core_outputs_stay_right_and_launches_are_tried(backend: Backend, plan: Plan, tmp_path: Path) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("groups do not run at the same time here")
    executor = loaded(backend, path := contexts(backend, plan, tmp_path / "model.bin"))
    inputs = inputs_of(executor, 0)
    (want,) = evaluate(plan, inputs).values()
    arrays: dict[str, Any] = {"wanted": want, **inputs}
    np.savez(tmp_path / "arrays.npz", **arrays)
    command = [sys.executable, "-c", PINNED, str(path), str(tmp_path / "arrays.npz")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    launches, inferences = map(int, done.stdout.split())
    assert inferences == 300
    assert launches >= 8, "it compares early"


def test_benchmarks_of_kernels_time_launches_inside_of_them(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.onnx").write_bytes(gemm(16, 24, 8).SerializeToString())
    path = contexts(backend, lower(read_model(tmp_path / "model.onnx")), tmp_path / "model.bin")
    enqueued: list[Bound] = []
    enqueue = backend.enqueue

    def noted(bound: Bound) -> None:
        enqueued.append(bound)
        enqueue(bound)

    monkeypatch.setattr(backend, "enqueue", noted)
    with open_context(path) as file:
        chain = Chain(backend, file)
        (want,) = chain.run({"x": np.random.default_rng(3).standard_normal((16, 8), np.float32)}).values()
        run = chain.repeated(1.0)
    kernel = enqueued[-1]
    (output,) = (buffer for buffer in kernel.buffers if buffer.nbytes == want.nbytes)
    backend.fill(output, 0)
    assert run() > 0
    got = backend.read(output).view(np.float32).reshape(want.shape)
    np.testing.assert_array_equal(got, want)
    status = next(buffer for buffer in kernel.buffers if buffer.nbytes == STATUS_BYTES)
    backend.write(status, np.ones(STATUS_BYTES // 4, np.int32))
    with pytest.raises(NotTimed, match="given up"):
        run()


@pytest.mark.usefixtures("_reached")
@pytest.mark.parametrize("wanted", [True, pytest.param(False, marks=pytest.mark.night)])
def test_the_generator_makes_them_unless_told_not_to(tmp_path: Path, wanted: bool) -> None:
    save(two_blocks(), tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"tuning_mode": False, "persistent_kernels": wanted}))
    with pytest.raises(SystemExit) as ended:
        main(
            [
                *("context-binary-generator", "--model", str(tmp_path / "model.onnx"), "--binary_file", "small"),
                *("--output_dir", str(tmp_path), "--config_file", str(tmp_path / "config.json")),
            ]
        )
    assert ended.value.code == 0
    with open_context(tmp_path / "small.bin") as file:
        (graph,) = file.header.graphs
        assert bool(graph.persistent) == wanted
        assert file.header.configuration["persistent_kernels"] is wanted
