"""Test the null device that waits: its times pass, and its clock differs from the host's."""

import time
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

import gputune.runtime
from gputune.core.launches import Work
from gputune.runtime.backends import Backend, Bound, open_backend
from gputune.runtime.backends.waiting import COPIED_BYTES_PER_NS, WaitingNullBackend
from gputune.runtime.devices.discovery import NULL_REPORT, WAITING, WAITING_REPORT, DeviceReport, find
from gputune.runtime.profiling.clocks import Times
from gputune.runtime.profiling.log import read_log_of
from gputune.runtime.profiling.profiler import Profiler

LAUNCHES = 30
READINGS = 40_000
CALL_NS = 1_000
"""How long a call takes by a clock of the host's that no machine disturbs."""


def waiting(zero_ns: int = 0, drift_ppb: int = 0) -> WaitingNullBackend:
    assert WAITING_REPORT.identity is not None
    return WaitingNullBackend(WAITING_REPORT.identity, zero_ns, drift_ppb)


def launch(backend: Backend, nbytes: int = 1_000_000) -> Bound:
    buffers = [backend.allocate(64)]
    return backend.bind(backend.build("source", ""), "f", (8,), (4,), buffers, Work(flops=0, bytes=nbytes))


def test_what_is_enqueued_takes_the_time_of_the_model() -> None:
    backend, null = open_backend(WAITING_REPORT), open_backend(NULL_REPORT)
    model_ns = null.time(launch(null), 1).event_ns
    bound = launch(backend)
    begun_ns = time.perf_counter_ns()
    for _ in range(LAUNCHES):
        backend.enqueue(bound)
    backend.finish()
    assert time.perf_counter_ns() - begun_ns >= LAUNCHES * model_ns
    timing = backend.time(bound, 3)
    assert (timing.event_ns, timing.launch_ns) == (3 * model_ns, model_ns) and timing.wall_ns >= 3 * model_ns
    begun_ns, starts = time.perf_counter_ns(), []
    backend.enqueue(bound)
    first = backend.first_launch(bound, lambda: starts.append(time.perf_counter_ns()))
    assert starts[0] - begun_ns >= model_ns == first.event_ns and time.perf_counter_ns() - begun_ns >= 2 * model_ns


def test_copies_take_their_turn_and_their_time() -> None:
    backend = open_backend(WAITING_REPORT)
    data = np.arange(1 << 20, dtype=np.uint8)
    copy_ns = int(data.nbytes / COPIED_BYTES_PER_NS)
    buffer, bound = backend.allocate(data.nbytes), launch(backend)
    launch_ns = backend.time(bound, 1).event_ns
    begun_ns = time.perf_counter_ns()
    backend.enqueue(bound)
    backend.write(buffer, data)
    assert time.perf_counter_ns() - begun_ns >= launch_ns + copy_ns
    begun_ns = time.perf_counter_ns()
    backend.write(buffer, data)
    backend.fill(buffer, 7)
    assert (backend.read(buffer) == 7).all()
    assert time.perf_counter_ns() - begun_ns >= 3 * copy_ns


def enqueued(backend: Backend, bound: Bound) -> tuple[Times, Times, int]:
    """Timestamps of launches, rows of the host's times around each call, and when all was finished."""
    calls, clocks = [], []
    for _ in range(LAUNCHES):
        begun_ns = time.perf_counter_ns()
        clocks.append(backend.enqueue_timed([bound]))
        calls.append((begun_ns, time.perf_counter_ns()))
    backend.finish()
    finished_ns = time.perf_counter_ns()
    return np.concatenate([clock() for clock in clocks]), np.array(calls), finished_ns


@pytest.mark.parametrize(("zero_ns", "drift_ppb"), [(0, 0), (1 << 60, 200_000), (5, -200_000)])
def test_launches_lie_where_the_host_has_seen_them(zero_ns: int, drift_ppb: int) -> None:
    backend = waiting(zero_ns, drift_ppb)
    bound = launch(backend)
    took_ns = open_backend(WAITING_REPORT).time(bound, 1).event_ns
    times, calls, finished_ns = enqueued(backend, bound)
    assert (np.diff(times, axis=1) >= 0).all() and (times[:-1, 3] <= times[1:, 2]).all()
    assert (np.abs(times[:, 3] - times[:, 2] - took_ns) <= 1 + took_ns * 200_000 // 10**9).all()
    true = times - (times - times[0, 0]) * drift_ppb // 10**9  # but for where it began
    begun, ended = calls[:, 0] - true[:, 0], calls[:, 1] - true[:, 0]
    assert begun.max() <= min(ended.min(), finished_ns - true[-1, 3]) + 2, "one beginning fits all calls"


def test_queues_run_side_by_side() -> None:
    one = waiting()
    other, bound = one.another_queue(), launch(one, 20_000_000)
    first, second, third = (queue.enqueue_timed([bound]) for queue in (one, other, one))
    one.finish()
    other.finish()
    assert second()[0, 2] == second()[0, 1] and first()[0, 3] <= third()[0, 2]


def test_it_is_asked_for_by_its_name() -> None:
    choice = find(WAITING)
    assert choice.report == WAITING_REPORT and choice.report.simulated
    assert "outputs are not computed" in choice.explanation[0]
    assert DeviceReport.from_dict(WAITING_REPORT.to_dict()).backend == WAITING


def test_contexts_of_the_null_device_run_on_it(context_path: Path) -> None:
    inputs = {"x": np.ones((2, 4), np.float32)}
    log = BytesIO()
    with gputune.runtime.load(context_path, WAITING) as executor, Profiler(log, "qhas") as profiler:
        assert (executor.device.name, executor.computes) == (WAITING, False)
        profiler.watch(executor)
        outputs, elapsed_ns = executor.run_timed(inputs)
        assert not outputs["y"].any()
    (inference,) = read_log_of(BytesIO(log.getvalue()), "the log").inferences
    assert inference.elapsed_ns == elapsed_ns >= inference.took_ns().sum() > 0
    times = inference.launches_ns()
    assert inference.clock is not None
    assert inference.begun_ns - inference.clock.bound_ns <= times.min() < times.max() <= inference.ended_ns
