"""Persistent kernels on a real device: each work-item runs once, in its own place, and launches keep their order.

With one group they run on any device; with as many as run at the same time where the driver is known to let them.
"""

import itertools
import json
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import pytest

from gputune.client import context_builder
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
from gputune.runtime.context_records import ROUNDS, STATUS_BYTES, BufferRef, Context, LaunchRecord, ProgramRecord
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
