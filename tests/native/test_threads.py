"""Test several threads that use the same objects of the C runtime, under sanitizers for threads and for memory."""

import subprocess
from pathlib import Path

import pytest

from gputune.runtime.native.binding import Native
from tests.native.compiling import OPTIMISED, SOURCES, compiled, environment
from tests.native.fake import HERE, doubling_context, fake_library
from tests.native.stateful import stateful_context

STRICT = ("-std=c11", "-Wall", "-Wextra")
KEPT = ("-fno-omit-frame-pointer", "-fno-sanitize-recover=all")
SANITIZED = [
    pytest.param((f"-fsanitize={name}", *KEPT), id=name, marks=pytest.mark.night)
    for name in ("thread", "address,undefined")
]
"""The flags of programs that threads share objects in, or vote in."""


@pytest.mark.parametrize("flags", [pytest.param((), id="plain"), *SANITIZED])
def test_threads_may_share_all_objects(native: Native, tmp_path: Path, flags: tuple[str, ...]) -> None:
    """On an OpenCL library that locks nothing: what it is called with at once is a data race."""
    library = fake_library(flags)
    program = compiled("threads", [HERE / "threads.c", *SOURCES], (*OPTIMISED, *flags), STRICT)
    context = doubling_context(tmp_path / "a.bin")
    remembering = stateful_context(tmp_path / "b.bin", {"one": 1})
    command = [program, library, context, remembering, tmp_path]
    ran = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout == "80 callbacks, 0 wrong\n"
