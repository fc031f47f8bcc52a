"""Test recorded queues on a real device: the bits of launches, other memory, failures and forks."""

import gc
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from gputune.core.quirks import OTHER
from gputune.runtime.backends import Backend, Bound, Buffer
from gputune.runtime.execution.executor import PythonExecutor
from gputune.runtime.execution.recorded import MOST_COMPARED, MOST_KNOWN, TURNS, RecordedRuns
from gputune.runtime.memory.handles import MemHandle
from gputune.runtime.memory.opencl_calls import CallFailed
from gputune.runtime.queues import choice
from gputune.runtime.queues.recorded import RecordedQueue, Recording
from tests.opencl.contexts import contexts, inputs_of, opened, plan
from tests.opencl.runtime import made

__all__ = ["plan"]
Array = npt.NDArray[Any]
ELEMENTS, NBYTES = 1 << 12, 1 << 14
UNCOUNTED = 3
"""Inferences by launches while the memory is new, once with a recording that is new."""


@pytest.fixture
def queue(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> RecordedQueue:
    """That of the device, whatever its driver leaks."""
    monkeypatch.setattr(choice, "quirks_of", lambda identity: OTHER)
    found = backend.recorded_queue()
    if isinstance(found, str):
        pytest.skip(found)
    return found


@pytest.fixture
def executor(queue: RecordedQueue, backend: Backend, tmp_path: Path) -> Iterator[PythonExecutor]:
    with opened(made.write(tmp_path / "made.bin", backend, ELEMENTS, NBYTES), backend, binaries=True) as executor:
        yield executor


def recorded_runs(executor: PythonExecutor, decided: bool | None = True) -> RecordedRuns:
    """Those of an executor, which are decided."""
    found = executor._recorded
    assert found is not None
    found.decided = decided
    return found


def queue_rebinds(executor: PythonExecutor) -> bool:
    """Whether memory need not be known before it is recorded."""
    return recorded_runs(executor, executor._recorded.decided if executor._recorded else None)._queue.rebinds


def kept(runs: RecordedRuns) -> int:
    """How many recordings there are."""
    return sum(each is not None for each in {runs._current, *runs._known.values()})


def numbers(seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal(ELEMENTS).astype(np.float32)


def chain(backend: Backend, buffer: Buffer, count: int) -> list[Bound]:
    """Launches that each use what the one before made."""
    source = "__kernel void chained(__global int *a, int n) { const int i = get_global_id(0); a[i] = 3 * a[i] + n; }"
    program = backend.build(source, "")
    return [backend.bind(program, "chained", (64,), (8,), [buffer, number]) for number in range(count)]


def test_replays_keep_the_order_and_the_bits_of_launches(backend: Backend, queue: RecordedQueue) -> None:
    buffer, other = backend.allocate(256), backend.allocate(256)
    bounds = chain(backend, buffer, 50)
    start = backend.in_order(bounds)
    backend.fill(buffer, 1)
    for _ in range(3):
        start()
    wanted = backend.read(buffer)
    with queue.record(bounds) as recording:
        backend.fill(buffer, 1)
        for _ in range(3):
            recording.replay()
        np.testing.assert_array_equal(backend.read(buffer), wanted)
        if queue.rebinds:
            for bound in bounds:
                backend.set_buffer(bound, 0, other)
            recording.rebind([(bound, 0) for bound in bounds])
            backend.fill(other, 1)
            for _ in range(3):
                recording.replay()
            np.testing.assert_array_equal(backend.read(other), wanted)
            np.testing.assert_array_equal(backend.read(buffer), wanted)
            assert recording.uses(other) and not recording.uses(buffer)


@pytest.mark.parametrize("persistent", [False, True])
def test_a_network_gives_the_bits_of_launches(
    queue: RecordedQueue, backend: Backend, plan: Any, tmp_path: Path, persistent: bool
) -> None:
    with opened(contexts(backend, plan, tmp_path / "model.bin"), backend, binaries=True) as executor:
        executor.persistent_kernels = persistent and executor.graph.persistent != ()
        by_persistent = executor._persistent if executor.persistent_kernels else None
        if by_persistent is not None:
            by_persistent._breaker.closed, by_persistent._breaker._wait = False, 1000
        executor.one_by_one()
        runs = recorded_runs(executor, False)
        wanted = [executor.run(inputs_of(executor, seed)) for seed in range(2)]
        assert executor.runs is None or executor.runs.launches == 2
        runs.decided = True
        for _ in range(2):
            for seed, want in enumerate(wanted):
                for name, got in executor.run(inputs_of(executor, seed)).items():
                    np.testing.assert_array_equal(got, want[name])
        assert executor.last_form == "recorded"
        assert executor.runs is not None and executor.runs.recorded == (4 if queue.rebinds else 3)
        assert executor.runs.inferences == 6 and executor.runs.persistent == 0


@pytest.mark.parametrize(
    ("recorded_ns", "slow", "wins"),
    [(969, 0, True), (969, 2, True), (969, 3, False), (971, 0, False), (1031, 0, False)],
)
def test_the_first_inferences_decide(
    executor: PythonExecutor, monkeypatch: pytest.MonkeyPatch, recorded_ns: int, slow: int, wins: bool
) -> None:
    """slow: turns in which the recorded queue is slower than launches."""
    runs = recorded_runs(executor, None)
    moments = itertools.count()

    def taken_ns() -> int:
        if runs.last_form == "launches":
            return 1000
        return 2000 if runs.runs.recorded <= 1 + slow else recorded_ns  # the first does not count

    clock = SimpleNamespace(perf_counter_ns=lambda: next(moments) % 2 * taken_ns())
    monkeypatch.setattr("gputune.runtime.execution.recorded.time", clock)
    count = 0
    while runs.decided is None:
        np.testing.assert_array_equal(executor.run({"x": numbers(count)})["y"], made.expected(numbers(count)))
        count += 1
    assert count == 2 * TURNS + UNCOUNTED - queue_rebinds(executor)
    assert runs.decided == wins
    executor.run({"x": numbers(1)})
    assert executor.last_form == ("recorded" if wins else "launches")
    assert kept(runs) == wins


@pytest.mark.usefixtures("queue")
@pytest.mark.parametrize(
    ("configuration", "recorded"),
    [
        ({}, True),
        ({"graphs": {"made": {"queue_recording": True}}}, True),
        ({"graphs": {"made": {"fusion": True}}}, True),
        ({"graphs": {"other": {"queue_recording": False}}}, True),
        ({"graphs": {"made": {"queue_recording": False}}}, False),
        ({"graphs": ["made"]}, True),
    ],
)
def test_a_context_may_forbid_it(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, configuration: dict[str, Any], recorded: bool
) -> None:
    monkeypatch.setattr(made, "CONFIGURATION", made.CONFIGURATION | configuration)
    with opened(made.write(tmp_path / "made.bin", backend, ELEMENTS, NBYTES), backend, binaries=True) as executor:
        assert (executor._recorded is not None) == recorded


def test_memory_that_is_used_in_turns_is_recorded_and_new_memory_is_not(
    executor: PythonExecutor, queue: RecordedQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_of: list[Recording] = []
    record = type(queue).record

    def noted(*arguments: Any) -> Recording:
        made_of.append(record(*arguments))
        return made_of[-1]

    monkeypatch.setattr(type(queue), "record", noted)
    runs = recorded_runs(executor)
    handles = [executor.allocate_for(executor.graph.inputs[0]) for _ in range(MOST_KNOWN + 2)]

    def infer(handle: MemHandle, seed: int) -> str:
        handle.view("float32", (ELEMENTS,))[...] = numbers(seed)
        np.testing.assert_array_equal(executor.run({"x": handle})["y"], made.expected(numbers(seed)))
        return executor.last_form

    forms = [infer(handle, seed) for seed, handle in enumerate(handles)]
    if queue.rebinds:
        assert forms == len(handles) * ["recorded"] and len(made_of) == 1
    else:
        assert forms == len(handles) * ["launches"] and not made_of
    for seed in range(6):
        infer(handles[seed % 2], seed)
    assert runs.last_form == "recorded"
    assert len(made_of) == (1 if queue.rebinds else 2)
    del made_of[:]
    for handle in handles:
        executor.release(handle)
        handle.close()  # which no recording holds
    assert kept(runs) == 0
    for _ in range(3):
        np.testing.assert_array_equal(executor.run({"x": numbers(9)})["y"], made.expected(numbers(9)))
    assert executor.last_form == "recorded"


def test_memory_that_is_always_new_runs_by_launches(executor: PythonExecutor, queue: RecordedQueue) -> None:
    if queue.rebinds:
        pytest.skip("arguments can be changed here")
    runs = recorded_runs(executor, None)
    for seed in range(MOST_COMPARED):
        with executor.allocate_for(executor.graph.outputs[0]) as y:
            np.testing.assert_array_equal(
                executor.run({"x": numbers(seed)}, {"y": y})["y"], made.expected(numbers(seed))
            )
            executor.release(y)
    assert runs.decided is False


@pytest.mark.parametrize("failing", ["record", "replay"])
def test_a_failure_is_told_once_and_launches_run(
    executor: PythonExecutor, queue: RecordedQueue, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    def fail(*_: object) -> None:
        raise CallFailed("clSomething failed: CL_OUT_OF_RESOURCES")

    with queue.record(executor.one_by_one()) as recording:
        monkeypatch.setattr(type(queue) if failing == "record" else type(recording), failing, fail)
    recorded_runs(executor)
    with pytest.warns(UserWarning, match="one by one and not as a recorded queue: clSomething failed"):
        for seed in range(4):
            np.testing.assert_array_equal(executor.run({"x": numbers(seed)})["y"], made.expected(numbers(seed)))
    assert sum("recorded queue" in text for text in executor.warnings) == 1
    assert executor.last_form == "launches"


def test_what_is_recorded_is_given_back_before_its_memory(executor: PythonExecutor, backend: Backend) -> None:
    runs = recorded_runs(executor)
    held = backend.allocated_bytes
    for seed in range(4):
        executor.run({"x": numbers(seed)})
    assert executor.last_form == "recorded"
    assert kept(runs) == 1
    executor.close()
    assert kept(runs) == 0
    del runs
    gc.collect()
    assert backend.allocated_bytes < held


def test_a_fork_gives_nothing_back(executor: PythonExecutor) -> None:
    recorded_runs(executor)
    for seed in range(4):
        executor.run({"x": numbers(seed)})
    child = os.fork()
    if not child:
        gc.collect()
        executor._recorded = None
        gc.collect()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    np.testing.assert_array_equal(executor.run({"x": numbers(7)})["y"], made.expected(numbers(7)))
    assert executor.last_form == "recorded"
