"""Test executors of the C runtime on a made-up OpenCL library: what they take, count and refuse, and their end."""

import gc
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gputune.core.errors import ChecksumMismatch, ContextClosed, DeviceNotFound, ForkedProcess, MemoryInUse, WrongDevice
from gputune.runtime.context.format import open_context
from gputune.runtime.contexts import device as devices
from gputune.runtime.contexts.device import NativeDevice, open_report
from gputune.runtime.devices.discovery import DeviceReport
from gputune.runtime.devices.drivers import OPENCL_LIBRARY
from gputune.runtime.executor import Executor
from gputune.runtime.loading.executors import executor_on
from gputune.runtime.memory.handles import MemHandle
from gputune.runtime.native.binding import Native
from tests.native.conftest import c_compiler, native
from tests.native.fake import CPU, DEVICE, ELEMENTS, NBYTES, STAGES, Fake, doubling_context, weighted_context

__all__ = ["c_compiler", "native"]

X = np.arange(ELEMENTS, dtype=np.float32)
Y = X * 2**STAGES
REPORT = DeviceReport(0, CPU, "", True, "")


@pytest.fixture
def fake(native: Native, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fake]:
    """The library, whose device is a CPU; nothing of it is left at the end."""
    made = Fake()
    made.is_cpu(True)
    monkeypatch.setenv(OPENCL_LIBRARY, str(made.path))
    monkeypatch.setattr(devices, "library", lambda: native)
    yield made
    gc.collect()
    made.is_cpu(False)
    assert made.alive == 0


@pytest.fixture
def opened(fake: Fake) -> NativeDevice:
    return open_report(REPORT)


def loaded(device: NativeDevice, path: Path) -> Executor:
    with open_context(path) as file:
        return executor_on(device, file, None, strict=True)


@pytest.fixture
def executor(opened: NativeDevice, tmp_path: Path) -> Iterator[Executor]:
    with loaded(opened, doubling_context(tmp_path / "a.bin", device=CPU)) as made:
        yield made


# --- arrays -------------------------------------------------------------------------------------------

READ = {
    "contiguous": X,
    "strided": np.repeat(X, 2)[::2],
    "read-only": np.frombuffer(X.tobytes(), np.float32),
}


@pytest.mark.parametrize("kind", READ)
def test_arrays_are_read_however_they_lie(executor: Executor, kind: str) -> None:
    np.testing.assert_array_equal(executor.run({"x": READ[kind]})["y"], Y)
    assert executor.counters.last["x"].bytes_copied == NBYTES
    assert (executor.counters.last["x"].writes, executor.counters.last["y"].reads) == (1, 1)


REFUSED = {
    "wrong-endian": ({"x": X.astype(">f4")}, {}, r"input 'x' is float32 in the other byte order, \[64\]"),
    "0-d": ({"x": np.zeros((), np.float32)}, {}, r"input 'x' is float32\[\], the graph takes float32\[64\]"),
    "zero-size": ({"x": X[:0]}, {}, r"input 'x' is float32\[0\]"),
    "another type": ({"x": X.astype(np.float64)}, {}, r"input 'x' is float64\[64\]"),
    "nothing": ({}, {}, "needs the input 'x'"),
    "an unknown input": ({"x": X, "z": X}, {}, "has no input 'z'"),
    "an unknown output": ({"x": X}, {"z": X}, "has no output 'z'"),
    "a read-only output": ({"x": X}, {"y": READ["read-only"]}, "needs a writable C-contiguous array"),
    "a strided output": ({"x": X}, {"y": READ["strided"]}, "needs a writable C-contiguous array"),
}


@pytest.mark.parametrize(("inputs", "outputs", "message"), REFUSED.values(), ids=REFUSED)
def test_what_does_not_fit_is_refused_by_name(
    executor: Executor, inputs: dict[str, np.ndarray], outputs: dict[str, np.ndarray], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        executor.run(inputs, outputs)
    assert executor.counters.inferences == 0
    np.testing.assert_array_equal(executor.run({"x": X})["y"], Y)


def test_outputs_go_where_they_are_wanted(executor: Executor) -> None:
    y = np.zeros(ELEMENTS, np.float32)
    empty = np.zeros((1, 0), np.float32)  # an input that the graph would have if it had elements
    assert executor.run({"x": X, "past": empty}, {"y": y})["y"] is y
    np.testing.assert_array_equal(y, Y)


# --- handles ------------------------------------------------------------------------------------------


def test_handles_are_used_in_place_and_kept_open(executor: Executor) -> None:
    x, y = (executor.allocate_for(tensor) for tensor in (*executor.graph.inputs, *executor.graph.outputs))
    executor.register("x", x)
    for factor in (1, 2):
        x.view("float32", (ELEMENTS,))[...] = X * factor
        found = executor.run(outputs={"y": y})["y"]
        np.testing.assert_array_equal(found, Y * factor)
        assert found.ctypes.data == y.address
        assert {one.bytes_copied for one in executor.counters.last.values()} == {0}
    np.testing.assert_array_equal(executor.run({"x": X})["y"], Y)
    with pytest.raises(ValueError, match="would share memory"):
        executor.run(outputs={"y": x})
    for held in (x, y):
        with pytest.raises(MemoryInUse):
            held.close()
    executor.unregister("x")
    executor.release(y)
    x.close()
    y.close()
    with pytest.raises(ValueError, match="its handle was closed"):
        executor.run({"x": x})


def test_memory_that_cannot_be_used_is_copied_and_said_once(executor: Executor) -> None:
    room = np.zeros(NBYTES + 4096, np.uint8)
    start = -room.ctypes.data % 4096 + 4
    with MemHandle.from_array(room[start : start + NBYTES]) as x:
        x.view("float32", (ELEMENTS,))[...] = X
        with pytest.warns(UserWarning, match=r"input 'x' is copied: .*its address is no multiple of 128 bytes"):
            executor.register("x", x)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for _ in range(2):
                np.testing.assert_array_equal(executor.run()["y"], Y)
        assert executor.counters.last["x"].reason in executor.warnings[0]
        assert len(executor.warnings) == 1
        executor.unregister("x")


def test_a_handle_of_one_device_is_wrapped_by_another(executor: Executor, tmp_path: Path) -> None:
    other = loaded(open_report(REPORT), doubling_context(tmp_path / "b.bin", device=CPU))
    with other, executor.backend.allocate_handle(NBYTES) as x:
        x.view("float32", (ELEMENTS,))[...] = X
        np.testing.assert_array_equal(other.run({"x": x})["y"], Y)
        other.release(x)


def test_an_inference_in_place_needs_memory_that_host_and_device_share(executor: Executor) -> None:
    if executor.shared_inputs:
        executor.shared_inputs["x"][...] = X
        assert executor.run_in_place() > 0
        np.testing.assert_array_equal(executor.shared_outputs["y"], Y)
    else:
        with pytest.raises(ValueError, match="is not in memory that host and device share"):
            executor.run_in_place()


def test_what_c_warns_of_in_an_inference_is_told_once(opened: NativeDevice, tmp_path: Path) -> None:
    with loaded(opened, doubling_context(tmp_path / "a.bin", device=CPU, memory_type="memhandle")) as executor:
        assert executor.warnings == []
        with pytest.warns(UserWarning, match="was prepared for memory handles and is given as an array") as told:
            executor.run({"x": X})
        assert [str(one.message) for one in told] == [f"graph 'main': {text}" for text in executor.warnings]
        with warnings.catch_warnings(action="error"):
            np.testing.assert_array_equal(executor.run({"x": X})["y"], Y)
        assert len(executor.warnings) == 2


# --- what it is, and its end --------------------------------------------------------------------------


def test_it_says_what_it_is(executor: Executor) -> None:
    assert executor.device == CPU
    assert (executor.computes, executor.warnings, executor.choice) == (True, [], None)
    assert (executor.has_persistent, executor.runs, executor.last_form) == (False, None, "launches")
    assert executor.load_ns > 0
    assert executor.device_bytes == executor.backend.allocated_bytes > 0


def test_once_closed_it_refuses_and_keeps_its_counts(opened: NativeDevice, tmp_path: Path) -> None:
    executor = loaded(opened, doubling_context(tmp_path / "a.bin", device=CPU))
    executor.run({"x": X})
    handle = executor.allocate_for(executor.graph.inputs[0])
    executor.register("x", handle)
    executor.close()
    executor.close()
    handle.close()
    assert executor.counters.inferences == 1
    assert opened.allocated_bytes == 0
    with pytest.raises(ContextClosed, match="graph 'main' on Fake GPU was closed"):
        executor.run({"x": X})


def test_a_view_outlives_the_handle_the_executor_and_the_device(fake: Fake, tmp_path: Path) -> None:
    executor = loaded(open_report(REPORT), doubling_context(tmp_path / "a.bin", device=CPU))
    handle = executor.allocate_for(executor.graph.inputs[0])
    view = handle.view("float32", (ELEMENTS,))
    handle.close()
    executor.close()
    del executor
    gc.collect()
    view[...] = X
    np.testing.assert_array_equal(view, X)


def test_a_fork_is_refused_at_once(executor: Executor) -> None:
    child = os.fork()
    if not child:
        try:
            executor.run({"x": X})
        except ForkedProcess:
            os._exit(7)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    np.testing.assert_array_equal(executor.run({"x": X})["y"], Y)


def test_the_file_that_python_has_open_is_loaded(opened: NativeDevice, tmp_path: Path) -> None:
    """Also if another one took its place meanwhile."""
    path, other = weighted_context(tmp_path / "a.bin", 1), weighted_context(tmp_path / "b.bin", 3)
    with open_context(path) as file:
        other.replace(path)
        with executor_on(opened, file, None, strict=False) as executor:
            assert set(executor.run({"x": X})["y"]) == {2.0}


def test_errors_have_the_name_that_python_has_for_a_context(opened: NativeDevice, tmp_path: Path) -> None:
    path, gone = weighted_context(tmp_path / "a.bin", 1), tmp_path / "b.bin"
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    with open_context(path) as file:
        path.rename(gone)
        path.write_bytes(b"another")
        with pytest.raises(ChecksumMismatch, match=f"^{path}: weights section 2 is damaged"):
            executor_on(opened, file, None, strict=False)


def test_another_device_is_refused_with_what_is_there(fake: Fake) -> None:
    wanted = DeviceReport(3, DEVICE.__class__(**{**DEVICE.to_dict(), "name": "Adreno"}), "", True, "")
    with pytest.raises(DeviceNotFound, match=r"#3 Adreno .* cannot be opened: .*#0 Fake GPU"):
        open_report(wanted)


def test_a_context_of_the_null_device_is_refused(opened: NativeDevice, context_path: Path) -> None:
    with open_context(context_path) as file, pytest.raises(WrongDevice, match="made by the null device"):
        executor_on(opened, file, None, strict=False)
