"""Persistent kernels on a real device: each work-item runs once, in its own place, and launches keep their order.

With one group they run on any device; with as many as run at the same time where the driver is known to let them.
"""

import dataclasses
import itertools
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gputune.client import context_builder, net_run
from gputune.client.cli.main import main
from gputune.client.importer import read_model
from gputune.client.local_device import LocalDevice
from gputune.client.lowering import lower
from gputune.client.persistent import Persistent, in_fewer_launches
from gputune.client.plan import Plan
from gputune.client.reference import evaluate
from gputune.client.tuning.outcome import untuned
from gputune.client.tuning.task_search import device_limits
from gputune.runtime.backends import Backend, open_backend
from gputune.runtime.context_format import open_context, write_context
from gputune.runtime.context_records import (
    FLAG,
    ROUNDS,
    STATUS_BYTES,
    BufferRef,
    Context,
    GraphRecord,
    LaunchRecord,
    ProgramRecord,
)
from gputune.runtime.devices import choose, discover, wanted_device
from gputune.runtime.executor import Executor
from gputune.runtime.launching import compile_variant
from gputune.runtime.loading import executor_on
from gputune.runtime.variant import Launch, Variant
from gputune.server.protocol.messages import Compiled, CompileKernel
from tests.client.models import save
from tests.client.test_alternatives import two_blocks

PLACES = """
#define ASK(what) what(0), what(1), what(2)
// Each work-item writes what it knows of its place, and adds one to what lies there.
__kernel __attribute__((reqd_work_group_size(LX, LY, LZ)))
void places(__global int *written, const int step)
{
    const int known[] = { ASK(get_global_id), ASK(get_local_id), ASK(get_group_id), ASK(get_local_size),
                          ASK(get_num_groups), ASK(get_global_size), get_work_dim(), get_global_offset(0) };
    const int row = get_global_id(2) * get_global_size(1) + get_global_id(1);
    const int index = row * get_global_size(0) + get_global_id(0);
    for (int i = 0; i < 20; ++i)
        written[index * 22 + i] = known[i];
    written[index * 22 + 20] += step;
    written[index * 22 + 21] += 1;
}
"""
MIX = """
// y[i] is made of three x, so it is wrong when a group begins before all of the launch before it has ended; the last
// ones take longest.
__kernel void mix(__global const uint *restrict x, __global uint *restrict y, const int shift)
{
    const int i = get_global_id(0);
    uint value = x[i];
    for (int k = 0; k < 20 * i; ++k)
        value = value * 1664525u + 1013904223u;
    y[i] = value + 3u * x[(SIZE - 1 - i + shift) % SIZE] + 5u * x[SIZE - 1];
}
"""
ALONE = """
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void alone(__global float *x)
{
    __local float kept[4];
    kept[get_local_id(0)] = x[get_global_id(0)];
    barrier(CLK_LOCAL_MEM_FENCE);
    x[get_global_id(0)] = 2.0f * kept[0];
}
"""


@pytest.fixture(scope="module")
def backend() -> Backend:
    return open_backend(choose(discover(), wanted_device(None)).report)


def groups_of(backend: Backend) -> int:
    return max(1, backend.identity.groups_at_once)


def whole(index: int, nbytes: int) -> BufferRef:
    return BufferRef("arena", index, 0, nbytes)


def run_persistently(
    backend: Backend,
    launches: Sequence[LaunchRecord],
    programs: Sequence[ProgramRecord],
    contents: Sequence[np.ndarray],
    times: int = 1,
) -> list[np.ndarray]:
    """What the arenas hold after one persistent kernel has stood for all launches, so many times."""
    groups = groups_of(backend)
    (kernel,) = in_fewer_launches(launches, programs, groups)
    assert isinstance(kernel, Persistent)
    program = backend.build(kernel.source, kernel.options)
    counters = backend.upload(np.zeros(kernel.counter_bytes, np.uint8))
    patient = np.zeros(STATUS_BYTES // 4, np.int32)
    patient[ROUNDS] = (1 << 31) - 1
    status = backend.upload(patient)
    arenas = [backend.upload(content) for content in contents]
    buffers = [arenas[index] for _, index in kernel.buffers]
    bound = backend.bind(program, kernel.entry, (groups,), (1,), [counters, status, *buffers])
    for _ in range(times):
        backend.enqueue(bound)
    backend.finish()
    assert not backend.read(counters).any(), "ready for the next run"
    return [backend.read(arena).view(content.dtype) for arena, content in zip(arenas, contents, strict=True)]


def test_groups_leave_when_one_does_not_come(backend: Backend) -> None:
    """One group is launched where two are waited for, and then both, while the flag is still up."""
    ref = whole(0, 36)
    launches = [LaunchRecord(f"{n}", "", 0, "alone", (9,), (1,), (ref,)) for n in range(3)]
    (kernel,) = in_fewer_launches(launches, [ProgramRecord(b"", ALONE, "")], 2)
    assert isinstance(kernel, Persistent)
    program = backend.build(kernel.source, kernel.options)
    content = np.zeros(STATUS_BYTES // 4, np.int32)
    content[ROUNDS] = 1000
    counters, status = backend.upload(np.zeros(kernel.counter_bytes, np.uint8)), backend.upload(content)
    arena = backend.upload(np.ones(9, np.float32))
    for groups in (1, groups_of(backend)):
        backend.enqueue(backend.bind(program, kernel.entry, (groups,), (1,), [counters, status, arena]))
        backend.finish()
        assert backend.read(status).view(np.int32)[FLAG] == 1
        assert backend.read(arena).view(np.float32).tolist() == [2.0] * 9, "the first launch, and nothing behind it"


def ids(sizes: Iterable[int]) -> list[tuple[int, ...]]:
    """All places of a grid, the first dimension innermost."""
    return [place[::-1] for place in itertools.product(*map(range, reversed(tuple(sizes))))]


@pytest.mark.parametrize(
    ("global_size", "local_size"),
    [((1,), (1,)), ((13,), (1,)), ((97,), (97,)), ((1000,), (8,)), ((5, 6), (1, 3)), ((4, 6, 10), (2, 3, 5)),
     ((1, 1, 31), (1, 1, 1))],
)  # fmt: skip
def test_each_work_item_runs_once_in_its_own_place(
    backend: Backend, global_size: tuple[int, ...], local_size: tuple[int, ...]
) -> None:
    whole_size, group_size = ((*sizes, 1, 1)[:3] for sizes in (global_size, local_size))
    counts = [a // b for a, b in zip(whole_size, group_size, strict=True)]
    number = math.prod(whole_size)
    options = " ".join(f"-DL{axis}={size}" for axis, size in zip("XYZ", group_size, strict=True))
    ref = whole(0, number * 88)
    first = LaunchRecord("a", "", 0, "places", global_size, local_size, (ref, -3))
    second = LaunchRecord("b", "", 0, "places", global_size, local_size, (ref, 10))
    programs = [ProgramRecord(b"", PLACES, options)]
    (written,) = run_persistently(backend, [first, second], programs, [np.zeros(number * 22, np.int32)], times=3)
    for place, row in zip(ids(whole_size), written.reshape(number, 22).tolist(), strict=True):
        item = [at % size for at, size in zip(place, group_size, strict=True)]
        group = [at // size for at, size in zip(place, group_size, strict=True)]
        assert row == [*place, *item, *group, *group_size, *counts, *whole_size, len(global_size), 0, 21, 6]


def test_a_launch_begins_when_all_of_the_one_before_has_ended(backend: Backend) -> None:
    size, steps = 97, 40
    arenas = [whole(0, 4 * size), whole(1, 4 * size)]
    launches = [
        LaunchRecord(f"{n}", "", 0, "mix", (size,), (1,), (arenas[n % 2], arenas[1 - n % 2], n)) for n in range(steps)
    ]
    start = np.random.default_rng(0).integers(0, 1 << 32, size, np.uint32)
    programs = [ProgramRecord(b"", MIX, f"-DSIZE={size}")]
    got, _ = run_persistently(backend, launches, programs, [start, np.zeros_like(start)], times=20)
    places = np.arange(size)
    factor, summand = np.ones(size, np.uint32), np.zeros(size, np.uint32)  # what 20 * i steps make of a value
    for k in range(20 * size):
        more = k < 20 * places
        factor = np.where(more, factor * np.uint32(1664525), factor)
        summand = np.where(more, summand * np.uint32(1664525) + np.uint32(1013904223), summand)
    want = start
    for n in [*range(steps)] * 20:
        want = factor * want + summand + 3 * want[(size - 1 - places + n) % size] + 5 * want[-1:]
    np.testing.assert_array_equal(got, want)


def test_groups_of_one_may_have_local_memory_and_barriers(backend: Backend) -> None:
    launches = [LaunchRecord(f"{n}", "", 0, "alone", (9,), (1,), (whole(0, 36),)) for n in range(3)]
    (got,) = run_persistently(backend, launches, [ProgramRecord(b"", ALONE, "")], [np.ones(9, np.float32)])
    assert got.tolist() == [8.0] * 9


class Compiling(LocalDevice):
    """Which gives binaries, too."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self.own = backend

    def compile_kernels(self, requests: Sequence[CompileKernel], compiled: Callable[[int, Compiled], object]) -> None:
        for place, request in enumerate(requests):
            main = request.variant.main
            assert not main.stages
            launch = Launch(main.source, main.entry, main.options, main.global_size, main.local_size, main.arguments)
            variant = Variant({}, (), launch, dict(request.variant.packed))
            compiled(place, Compiled(compile_variant(self.own, variant, request.buffers).binary, 0, 0))


def contexts(backend: Backend, plan: Plan, path: Path) -> Path:
    limits = device_limits(backend.identity)
    outcomes = {one.key: one for one in (untuned(task, limits) for task in plan.tasks)}
    built = context_builder.build(plan, outcomes, Compiling(backend), lambda *_: None, persistent=True)
    device = backend.identity.to_dict()
    write_context(path, Context((built.graph,), built.programs, built.weights, device, "test", {}, {}))
    return path


def loaded(backend: Backend, path: Path) -> Executor:
    with open_context(path) as file:
        return executor_on(backend, file, None, strict=True)


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return lower(read_model(save(two_blocks(), tmp_path)))


def test_a_context_runs_them_and_profiles_what_they_stand_for(backend: Backend, plan: Plan, tmp_path: Path) -> None:
    if not backend.identity.groups_at_once:
        pytest.skip("this driver does not say that groups run at the same time")
    executor = loaded(backend, contexts(backend, plan, tmp_path / "model.bin"))
    assert not executor.warnings
    assert 0 < len(executor.graph.persistent) < len(executor.graph.launches)
    generator = np.random.default_rng(1)
    for _ in range(3):
        inputs = {t.name: generator.standard_normal(t.shape).astype(t.dtype) for t in executor.graph.inputs}
        (want,) = evaluate(plan, inputs).values()
        (got,) = executor.run(inputs).values()
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * np.abs(want).max())
    assert executor.runs is not None
    assert executor.runs.inferences == executor.runs.persistent + executor.runs.aborted == 3
    _, operations = executor.profile(inputs, 2)
    assert list(operations) == list(dict.fromkeys(launch.operation for launch in executor.graph.launches))


def test_a_profile_needs_the_clock_of_the_device(plan: Plan, tmp_path: Path, backend: Backend) -> None:
    report = choose(discover(), wanted_device(None)).report
    executor = loaded(open_backend(report, profiling=False), contexts(backend, plan, tmp_path / "model.bin"))
    inputs = {t.name: np.ones(t.shape, t.dtype) for t in executor.graph.inputs}
    assert executor.run(inputs)
    with pytest.raises(ValueError, match="load with profiling=True"):
        executor.profile(inputs, 1)


def test_without_a_processor_for_each_group_launches_run_one_by_one(
    backend: Backend, plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if backend.identity.groups_at_once < 2:
        pytest.skip("this driver does not say that groups run at the same time")
    path = contexts(backend, plan, tmp_path / "model.bin")
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0})
    executor = loaded(backend, path)
    (warning,) = executor.warnings
    assert warning.startswith("launches run one by one: the persistent kernel needs ")
    inputs = {t.name: np.ones(t.shape, t.dtype) for t in executor.graph.inputs}
    (want,) = evaluate(plan, inputs).values()
    (got,) = executor.run(inputs).values()
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * np.abs(want).max())


def given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """No group waits for another one, and nothing is learnt from that."""
    monkeypatch.setattr("gputune.runtime.persistent.MOST_ROUNDS", 0)
    monkeypatch.setattr("gputune.runtime.breaker.Breaker.persistent", True)


def clean(executor: Executor) -> bool:
    """Whether counters and flag are as they were at first."""
    backend, memory = executor._backend, executor._memory
    status = backend.read(memory["status"][0]).view(np.int32)
    return not backend.read(memory["counters"][0]).any() and not status[FLAG]


def inputs_of(executor: Executor, seed: int) -> dict[str, np.ndarray]:
    numbers = np.random.default_rng(seed)
    return {t.name: numbers.standard_normal(t.shape).astype(t.dtype) for t in executor.graph.inputs}


@pytest.mark.parametrize("kernels", ["one", "several"])
@pytest.mark.parametrize("in_place", [False, True])
def test_what_is_given_up_is_run_again_by_launches(
    backend: Backend, plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kernels: str, in_place: bool
) -> None:
    if backend.identity.groups_at_once < 2:
        pytest.skip("this driver does not say that groups run at the same time")
    if kernels == "several":
        monkeypatch.setattr("gputune.client.persistent.CHARACTERS_AT_MOST", 21_000)
    executor = loaded(backend, contexts(backend, plan, tmp_path / "model.bin"))
    assert (sum(launch.counts for launch in executor.graph.persistent) > 1) == (kernels == "several")
    given_up(monkeypatch)
    for seed in range(100):
        inputs = inputs_of(executor, seed % 5)
        (want,) = evaluate(plan, inputs).values()
        if in_place:
            for name, array in executor.shared_inputs.items():
                array[...] = inputs[name]
            executor.run_in_place()
            (got,) = executor.shared_outputs.values()
        else:
            (got,) = executor.run(inputs).values()
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * np.abs(want).max())
        assert clean(executor)
    runs = executor.runs
    assert runs is not None
    assert runs.aborted > 50, "two groups seldom arrive at the same moment"
    assert (runs.inferences, runs.launches) == (100, 0)
    assert not executor.warnings
    assert net_run.summarise(executor, [1])["runs"] == dataclasses.asdict(runs)
    assert net_run.mostly_by_launches(executor).startswith(f"{runs.aborted} of 100 inferences ran by launches")


def test_what_is_given_up_runs_from_source_where_the_binary_is_refused(
    backend: Backend, plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if backend.identity.groups_at_once < 2:
        pytest.skip("this driver does not say that groups run at the same time")
    path = contexts(backend, plan, tmp_path / "model.bin")
    context = rewritten(path, lambda graph: graph)
    (graph,) = context.graphs
    first = min({each.program for each in graph.launches} - {each.program for each in graph.persistent})
    programs = list(context.programs)
    programs[first] = dataclasses.replace(programs[first], binary=b"nothing")
    write_context(path, dataclasses.replace(context, programs=programs))
    with open_context(path) as file:
        executor = executor_on(backend, file, None, strict=False)
    assert not executor.warnings
    given_up(monkeypatch)
    inputs = inputs_of(executor, 0)
    (want,) = evaluate(plan, inputs).values()
    for _ in range(20):
        (got,) = executor.run(inputs).values()
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * np.abs(want).max())
    (warning,) = executor.warnings
    assert f"refuses the binary of program {first}" in warning


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
            device=header.device.to_dict(),
            tier=header.tier,
            configuration=header.configuration,
            versions=header.versions,
        )


def test_kernels_of_an_older_context_that_cannot_yield_do_not_run(
    backend: Backend, plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not backend.identity.groups_at_once:
        pytest.skip("this driver does not say that groups run at the same time")

    def older(graph: GraphRecord) -> GraphRecord:
        def without(launch: LaunchRecord) -> LaunchRecord:
            arguments = (a for a in launch.arguments if not (isinstance(a, BufferRef) and a.kind == "status"))
            return dataclasses.replace(launch, arguments=tuple(arguments))

        return dataclasses.replace(graph, persistent=tuple(map(without, graph.persistent)))

    path = contexts(backend, plan, tmp_path / "model.bin")
    context = rewritten(path, older)
    monkeypatch.setattr("gputune.runtime.context_format.FORMAT_VERSION", 1)
    write_context(path, context)
    executor = loaded(backend, path)
    (warning,) = executor.warnings
    assert "an older gputune" in warning
    assert executor.runs is None
    inputs = inputs_of(executor, 0)
    (want,) = evaluate(plan, inputs).values()
    (got,) = executor.run(inputs).values()
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * np.abs(want).max())


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
def test_on_one_core_inferences_soon_run_by_launches(backend: Backend, plan: Plan, tmp_path: Path) -> None:
    if backend.identity.groups_at_once < 2 or len(os.sched_getaffinity(0)) < 2:
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
    assert launches > 200


@pytest.mark.parametrize("wanted", [True, False])
def test_the_generator_makes_them_unless_told_not_to(backend: Backend, tmp_path: Path, wanted: bool) -> None:
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
        assert bool(graph.persistent) == (wanted and backend.identity.groups_at_once > 0)
        assert file.header.configuration["persistent_kernels"] is wanted
