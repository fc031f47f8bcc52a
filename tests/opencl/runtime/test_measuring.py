"""Test measuring on a real device: right variants are ranked; each kind of wrong variant is named and never wins."""

import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyopencl as cl
import pytest

from gputune.core.batches import Profiled
from gputune.core.errors import BuildFailed, LaunchFailed, LimitExceeded
from gputune.core.launches import Launch, Trial, Variant, Work
from gputune.runtime.backends import Backend, Buffer, ProgramCache
from gputune.runtime.backends.answers import Values
from gputune.runtime.backends.opencl import _wait_until_it_runs
from gputune.runtime.measuring import measuring
from gputune.runtime.measuring.launching import compile_variant, execute
from gputune.runtime.measuring.timing import MEASURING_VERSION
from tests.variants import measure_on, numbered

SIZE = 4096
SOURCE = """
__kernel void twice(__global const float *x, __global float *output, const int repeat) {
    const int i = get_global_id(0);
    float sum = 0.0f;
    for (int r = 0; r < repeat; r++)
        sum += 2.0f * x[i] + (float)(i & r & 0);
    output[i] = sum / (float)repeat;
}
__kernel void wrong_at_the_end(__global const float *x, __global float *output) {
    const int i = get_global_id(0);
    output[i] = 2.0f * x[i] + (i == SIZE - 1 ? 1.0f : 0.0f);
}
__kernel void half_written(__global const float *x, __global float *output) {
    const int i = get_global_id(0);
    if (i < SIZE / 2) output[i] = 2.0f * x[i];
}
__kernel void outside(__global const float *x, __global float *output) {
    const int i = get_global_id(0);
    output[i] = 2.0f * x[i];
    if (i == 0) { output[SIZE + 3] = 1.0f; output[-2] = 1.0f; }
}
__kernel void far_outside(__global const float *x, __global float *output) {
    const int i = get_global_id(0);
    output[i] = 2.0f * x[i];
    if (i == 0) { output[SIZE + 900000] = 1.0f; output[-300000] = 1.0f; }
}
__kernel void writes_its_input(__global float *x, __global float *output) {
    const int i = get_global_id(0);
    output[i] = 2.0f * x[i];
    if (i == 7) x[i] = 5.0f;
}
__kernel void writes_past_its_input(__global float *x, __global float *output) {
    const int i = get_global_id(0);
    output[i] = 2.0f * x[i];
    if (i == 7) x[SIZE] = 5.0f;
}
__kernel void reads_past_its_input(__global const float *x, __global float *output) {
    const int i = get_global_id(0);
    output[i] = 2.0f * x[i] + 0.0f * x[i + 1];
}
__kernel void copy_and_clear(__global float *packed, __global float *output) {
    output[get_global_id(0)] = packed[get_global_id(0)];
    packed[get_global_id(0)] = 0.0f;
}
__kernel void double_and_clear(__global float *x, __global float *packed) {
    packed[get_global_id(0)] = 2.0f * x[get_global_id(0)];
    x[get_global_id(0)] = 0.0f;
}
__kernel void doubled(__global const float *x, __global float *packed) {
    packed[get_global_id(0)] = 2.0f * x[get_global_id(0)];
}
__kernel void copy(__global const float *packed, __global float *output) {
    output[get_global_id(0)] = packed[get_global_id(0)];
}
"""
QUICK: dict[str, Any] = {"samples": 5, "sample_ns": 100_000, "warm_up_ns": 1_000_000}
CLOSE: dict[str, Any] = {"relative": 1e-5, "work": Work(SIZE, 8 * SIZE), **QUICK}


@pytest.fixture(scope="module")
def values() -> Values:
    return (np.arange(SIZE) % 16 / 8).astype(np.float32)  # sums of these are exact


def launch(entry: str, *arguments: str | int, local: int = 64, source: str = SOURCE, size: int = SIZE) -> Launch:
    return Launch(source, entry, f"-DSIZE={SIZE}", (size,), (local,), arguments)


def variant(main: Launch, *prepare: Launch, **packed: int) -> Variant:
    return Variant({"local": main.local_size[0]}, prepare, main, packed)


def twice(repeat: int, local: int = 64) -> Variant:
    return variant(launch("twice", "x", "output", repeat, local=local))


def run(programs: ProgramCache, values: Values, *variants: Variant, **fields: Any) -> Profiled:
    backend = programs.backend
    buffers: dict[str, Buffer] = {"x": backend.upload(values)}
    reference = backend.upload(2 * values)
    return measure_on(programs, numbered(variants), buffers, reference, **CLOSE | fields)


def only(measured: Profiled) -> Trial:
    assert len(measured.trials) == 1
    assert measured.best is None and measured.binary == b""
    return measured.trials[0]


@pytest.mark.parametrize("compiled_for", [64, 32])
def test_a_driver_that_says_less_than_a_kernel_was_compiled_for_is_not_believed(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, compiled_for: int
) -> None:
    """As NVIDIA's does, which answers 256 for kernels of 1024 work-items and runs them."""
    info = cl.kernel_work_group_info
    query = cl.Kernel.get_work_group_info

    def answered(kernel: cl.Kernel, what: int, device: cl.Device) -> Any:
        return 16 if what == info.WORK_GROUP_SIZE else query(kernel, what, device)

    monkeypatch.setattr(cl.Kernel, "get_work_group_info", answered)
    source = f"""__kernel __attribute__((reqd_work_group_size({compiled_for}, 1, 1)))
                 void fill(__global int *x) {{ x[get_global_id(0)] = get_local_size(0); }}"""
    output = backend.allocate(256)
    arguments = backend.build(source, ""), "fill", (64,), (64,), [output]
    if compiled_for < 64:
        with pytest.raises(LimitExceeded, match="work-group of 64 work-items, kernel 'fill' allows 32 here"):
            backend.bind(*arguments)
        return
    backend.enqueue(backend.bind(*arguments))
    backend.finish()
    assert (backend.read(output).view(np.int32) == 64).all()


def test_the_fastest_right_variant_wins_and_samples_say_how_they_were_taken(
    programs: ProgramCache, values: Values
) -> None:
    measured = run(programs, values, twice(20), twice(1), twice(100))
    assert [trial.status for trial in measured.trials] == ["ok", "ok", "ok"], measured.trials
    assert measured.best == 1
    assert len(measured.binary) > 0
    for trial in measured.trials:
        assert len(trial.samples_ns) == len(trial.wall_ns) == trial.measured["samples"]
        assert all(0 < event <= wall for event, wall in zip(trial.samples_ns, trial.wall_ns, strict=True))
        assert trial.compile_ns > 0 and trial.first_launch_ns > 0
    first, best = measured.trials[0], measured.trials[1]
    assert len(first.samples_ns) == 5  # the first variant gets all samples unless it is 20 times slower
    assert len(best.samples_ns) == 5
    assert best.measured["launches_per_sample"] * best.median_ns >= 100_000 * 0.5
    assert (best.measured["timing"], best.measured["protocol"]) == ("event", MEASURING_VERSION)


def test_a_variant_much_slower_than_the_best_gets_few_samples(programs: ProgramCache, values: Values) -> None:
    measured = run(programs, values, twice(1), twice(20_000))
    assert measured.best == 0
    assert len(measured.trials[1].samples_ns) in (1, 3)  # three where the clock was not stable
    assert measured.trials[1].measured["stopped"] == "slower"


@pytest.mark.parametrize(
    ("planted", "status", "words"),
    [
        (variant(launch("wrong_at_the_end", "x", "output")), "correctness", ["1 of 4096", "first at 4095", "error 1"]),
        (variant(launch("half_written", "x", "output")), "correctness", ["2048 were never written"]),
        (variant(launch("outside", "x", "output")), "correctness", ["4 bytes before", "4 bytes after", "distance 12"]),
        (
            variant(launch("far_outside", "x", "output")),
            "correctness",
            ["4 bytes before the buffer, the last one at distance 1199996", "at distance 3600000"],
        ),
        (
            variant(launch("writes_its_input", "x", "output")),
            "correctness",
            ["'x': wrote to a buffer", "only to be read"],
        ),
        (
            variant(launch("writes_past_its_input", "x", "output")),
            "correctness",
            ["'x': wrote outside", "4 bytes after"],
        ),
        (variant(launch("reads_past_its_input", "x", "output")), "correctness", ["1 of 4096", "at 4095: nan"]),
        (
            variant(launch("copy_and_clear", "p", "output"), launch("doubled", "x", "p"), p=4 * SIZE),
            "correctness",
            ["'p': wrote to a buffer"],
        ),
        (
            variant(launch("copy", "p", "output"), launch("double_and_clear", "x", "p"), p=4 * SIZE),
            "correctness",
            ["preparing 'x': wrote to a buffer"],
        ),
        (variant(launch("copy", "x", "output", source="not C")), "compile", ["error"]),
        (variant(launch("absent", "x", "output")), "compile", ["'absent'"]),
        (variant(launch("twice", "x", "output", 1, local=100)), "constraints", ["(100,) does not divide"]),
        (variant(launch("twice", "x", "output", 1, local=1 << 20, size=1 << 20)), "device_limits", ["work-group of"]),
        (variant(launch("twice", "x", "output")), "runtime", ["takes 3 arguments, 2 are given"]),
        (variant(launch("twice", "x", "nowhere", 1)), "runtime", ["'nowhere'"]),
        (variant(launch("copy", "p", "output"), p=1 << 60), "device_limits", ["largest allocation"]),
        (
            variant(launch("copy", "p", "output"), launch("outside", "x", "p"), p=4 * SIZE),
            "correctness",
            ["preparing 'p'", "outside its buffer"],
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_planted_failure_keeps_its_name_and_never_wins(
    programs: ProgramCache, values: Values, planted: Variant, status: str, words: list[str]
) -> None:
    alone = only(run(programs, values, planted))
    assert alone.status == status, alone
    for word in words:
        assert word in alone.message
    assert alone.samples_ns == ()
    beside = run(programs, values, planted, twice(1))
    assert [trial.status for trial in beside.trials] == [status, "ok"]
    assert beside.best == 1


def test_packed_buffers_are_prepared_once_and_shared(programs: ProgramCache, values: Values) -> None:
    prepare = launch("doubled", "x", "p")
    variants = [variant(launch("copy", "p", "output", local=n), prepare, p=4 * SIZE) for n in (16, 32)]
    measured = run(programs, values, *variants)
    assert [trial.status for trial in measured.trials] == ["ok", "ok"], measured.trials


def test_damage_to_shared_buffers_does_not_fail_the_neighbours(programs: ProgramCache, values: Values) -> None:
    prepare = launch("doubled", "x", "p")
    mains = (
        launch("copy", "p", "output"),
        launch("copy_and_clear", "p", "output"),
        launch("copy", "p", "output", local=8),
    )
    measured = run(programs, values, *(variant(main, prepare, p=4 * SIZE) for main in mains))
    assert [trial.status for trial in measured.trials] == ["ok", "correctness", "ok"], measured.trials
    assert measured.best in (0, 2)


def test_racing_a_variant_again_builds_nothing(programs: ProgramCache, values: Values) -> None:
    variants = [twice(1, local=8), twice(2, local=8)]
    assert all(trial.compile_ns > 0 for trial in run(programs, values, *variants).trials)
    assert [trial.compile_ns for trial in run(programs, values, *variants).trials] == [0, 0]


def test_a_compiled_binary_runs_elsewhere_without_its_source(
    backend: Backend, programs: ProgramCache, values: Values
) -> None:
    compiled = compile_variant(programs, twice(1), {"x": 4 * SIZE, "output": 4 * SIZE})
    assert compiled.compile_ns >= 0 and compiled.first_launch_ns > 0
    program = backend.load_binary(bytes(compiled.binary))
    x, output = backend.upload(values), backend.allocate(4 * SIZE)
    backend.enqueue(backend.bind(program, "twice", (SIZE,), (64,), [x, output, 1]))
    backend.finish()
    assert np.array_equal(backend.read(output).view(np.float32), 2 * values)
    with pytest.raises(BuildFailed):
        backend.load_binary(b"no binary")


def test_a_first_launch_starts_when_its_code_is_there(backend: Backend) -> None:
    x, output = backend.upload(np.ones(SIZE, np.float32)), backend.allocate(4 * SIZE)
    program = backend.build(SOURCE, f"-DSIZE={SIZE} -DFRESH")
    bound = backend.bind(program, "doubled", (SIZE,), (64,), [x, output])
    started: list[int] = []
    begin = time.perf_counter_ns()
    first = backend.first_launch(bound, lambda: started.append(time.perf_counter_ns()))
    end = time.perf_counter_ns()
    if backend.identity.device_type == "cpu":  # PoCL generates the code when the launch is in its queue
        assert started[0] - begin > end - started[0]
    assert len(started) == first.launches == 1 and 0 < first.event_ns <= first.wall_ns <= end - begin
    assert np.array_equal(backend.read(output).view(np.float32), np.full(SIZE, 2, np.float32))


def test_timestamps_are_in_order_and_none_is_before_what_ran_in_front_of_it(backend: Backend) -> None:
    x, output = backend.upload(np.ones(SIZE, np.float32)), backend.allocate(4 * SIZE)
    program = backend.build(SOURCE, f"-DSIZE={SIZE}")
    bounds = [backend.bind(program, "twice", (SIZE,), (64,), [x, output, repeat]) for repeat in (1, 5_000)]
    bounds[1].before = (bounds[0],)
    clock = backend.enqueue_timed(bounds)
    backend.finish()
    short, long = clock().tolist()
    for queued_ns, submitted_ns, started_ns, ended_ns in (short, long):
        assert queued_ns <= submitted_ns <= started_ns < ended_ns
    assert short[0] <= long[0] and short[3] <= long[2]
    assert long[3] - long[2] > short[3] - short[2] > 0


def test_a_launch_that_the_driver_gives_up_fails_at_once() -> None:
    event = SimpleNamespace(command_execution_status=-5)
    with pytest.raises(LaunchFailed, match="status -5"):
        _wait_until_it_runs(event)  # type: ignore[arg-type]


def test_the_baseline_is_measured_beside_the_variants(backend: Backend, programs: ProgramCache, values: Values) -> None:
    buffers: dict[str, Buffer] = {"x": backend.upload(values)}
    reference = backend.upload(2 * values)
    variants, baseline = numbered([twice(50), twice(1)]), replace(twice(20), number=2)
    measured = measure_on(programs, variants, buffers, reference, baseline=baseline, **CLOSE)
    assert measured.best == 1 and measured.baseline is not None
    assert len(measured.baseline.samples_ns) == QUICK["samples"]
    assert measured.baseline.median_ns < measured.trials[0].median_ns
    again = measure_on(programs, variants, buffers, reference, baseline=baseline, **CLOSE)
    assert again.baseline is not None and again.baseline.compile_ns == 0
    assert measured.spent_ns["build"] > measured.spent_ns["measure"] > 0


def test_execute_chains_launches_through_its_outputs(backend: Backend, programs: ProgramCache, values: Values) -> None:
    launches = [launch("doubled", "x", "between"), launch("doubled", "between", "result")]
    buffers, outputs = {"x": backend.upload(values)}, {"between": 4 * SIZE, "result": 4 * SIZE}
    got = execute(programs, launches, buffers, outputs)
    assert np.array_equal(got["result"].view(np.float32), 4 * values)
    assert np.array_equal(got["between"].view(np.float32), 2 * values)


def test_one_allocation_is_bounded_by_the_device(backend: Backend) -> None:
    limit = backend.identity.max_allocation_bytes
    with pytest.raises(LimitExceeded, match=str(limit)):
        backend.allocate(limit + 1)


@pytest.mark.parametrize("least", [4 * SIZE, 4 * SIZE + 1])
@pytest.mark.parametrize(
    ("kind", "cached", "evicting"),
    [("cpu", 0, 8 << 20), ("gpu", 6 << 20, 12 << 20), ("gpu", 4 * SIZE - 1, 0), ("gpu", 0, 0)],
)
def test_other_data_pass_between_launches_where_the_baseline_packs_many_weights(
    programs: ProgramCache, values: Values, monkeypatch: pytest.MonkeyPatch,
    least: int, kind: str, cached: int, evicting: int,
) -> None:  # fmt: skip
    """A CPU of two units, and other devices whose last cache holds as much, too little or nobody knows what."""
    monkeypatch.setattr(measuring, "MANY_WEIGHT_BYTES", least)
    backend = programs.backend
    monkeypatch.setattr(backend, "identity", replace(backend.identity, device_type=kind, compute_units=2))
    monkeypatch.setattr(type(backend), "cache_bytes", cached)
    variants = numbered(
        [variant(launch("copy", "packed", "output"), launch("doubled", "x", "packed"), packed=4 * SIZE)]
    )
    buffers, reference = {"x": backend.upload(values)}, backend.upload(2 * values)
    trial = measure_on(programs, variants, buffers, reference, baseline=variants[0], **CLOSE).trials[0]
    expected = evicting if least <= 4 * SIZE else 0
    assert (trial.status, trial.measured["cold"]) == ("ok", False)
    assert trial.measured["evict_bytes"] == expected
    assert not expected or trial.measured["launches_per_sample"] <= 16


def test_cold_samples_are_taken_by_the_devices_clock(programs: ProgramCache, values: Values) -> None:
    trial = run(programs, values, twice(3), cold=True).trials[0]
    assert (trial.status, trial.measured["cold"], trial.measured["timing"]) == ("ok", True, "event")
    assert 1 <= trial.measured["launches_per_sample"] <= 16


PART = """
__kernel void part(__global const TYPE *x, __global TYPE *output, const int count) {
    const int i = get_global_id(0);
    if (i < count) output[i] = x[i];
}
"""


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64", "bool"])
def test_a_whole_number_that_is_not_written_is_wrong_whatever_it_should_be(programs: ProgramCache, dtype: str) -> None:
    """Also if it should be the pattern with which outputs are filled."""
    ctype = {"uint8": "uchar", "bool": "uchar", "int8": "char", "int16": "short", "int32": "int", "int64": "long"}[
        dtype
    ]
    values = np.full(64, 0xFF if dtype == "uint8" else -1).astype(dtype)
    buffer = programs.backend.upload(values)
    variants = [
        Variant({"count": count}, (), Launch(PART, "part", f"-DTYPE={ctype}", (64,), (64,), ("x", "output", count)), {})
        for count in (64, 63)
    ]
    right, wrong = measure_on(programs, numbered(variants), {"x": buffer}, buffer, dtype=dtype, **QUICK).trials
    assert (right.status, wrong.status) == ("ok", "correctness"), wrong
    assert (
        f"1 of 64 elements are wrong, first at 63: {'254' if dtype == 'bool' else int(~values[63])} in" in wrong.message
    )
