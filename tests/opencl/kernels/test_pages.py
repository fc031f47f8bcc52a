"""Test that no kernel reads or writes outside its buffers, which end or begin at a page without access (pages.py)."""

import json
import re
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

from gputune.runtime.devices.discovery import DeviceReport
from tests.kernels.problems import CPU
from tests.opencl.conftest import KernelBench
from tests.opencl.kernels.pages import cases, entries
from tests.opencl.known import reads_in_place

ROOT = Path(__file__).parents[3]
PARTS = 2
SECONDS = 900


@pytest.fixture(autouse=True)
def _in_place(bench: KernelBench) -> None:
    if not reads_in_place(bench.backend.identity):
        pytest.skip("the device does not read memory of the host where it lies")


def run(report: DeviceReport, bench: KernelBench, *arguments: object) -> tuple[int, list[str]]:
    """How the program in pages.py ended, and the lines that it wrote."""
    device = json.dumps(report.to_dict())
    command = [sys.executable, "-m", "tests.opencl.kernels.pages", device, bench.options, *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS)
    return done.returncode, done.stdout.splitlines() or [done.stderr]


@pytest.mark.long("for who writes a kernel: nothing else sees a read outside of a buffer")
@pytest.mark.parametrize("part", range(PARTS))
def test_kernels_stay_inside_of_their_buffers(report: DeviceReport, bench: KernelBench, part: int) -> None:
    code, lines = run(report, bench, part, PARTS)
    assert (code, lines[-1]) == (0, "done"), f"ended with {code} in: {lines[-1]}"


@pytest.mark.parametrize(("first", "read"), [(2, 2), (3, 0), (-1, 1)], ids=["inside", "behind", "before"])
def test_a_read_outside_ends_the_process(report: DeviceReport, bench: KernelBench, first: int, read: int) -> None:
    code, lines = run(report, bench, "outside", first)
    assert (code == 0) == (read == 2)
    assert lines.count("read") == read


def test_every_kernel_is_among_the_cases() -> None:
    texts = [path.read_text() for path in files("gputune.kernels.ops").iterdir() if path.name.endswith(".cl")]
    kernels = {name for text in texts for name in re.findall(r"__kernel\b.*?\bvoid (\w+)", text, re.DOTALL)}
    assert {entry for case in cases(CPU) for entry in entries(case.instance)} == kernels
