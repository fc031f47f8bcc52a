"""Test that devices which compute nothing take, refuse and count what is given, and give zeros."""

import dataclasses
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gputune.core.errors import CannotMark, ContextClosed, DeviceError, LimitExceeded, WrongDevice
from gputune.runtime import Executor, MemHandle
from gputune.runtime.backends import open_backend
from gputune.runtime.backends.null import NullBackend
from gputune.runtime.context.format import open_context, write_context
from gputune.runtime.context.records import Context, TensorRecord
from gputune.runtime.devices.discovery import NULL_REPORT
from gputune.runtime.loading.executors import executor_on

X = np.arange(8, dtype=np.float32).reshape(2, 4)
Use = Callable[[Executor, MemHandle, MemHandle], Any]


def in_turn(*uses: Use) -> Use:
    def use(executor: Executor, a: MemHandle, b: MemHandle) -> Any:
        return [each(executor, a, b) for each in uses][-1]

    return use


def register_both(executor: Executor, a: MemHandle, b: MemHandle) -> None:
    executor.register("x", a)
    executor.register("y", b)


COPIED: dict[str, tuple[Use, str, int]] = {
    "arrays": (lambda e, a, b: e.run({"x": X}), "xy", 1),
    "twice": (in_turn(lambda e, a, b: e.run({"x": X}), lambda e, a, b: e.run({"x": X})), "xy", 2),
    "a strided array": (lambda e, a, b: e.run({"x": np.ones((2, 8), np.float32)[:, ::2]}), "xy", 1),
    "an array for the output": (lambda e, a, b: e.run({"x": X}, {"y": np.ones(8, np.float32)}), "xy", 1),
    "an empty array for no input": (lambda e, a, b: e.run({"x": X, "z": X[:0]}), "xy", 1),
    "handles": (lambda e, a, b: e.run({"x": a}, {"y": b}), "", 1),
    "a handle and an array": (lambda e, a, b: e.run({"x": a}), "y", 1),
    "registered handles": (in_turn(register_both, lambda e, a, b: e.run()), "", 1),
    "in place": (in_turn(register_both, lambda e, a, b: e.run_in_place()), "", 1),
    "given beside what is registered": (in_turn(register_both, lambda e, a, b: e.run({"x": X})), "x", 1),
    "no more registered": (
        in_turn(register_both, lambda e, a, b: e.unregister("x"), lambda e, a, b: e.run({"x": X})),
        "x",
        1,
    ),
}
"""Uses, the tensors that they copy, and the number of inferences."""
REFUSED: dict[str, tuple[Use, str]] = {
    "nothing": (lambda e, a, b: e.run(), "ValueError: graph 'main' needs the input 'x'"),
    "an unknown input": (lambda e, a, b: e.run({"x": X, "z": X}), "ValueError: graph 'main' has no input 'z'"),
    "an unknown output": (lambda e, a, b: e.run({"x": X}, {"z": X}), "ValueError: graph 'main' has no output 'z'"),
    "another shape": (lambda e, a, b: e.run({"x": X.T}), "ValueError: input 'x' is float32[4, 2], the graph takes"),
    "another type": (lambda e, a, b: e.run({"x": X.astype(np.float64)}), "ValueError: input 'x' is float64[2, 4]"),
    "another order of bytes": (
        lambda e, a, b: e.run({"x": X.astype(">f4")}),
        "ValueError: input 'x' is float32 in the other byte order, [2, 4]",
    ),
    "an output that does not fit": (
        lambda e, a, b: e.run({"x": X}, {"y": np.empty(7, np.float32)}),
        "ValueError: output 'y' needs a writable C-contiguous array of float32[8]",
    ),
    "memory for both": (
        lambda e, a, b: e.run({"x": a}, {"y": a}),
        "ValueError: input 'x' and output 'y' of graph 'main' would share memory",
    ),
    "memory that is registered for both": (
        in_turn(lambda e, a, b: e.register("x", a), lambda e, a, b: e.register("y", a)),
        "ValueError: input 'x' and output 'y' of graph 'main' would share memory",
    ),
    "memory that is too small": (
        lambda e, a, b: e.run({"x": MemHandle.from_array(np.zeros(4, np.uint8))}),
        "ValueError: tensor 'x' needs memory of 32 bytes, its handle has 4 bytes",
    ),
    "an unknown name": (
        lambda e, a, b: e.register("z", a),
        "ValueError: graph 'main' has no input or output 'z'; there are ['x', 'y']",
    ),
    "in place without handles": (
        lambda e, a, b: e.run_in_place(),
        "ValueError: input 'x' of graph 'main' is not in memory that host and device share",
    ),
    "a closed executor": (
        in_turn(lambda e, a, b: e.close(), lambda e, a, b: e.run({"x": X})),
        "ContextClosed: graph 'main' on null was closed",
    ),
    "marks": (lambda e, a, b: e.marked(), "CannotMark: persistent kernels do not run here"),
}
KINDS = "raw", "memhandle"


@pytest.fixture
def executors(context: Context, tmp_path: Path) -> Callable[[Any], Executor]:
    """Loads a graph, whose tensors are prepared for a type of memory."""

    def loaded(memory_type: Any) -> Executor:
        inputs = (TensorRecord("x", (2, 4), "float32", memory_type),)
        outputs = (TensorRecord("y", (8,), "float32", memory_type),)
        graph = dataclasses.replace(context.graphs[0], inputs=inputs, outputs=outputs)
        write_context(tmp_path / "a.bin", dataclasses.replace(context, graphs=(graph,)))
        return load(tmp_path / "a.bin")

    return loaded


def load(path: Path) -> Executor:
    with open_context(path) as file:
        return executor_on(open_backend(NULL_REPORT), file, "main", strict=True)


@pytest.fixture
def handles() -> Iterator[tuple[MemHandle, MemHandle]]:
    with MemHandle.allocate(32) as a, MemHandle.allocate(32) as b:
        yield a, b


def counted(executor: Executor, which: str, what: str) -> dict[str, int]:
    """Return a count of each tensor that has one: of loading, the last inference, or all."""
    found = {name: int(counts[what]) for name, counts in executor.counters.to_dict()[which].items()}
    return {name: count for name, count in found.items() if count}


@pytest.mark.parametrize("memory_type", KINDS)
@pytest.mark.parametrize("name", COPIED)
def test_it_counts_what_is_copied(executors: Any, handles: Any, memory_type: str, name: str) -> None:
    """Memory for arrays is allocated when a graph is loaded that was prepared for them, else later with a warning."""
    use, copied, inferences = COPIED[name]
    executor = executors(memory_type)
    with executor, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = use(executor, *handles)
        prepared = memory_type == "raw"
        assert counted(executor, "total", "bytes_copied") == dict.fromkeys(copied, 32 * inferences)
        assert counted(executor, "total", "writes") == {name: inferences for name in copied if name == "x"}
        assert counted(executor, "total", "reads") == {name: inferences for name in copied if name == "y"}
        assert counted(executor, "load", "allocations") == ({"x": 1, "y": 1} if prepared else {})
        assert counted(executor, "total", "allocations") == ({} if prepared else dict.fromkeys(copied, 1))
        assert [str(one.message) for one in told] == [f"graph 'main': {one}" for one in executor.warnings]
        assert len(executor.warnings) == (0 if prepared else len(copied))
        assert all("was prepared for memory handles" in one for one in executor.warnings)
        assert (executor.counters.inferences, executor.runs) == (inferences, None)
        if isinstance(found, dict):
            assert {name: (array.shape, array.dtype.name) for name, array in found.items()} == {"y": ((8,), "float32")}
            assert not found["y"].any()
        for handle in handles:
            executor.unregister("x")
            executor.unregister("y")
            executor.release(handle)


@pytest.mark.parametrize("memory_type", KINDS)
@pytest.mark.parametrize("name", REFUSED)
def test_it_refuses_by_name_and_counts_nothing(executors: Any, handles: Any, memory_type: str, name: str) -> None:
    use, words = REFUSED[name]
    executor = executors(memory_type)
    with pytest.raises((ValueError, DeviceError)) as refused:
        use(executor, *handles)
    assert f"{type(refused.value).__name__}: {refused.value}".startswith(words)
    assert (counted(executor, "total", "bytes_copied"), executor.warnings) == ({}, [])
    executor.close()


@pytest.mark.parametrize("memory_type", KINDS)
@pytest.mark.filterwarnings("ignore:.*was prepared for memory handles")
def test_outputs_in_memory_of_the_application_become_zeros(executors: Any, memory_type: str) -> None:
    simulated = executors(memory_type)
    with MemHandle.from_array(np.full(32, 7, np.uint8)) as memory:
        assert not simulated.run({"x": X}, {"y": memory})["y"].any()
        simulated.close()
    with pytest.raises(ContextClosed):
        simulated.run({"x": X})


def test_nothing_is_shared_or_marked_and_no_memory_stays(context_path: Path) -> None:
    executor = load(context_path)
    assert executor.device_bytes == 2 * 32 + 256 + 160
    assert (executor.shared_inputs, executor.shared_outputs) == ({}, {})
    with pytest.raises(CannotMark, match="persistent kernels do not run here"):
        executor.marked()
    executor.close()
    assert executor.device_bytes == 0


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
        executor_on(open_backend(NULL_REPORT), file, None, strict=True)
