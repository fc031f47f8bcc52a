"""Test the report on what a run of the tests took."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import durations
from tests.project.sources import ROOT


def test_a_report_adds_times_by_room_test_and_fixture(tmp_path: Path) -> None:
    names = ("tests/opencl/kernels/test_a.py::test_x", "tests/cache/test_b.py::test_y[1-2]")
    rows = [
        {"test": name, "phase": phase, "outcome": "passed", "wall_s": wall_s, "cpu_s": 1.0}
        for name, factor in zip(names, (1, 10), strict=True)
        for phase, wall_s in (("setup", 2.0 * factor), ("call", 3.0 * factor), ("teardown", 0.5 * factor))
    ]
    fixture = {"fixture": "server", "scope": "session", "test": names[1], "wall_s": 1.5, "cpu_s": 1.0}
    kept = tmp_path / "durations.jsonl"
    kept.write_text("".join(json.dumps(row) + "\n" for row in [*rows, fixture, fixture]), encoding="utf-8")
    lines = [
        [cell.strip() for cell in line.strip("| ").split("|")]
        for line in durations.report(durations.rows_of(kept)).splitlines()
    ]
    assert ["opencl/kernels", "1", "2.0", "3.0", "0.5", "3.0"] in lines
    assert ["all", "2", "22.0", "33.0", "5.5", "6.0"] in lines
    assert lines.index([names[1], "20.0", "30.0", "5.0", "3.0"]) < lines.index([names[0], "2.0", "3.0", "0.5", "3.0"])
    assert [line[0] for line in lines].count(names[1]) == 2  # of the dearest, and too long
    assert [line[0] for line in lines].count(names[0]) == 1
    assert ["server (session) of tests/cache/test_b.py", "2", "3.0"] in lines


@pytest.mark.slow
def test_a_process_that_ends_fails_its_test_alone(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text("import os\ndef test_ends(): os._exit(9)\ndef test_goes_on(): pass\n")
    command = [sys.executable, "-m", "pytest", "-p", "tests.durations", "--durations_file", str(tmp_path / "kept")]
    command += ["-n", "1", "--rootdir", str(tmp_path), str(tmp_path)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "1 failed, 1 passed" in ran.stdout, ran.stdout
    assert any("test_goes_on" in row["test"] for row in durations.rows_of(tmp_path / "kept"))


@pytest.mark.parametrize("content", [None, "no durations\n"])
def test_without_durations_it_says_what_to_run(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "kept").write_text(content, encoding="utf-8")
    with pytest.raises(SystemExit, match="run scripts/test"):
        durations.rows_of(tmp_path / "kept")
