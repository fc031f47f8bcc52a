"""Test the doctor's checks of adb, and of the ways to serve a phone."""

import sys
from pathlib import Path
from typing import Any

import pytest

from gputune.client.advice import ADVICE
from gputune.client.doctor.adb import check_adb
from gputune.client.doctor.findings import Finding, exit_code
from gputune.client.errors import TargetError
from gputune.client.target.adb import device as adb_device
from gputune.client.target.adb import python as adb_python
from gputune.client.target.adb.agent import Agent
from tests.client.test_doctor import of, seeing


def test_no_adb_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Any:
        raise TargetError("adb_missing", "adb is not installed")

    monkeypatch.setattr(adb_device, "devices", missing)
    (finding,) = check_adb(None, None)
    assert finding == Finding("adb", "problem", "adb is not installed [adb_missing]", ADVICE["adb_missing"])
    assert exit_code([finding]) == 4


def test_a_device_that_cannot_be_used_is_a_problem_with_its_state(monkeypatch: pytest.MonkeyPatch) -> None:
    seeing(monkeypatch, "unauthorized")
    findings = check_adb("A", None)
    assert of(findings, "note") == ["adb sees A, its state is 'unauthorized'"]
    assert of(findings, "problem") == ["adb lists no device A [adb_no_device]"]


def test_a_device_that_is_ready_is_told_with_its_python(monkeypatch: pytest.MonkeyPatch) -> None:
    seeing(monkeypatch, "device", "offline")
    assert of(check_adb(None, None), "ok") == [
        "adb sees A, its state is 'device'",
        "python3 of A can run the target server",
    ]
    assert "/p/python of A" in of(check_adb(None, "/p/python"), "ok")[-1]
    seeing(monkeypatch, "device", python=None)
    assert of(check_adb(None, None), "note")[-1] == "the shell of A may start no Python"


def test_a_phone_says_which_way_is_open_and_what_the_other_takes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def no_python(device: Any, wanted: str | None) -> str:
        raise TargetError("adb_python", "no Python of A can run it")

    seeing(monkeypatch, "device")
    assert of(check_adb(None, None), "note") == ["A has no agent: no agent was built for it"]
    assert of(check_adb(None, "/p/python"), "note") == []
    seeing(monkeypatch, "device", agent=Agent(tmp_path / "built", b""))
    used, spare = of(check_adb(None, None), "ok")[1:]
    assert used == f"a command with --adb uses the agent {tmp_path / 'built'} on A: it was built for its processor"
    assert spare == "python3 of A can run the target server, if --adb_python asks for it"
    monkeypatch.setattr(adb_python, "choose_python", no_python)
    findings = check_adb(None, None)
    assert exit_code(findings) == 0 and of(findings, "note") == ["A has only the agent: no Python of A can run it"]
    assert exit_code(check_adb(None, "/p/python")) == 4
    (tmp_path / "named").touch()
    assert of(check_adb(None, None, tmp_path / "named"), "ok")[1:] == [
        f"a command with --adb uses the agent {tmp_path / 'named'} on A: it is named by --adb_agent"
    ]
    assert exit_code(check_adb(None, None, tmp_path / "missing")) == 4
    seeing(monkeypatch, "device")
    monkeypatch.setattr(adb_python, "choose_python", no_python)
    findings = check_adb(None, None)
    assert exit_code(findings) == 4
    assert [(each.line, each.advice) for each in findings if each.status == "note"] == [
        ("A has no agent: no agent was built for it", "build one")
    ]


def test_a_missing_package_is_no_end_of_the_doctor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gputune.client.target.adb.device", None)
    monkeypatch.delattr("gputune.client.target.adb.device")
    (problem,) = of(check_adb(None, None), "problem")
    assert problem.startswith("adb cannot be used: ")
