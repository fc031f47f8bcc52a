"""Test inputs and outputs by arrays and by memory handles, on the null device.

What is allocated, copied and mapped is counted, and what does not fit is refused by name.
"""

import dataclasses
import gc
import threading
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gputune.core.errors import CannotImport, ContextClosed, LaunchFailed, MemoryInUse
from gputune.runtime.backends import Buffer, Imported, open_backend
from gputune.runtime.backends.null import NullBackend
from gputune.runtime.context.format import open_context, write_context
from gputune.runtime.context.records import Context, TensorRecord
from gputune.runtime.counters import TensorCounters
from gputune.runtime.devices.discovery import NULL_REPORT
from gputune.runtime.execution.executor import PythonExecutor
from gputune.runtime.memory import lending
from gputune.runtime.memory.handles import MemHandle
from gputune.runtime.memory.lending import MOST_LENT
from gputune.runtime.values import MOST_KNOWN, labels_of

Prepared = Callable[..., PythonExecutor]
X = np.arange(8, dtype=np.float32).reshape(2, 4)
NOTHING = TensorCounters()


@pytest.fixture
def prepared(context: Context, tmp_path: Path) -> Prepared:
    """Loads the graph with its input and output prepared for arrays or for handles, on a null device."""

    def load(memory_type: Any, backend: NullBackend | None = None, output: str = "y") -> PythonExecutor:
        graph = context.graphs[0]
        graph = dataclasses.replace(
            graph,
            inputs=(TensorRecord("x", (2, 4), "float32", memory_type),),
            outputs=(TensorRecord(output, (8,), "float32", memory_type),),
        )
        own_kernels: dict[str, Any] = {"op_packages": []}
        write_context(tmp_path / "a.bin", dataclasses.replace(context, graphs=(graph,), configuration=own_kernels))
        with open_context(tmp_path / "a.bin") as file:
            return PythonExecutor(backend or null(), file, file.header.graphs[0], binaries=True, strict=True)

    return load


def null() -> NullBackend:
    backend = open_backend(NULL_REPORT)
    assert isinstance(backend, NullBackend)
    return backend


class Incoherent(NullBackend):
    """A device whose memory has to be mapped for the host; it notes the order of what is done."""

    def __init__(self) -> None:
        assert NULL_REPORT.identity is not None
        super().__init__(NULL_REPORT.identity)
        self.done: list[str] = []

    def _import(self, handle: MemHandle, lease: object) -> Imported:
        imported = super()._import(handle, lease)
        imported.coherent, imported.buffer.host, imported.external = False, None, True
        return imported

    def begin_host_access(self, *imported: Imported) -> None:
        self.done.append(f"map {len(imported)}")

    def end_host_access(self, imported: Imported) -> None:
        self.done.append("unmap")

    def acquire(self, imported: Any) -> None:
        self.done.append(f"acquire {len(imported)}")

    def release(self, imported: Any) -> None:
        self.done.append(f"release {len(imported)}")

    def enqueue(self, bound: Any) -> None:
        self.done.append("launch")


class Lending(NullBackend):
    """A device that reads arrays where they lie; it notes them."""

    def __init__(self) -> None:
        assert NULL_REPORT.identity is not None
        super().__init__(NULL_REPORT.identity)
        self.arrays: list[int] = []

    def _allocate_shared(self, nbytes: int) -> tuple[Any, Any]:
        memory = np.zeros(nbytes, np.uint8)
        return memory, memory

    def lent(self, array: Any) -> Buffer:
        self.arrays.append(array.ctypes.data)
        return Buffer(array.nbytes, f"on {array.ctypes.data}")


class Copying(NullBackend):
    """A device that can use nothing of the host's."""

    def _import(self, handle: MemHandle, lease: object) -> Imported:
        raise CannotImport("the device has no way to use it")


# --- the four cases of preparation and execution ----------------------------------------------------------


def test_arrays_to_a_graph_prepared_for_arrays_are_copied_and_nothing_is_allocated_later(prepared: Prepared) -> None:
    executor = prepared("raw")
    for number in range(1, 4):
        executor.run({"x": X})
        counters = executor.counters
        assert counters.load == {"x": TensorCounters(allocations=1), "y": TensorCounters(allocations=1)}
        assert counters.last["x"] == TensorCounters(bytes_copied=32, writes=1, reason=counters.last["x"].reason)
        assert counters.last["y"] == TensorCounters(bytes_copied=32, reads=1, reason=counters.last["y"].reason)
        assert "an array was given" in counters.last["x"].reason
        assert (counters.total["x"].bytes_copied, counters.total["y"].reads) == (32 * number, number)
    assert executor.warnings == []


def test_handles_to_a_graph_prepared_for_arrays_are_not_copied(prepared: Prepared) -> None:
    executor = prepared("raw")
    with MemHandle.allocate(32) as x, MemHandle.allocate(32) as y:
        executor.run({"x": x}, {"y": y})
        assert executor.counters.load == {"x": TensorCounters(allocations=1), "y": TensorCounters(allocations=1)}
        assert executor.counters.last == {"x": NOTHING, "y": NOTHING}
        executor.close()
        gc.collect()


def test_arrays_to_a_graph_prepared_for_handles_allocate_once_with_a_warning_and_are_copied(prepared: Prepared) -> None:
    executor = prepared("memhandle")
    assert executor.counters.load == {"x": NOTHING, "y": NOTHING}
    with pytest.warns(UserWarning, match="was prepared for memory handles and is given as an array") as told:
        executor.run({"x": X})
    assert [("'x'" in str(one.message), "'y'" in str(one.message)) for one in told] == [(True, False), (False, True)]
    assert [executor.counters.last[name].allocations for name in "xy"] == [1, 1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        executor.run({"x": X})
    assert [executor.counters.last[name].allocations for name in "xy"] == [0, 0]
    assert [executor.counters.last[name].bytes_copied for name in "xy"] == [32, 32]
    assert [executor.counters.total[name].allocations for name in "xy"] == [1, 1]
    assert len(executor.warnings) == 2


def test_handles_to_a_graph_prepared_for_handles_cost_nothing(prepared: Prepared) -> None:
    executor = prepared("memhandle")
    with MemHandle.allocate(32) as x, MemHandle.allocate(64) as y:
        executor.register("x", x)
        executor.register("y", y)
        for _ in range(3):
            outputs = executor.run()
            assert outputs["y"].ctypes.data == y.address
        counters = executor.counters
        assert counters.load == counters.last == counters.total == {"x": NOTHING, "y": NOTHING}
        assert counters.inferences == 3
        executor.run_in_place()
        assert (counters.inferences, counters.total) == (4, {"x": NOTHING, "y": NOTHING})
        executor.close()


def test_arrays_and_handles_are_mixed_and_what_is_given_leaves_what_is_registered(prepared: Prepared) -> None:
    executor = prepared("raw")
    with MemHandle.allocate(32) as y:
        executor.register("y", y)
        out = np.empty(8, np.float32)
        assert executor.run({"x": X}, {"y": out})["y"] is out
        assert [executor.counters.last[name].bytes_copied for name in "xy"] == [32, 32]
        executor.run({"x": X})
        assert [executor.counters.last[name].bytes_copied for name in "xy"] == [32, 0]
        executor.unregister("y")
        executor.run({"x": X})
        assert [executor.counters.last[name].bytes_copied for name in "xy"] == [32, 32]


# --- arrays that are read where they lie ---------------------------------------------------------------------


def test_an_input_is_read_where_it_lies_and_few_buffers_are_kept(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = Lending()
    executor = prepared("memhandle", backend)
    monkeypatch.setattr(lending, "LEAST_LENT", X.nbytes)
    y = np.empty(8, np.float32)
    arrays = [X + number for number in range(MOST_LENT + 1)]
    with pytest.warns(UserWarning, match="'y' was prepared for memory handles"):
        executor.run({"x": arrays[0]}, {"y": y})
    for _ in range(2):
        for array in arrays[:-1]:
            executor.run({"x": array}, {"y": y})
            assert executor.counters.last["x"] == NOTHING
    addresses = [array.ctypes.data for array in arrays]
    assert backend.arrays == addresses[:-1], "one buffer for each"
    executor.run({"x": arrays[-1]}, {"y": y})
    executor.run({"x": arrays[1]}, {"y": y})
    assert backend.arrays == addresses, "another one takes the place of the oldest"
    executor.run({"x": arrays[0]}, {"y": y})
    assert backend.arrays == [*addresses, addresses[0]]
    monkeypatch.setattr(lending, "LEAST_LENT", X.nbytes + 1)
    with pytest.warns(UserWarning, match="'x' was prepared for memory handles"):
        executor.run({"x": arrays[0]}, {"y": y})
    assert (executor.counters.last["x"].writes, len(backend.arrays)) == (1, MOST_LENT + 2)


def test_what_an_inference_may_write_is_not_read_where_it_lies(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lending, "LEAST_LENT", X.nbytes)
    backend = Lending()
    executor = prepared("raw", backend)
    y = executor.shared_outputs["y"]
    executor.run({"x": y.reshape(X.shape)})
    assert (executor.counters.last["x"].writes, backend.arrays) == (1, [])
    with MemHandle.allocate(32) as handle:
        executor.run({"x": X}, {"y": handle})
        assert (executor.counters.last["x"].writes, backend.arrays) == (1, [])
        executor.release(handle)
    executor.run({"x": X})
    assert (executor.counters.last["x"].writes, len(backend.arrays)) == (0, 1)


# --- memory that is not the host's at all times ------------------------------------------------------------


def test_memory_that_is_not_coherent_is_the_devices_from_the_first_launch_to_the_last(prepared: Prepared) -> None:
    backend = Incoherent()
    executor = prepared("memhandle", backend)
    with MemHandle.allocate(32) as x, MemHandle.allocate(32) as y:
        executor.register("x", x)
        executor.register("y", y)
        assert backend.done == ["map 1", "map 1"]
        backend.done.clear()
        executor.run()
        assert backend.done == ["unmap", "unmap", "acquire 2", "launch", "launch", "release 2", "map 2"]
        assert [executor.counters.last[name] for name in "xy"] == [TensorCounters(maps=1), TensorCounters(maps=1)]
        backend.done.clear()
        executor.close()
        assert backend.done == ["unmap", "unmap"]


def test_the_host_has_its_memory_back_after_a_failure(prepared: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = Incoherent()
    executor = prepared("memhandle", backend)
    with MemHandle.allocate(32) as x, MemHandle.allocate(32) as y:
        monkeypatch.setattr(backend, "enqueue", lambda bound: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            executor.run({"x": x}, {"y": y})
        assert backend.done == ["map 1", "unmap", "map 1", "unmap", "acquire 2", "release 2", "map 2"]
        executor.close()


def test_an_inference_that_fails_is_waited_for(prepared: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of its launches may run, on memory that is given back next."""
    backend, waited = null(), 0

    def finish() -> None:
        nonlocal waited
        waited += 1

    executor = prepared("raw", backend)
    monkeypatch.setattr(backend, "finish", finish)
    monkeypatch.setattr(backend, "enqueue", lambda bound: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        executor.run({"x": X})
    assert waited == 1
    executor.close()
    assert waited == 2


def test_an_executor_that_is_dropped_is_gone_at_once(prepared: Prepared) -> None:
    """And not with the next garbage collection: memory may be short."""
    executor = prepared("raw")
    found = weakref.ref(executor)
    gc.disable()
    try:
        del executor
        assert found() is None
    finally:
        gc.enable()


def test_handles_that_could_not_be_used_leave_no_trace(prepared: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other handles may get their ids."""
    executor = prepared("raw")
    monkeypatch.setattr(executor._backend, "import_memory", lambda handle: 1 / 0)
    with MemHandle.allocate(32) as x, MemHandle.allocate(32) as y, pytest.raises(ZeroDivisionError):
        executor.run({"x": x}, {"y": y})
    assert not executor._tensors._apart


def test_launches_use_what_they_did_where_an_exchange_fails(prepared: Prepared, monkeypatch: Any) -> None:
    executor = prepared("raw")
    binder, backend = executor._binder, executor._backend
    before = binder.memory("arena", 0)
    held = [launch.buffers for launch in executor._launches]
    plain, calls = backend.set_buffer, 0

    def fails_once(*arguments: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise LaunchFailed("the second one")
        plain(*arguments)

    monkeypatch.setattr(backend, "set_buffer", fails_once)
    with pytest.raises(LaunchFailed):
        binder.use("arena", 0, backend.allocate(512))
    assert binder.memory("arena", 0) is before
    assert [launch.buffers for launch in executor._launches] == held


def test_memory_that_cannot_be_used_is_copied_and_said_once(prepared: Prepared) -> None:
    executor = prepared("raw", Copying(null().identity))
    with MemHandle.allocate(32) as x:
        with pytest.warns(UserWarning, match="input 'x' is copied: the device has no way to use it"):
            executor.register("x", x)
        for _ in range(2):
            executor.run()
            counted = executor.counters.last["x"]
            assert (counted.bytes_copied, counted.writes) == (32, 1)
            assert counted.reason == "the device has no way to use it"
        assert len(executor.warnings) == 1
        with pytest.raises(ValueError, match="input 'x' of graph 'main' is not in memory that host and device share"):
            executor.run_in_place()
        with pytest.raises(MemoryInUse, match="copied by a context"):
            x.close()
        executor.unregister("x")
    with pytest.raises(ValueError, match="'x' needs memory of 32 bytes, its handle was closed"):
        executor.run({"x": x})


# --- what is refused ---------------------------------------------------------------------------------------


def test_what_does_not_fit_is_refused_by_name(prepared: Prepared) -> None:
    executor = prepared("raw")
    with MemHandle.allocate(31) as small, MemHandle.allocate(64) as large:
        for use in (
            lambda: executor.register("x", small),
            lambda: executor.run({"x": small}),
            lambda: executor.run({"x": X}, {"y": small}),
        ):
            with pytest.raises(ValueError, match="needs memory of 32 bytes, its handle has 31 bytes"):
                use()
        with pytest.raises(ValueError, match="no input or output 'z'; there are"):
            executor.register("z", large)
        with pytest.raises(ValueError, match="no output 'z'"):
            executor.run({"x": X}, {"z": large})
        with pytest.raises(ValueError, match="needs the input 'x'"):
            executor.run()
    for out in (np.empty(8, np.float64), np.empty(7, np.float32), np.empty((8, 2), np.float32)[:, 0], "an array"):
        with pytest.raises(ValueError, match=r"output 'y' needs a writable C-contiguous array of float32\[8\]"):
            executor.run({"x": X}, {"y": out})  # type: ignore[dict-item]


def test_an_output_has_its_memory_to_itself(prepared: Prepared) -> None:
    executor = prepared("raw")
    with MemHandle.allocate(64) as memory:
        with pytest.raises(ValueError, match="input 'x' and output 'y' of graph 'main' would share memory"):
            executor.run({"x": memory}, {"y": memory})
        executor.register("x", memory)
        again = MemHandle.from_fd(memory.fileno(), 16, 32)  # another mapping of the same pages
        with pytest.raises(ValueError, match="would share memory"):
            executor.register("y", again)
        behind = MemHandle.from_fd(memory.fileno(), 32, 32)
        executor.register("x", MemHandle.from_array(np.zeros(32, np.uint8)))
        executor.register("y", behind)
        executor.close()
        again.close()
        behind.close()


def test_an_output_with_the_name_of_an_input_has_a_name_of_its_own(prepared: Prepared) -> None:
    executor = prepared("raw", output="x")
    with MemHandle.allocate(32) as memory:
        executor.register("output x", memory)
        assert executor.run({"x": X})["x"].ctypes.data == memory.address
        assert [executor.counters.last[name].bytes_copied for name in ("x", "output x")] == [32, 0]
        executor.close()


@pytest.mark.parametrize(
    ("inputs", "outputs", "labels"),
    [
        ("x", "y", ["y"]),
        ("x", "x", ["output x"]),
        ("x", "x,output x", ["output output x", "output x"]),
        ("x,output x", "x", ["output output x"]),
    ],
)
def test_every_tensor_has_a_name_of_its_own(inputs: str, outputs: str, labels: list[str]) -> None:
    assert labels_of(outputs.split(","), set(inputs.split(","))) == labels


# --- life --------------------------------------------------------------------------------------------------


def test_a_handle_in_use_cannot_be_closed_until_it_is_given_up(prepared: Prepared) -> None:
    executor = prepared("raw")
    x, y = MemHandle.allocate(32), MemHandle.allocate(32)
    executor.register("x", x)
    executor.run({}, {"y": y})
    for handle in (x, y):
        with pytest.raises(MemoryInUse):
            handle.close()
    executor.release(x)  # it is registered, so it stays
    with pytest.raises(MemoryInUse):
        x.close()
    executor.release(y)
    y.close()
    executor.unregister("x")
    executor.unregister("x")
    x.close()
    executor.run({"x": X})


def test_handles_that_are_not_registered_are_given_up_when_there_are_many(prepared: Prepared) -> None:
    executor = prepared("raw")
    handles = [MemHandle.from_array(np.zeros(32, np.uint8)) for _ in range(MOST_KNOWN + 8)]
    executor.register("y", MemHandle.from_array(np.zeros(32, np.uint8)))
    for handle in handles:
        executor.run({"x": handle})
    for handle in handles[:8]:
        handle.close()
    with pytest.raises(MemoryInUse):
        handles[-1].close()
    executor.run({"x": handles[-1]})


def test_after_close_everything_says_so_and_handles_are_free(prepared: Prepared) -> None:
    x = MemHandle.allocate(32)
    with prepared("raw") as executor:
        executor.register("x", x)
        executor.run()
    x.close()
    executor.close()
    for use in (
        executor.run,
        executor.run_in_place,
        lambda: executor.register("x", x),
        lambda: executor.shared_inputs,
        executor.__enter__,
    ):
        with pytest.raises(ContextClosed, match="graph 'main' on null was closed"):
            use()


def test_threads_take_turns_with_memory_of_their_own(prepared: Prepared) -> None:
    executor = prepared("memhandle")
    handles = [(MemHandle.allocate(32), MemHandle.allocate(32)) for _ in range(8)]
    failures: list[BaseException] = []

    def work(x: MemHandle, y: MemHandle) -> None:
        try:
            for _ in range(100):
                assert executor.run({"x": x}, {"y": y})["y"].ctypes.data == y.address
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=pair) for pair in handles]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert executor.counters.inferences == 800
    assert executor.counters.total == {"x": NOTHING, "y": NOTHING}


def test_memory_that_is_shared_is_used_in_place_without_handles(prepared: Prepared, monkeypatch: Any) -> None:
    executor = prepared("raw")
    with pytest.raises(ValueError, match="input 'x' of graph 'main' is not in memory that host and device share"):
        executor.run_in_place()
    backend = null()
    monkeypatch.setattr(backend, "_allocate_shared", lambda nbytes: (memory := np.ones(nbytes, np.uint8), memory))
    executor = prepared("memhandle", backend)
    assert executor.shared_inputs["x"].shape == (2, 4)
    assert executor.shared_outputs["y"].shape == (8,)
    executor.run_in_place()
    assert executor.warnings == []
    assert executor.counters.last == {"x": NOTHING, "y": NOTHING}
