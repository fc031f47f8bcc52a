"""Test discovery with real drivers: working and broken drivers together, and one driver per process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gputune.runtime.devices.discovery import DeviceReport, choose, discover
from tests.devices import device


@pytest.fixture(scope="module")
def report() -> DeviceReport:
    report = device()
    if not report.driver_file:
        pytest.skip("this system finds its driver without an .icd file")
    return report


def test_a_broken_driver_beside_a_working_one_costs_a_line(
    report: DeviceReport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "working.icd").write_bytes(Path(report.driver_file).read_bytes())
    (tmp_path / "absent.icd").write_text("libabsent-opencl.so\n")
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path))
    absent, working = discover()
    assert (absent.index, absent.usable, absent.identity) == (0, False, None)
    assert "gives no device" in absent.reason
    assert working.index == 1 and working.usable and working.reason == ""
    assert working.identity is not None and report.identity is not None
    assert (working.identity.name, working.identity.driver) == (report.identity.name, "working.icd")
    assert choose([absent, working]).report is working


def test_the_smoke_test_names_what_a_driver_cannot_do(
    report: DeviceReport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYOPENCL_BUILD_OPTIONS", "-Dsmoke=other")
    broken = discover()[report.index]
    assert not broken.usable and broken.identity is not None
    assert "'smoke'" in broken.reason and "\n" not in broken.reason


def test_a_device_is_found_where_no_folder_of_the_user_can_be_written(
    report: DeviceReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("XDG_CACHE_HOME", "POCL_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/proc")  # where root cannot make a file either
    assert discover()[report.index].usable


def test_a_process_sees_the_driver_of_its_report_only(report: DeviceReport) -> None:
    script = (
        "from gputune.runtime.backends.opencl import visible_devices\n"
        "print([device.name.strip() for device in visible_devices()])\n"
    )
    environment = os.environ | report.environment()
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, check=True)
    assert report.identity is not None and report.identity.name in done.stdout.decode()
    environment |= {"OCL_ICD_VENDORS": os.devnull + "/none", "OCL_ICD_FILENAMES": ""}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, check=True)
    assert done.stdout.decode().strip() == "[]"
