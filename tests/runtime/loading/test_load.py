"""Test loading and running a context of the null device: no OpenCL, zero outputs, clear errors."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import gputune.runtime
from gputune.core.errors import DeviceNotFound, WrongDevice
from gputune.core.identity import DeviceIdentity
from gputune.runtime.backends import open_backend
from gputune.runtime.context.format import write_context
from gputune.runtime.context.records import Context
from gputune.runtime.devices.discovery import NULL_REPORT, DeviceReport
from gputune.runtime.loading import devices
from gputune.runtime.loading.model import open_any

X = np.ones((2, 4), np.float32)


@pytest.fixture(autouse=True)
def no_wish(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GPUTUNE_DEVICE", raising=False)


def test_a_null_context_runs_without_computing(context_path: Path) -> None:
    executor = gputune.runtime.load(context_path, "null")
    assert not executor.computes
    outputs, inference_ns = executor.run_timed({"x": X})
    assert list(outputs) == ["y"]
    assert outputs["y"].dtype == np.float32 and outputs["y"].shape == (8,) and not outputs["y"].any()
    assert inference_ns > 0 and executor.load_ns > 0
    assert executor.warnings == []
    assert executor.header.tier == "null"


def test_a_null_context_runs_on_no_other_device(context_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not gputune.runtime.load(context_path, device="null").computes
    with pytest.raises(WrongDevice, match="made by the null device: it holds no rearranged weights"):
        gputune.runtime.load(context_path, device="0")
    monkeypatch.setenv("GPUTUNE_DEVICE", "cpu")
    with pytest.raises(WrongDevice, match="cannot run on 'cpu'"):
        gputune.runtime.load(context_path)


@pytest.mark.parametrize("device", [None, ""])
def test_zeros_are_only_for_callers_that_ask_for_the_null_device(
    tmp_path: Path, context: Context, monkeypatch: pytest.MonkeyPatch, device: str | None
) -> None:
    """A context of the null device, and GPUTUNE_DEVICE left in a shell, are no reason to return zeros as results."""
    null, real = tmp_path / "null.bin", tmp_path / "real.bin"
    write_context(null, context)
    write_context(real, replace(context, computes=True))
    with pytest.raises(WrongDevice, match=r'made by the null device; .* zeros, not results; device="null"'):
        gputune.runtime.load(null, device)
    monkeypatch.setenv("GPUTUNE_DEVICE", "null")
    with pytest.raises(WrongDevice, match="made by the null device"):
        gputune.runtime.load(null, device)
    with pytest.raises(DeviceNotFound, match=r"GPUTUNE_DEVICE chooses 'null', .* zeros, not results"):
        gputune.runtime.load(real, device)
    assert not gputune.runtime.load(real, "null").run({"x": X})["y"].any()


@pytest.mark.parametrize(
    ("wanted", "discovers"),
    [(None, False), ("pthread", False), ("portable computing", False), ("CORTEX", True), ("0", True)],
)
def test_the_recorded_device_is_opened_without_discovery_when_it_fits(
    tmp_path: Path, context: Context, monkeypatch: pytest.MonkeyPatch, wanted: str | None, discovers: bool
) -> None:
    made_for = {**context.device, "name": "pthread-cpu", "platform": "Portable Computing Language", "driver": "p.icd"}
    write_context(tmp_path / "context.bin", replace(context, device=made_for, computes=True))
    discovered: list[bool] = []

    def discover() -> list[DeviceReport]:
        discovered.append(True)
        return [replace(NULL_REPORT, index=0), replace(NULL_REPORT, index=1, identity=cortex)]

    cortex = replace(DeviceIdentity.from_dict(made_for), name="cortex")
    monkeypatch.setattr(devices, "driver_files", lambda: [Path("/drivers/p.icd")])
    monkeypatch.setattr(devices, "discover", discover)
    monkeypatch.setattr(devices, "open_reported", lambda report: open_backend(NULL_REPORT))
    open_any(tmp_path / "context.bin").executor(wanted)
    assert bool(discovered) is discovers


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({}, "needs the input 'x'"),
        ({"x": X, "z": X}, "no input 'z'"),
        ({"x": X.T}, "float32[4, 2], the graph takes float32[2, 4]"),
        ({"x": X.astype(np.float64)}, "float64[2, 4], the graph takes float32[2, 4]"),
    ],
)
def test_inputs_that_do_not_fit_are_named(context_path: Path, inputs: dict[str, np.ndarray], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        gputune.runtime.load(context_path, "null").run(inputs)


def test_a_strided_input_is_taken(context_path: Path) -> None:
    gputune.runtime.load(context_path, "null").run({"x": np.ones((2, 8), np.float32)[:, ::2]})


def test_graphs_and_modes_are_chosen_by_name(context_path: Path) -> None:
    assert gputune.runtime.load(context_path, "null").graph.name == "main"
    assert gputune.runtime.load(context_path, "null", graph="other").graph.name == "other"
    with pytest.raises(ValueError, match=r"no graph 'third'; the graphs are \['main', 'other'\]"):
        gputune.runtime.load(context_path, "null", graph="third")
    with pytest.raises(ValueError, match="'loose'"):
        gputune.runtime.load(context_path, "null", cache_compatibility_mode="loose")  # type: ignore[arg-type]


def test_an_application_needs_neither_opencl_nor_the_host_side(context_path: Path) -> None:
    script = f"""
import sys, gputune.runtime, numpy
gputune.runtime.load({str(context_path)!r}, "null").run({{"x": numpy.ones((2, 4), numpy.float32)}})
unwanted = {{"pyopencl", "onnx", "click", "rich", "gputune.client", "gputune.server", "gputune.kernels"}}
print(sorted(unwanted & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
