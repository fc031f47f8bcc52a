"""Test the choice rule, what a probe's output becomes, and which drivers a process sees."""

import dataclasses
import json
import os
import stat
import sys
from pathlib import Path

import pytest

from gputune.core.errors import DeviceNotFound
from gputune.core.identity import DeviceIdentity
from gputune.runtime.devices import discovery, drivers
from gputune.runtime.devices.discovery import NULL_REPORT, DeviceReport, choose, discover, listed, wanted_device

assert NULL_REPORT.identity is not None
IDENTITY = NULL_REPORT.identity


def report(index: int, kind: str, name: str, units: int = 4, reason: str = "", platform: str = "P") -> DeviceReport:
    identity = dataclasses.replace(IDENTITY, platform=platform, name=name, device_type=kind, compute_units=units)
    return DeviceReport(index, identity, f"/vendors/{platform}.icd", not reason, reason)


CPU = report(0, "cpu", "Small CPU", 2)
BIG = report(1, "cpu", "Big CPU", 16, platform="Q")
NPU = report(2, "accelerator", "Some NPU", 1)
GPU = report(3, "gpu", "Good GPU", 1)
DEAD = report(4, "gpu", "Dead GPU", 99, reason="the driver crashed with SIGSEGV")
EMPTY = DeviceReport(5, None, "/vendors/empty.icd", False, "the driver gives no device")


@pytest.mark.parametrize(
    ("reports", "wanted", "chosen"),
    [
        ([CPU], None, CPU),
        ([CPU, BIG], None, BIG),
        ([CPU, BIG, NPU], None, NPU),
        ([CPU, BIG, NPU, GPU], None, GPU),
        ([CPU, DEAD, EMPTY], None, CPU),
        ([CPU, BIG, GPU], "cpu", BIG),
        ([CPU, BIG, GPU], "small", CPU),
        ([CPU, BIG, GPU], "Q", BIG),
        ([CPU, BIG, GPU], "0", CPU),
        ([CPU, BIG, GPU, DEAD], "gpu", GPU),
        ([], "null", NULL_REPORT),
        ([GPU], "null", NULL_REPORT),
    ],
)
def test_the_choice(reports: list[DeviceReport], wanted: str | None, chosen: DeviceReport) -> None:
    assert choose(reports, wanted).report is chosen


@pytest.mark.parametrize(
    ("reports", "wanted", "words"),
    [
        ([], None, ["no OpenCL device", "pocl-opencl-icd"]),
        ([DEAD, EMPTY], None, ["Dead GPU", "SIGSEGV", "empty.icd", "gives no device", "pocl-opencl-icd"]),
        ([CPU, DEAD], "4", ["'4' is not usable", "SIGSEGV"]),
        ([CPU], "nothing", ["no device matches 'nothing'", "Small CPU", "gputune devices"]),
        ([CPU], "7", ["no device matches '7'"]),
        ([NULL_REPORT], "nul", ["no device matches"]),
    ],
)
def test_no_choice_says_why_and_what_to_do(reports: list[DeviceReport], wanted: str | None, words: list[str]) -> None:
    with pytest.raises(DeviceNotFound) as caught:
        choose([r for r in reports if not r.simulated], wanted)
    for word in words:
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_report_prints_as_one_line() -> None:
    assert f"{CPU}" == "#0 Small CPU (P, cpu): works"
    assert f"{DEAD}" == "#4 Dead GPU (P, gpu): the driver crashed with SIGSEGV"
    assert f"{EMPTY}" == "driver /vendors/empty.icd: the driver gives no device"


def test_the_explanation_names_all_that_was_passed_over_and_why() -> None:
    lines = choose([CPU, BIG, GPU, DEAD, EMPTY], None).explanation
    assert lines[0] == "using #3 Good GPU (P, gpu): the best usable device, a GPU"
    assert lines[1:] == (
        "passed over #0 Small CPU (P, cpu): a GPU is preferred to a CPU",
        "passed over #1 Big CPU (Q, cpu): a GPU is preferred to a CPU",
        "passed over #4 Dead GPU (P, gpu): the driver crashed with SIGSEGV",
        "passed over driver /vendors/empty.icd: the driver gives no device",
    )
    assert choose([CPU, BIG], "small").explanation[1].endswith("does not match 'small'")
    assert choose([CPU, BIG]).explanation[1].endswith("fewer compute units or a later number")


def test_an_explicit_device_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUTUNE_DEVICE", "intel")
    assert wanted_device("pocl") == "pocl"
    assert wanted_device(None) == "intel"
    monkeypatch.setenv("GPUTUNE_DEVICE", "")
    assert wanted_device(None) is None


def test_a_report_survives_json() -> None:
    for one in (CPU, DEAD, EMPTY):
        assert DeviceReport.from_dict(json.loads(json.dumps(one.to_dict()))) == one
    for name in ("index", "driver_file", "usable", "reason", "position", "identity"):
        with pytest.raises(ValueError, match=name):
            DeviceReport.from_dict(CPU.to_dict() | {name: 1.5})


def test_an_identity_from_outside_is_checked() -> None:
    fields = IDENTITY.to_dict()
    assert DeviceIdentity.from_dict(fields) == IDENTITY
    for name in fields:
        with pytest.raises(ValueError, match=name):
            DeviceIdentity.from_dict({key: value for key, value in fields.items() if key != name})
        with pytest.raises(ValueError, match=name):
            DeviceIdentity.from_dict(fields | {name: None})
    with pytest.raises(ValueError, match="DeviceIdentity has no 'color'"):
        DeviceIdentity.from_dict(fields | {"color": "red"})


def test_a_binary_belongs_to_a_device_and_a_driver_version_but_not_to_its_free_memory() -> None:
    assert dataclasses.replace(IDENTITY, global_memory_bytes=5).runs_binaries_of(IDENTITY)
    for name in ("platform", "platform_version", "name", "driver_version", "device_version"):
        other = DeviceIdentity.from_dict(IDENTITY.to_dict() | {name: "other"})
        assert not other.runs_binaries_of(IDENTITY)
        assert other.difference(IDENTITY) == f"{name} is 'other', not {getattr(IDENTITY, name)!r}"


def probe_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, limit_s: float = 30) -> list[DeviceReport]:
    """Discovery with one driver, whose probe is this shell script."""
    (tmp_path / "one.icd").write_text("libone.so\n")
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(python))
    return discover(limit_s)


def line(one: DeviceReport) -> str:
    return f"echo '{discovery.PROBE_MARK}{json.dumps(one.to_dict())}'"


UNTESTED = dataclasses.replace(CPU, usable=False, reason="not tested")
SECOND = dataclasses.replace(UNTESTED, position=1)


def test_a_list_of_devices_asks_no_driver_to_build(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tested = f"{line(UNTESTED)}; for last; do :; done; [ $last = --list ] || kill -KILL $$"
    (crashed,) = probe_says(monkeypatch, tmp_path, tested)
    assert "SIGKILL" in crashed.reason
    (untested,) = listed()
    assert (untested.index, untested.identity, untested.reason) == (0, CPU.identity, "not tested")


def test_a_driver_that_crashes_names_the_device_it_crashed_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = "\n".join([line(UNTESTED), line(SECOND), "echo noise", line(CPU), "echo dying >&2", "kill -SEGV $$"])
    first, second = probe_says(monkeypatch, tmp_path, script)
    assert first.usable and first.index == 0
    assert not second.usable and second.index == 1
    assert second.reason == "the driver crashed with SIGSEGV (dying) before its test was done"


def test_a_driver_that_hangs_is_stopped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (only,) = probe_says(monkeypatch, tmp_path, "exec sleep 60", limit_s=0.3)
    assert only.identity is None and only.reason == "the driver hung for more than 0.3 s"


def test_a_probe_without_devices_says_where_drivers_were_looked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (only,) = probe_says(monkeypatch, tmp_path, "true")
    assert "gives no device" in only.reason and str(tmp_path) in only.reason
    (only,) = probe_says(monkeypatch, tmp_path, f"echo '{discovery.PROBE_MARK}{{\"index\": 0'; exit 3")
    assert only.reason == "the probe ended with code 3"


def test_a_driver_without_devices_may_miss_a_folder_that_can_be_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/proc")  # where root cannot make a file either
    monkeypatch.setattr(os, "access", lambda path, mode: path != "/proc")
    (only,) = probe_says(monkeypatch, tmp_path, "true")
    assert only.reason.endswith("perhaps because /proc cannot be written; name another folder by HOME")


def test_a_driver_whose_library_has_gone_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("gputune.runtime.devices.discovery.library_of", lambda file: "/no/such/libdriver.so")
    (only,) = probe_says(monkeypatch, tmp_path, "true")
    assert only.reason == "the driver gives no device: its library /no/such/libdriver.so is missing; install it again"


def test_a_probe_sees_one_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (only,) = probe_says(monkeypatch, tmp_path, 'echo "$OCL_ICD_VENDORS $OCL_ICD_FILENAMES" >&2; exit 1')
    assert f"({tmp_path}/one.icd libone.so)" in only.reason
    assert only.environment() == {"OCL_ICD_VENDORS": f"{tmp_path}/one.icd", "OCL_ICD_FILENAMES": "libone.so"}
    assert NULL_REPORT.environment() == {}


def test_drivers_come_from_the_system_and_from_pip_unless_the_user_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("OCL_ICD_VENDORS", raising=False)
    monkeypatch.delenv("OPENCL_VENDOR_PATH", raising=False)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    own = tmp_path / "etc" / "OpenCL" / "vendors"
    own.mkdir(parents=True)
    (own / "pip.icd").write_text("libpip.so")
    (own / "same.icd").write_text("libpip.so\n")
    (own / "empty.icd").write_text("")
    assert Path("/etc/OpenCL/vendors") in drivers.vendor_folders()
    mine = [file.name for file in drivers.driver_files() if own in file.parents]
    assert mine == ["pip.icd"]
    other = tmp_path / "other"
    other.mkdir()
    (other / "b.icd").write_text("libb.so")
    (other / "a.icd").write_text("liba.so")
    monkeypatch.setenv("OCL_ICD_VENDORS", str(other))
    assert [file.name for file in drivers.driver_files()] == ["a.icd", "b.icd"]
    monkeypatch.setenv("OCL_ICD_VENDORS", str(other / "b.icd"))
    assert [file.name for file in drivers.driver_files()] == ["b.icd"]
    monkeypatch.setenv("OCL_ICD_VENDORS", os.devnull + "/nothing")
    assert drivers.driver_files() == []
