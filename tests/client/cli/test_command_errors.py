"""Test that every command ends with one line on standard error and the right exit code."""

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gputune.client.cli import main as command_line
from gputune.client.errors import OutputError
from tests.client.commands import Generate, Gputune
from tests.client.models import build, save

GPUTUNE = [sys.executable, "-m", "gputune.client.cli.main"]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save(build("(float[2] x) => (float[2] y)", "y = Relu(x)"), tmp_path)


def failing(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(*arguments: Any, **options: Any) -> None:
        raise error

    monkeypatch.setattr(command_line.cli, "main", fail)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (KeyError("it\x1b[2K"), "unexpected KeyError: 'it\\x1b[2K'; "),
        (ValueError("one\ntwo\r\x1b[31mthree"), "unexpected ValueError: one two ?[31mthree; "),
        (RecursionError(), "unexpected RecursionError; "),
        (MemoryError(), "unexpected MemoryError; "),
        (OSError(errno.ENOSPC, "No space", "cache.db"), "unexpected OSError: [Errno 28] No space: 'cache.db'; "),
    ],
)
def test_whatever_is_raised_is_one_line(
    gputune: Gputune, monkeypatch: pytest.MonkeyPatch, error: Exception, said: str
) -> None:
    failing(monkeypatch, error)
    ran = gputune("devices")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == f"error: {said}GPUTUNE_TRACEBACK=1 shows where it comes from\n"


def test_where_an_error_comes_from_is_shown_on_request(gputune: Gputune, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, KeyError("it"))
    monkeypatch.setenv("GPUTUNE_TRACEBACK", "1")
    ran = gputune("devices")
    assert "Traceback" in ran.err and ran.last_line.startswith("error: unexpected KeyError")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no device that is always full")
@pytest.mark.parametrize(
    ("arguments", "stream", "code"),
    [
        (["completion", "bash"], "stdout", 6),
        (["completion", "csh"], "stderr", 2),
    ],
)
def test_full_streams(arguments: list[str], stream: str, code: int) -> None:
    with Path("/dev/full").open("w") as full:
        streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, stream: full}
        done = subprocess.run([*GPUTUNE, *arguments], **streams, text=True)
    assert done.returncode == code
    if stream == "stdout":
        assert done.stderr == "error: standard output cannot be written: No space left on device\n"


@pytest.mark.parametrize(
    ("code", "of_streams"),
    [
        *((code, True) for code in (errno.EBADF, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOSPC)),
        *((code, False) for code in (errno.EACCES, errno.ENOENT, errno.ENOMEM, errno.EPERM)),
    ],
)
def test_errors_of_streams_are_told_from_others(monkeypatch: pytest.MonkeyPatch, code: int, of_streams: bool) -> None:
    """Those of a file have its name, and are no error of a stream, whatever their reason."""

    def fail(**_: object) -> None:
        raise OSError(code, os.strerror(code), *names)

    names: tuple[str, ...] = ()
    monkeypatch.setattr(command_line.cli, "main", fail)
    monkeypatch.setattr(os, "dup2", lambda old, new: new)
    with pytest.raises(OutputError if of_streams else OSError, match=os.strerror(code)):
        command_line._run([])
    names = ("FILE",)
    with pytest.raises(OSError, match="FILE"):
        command_line._run([])


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere names of files are always texts")
def test_names_of_files_that_are_no_text_here(tmp_path: Path) -> None:
    """The bytes of an e with an accent in UTF-8, where names are ASCII."""
    named = os.fsencode(tmp_path) + b"/\xc3\xa9"
    ascii_only = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run([*GPUTUNE, "power", "fake-tree", named, "kgsl"], capture_output=True, env=ascii_only)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (Path(os.fsdecode(named)) / "sys").is_dir()


def test_a_context_that_is_not_valid_is_an_output_that_cannot_be_written(
    generate: Generate, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What no check at import has seen."""
    monkeypatch.setattr("gputune.runtime.context.records.LARGEST_TENSOR_BYTES", 0)
    ran = generate(model=model)
    assert ran.code == 6
    assert "cannot be written: tensor 'x'" in ran.last_line
    assert not ran.context.exists()


def test_a_group_alone_shows_its_commands(gputune: Gputune) -> None:
    ran = gputune("performance-cache")
    assert (ran.code, ran.out) == (2, "")
    assert "explain" in ran.err and "error" not in ran.err


@pytest.mark.slow
def test_no_device_is_the_code_of_devices(
    gputune: Gputune, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path))
    command = ["context-binary-generator", "--model", model, "--binary_file", "m", "--output_dir", tmp_path]
    ran = gputune(*command, "--device", "no such device")
    assert ran.code == 8
    assert ran.last_line.startswith("error: no ") and ran.last_line.count("error") == 1
    assert ran.last_line.endswith("[no_device]")
