"""Compare the device's clock with the host's, as far as a driver allows it to be read."""

import time

import numpy as np
import pytest

from gputune.runtime.backends import Backend
from gputune.runtime.profiling.clocks import fit, timer_constraints

SOURCE = "__kernel void f(__global float *x) { x[get_global_id(0)] += 1; }"


def test_launches_lie_between_the_calls_that_the_host_has_stamped(backend: Backend) -> None:
    bound = backend.bind(backend.build(SOURCE, ""), "f", (64,), (8,), [backend.allocate(256)])
    backend.time(bound, 1)
    calls, clocks = [], []
    for _ in range(20):
        begun_ns = time.perf_counter_ns()
        clocks.append(backend.enqueue_timed([bound]))
        calls.append((begun_ns, time.perf_counter_ns()))
    backend.finish()
    finished_ns = time.perf_counter_ns()
    times = np.concatenate([clock() for clock in clocks])
    queued, ended = times[:, 0].tolist(), times[:, 3].tolist()
    before = np.array([(device, begun) for device, (begun, _) in zip(queued, calls, strict=True)])
    after = [(device, enqueued) for device, (_, enqueued) in zip(queued, calls, strict=True)]
    line = fit(before, np.array(after + [(device, finished_ns) for device in ended]))
    for queued_ns, ended_ns, (begun_ns, _) in zip(queued, ended, calls, strict=True):
        assert begun_ns - line.bound_ns <= line.to_host(queued_ns)
        assert line.to_host(ended_ns) <= finished_ns + line.bound_ns


def test_a_clock_that_can_be_read_is_that_of_the_launches(backend: Backend) -> None:
    if backend.device_now_ns() is None:
        assert backend.device_now_ns() is None
        pytest.skip(f"{backend.identity.platform} does not let its clock be read")
    bound = backend.bind(backend.build(SOURCE, ""), "f", (64,), (8,), [backend.allocate(256)])
    begun_ns = backend.device_now_ns()
    clock = backend.enqueue_timed([bound])
    backend.finish()
    ended_ns = backend.device_now_ns()
    assert begun_ns is not None and ended_ns is not None
    assert begun_ns <= clock()[0, 0] <= clock()[0, 3] <= ended_ns
    reads = [(time.perf_counter_ns(), backend.device_now_ns() or 0, time.perf_counter_ns()) for _ in range(10)]
    line = fit(*timer_constraints(np.array(reads)))
    assert all(front - line.bound_ns <= line.to_host(now) <= behind + line.bound_ns for front, now, behind in reads)
