"""Test contexts that change while the C runtime has them open, as files and in memory: only checked bytes are used.

tests/runtime/context/test_stored.py tests what Python reads.
"""

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from gputune.core.errors import ChecksumMismatch, FileChanged
from gputune.runtime.native.binding import Native
from tests.native.compiling import OPTIMISED, SOURCES, compiled, environment, sanitizers
from tests.native.fake import ELEMENTS, HERE, Fake, fake_library, weighted_context

NAMES = {"file_changed", "not_a_context", "truncated", "malformed_header"}


@pytest.fixture(scope="module")
def program(c_compiler: str) -> Path:
    return compiled("replaced", [HERE / "replaced.c", *SOURCES], (*OPTIMISED, "-Wl,--wrap=pread", *sanitizers()))


@pytest.mark.parametrize("change", ["short", "zeros", "another"])
def test_at_every_moment_results_are_right_or_there_is_a_named_error(
    program: Path, tmp_path: Path, change: str
) -> None:
    """Never a signal, and never bytes that were not checked: of weights, which are read piece by piece, neither."""
    one, other = weighted_context(tmp_path / "a.bin", 1), weighted_context(tmp_path / "b.bin", 3)
    command: list[str | Path] = [program, fake_library(sanitizers()), one, other, change]
    ran = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    undisturbed, *moments = (line.split()[1:] for line in ran.stdout.splitlines())
    assert undisturbed == ["2", "2"]
    assert len(moments) >= 3 + 2 * (1 + 3)  # a head in three reads; a binary and weights in three, twice
    assert {word for words in moments for word in words} <= {"2", "6", *NAMES}
    assert all(words in (["6", "6"], ["2", "2"]) or words[-1] in NAMES for words in moments)
    assert ["6", "6"] not in moments[2 if change == "another" else 0 :], (
        "of what was read before nothing has said which"
    )
    assert ["2", "file_changed"] in moments and ["file_changed", "file_changed"] in moments


@pytest.mark.parametrize("content", ["short", "zeros"])
def test_a_context_that_is_loaded_needs_its_file_no_more(native: Native, tmp_path: Path, content: str) -> None:
    path = weighted_context(tmp_path / "a.bin", 1)
    os.utime(path, (1, 1))
    x = np.zeros(ELEMENTS, np.float32)
    with native.open(path) as file, native.device(opencl=str(Fake().path)) as device, device.load(file) as graph:
        path.write_bytes(b"" if content == "short" else bytes(path.stat().st_size))
        assert set(graph.run({"x": x})["y"]) == {2.0}
        for _ in range(2):  # what is wrong is not forgotten
            with pytest.raises(FileChanged, match=r"a\.bin: it was changed while it was open; open it again"):
                device.load(file)


def test_a_file_that_is_damaged_is_refused_each_time(native: Native, tmp_path: Path) -> None:
    path = weighted_context(tmp_path / "a.bin", 1)
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    with native.open(path) as file, native.device(opencl=str(Fake().path)) as device:
        for _ in range(2):
            with pytest.raises(ChecksumMismatch, match="weights section 2 is damaged"):
                device.load(file)


def test_a_file_that_is_replaced_by_rename_stays_what_it_was(native: Native, tmp_path: Path) -> None:
    path, other = weighted_context(tmp_path / "a.bin", 1), weighted_context(tmp_path / "b.bin", 3)
    x = np.zeros(ELEMENTS, np.float32)
    with native.open(path) as file, native.device(opencl=str(Fake().path)) as device:
        other.replace(path)
        with device.load(file) as graph:
            assert set(graph.run({"x": x})["y"]) == {2.0}


def test_a_context_that_is_loaded_needs_its_bytes_no_more(native: Native, tmp_path: Path) -> None:
    data = bytearray(weighted_context(tmp_path / "a.bin", 1).read_bytes())
    with native.device(opencl=str(Fake().path)) as device:
        with native.open_bytes(data) as file:
            graph = device.load(file)
        with graph:
            data[:] = bytes(len(data))
            assert set(graph.run({"x": np.zeros(ELEMENTS, np.float32)})["y"]) == {2.0}


def test_bytes_that_are_damaged_are_refused_each_time(native: Native, tmp_path: Path) -> None:
    whole = bytearray(weighted_context(tmp_path / "a.bin", 1).read_bytes())
    whole[-1] ^= 1
    with native.open_bytes(bytes(whole)) as file, native.device(opencl=str(Fake().path)) as device:
        for _ in range(2):
            with pytest.raises(ChecksumMismatch, match="context in memory: weights section 2 is damaged"):
                device.load(file)


def test_no_bytes_are_refused(native: Native) -> None:
    with pytest.raises(ValueError, match="no bytes"):
        native.made("open_bytes", None, 8)
