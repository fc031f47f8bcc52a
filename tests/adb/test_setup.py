"""Test where adb comes from, and what these tests do without it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("found", "works", "code", "said"),
    [
        (True, False, 0, ""),
        (False, True, 0, "INSTALLING adb\n"),
        (
            False,
            False,
            1,
            "setup: adb was not installed; that is Debian's adb and takes apt-get as root or with sudo\n",
        ),
    ],
)
def test_adb_is_installed_only_where_it_is_missing_and_allowed(found: bool, works: bool, code: int, said: str) -> None:
    program = (
        "source scripts/setup; apt_install() { say INSTALLING $*; }; "
        f"apt_works() {{ {str(works).lower()}; }}; command() {{ {str(found).lower()}; }}; adb_client"
    )
    run = subprocess.run(["bash", "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (code, said)


@pytest.mark.slow
@pytest.mark.parametrize(("value", "outcome"), [("true", "error"), ("", "skipped")])
def test_a_missing_adb_is_a_failure_under_ci(tmp_path: Path, value: str, outcome: str) -> None:
    test = "tests/adb/test_device.py::test_without_a_device_it_says_what_to_do"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test]
    environment = os.environ | {"CI": value, "PATH": str(tmp_path)}
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert f"1 {outcome}" in run.stdout.splitlines()[-1]
    assert "there is no adb on PATH" in run.stdout or outcome == "skipped"
