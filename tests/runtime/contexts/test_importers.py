"""Test that the importers of a device are those of the runtime that runs contexts on it."""

from pathlib import Path

import pytest

from gputune.core.errors import DeviceNotFound
from gputune.runtime.devices.discovery import NULL_REPORT, DeviceReport, importers_of
from gputune.runtime.native.binding import Native
from tests.native.compiling import library
from tests.native.conftest import c_compiler, native
from tests.native.fake import DEVICE, Fake

__all__ = ["c_compiler", "native"]

REPORT = DeviceReport(0, DEVICE, "", usable=True, reason="")


@pytest.fixture
def in_c(c_compiler: str, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """The runtime runs contexts in C, and a process of its own finds the fake OpenCL."""
    fake = Fake()
    monkeypatch.setenv("GPUTUNE_RUNTIME_LIBRARY", str(library()))
    monkeypatch.setenv("GPUTUNE_OPENCL_LIBRARY", str(fake.path))
    return fake


def test_a_process_of_its_own_asks_the_c_runtime(in_c: Fake, native: Native) -> None:
    with native.device(name="0", opencl=str(in_c.path)) as device:
        wanted = device.importers()
    assert importers_of(REPORT) == wanted and any(reason for _, reason in wanted)


@pytest.mark.usefixtures("in_c")
def test_what_cannot_be_opened_there_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUTUNE_OPENCL_LIBRARY", str(tmp_path / "nothing.so"))
    with pytest.raises(DeviceNotFound, match=r"cannot be asked for its memory: .*nothing\.so"):
        importers_of(REPORT)


@pytest.mark.usefixtures("in_c")
def test_a_simulated_device_is_asked_in_python() -> None:
    assert importers_of(NULL_REPORT) == [("host pointer", ""), ("copy", "")]
