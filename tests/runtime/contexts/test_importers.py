"""Test that the importers of a device are those of the runtime that runs contexts on it."""

import mmap
from pathlib import Path

import numpy as np
import pytest

from gputune.core.errors import CannotImport, DeviceNotFound
from gputune.runtime.backends.sources import unproven
from gputune.runtime.contexts.device import NativeDevice
from gputune.runtime.devices.discovery import NULL_REPORT, DeviceReport, importers_of
from gputune.runtime.memory.handles import PAGE, MemHandle
from gputune.runtime.native.binding import Native
from tests.native.compiling import library
from tests.native.conftest import c_compiler, native
from tests.native.fake import DEVICE, Fake
from tests.native.importing import UNIFIED, Importing, importing_library

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


def test_a_gpu_without_memory_of_its_own_takes_the_whole_pages_of_a_handle(c_compiler: str) -> None:
    """An array of that size would be copied: nothing says that the rest of its last page is the application's."""
    fake, odd = Importing(importing_library()), PAGE + 100
    with fake.device(answers=UNIFIED) as opened, MemHandle.allocate(odd) as handle:
        device = NativeDevice(lambda: opened, "fake.icd", unproven)
        assert device.import_memory(handle).importer == "CL_MEM_USE_HOST_PTR"
        with pytest.raises(CannotImport, match="its size is no multiple of a cache line"):
            device.import_memory(MemHandle.from_array(np.frombuffer(mmap.mmap(-1, odd), np.uint8)))
        fake.told()
