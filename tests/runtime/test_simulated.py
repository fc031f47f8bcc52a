"""Test that devices which compute nothing take, refuse and count what other devices do, and give zeros."""

import dataclasses
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gputune.core.errors import CannotMark, ContextClosed, DeviceError, LimitExceeded, WrongDevice
from gputune.runtime import Executor, MemHandle
from gputune.runtime.backends import open_backend
from gputune.runtime.backends.null import NullBackend, time_ns
from gputune.runtime.context.format import open_context, write_context
from gputune.runtime.context.records import Context, TensorRecord
from gputune.runtime.devices.discovery import NULL_REPORT
from gputune.runtime.execution.executor import PythonExecutor
from gputune.runtime.loading.executors import make_executor
from gputune.runtime.simulated import SimulatedExecutor
from tests.runtime.inside import inside

X = np.arange(8, dtype=np.float32).reshape(2, 4)
Use = Callable[[Executor, MemHandle, MemHandle], Any]


def in_turn(*uses: Use) -> Use:
    def use(executor: Executor, a: MemHandle, b: MemHandle) -> Any:
        return [each(executor, a, b) for each in uses][-1]

    return use


def register_both(executor: Executor, a: MemHandle, b: MemHandle) -> None:
    executor.register("x", a)
    executor.register("y", b)


USES: dict[str, Use] = {
    "arrays": lambda e, a, b: e.run({"x": X}),
    "twice": in_turn(lambda e, a, b: e.run({"x": X}), lambda e, a, b: e.run({"x": X})),
    "a strided array": lambda e, a, b: e.run({"x": np.ones((2, 8), np.float32)[:, ::2]}),
    "an array for the output": lambda e, a, b: e.run({"x": X}, {"y": np.ones(8, np.float32)}),
    "an empty array for no input": lambda e, a, b: e.run({"x": X, "z": X[:0]}),
    "handles": lambda e, a, b: e.run({"x": a}, {"y": b}),
    "a handle and an array": lambda e, a, b: e.run({"x": a}),
    "registered handles": in_turn(register_both, lambda e, a, b: e.run()),
    "in place": in_turn(register_both, lambda e, a, b: e.run_in_place() > 0),
    "given beside what is registered": in_turn(register_both, lambda e, a, b: e.run({"x": X})),
    "no more registered": in_turn(register_both, lambda e, a, b: e.unregister("x"), lambda e, a, b: e.run({"x": X})),
    "nothing": lambda e, a, b: e.run(),
    "an unknown input": lambda e, a, b: e.run({"x": X, "z": X}),
    "an unknown output": lambda e, a, b: e.run({"x": X}, {"z": X}),
    "another shape": lambda e, a, b: e.run({"x": X.T}),
    "another type": lambda e, a, b: e.run({"x": X.astype(np.float64)}),
    "another order of bytes": lambda e, a, b: e.run({"x": X.astype(">f4")}),
    "an output that does not fit": lambda e, a, b: e.run({"x": X}, {"y": np.empty(7, np.float32)}),
    "memory for both": lambda e, a, b: e.run({"x": a}, {"y": a}),
    "memory that is registered for both": in_turn(
        lambda e, a, b: e.register("x", a), lambda e, a, b: e.register("y", a)
    ),
    "memory that is too small": lambda e, a, b: e.run({"x": MemHandle.from_array(np.zeros(4, np.uint8))}),
    "an unknown name": lambda e, a, b: e.register("z", a),
    "in place without handles": lambda e, a, b: e.run_in_place(),
    "a closed executor": in_turn(lambda e, a, b: e.close(), lambda e, a, b: e.run({"x": X})),
    "marks": lambda e, a, b: e.marked(),
}


@pytest.fixture
def executors(context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], Iterator[Executor]]:
    """Loads a graph, whose tensors are prepared for a type of memory, by both kinds of executors."""

    def load(memory_type: Any) -> Iterator[Executor]:
        inputs = (TensorRecord("x", (2, 4), "float32", memory_type),)
        outputs = (TensorRecord("y", (8,), "float32", memory_type),)
        graph = dataclasses.replace(context.graphs[0], inputs=inputs, outputs=outputs)
        for computes, kind in ((False, SimulatedExecutor), (True, PythonExecutor)):
            monkeypatch.setattr(NullBackend, "computes", computes)
            write_context(tmp_path / "a.bin", dataclasses.replace(context, graphs=(graph,), computes=computes))
            with open_context(tmp_path / "a.bin") as file:
                executor = make_executor(open_backend(NULL_REPORT), file, file.header.graphs[0], True, True)
            assert type(executor) is kind
            yield executor

    return load


def ending(executor: Executor, use: Use) -> tuple[object, ...]:
    """What a use leads to: its result or error, what was warned of, and all counters."""
    with ExitStack() as stack, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        a, b = (stack.enter_context(MemHandle.allocate(32)) for _ in range(2))
        stack.callback(executor.close)
        try:
            found = use(executor, a, b)
        except (ValueError, DeviceError) as error:
            found = f"{type(error).__name__}: {error}"
        if isinstance(found, dict):
            assert not any(array.any() for array in found.values()), "zeros"
            found = {name: (array.shape, array.dtype) for name, array in found.items()}
        return found, [str(one.message) for one in told], executor.warnings, executor.counters.to_dict(), executor.runs


@pytest.mark.parametrize("memory_type", ["raw", "memhandle"])
@pytest.mark.parametrize("name", USES)
def test_it_takes_refuses_and_counts_what_others_do(executors: Any, memory_type: str, name: str) -> None:
    simulated, python = (ending(executor, USES[name]) for executor in executors(memory_type))
    assert simulated == python


@pytest.mark.parametrize("memory_type", ["raw", "memhandle"])
@pytest.mark.filterwarnings("ignore:.*was prepared for memory handles")
def test_outputs_in_memory_of_the_application_become_zeros(executors: Any, memory_type: str) -> None:
    simulated = next(executors(memory_type))
    with MemHandle.from_array(np.full(32, 7, np.uint8)) as memory:
        assert not simulated.run({"x": X}, {"y": memory})["y"].any()
        simulated.close()
    with pytest.raises(ContextClosed):
        simulated.run({"x": X})


def test_launches_take_what_the_model_says_of_the_same_memory(executors: Any) -> None:
    simulated, python = ([time_ns(bound) for bound in inside(one)._launches] for one in executors("raw"))
    assert simulated == python and all(simulated)


def test_nothing_is_shared_or_marked_and_no_memory_stays(context_path: Path) -> None:
    backend = open_backend(NULL_REPORT)
    with open_context(context_path) as file:
        executor = make_executor(backend, file, file.header.graphs[0], True, True)
    assert executor.device_bytes == 2 * 32 + 256 + 160
    assert (executor.shared_inputs, executor.shared_outputs) == ({}, {})
    with pytest.raises(CannotMark, match="persistent kernels do not run here"):
        executor.marked()
    executor.close()
    assert backend.allocated_bytes == 0


def test_what_a_device_has_no_memory_for_is_refused_by_name(
    context_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def short(self: NullBackend, nbytes: int) -> None:
        raise LimitExceeded("no memory is left")

    monkeypatch.setattr(NullBackend, "_allocate", short)
    with (
        open_context(context_path) as file,
        pytest.raises(WrongDevice, match="null cannot run graph 'main': no memory"),
    ):
        make_executor(open_backend(NULL_REPORT), file, file.header.graphs[0], True, True)
