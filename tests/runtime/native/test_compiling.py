"""Test that native parts are compiled once, in a folder that is safe, or not at all with the reason."""

import re
import shutil
import sys
from pathlib import Path

import pytest

from gputune.runtime.native.building import NotBuilt, native_part
from tests.runtime.native.test_building import built, folder

__all__ = ["folder"]

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")


def script(folder: Path, text: str) -> str:
    path = folder / "compiler"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def refused(words: str) -> None:
    with pytest.raises(NotBuilt, match=words):
        built()


def test_a_part_is_compiled_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUTUNE_CC", script(folder, f'echo x >> {folder}/calls; exec cc "$@"'))
    first = native_part("made_up")
    assert first.parent == folder / "cache" / "gputune" / "native"
    assert [path.name for path in first.parent.iterdir()] == [first.name]
    calls = (folder / "calls").read_text()
    assert built() == first
    assert (folder / "calls").read_text() == calls


def test_none_means_no_native_parts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUTUNE_CC", "none")
    refused("GPUTUNE_CC is 'none'")


def test_a_compiler_may_fail(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUTUNE_CC", script(folder, "echo no such target >&2; exit 1"))
    refused(r"refuses \w+\.c: no such target")
    assert not [*(folder / "cache" / "gputune" / "native").iterdir()]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("'cc", 'the compiler "\'cc" is no command: No closing quotation'),
        (" ", "the compiler ' ' is no command: it is empty"),
        ("/nowhere/cc", "/nowhere/cc: No such file or directory"),
        ("sh -c 'exit 0'", "sh has written no library: is it a C compiler?"),
    ],
)
def test_a_compiler_may_be_no_command(folder: Path, monkeypatch: pytest.MonkeyPatch, command: str, words: str) -> None:
    monkeypatch.setenv("GPUTUNE_CC", command)
    refused(re.escape(words))


@pytest.mark.skipif(sys.platform == "win32", reason="permissions of another kind")
def test_a_folder_that_others_can_write_to_is_not_used(folder: Path) -> None:
    place = folder / "cache" / "gputune" / "native"
    place.mkdir(parents=True)
    place.chmod(0o777)
    refused("can be written by every user")
    place.chmod(0o700)
    built().chmod(0o777)
    refused("can be written by every user")
