"""Test that what the C runtime opens belongs to the process that opened it, as in Python (test_opened.py)."""

import subprocess
from pathlib import Path

import pytest

from gputune.runtime.native.binding import Native
from tests.native.compiling import OPTIMISED, SOURCES, compiled, environment
from tests.native.fake import HERE, fake_library
from tests.native.stateful import stateful_context

STRICT = ("-std=c11", "-Wall", "-Wextra")
SANITIZED = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")


@pytest.mark.parametrize("flags", [(), pytest.param(SANITIZED, marks=pytest.mark.night)], ids=["plain", "sanitizers"])
def test_a_fork_is_refused_at_once_and_closes_without_the_driver(
    native: Native, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    """Also where another thread had the device's turn; leaks are those of the driver's objects alone."""
    sources = [path for path in SOURCES if path.name != "profile.c"]
    program = compiled("forks", [HERE / "forks.c", *sources], (*OPTIMISED, *flags), STRICT)
    library, context = fake_library(flags), stateful_context(tmp_path / "a.bin", {"main": 0})
    (tmp_path / "suppressed").write_text("leak:libOpenCL_fake\nleak:libdl\n")
    variables = {"XDG_RUNTIME_DIR": str(tmp_path), "LSAN_OPTIONS": f"suppressions={tmp_path / 'suppressed'}"}
    command = [program, library, context, tmp_path]
    ran = subprocess.run(command, env=environment() | variables, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    *refused, last = ran.stdout.splitlines()
    assert (len(refused), last) == (27, "goes on")
    log = (tmp_path / "profile.log").read_bytes()
    assert log.count(b"not written yet") == 1
