"""Test that real versions of onnxruntime take gputune's plugin, in a child process each."""

import os
import subprocess
import sys

import pytest

from gputune.client.doctor.onnxruntime import check_onnxruntime
from tests.onnxruntimes import OLDEST, child_environment

PROGRAM = """
import sys
import gputune
gputune.onnxruntime.register()
gputune.onnxruntime.register()
assert "pyopencl" not in sys.modules
import onnxruntime
(device,) = gputune.onnxruntime.devices()
print(onnxruntime.__version__, device.ep_name, device.ep_vendor)
onnxruntime.SessionOptions().add_provider_for_devices([device], {})
onnxruntime.unregister_execution_provider_library(gputune.onnxruntime.ep_name())
assert gputune.onnxruntime.devices() == []
gputune.onnxruntime.register()
assert len(gputune.onnxruntime.devices()) == 1
"""


@pytest.mark.parametrize("version", [pytest.param("oldest", marks=pytest.mark.night), "newest"])
def test_it_registers(version: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=child_environment(version), capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == 0, ran.stderr
    found, *said = ran.stdout.split()
    assert said == ["GputuneExecutionProvider", "gputune"]
    assert (found == OLDEST) == (version == "oldest")


def test_without_a_driver_the_reason_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCL_ICD_VENDORS", os.devnull)
    found = check_onnxruntime()
    assert found.status == "note"
    assert "gputune finds no OpenCL device for onnxruntime" in found.line


def test_the_doctor_says_that_it_works() -> None:
    found = check_onnxruntime()
    assert found.status == "ok", found.line
    assert "runs contexts on 1 device (" in found.line
