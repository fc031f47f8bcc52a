"""Test a context on a real device: right outputs, no compilation from binaries, and a rebuild from source elsewhere."""

import dataclasses
import os
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest

import gputune
import gputune.runtime
from gputune.core.errors import DeviceNotFound, WrongDevice
from gputune.core.launches import Launch, Variant
from gputune.runtime.backends import Backend, ProgramCache
from gputune.runtime.context.format import context_of, write_context
from gputune.runtime.context.records import BufferRef, Context, GraphRecord, LaunchRecord, ProgramRecord, TensorRecord
from gputune.runtime.devices.discovery import DeviceReport
from gputune.runtime.loading.executors import executor_on
from gputune.runtime.measuring.launching import compile_variant
from tests.runtime.test_opened import in_a_fork

PROGRAMS = 4
SIZE = 1024
SOURCE = """
__kernel void scale(__global const float *x, __global const float *w, __global float *y, const int add) {
    const int i = get_global_id(0);
    float16 sum = (float16)(0.0f);
    for (int k = 0; k < ROUNDS; k++)
        sum += (float16)(w[i]) * vload16((i + k) % (SIZE / 16), x);
    y[i] = x[i] * w[i] + (float)add + 0.0f * sum.s0;
}
"""


@pytest.fixture(scope="module")
def context(backend: Backend, programs: ProgramCache) -> Context:
    """PROGRAMS steps y = x * w + 1 in a row, each a program of its own, through two halves of an arena."""
    alignment = backend.identity.base_address_alignment_bytes
    nbytes = 4 * SIZE
    halves = [BufferRef("arena", 0, 0, nbytes), BufferRef("arena", 0, nbytes, nbytes)]
    assert nbytes % alignment == 0
    records, launches = [], []
    for number in range(PROGRAMS):
        options = f"-DSIZE={SIZE} -DROUNDS={number + 1}"
        main = Launch(SOURCE, "scale", options, (SIZE,), (32,), ("x", "w", "y", 1))
        sizes = {"x": nbytes, "w": nbytes, "y": nbytes}
        binary = compile_variant(programs, Variant({}, (), main, {}), sizes).binary
        records.append(ProgramRecord(bytes(binary), SOURCE, options))
        source = halves[number % 2] if number else BufferRef("input", 0, 0, nbytes)
        target = halves[(number + 1) % 2] if number < PROGRAMS - 1 else BufferRef("output", 0, 0, nbytes)
        weights = BufferRef("weights", 0, 0, nbytes)
        launches.append(
            LaunchRecord(f"step{number}", "", number, "scale", (SIZE,), (32,), (source, weights, target, 1))
        )
    shape = (1, 32, 32)
    graph = GraphRecord(
        "main", (TensorRecord("x", shape),), (TensorRecord("y", shape),), tuple(launches), (2 * nbytes,)
    )
    return Context(
        graphs=(graph,),
        programs=records,
        weights=(np.full(SIZE, 0.5, np.float32),),
        device=backend.identity.to_dict(),
        tier="test",
        configuration={},
        versions={},
    )


@pytest.fixture
def path(context: Context, tmp_path: Path) -> Path:
    write_context(tmp_path / "context.bin", context)
    return tmp_path / "context.bin"


def expected(x: np.ndarray) -> np.ndarray:
    for _ in range(PROGRAMS):
        x = x * np.float32(0.5) + np.float32(1)
    return x


X = np.linspace(-4, 4, SIZE, dtype=np.float32).reshape(1, 32, 32)


def test_outputs_are_right_run_after_run(path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        executor = gputune.runtime.load(path)
    assert executor.computes and executor.warnings == []
    assert executor.load_ns > 0 and executor.device_open_ns > 0
    for x in (X, X + 1, X):
        y = executor.run({"x": x})["y"]
        assert y.shape == (1, 32, 32)
        np.testing.assert_allclose(y, expected(x), rtol=1e-5)


def test_eight_threads_get_their_own_results_and_the_end_of_with_frees_memory(path: Path) -> None:
    wrong: list[int] = []

    def work(number: int) -> None:
        x = X + np.float32(number)
        for turn in range(500):
            y = loaded.run(x)["y"] if turn % 2 else loaded.run_async(x).result()["y"]
            if not np.allclose(y, expected(x), rtol=1e-5):
                wrong.append(number)

    with gputune.load(path) as loaded:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert loaded.device_bytes > 0 and loaded.executors["main"].counters.inferences == 4000
    assert wrong == [] and loaded.device_bytes == 0


def test_an_application_works_in_the_memory_of_a_device_that_shares_it(backend: Backend, path: Path) -> None:
    executor = executor_on(backend, context_of(memoryview(path.read_bytes()), "from a host"), None, strict=True)
    if not executor.shared_inputs:
        with pytest.raises(ValueError, match="is not in memory that host and device share"):
            executor.run_in_place()
        return
    x, y = executor.shared_inputs["x"], executor.shared_outputs["y"]
    assert (x.shape, x.dtype.name, y.shape, y.dtype.name) == (X.shape, "float32", (1, 32, 32), "float32")
    for values in (X, X + 1, X):
        x[...] = values
        assert executor.run_in_place() > 0
        np.testing.assert_allclose(y, expected(values), rtol=1e-5)
    kept = executor.run({"x": X + 2})["y"]
    x[...], y[...] = X + 3, 0
    np.testing.assert_allclose(kept, expected(X + 2), rtol=1e-5, err_msg="what run returns is the caller's own")
    np.testing.assert_allclose(executor.run({"x": x})["y"], expected(X + 3), rtol=1e-5)


def test_a_context_from_bytes_runs(backend: Backend, path: Path) -> None:
    file = context_of(memoryview(path.read_bytes()), "from a host")
    executor = executor_on(backend, file, None, strict=True)
    file.close()
    assert executor.warnings == []
    np.testing.assert_allclose(executor.run({"x": X})["y"], expected(X), rtol=1e-5)


def test_the_first_inference_of_a_fresh_process_costs_no_compilation(context: Context, path: Path) -> None:
    """Compiled code is what the binaries hold: with sources only, the same start takes many times as long."""
    from_binaries = start_up_ns(path)
    on_another_driver(context, path, driver_version="0.0")
    assert 4 * from_binaries < start_up_ns(path)


def start_up_ns(path: Path) -> int:
    """Load plus first inference, less a steady one, in a process of its own."""
    script = f"""
import statistics, warnings, numpy as np, gputune.runtime
warnings.simplefilter("ignore")
executor = gputune.runtime.load({str(path)!r})
times = [executor.run_timed({{"x": np.zeros((1, 32, 32), np.float32)}})[1] for _ in range(20)]
print(round(executor.load_ns + times[0] - statistics.median(times[1:])))
"""
    return int(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout)


def on_another_driver(context: Context, path: Path, **fields: str) -> None:
    write_context(path, dataclasses.replace(context, device={**context.device, **fields}))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_in_a_fork_nothing_hangs_and_everything_says_why(path: Path) -> None:
    *uses, after = in_a_fork(path, "", "1,32,32")
    assert len(uses) == 3
    for use in uses:
        assert "was opened by process" in use or use == "worked"
    assert "worked" not in (uses[0], uses[2])
    assert uses[2].startswith("OpenCL was opened by process")
    assert after == "goes on"


def test_another_driver_version_rebuilds_from_source_with_a_warning(context: Context, path: Path) -> None:
    on_another_driver(context, path, driver_version="0.0")
    with pytest.warns(UserWarning, match=r"building from source on another device: driver_version is .*, not '0.0'"):
        executor = gputune.runtime.load(path)
    assert len(executor.warnings) == 1
    np.testing.assert_allclose(executor.run({"x": X})["y"], expected(X), rtol=1e-5)


def test_strict_mode_refuses_another_driver_version(context: Context, path: Path) -> None:
    on_another_driver(context, path, driver_version="0.0")
    with pytest.raises(WrongDevice, match=r"driver_version is .*, not '0.0'"):
        gputune.runtime.load(path, cache_compatibility_mode="strict")


def test_a_context_of_the_null_device_is_refused_by_a_real_one(context: Context, path: Path, backend: Backend) -> None:
    write_context(path, dataclasses.replace(context, computes=False))
    with pytest.raises(WrongDevice, match="made by the null device"):
        executor_on(backend, context_of(memoryview(path.read_bytes()), "from a host"), None, strict=False)


def test_a_device_that_is_not_here_is_replaced_by_one_that_works(context: Context, path: Path) -> None:
    on_another_driver(context, path, name="No Such Device")
    with pytest.warns(UserWarning, match="name is .*, not 'No Such Device'"):
        executor = gputune.runtime.load(path)
    np.testing.assert_allclose(executor.run({"x": X})["y"], expected(X), rtol=1e-5)
    on_another_driver(context, path, name="No Such Device", driver="no-such.icd")
    with pytest.warns(UserWarning, match="name is .*, not 'No Such Device'"):
        gputune.runtime.load(path)


def test_a_binary_that_the_driver_refuses_is_built_from_source(context: Context, path: Path) -> None:
    programs = [dataclasses.replace(context.programs[0], binary=b"no binary"), *context.programs[1:]]
    write_context(path, dataclasses.replace(context, programs=programs))
    with pytest.warns(UserWarning, match="refuses the binary of program 0"):
        executor = gputune.runtime.load(path)
    np.testing.assert_allclose(executor.run({"x": X})["y"], expected(X), rtol=1e-5)
    with pytest.raises(WrongDevice, match="binary of program 0"):
        gputune.runtime.load(path, cache_compatibility_mode="strict")


def test_the_device_can_be_asked_for(path: Path, report: DeviceReport) -> None:
    assert report.identity is not None
    assert gputune.runtime.load(path, device=report.identity.name[:6].upper()).computes
    assert gputune.runtime.load(path, device=str(report.index)).computes
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        null = gputune.runtime.load(path, device="null", cache_compatibility_mode="strict")
    assert not null.computes and not null.run({"x": X})["y"].any()
    with pytest.raises(DeviceNotFound, match="'no such device'"):
        gputune.runtime.load(path, device="no such device")


def test_the_recorded_device_is_opened_without_discovery(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> list[DeviceReport]:
        raise AssertionError("discovery is slow and not needed here")

    monkeypatch.setattr("gputune.runtime.loading.devices.discover", fail)
    gputune.runtime.load(path)


def test_memory_that_the_device_does_not_have_is_refused(context: Context, path: Path) -> None:
    graph = dataclasses.replace(context.graphs[0], arena_bytes=(1 << 50,))
    write_context(path, dataclasses.replace(context, graphs=(graph,)))
    with pytest.raises(WrongDevice, match="largest allocation"):
        gputune.runtime.load(path)
