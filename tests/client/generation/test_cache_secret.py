"""Test an installation's secret: created once, complete from the first moment, and refused if others can use it."""

import os
import secrets
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gputune.cache import CacheError
from gputune.client.folders import default_secret_file
from gputune.client.generation import cache_secret
from gputune.client.generation.cache_secret import SECRET_FILE, known_secret, own_secret
from tests.client.commands import Generate


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the secret of a new user will be."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv(SECRET_FILE, raising=False)
    return default_secret_file()


def test_it_is_made_once_and_only_when_it_is_needed(file: Path) -> None:
    assert known_secret() is None
    assert not file.parent.exists()
    made = own_secret()
    assert made is not None and len(made) == 32 and made == file.read_bytes()
    assert own_secret() == known_secret() == made
    assert file.stat().st_mode & 0o777 == 0o600
    assert list(file.parent.iterdir()) == [file]
    file.unlink()
    assert own_secret() != made


def test_processes_that_make_it_at_once_have_the_same(file: Path) -> None:
    """They wait for each other first, so that all of them find none."""
    code = (
        "import sys; from gputune.client.generation.cache_secret import known_secret, own_secret;"
        "assert known_secret() is None; print(flush=True); sys.stdin.readline(); print(own_secret().hex())"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    for one in processes:
        assert one.stdout is not None and one.stdout.readline() == "\n"
    found = []
    for one in processes:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    for one in processes:
        found.append(one.communicate(timeout=60)[0].strip())
    assert found == [file.read_bytes().hex()] * len(processes)
    assert list(file.parent.iterdir()) == [file]


def test_it_is_whole_when_another_process_sees_it(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who comes second takes what the first has made meanwhile."""
    token_bytes = secrets.token_bytes

    def meanwhile(count: int) -> bytes:
        monkeypatch.setattr(secrets, "token_bytes", token_bytes)
        file.touch(0o600)
        file.write_bytes(b"f" * count)
        return b"s" * count

    monkeypatch.setattr(secrets, "token_bytes", meanwhile)
    assert own_secret() == b"f" * 32
    assert list(file.parent.iterdir()) == [file]


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda path: path.chmod(0o640), "can be used by other users (mode 640, not 600)"),
        (lambda path: path.chmod(0o602), "can be used by other users (mode 602, not 600)"),
        (lambda path: path.write_bytes(b""), "has 0 bytes, not 32"),
        (lambda path: path.write_bytes(b"x" * 33), "has 33 bytes, not 32"),
        (folder, "is no regular file"),
        (pipe, "is no regular file"),
    ],
)
@pytest.mark.parametrize("named", [False, True])
def test_a_file_that_is_no_secret_is_refused(
    file: Path, change: Callable[[Path], object], says: str, named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_secret()
    change(file)
    if named:
        file = file.replace(file.with_name("named"))
        monkeypatch.setenv(SECRET_FILE, str(file))
    for ask in (known_secret, own_secret):
        with pytest.raises(CacheError) as caught:
            ask()
        assert f"{file} {says}: " in str(caught.value)
        assert "head -c 32 /dev/urandom" in str(caught.value)


def test_a_secret_of_another_user_is_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_secret()
    monkeypatch.setattr(os, "geteuid", lambda: file.stat().st_uid + 1)
    with pytest.raises(CacheError, match="belongs to another user"):
        own_secret()


def test_one_that_is_named_is_used_and_never_made(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = tmp_path / "shared"
    monkeypatch.setenv(SECRET_FILE, str(named))
    for ask in (known_secret, own_secret):
        with pytest.raises(CacheError, match=rf"{SECRET_FILE} names cannot be read: No such file"):
            ask()
    assert not named.exists()
    named.touch(0o600)
    named.write_bytes(b"c" * 32)
    assert known_secret() == own_secret() == b"c" * 32
    assert not file.exists()


def test_a_home_that_cannot_be_written_is_said_in_one_line(
    tmp_path: Path, generate: Generate, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "no folder").touch()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "no folder"))
    for _ in range(2):
        ran = generate(effort="quick")
        assert ran.code == 0, ran.err
        (line,) = (line for line in ran.err.splitlines() if "compiled programs are not kept" in line)
        assert "cannot be made (Not a directory); name one in GPUTUNE_CACHE_SECRET_FILE" in line
    assert "0 programs found, 3 compiled" in ran.err


def test_a_user_without_a_home_has_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cache_secret, "default_secret_file", lambda: Path("~/.local/share/gputune/cache-secret"))
    assert own_secret() is None
    assert list(tmp_path.iterdir()) == []


def test_a_secret_that_is_refused_ends_a_generation_before_a_model_is_read(generate: Generate, file: Path) -> None:
    own_secret()
    file.chmod(0o644)
    ran = generate(model=file.with_name("none.onnx"), effort="quick")
    assert (ran.code, len(ran.err.splitlines())) == (7, 1)
    assert "can be used by other users" in ran.last_line


@pytest.mark.parametrize("named", [False, True])
def test_no_output_replaces_it(
    tmp_path: Path, generate: Generate, file: Path, named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = own_secret()
    if named:
        file = file.replace(tmp_path / "named")
        monkeypatch.setenv(SECRET_FILE, str(file))
    ran = generate("--summary_json", file, effort="quick")
    assert ran.code == 2
    assert "--summary_json" in ran.last_line and "the secret of performance caches" in ran.last_line
    assert known_secret() == before
