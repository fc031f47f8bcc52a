"""Run the tests of kernels on this device, in several processes: count the passes, and name the failures."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from gpu.record import Record, run

ROOT = Path(__file__).resolve().parents[3]
TESTS = "tests/opencl/kernels"
REHEARSED = "tests/opencl/kernels/test_softmax.py"
MOST_PROCESSES = 12
HOW = "(PASSED|FAILED|ERROR|SKIPPED|XFAIL)"
LINE = re.compile(rf"\[gw\d+\] \[ *\d+%\] {HOW} (tests/\S+)|^(tests/\S+) {HOW}")
TIME = re.compile(r"\d+\.\d+s (?:call|setup) .*")


def main(record: Record) -> None:
    """Runs pytest and reads what it says, so that what was tested counts when time is up."""
    processes = min(MOST_PROCESSES, os.cpu_count() or 1)
    command = [sys.executable, "-m", "pytest", "-v", "--tb=short", "--color=no", "-p", "no:cacheprovider"]
    command += ["-n", str(processes), "--dist", "worksteal", "--durations=15"] if processes > 2 else ["-n", "0"]
    command.append(REHEARSED if record.rehearse else TESTS)
    path = record.folder / "pytest.txt"
    start = time.monotonic()
    with path.open("wb") as output:
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
        while process.poll() is None and record.left > 0:
            time.sleep(0.5)
            _tell(record, path, processes)
    ended = process.poll()
    if ended is None:
        process.terminate()
    _tell(record, path, processes)
    record.put("tests", "exit_code", value=ended)
    record.put("tests", "seconds", value=round(time.monotonic() - start, 1))
    counts, failures = record.get("tests", "counts"), record.get("tests", "failures")
    record.say(f"{counts} in {record.get('tests', 'seconds')} s by {processes} processes, pytest ended with {ended}")
    record.say(f"failures: {failures}")
    if failures:
        sys.exit(f"{len(failures)} tests failed")


def _tell(record: Record, path: Path, processes: int) -> None:
    text = path.read_text(encoding="utf-8", errors="replace")
    found = results(text)
    counts = Counter(found.values())
    failures = sorted(name for name, how in found.items() if how in ("FAILED", "ERROR"))
    slow = [line.strip() for line in text.splitlines() if TIME.match(line.strip())]
    told = {"counts": dict(counts), "failures": failures, "processes": processes, "slowest": slow}
    record.put("tests", value={**(record.get("tests") or {}), **told})


def results(text: str) -> dict[str, str]:
    """Return what became of each test, from pytest's lines, with xdist or without."""
    found = {}
    for line in text.splitlines():
        if match := LINE.match(line):
            name, how = (match[2], match[1]) if match[1] else (match[3], match[4])
            found[name] = how
    return found


if __name__ == "__main__":
    run(main)
