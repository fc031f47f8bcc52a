"""Run the kernel tests on a driver that is not installed, in several processes, and gather what became of each test."""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import tool
from gpu.drivers import witness
from gputune.client.progress import Progress
from gputune.core.json_text import json_value

ROOT = Path(__file__).resolve().parents[3]
TESTS = "tests/opencl/kernels"
ENDED_WELL = (0, 1, 5)
"""Exit codes of pytest after which all tests have run: some have failed, or there are none."""

_FATAL = re.compile(r"^OCLGRIND FATAL ERROR .*\n(?P<what>.*)", re.MULTILINE)


@dataclass(frozen=True)
class Driver:
    """A driver of OpenCL, and how pytest's processes use it.

    beside: a folder that the system's /usr/lib gets in addition, for these processes alone.
    """

    name: str
    library: Path
    environment: Mapping[str, str]
    beside: Path | None = None

    def having(self, **variables: str) -> "Driver":
        """Return the driver with more variables."""
        return replace(self, environment={**self.environment, **variables})

    @property
    def surroundings(self) -> list[str]:
        """The command before pytest's own."""
        if self.beside is None:
            return []
        overlay = f'mount -t overlay overlay -o lowerdir="{self.beside}":/usr/lib /usr/lib && exec "$@"'
        return ["unshare", "--mount", "--map-root-user", "sh", "-c", overlay, "sh"]


@dataclass
class Outcome:
    """What became of a test: passed, failed or skipped, why, and what its driver wrote."""

    test: str
    outcome: str = "passed"
    seconds: float = 0.0
    why: str = ""
    stderr: str = ""

    def add(self, step: Mapping[str, Any]) -> None:
        """Take a step of the test into account."""
        self.seconds += step["seconds"]
        self.stderr += step["stderr"]
        if step["outcome"] != "passed" and self.outcome != "failed":
            self.outcome, self.why = step["outcome"], step["why"]

    @property
    def reason(self) -> str:
        """Return in a line why the test failed or was skipped: what oclgrind cannot do, or how the error begins."""
        if cannot := _FATAL.search(self.stderr):
            return f"oclgrind cannot do this: {cannot['what']}"
        errors = [line[1:].strip() for line in self.why.splitlines() if line.startswith("E ")]
        told = [line for line in errors if line not in ("", "AssertionError:")]
        return next(iter(told), "") or (self.why.splitlines() or [""])[-1]

    def plain(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {"test": self.test, "outcome": self.outcome, "seconds": round(self.seconds, 2), "why": self.reason}


class DidNotRun(Exception):
    """pytest ended before it had run all tests."""


def parser(command: str, text: str | None) -> argparse.ArgumentParser:
    """Return the options of both commands that run kernel tests, and the help of one."""
    result = tool.parser(command, text)
    result.add_argument("--processes", type=int, default=2, metavar="N", help="run tests in N processes (default: 2)")
    result.add_argument("--json", type=Path, metavar="F", help="write all that was found to a file")
    return result


def counts(outcomes: Sequence[Outcome]) -> str:
    """Return how many tests ended how."""
    found = Counter(each.outcome for each in outcomes)
    return ", ".join(f"{found[name]} {name}" for name in ("passed", "failed", "skipped"))


def run(driver: Driver, arguments: Sequence[str], processes: int, progress: Progress) -> list[Outcome]:
    """Run the tests that arguments of pytest choose, all without a path; returns what became of them.

    Raises DidNotRun.
    """
    chosen = [] if any((ROOT / each.partition("::")[0]).exists() for each in arguments) else [TESTS]
    found: dict[str, Outcome] = {}
    with tempfile.TemporaryDirectory(prefix="gpu-drivers-") as name, (Path(name) / "log").open("w+b") as log:
        icd = Path(name) / f"{driver.name}.icd"
        icd.write_text(f"{driver.library}\n", encoding="utf-8")
        environment = {**driver.environment, "OCL_ICD_VENDORS": name}
        command = [*driver.surroundings, sys.executable, "-m", "pytest", "-q", "-p", "gpu.drivers.witness"]
        command += ["-p", "no:cacheprovider", "-n", str(processes), "--dist", "worksteal", *chosen, *arguments]
        with _started(command, environment, log) as (process, lines):
            total = json_value(next(lines, '{"tests": 0}'))["tests"]
            with progress.running(f"tests on {driver.name}", total):
                for line in map(json_value, lines):
                    if "test" not in line:
                        continue
                    found.setdefault(line["test"], Outcome(line["test"])).add(line)
                    if line["step"] == witness.STEPS[-1]:
                        progress.advance(1, line["test"].rpartition("/")[2])
        if process.returncode not in ENDED_WELL:
            log.seek(0)
            raise DidNotRun(f"pytest ended with {process.returncode}:\n{log.read().decode(errors='replace')[-2000:]}")
    return list(found.values())


@contextmanager
def _started(
    command: Sequence[str], environment: Mapping[str, str], log: IO[bytes]
) -> Iterator[tuple[subprocess.Popen[bytes], Iterator[str]]]:
    """A process, and the lines that the plugin writes; ended at last."""
    reads, writes = os.pipe()
    path = os.pathsep.join(filter(None, [str(ROOT / "scripts"), os.environ.get("PYTHONPATH")]))
    variables = {**os.environ, **environment, "PYTHONPATH": path, witness.REPORTS: str(writes)}
    process = subprocess.Popen(command, cwd=ROOT, env=variables, stdout=log, stderr=log, pass_fds=[writes])
    os.close(writes)
    try:
        with os.fdopen(reads, encoding="utf-8") as lines:
            yield process, lines
            process.wait()
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()
