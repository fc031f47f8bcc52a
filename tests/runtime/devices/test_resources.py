"""Test that what compiled kernels take is read from logs of ptxas and from what OpenCL answers."""

import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputune.core.identity import DeviceIdentity
from gputune.core.resources import Resources
from gputune.runtime.devices.discovery import NULL_REPORT
from gputune.runtime.devices.resources import MOST_BYTES, TELLS_SPILLS, asked_resources, ptxas_resources


def identity(*extensions: str, kind: str = "gpu") -> DeviceIdentity:
    assert NULL_REPORT.identity is not None
    return replace(NULL_REPORT.identity, name="fake", device_type=kind, extensions=extensions)


KERNELS: Mapping[str, Mapping[str, Resources]] = {
    "13.0": {"spills": Resources(64, 2088, 1264, 0), "tiles": Resources(10, 0, 0, 1024)},
    "11.8": {"indexed": Resources(72, 0, 256, 0), "tiles": Resources(10, 0, 0, 1024)},
    "2": {"main": Resources(4, None, 116, 84), "plain": Resources(1, None, None, 32)},
    "OpenCL": {"reduce": Resources(32, 4, 8, 1032), "copy": Resources(6, 0, 0, 0)},
    "linker": {"first": Resources(28, None, 0, 0), "second": Resources(30, None, 24, 96)},
    "calls": {"run": Resources(52, 64, 104, 1088)},
}
"""By version, what its log says of kernels."""
LOGS = {name: (Path(__file__).parent / "ptxas" / f"{name}.log").read_text(encoding="utf-8") for name in KERNELS}


@pytest.mark.parametrize("version", KERNELS)
def test_logs_of_ptxas_are_read(version: str) -> None:
    kernels, found = KERNELS[version], ptxas_resources(LOGS[version])
    assert {name: found[name] for name in kernels} == kernels


def test_functions_do_not_mix_with_the_kernel_that_calls_them() -> None:
    found = ptxas_resources(LOGS["calls"])
    assert (found["helper"], found["after"]) == (Resources(None, 0, 88), Resources(None, 0, 8))


@pytest.mark.skipif(shutil.which("ptxas") is None, reason="ptxas is not installed")
def test_the_log_of_the_ptxas_here_is_read(tmp_path: Path) -> None:
    source = Path(__file__).parent / "ptxas" / "kernel.ptx"
    command = ["ptxas", "-v", "-arch=sm_75", str(source), "-o", str(tmp_path / "cubin")]
    log = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    (kernel,) = ptxas_resources(log).items()
    assert kernel[0] == "gputune_1_run"
    assert (kernel[1].spilled_bytes, kernel[1].private_bytes, kernel[1].local_bytes) == (0, 0, 512)
    assert kernel[1].registers in range(2, 33)


ODD = ("", "\n", "\r", "\0", "\u2028", "\ud800", "'", "+", "-", "9" * 5000, "99999999", "\u0661\u0662", "bytes", "'f'")
PIECES = [*ODD, *dict.fromkeys(line for log in LOGS.values() for line in log.splitlines(keepends=True))]
PIECES += dict.fromkeys(word for piece in PIECES[len(ODD) :] for word in re.split(r"(\s+)", piece))


@given(st.lists(st.sampled_from(PIECES), max_size=20).map("".join))
def test_no_text_makes_it_raise(log: str) -> None:
    """Lines and words of all logs, and texts that no log has, in any order."""
    for kernel in ptxas_resources(log).values():
        assert all(0 <= value < 1 << 31 for value in kernel.known.values())


@pytest.mark.parametrize("number", ["9" * 5000, "١٢", "-4", "+", "4+", "+4", "1e3"])
def test_numbers_that_are_none_are_passed_over(number: str) -> None:
    found = ptxas_resources(f"Compiling entry function 'f'\n{number} bytes stack frame, {number} bytes spill loads")
    assert found.get("f", Resources()) in (Resources(), Resources(None, 4, 4)), "what follows a sign may count"


def answer(what: int) -> int | None:
    return {0x11B2: 4096, 0x11B4: 1024, 0x4109: 64}.get(what)


def test_a_gpu_is_asked_and_its_spills_only_with_the_extension() -> None:
    intel = identity("cl_intel_required_subgroup_size")
    assert asked_resources(answer, intel) == Resources(None, 64, 1024, 4096)
    assert asked_resources(answer, identity()) == Resources(None, None, 1024, 4096)
    assert asked_resources(lambda what: None, intel) == Resources()
    assert asked_resources(lambda what: 2**64 - 1, intel) == Resources()


@pytest.mark.parametrize("what", [0x11B2, 0x11B4, 0x4109])
@pytest.mark.parametrize(
    ("told", "believed"),
    [(0, True), (1, True), (MOST_BYTES, True), (MOST_BYTES + 1, False), (1 << 63, False), ((1 << 64) - 1, False)],
)
def test_an_amount_that_no_kernel_has_is_not_believed(what: int, told: int, believed: bool) -> None:
    """Of each question, at the bound and beyond it; what the driver says of the others counts."""
    found = asked_resources(lambda asked: told if asked == what else answer(asked), identity(TELLS_SPILLS))
    wanted = {each: answer(each) for each in (0x11B2, 0x11B4, 0x4109)} | {what: told if believed else None}
    assert found == Resources(None, wanted[0x4109], wanted[0x11B4], wanted[0x11B2])


def test_what_a_cpu_says_of_private_memory_is_no_fact() -> None:
    cpu = identity("cl_intel_required_subgroup_size", kind="cpu")
    assert asked_resources(answer, cpu) == Resources(local_bytes=4096)
