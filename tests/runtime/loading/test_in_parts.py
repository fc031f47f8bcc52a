"""Test which device runs the parts of a model, with which driver, on made-up devices; tests/onnxruntime runs models."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from gputune.core.errors import DeviceNotFound, WrongDevice
from gputune.core.identity import DeviceIdentity
from gputune.runtime.devices.discovery import NULL_REPORT, DeviceReport
from gputune.runtime.loading import in_parts
from tests.native.fake import DEVICE

MODEL = Path("model.onnx")
GPU = replace(DEVICE, name="A GPU", platform="One", driver="one.icd")
OTHER = replace(DEVICE, name="Another GPU", platform="One", driver="one.icd")
CPU = replace(DEVICE, name="A CPU", platform="Two", driver="two.icd", device_type="cpu")
Process = Callable[..., list[str]]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Process:
    """A machine with two drivers, one of two GPUs and one of a CPU. The process sees a driver, in which the plugin
    finds a device first; the list has the driver files with which it was registered."""
    for name in ("one.icd", "two.icd"):
        (tmp_path / name).write_text(f"lib{name}.so")
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path))
    monkeypatch.delenv("GPUTUNE_OPENCL_LIBRARY", raising=False)
    monkeypatch.delenv("GPUTUNE_DEVICE", raising=False)
    devices = [(GPU, 0), (OTHER, 1), (CPU, 0)]
    reports = [
        DeviceReport(index, identity, str(tmp_path / identity.driver), True, "", position)
        for index, (identity, position) in enumerate(devices)
    ]
    monkeypatch.setattr(in_parts, "discover", lambda: reports)

    def process(first: DeviceIdentity) -> list[str]:
        registered: list[str] = []
        found = {"opencl_platform": first.platform, "opencl_device": first.name, "driver_version": "2.0"}
        monkeypatch.setattr(
            in_parts,
            "plugin",
            SimpleNamespace(
                register=lambda: registered.append(Path(os.environ["OCL_ICD_VENDORS"]).name),
                devices=lambda: [SimpleNamespace(ep_metadata=found)],
            ),
        )
        return registered

    return process


def test_parts_run_on_the_device_that_they_were_made_for(machine: Process) -> None:
    """Which is there, as the plugin says, so nothing has to be looked for."""
    registered = machine(GPU)
    found = in_parts._device_for(MODEL, GPU, None)
    assert (found.identity.name, found.identity.driver_version, found.option) == ("A GPU", "2.0", "")
    assert in_parts._device_for(MODEL, GPU, "a gpu") == found
    assert registered == ["one.icd"] * 2


@pytest.mark.parametrize(
    ("wanted", "position", "name", "driver"),
    [("1", "1", "Another GPU", "one.icd"), ("2", "0", "A CPU", "two.icd"), ("cpu", "0", "A CPU", "two.icd")],
)
def test_another_device_is_opened_by_its_place_in_its_driver(
    machine: Process, wanted: str, position: str, name: str, driver: str
) -> None:
    registered = machine(CPU if driver == "two.icd" else GPU)
    found = in_parts._device_for(MODEL, GPU, wanted)
    assert (found.identity.name, found.option, registered) == (name, position, [driver])
    assert found.spins == (name != "A CPU")


def test_the_environment_names_a_device(machine: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(CPU)
    monkeypatch.setenv("GPUTUNE_DEVICE", "cpu")
    assert in_parts._device_for(MODEL, GPU, None).identity is CPU


def test_if_the_device_is_gone_the_best_one_is_taken(machine: Process) -> None:
    machine(GPU)
    assert in_parts._device_for(MODEL, replace(GPU, name="Gone"), None).identity is GPU
    assert in_parts._device_for(MODEL, replace(GPU, driver="gone.icd"), None).identity is GPU


def test_a_process_that_has_another_driver_open_says_so(machine: Process) -> None:
    machine(GPU)
    with pytest.raises(
        DeviceNotFound, match=r"A CPU .* cannot be opened: this process has opened a device of 'One' be"
    ):
        in_parts._device_for(MODEL, GPU, "cpu")


@pytest.mark.parametrize("wanted", ["null", "waiting", "replay:recordings"])
def test_devices_that_compute_nothing_are_refused(machine: Process, wanted: str) -> None:
    with pytest.raises(DeviceNotFound, match=f"'{wanted}' computes nothing"):
        in_parts._device_for(MODEL, GPU, wanted)
    assert NULL_REPORT.identity is not None
    with pytest.raises(WrongDevice, match="its parts were made on the device 'null'"):
        in_parts._device_for(MODEL, NULL_REPORT.identity, None)
