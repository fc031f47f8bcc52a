"""Test which files count as the user's own, so that their content may run."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gputune.core import ownership
from gputune.core.errors import UntrustedFile
from gputune.core.ownership import TRUSTED_FOLDERS, untrusted
from gputune.runtime.context.format import write_context
from gputune.runtime.context.records import Context
from gputune.runtime.loading.model import load

ME, OTHER, SYSTEM_APP, TEAM = 1000, 1001, 1013, 2000
GROUPS: dict[int, tuple[str, set[str]]] = {0: ("root", set()), ME: ("me", set()), TEAM: ("team", {"me", "she"})}


class Files:
    """Owners, groups and modes of paths, whatever the file system says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.file = folder / "home" / "work" / "file"
        self.file.parent.mkdir(parents=True)
        self.file.touch()
        self._said: dict[Path, tuple[int, int, int]] = {}
        real = Path.stat

        def stat(path: Path, **options: Any) -> os.stat_result:
            found: list[Any] = list(real(path, **options))
            owner, group, mode = self._said.get(path, (0, 0, 0o755))
            found[0], found[4], found[5] = (found[0] & ~0o7777) | mode, owner, group
            return os.stat_result(found)

        monkeypatch.setattr(Path, "stat", stat)
        monkeypatch.setattr(os, "geteuid", lambda: ME, raising=False)
        monkeypatch.setattr(ownership, "_user", lambda number: {0: "root", ME: "me", OTHER: "she"}.get(number, ""))
        monkeypatch.setattr(ownership, "_group", lambda number: GROUPS.get(number, ("", set())))
        monkeypatch.delenv("HOME", raising=False)
        monkeypatch.delenv(TRUSTED_FOLDERS, raising=False)
        self.set(self.file, ME, ME, 0o644)
        self.set(self.file.parent, ME, ME, 0o755)

    def set(self, path: Path, owner: int, group: int, mode: int) -> None:
        self._said[path] = owner, group, mode


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Files:
    return Files(monkeypatch, tmp_path)


@pytest.mark.parametrize(
    ("owner", "group", "mode", "says"),
    [
        (ME, ME, 0o600, ""),
        (ME, ME, 0o664, ""),  # a umask of 002 with a group of one's own
        (0, 0, 0o664, ""),
        (ME, 0, 0o664, ""),  # containers that give a user any number, and the group 0
        (ME, TEAM, 0o644, ""),
        (ME, TEAM, 0o664, "can be written by the group team; change that, or name"),
        (ME, 3000, 0o664, "can be written by the group 3000"),
        (ME, ME, 0o646, "can be written by every user"),
        (OTHER, ME, 0o600, "belongs to another user (she), who could change it"),
        (4711, ME, 0o600, "belongs to another user (4711)"),
    ],
)
def test_a_file_counts_by_its_owner_and_mode_and_so_do_all_its_folders(
    files: Files, owner: int, group: int, mode: int, says: str
) -> None:
    files.set(files.file, owner, group, mode)
    assert untrusted(files.file).startswith(says)
    assert bool(untrusted(files.file)) == bool(says)
    files.set(files.file, ME, ME, 0o644)
    for folder in (files.file.parent, files.file.parent.parent):
        files.set(folder, owner, group, mode | 0o111)
        assert untrusted(files.file).startswith(f"lies in {folder}, which {says}" if says else "")
        assert bool(untrusted(files.file)) == bool(says)
        files.set(folder, ME, ME, 0o755)


def test_a_group_without_members_that_are_known_is_private_by_its_number(files: Files) -> None:
    files.set(files.file, 4711, 4711, 0o664)
    assert "belongs to another user (4711)" in untrusted(files.file)
    assert ownership._private(4711, 4711)
    assert not ownership._private(TEAM, TEAM)


def test_folders_above_the_home_folder_are_the_systems_business(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    home = files.file.parent.parent
    files.set(home.parent, 65534, 65534, 0o755)  # as a container sees a user of the host
    assert untrusted(files.file)
    monkeypatch.setenv("HOME", str(home))
    assert untrusted(files.file) == ""


def test_a_folder_with_the_sticky_bit_protects_a_file_but_not_a_databases_companions(files: Files) -> None:
    files.set(files.file.parent, 0, 0, 0o1777)
    assert untrusted(files.file) == ""
    assert "lies in" in untrusted(files.file, shared_folder=False)
    assert untrusted(files.file.parent / "deeper" / "cache", shared_folder=False) == ""


def test_a_file_that_is_not_there_yet_counts_by_its_folder(files: Files) -> None:
    new = files.file.parent / "new" / "cache"
    assert untrusted(new) == ""
    files.set(files.file.parent, ME, ME, 0o777)
    assert f"lies in {files.file.parent}, which can be written by every user" in untrusted(new)


def test_folders_that_are_named_are_taken_as_they_are(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    files.set(files.file, OTHER, TEAM, 0o666)
    beside = files.file.parent.parent / "wor"
    for named, trusted in ((files.file.parent, True), (files.file.parents[3], True), (beside, False)):
        monkeypatch.setenv(TRUSTED_FOLDERS, os.pathsep.join(("/nowhere", str(named))))
        assert (untrusted(files.file) == "") == trusted


def test_on_android_the_system_has_more_users_than_root(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    files.set(files.file.parent, SYSTEM_APP, SYSTEM_APP, 0o771)
    assert untrusted(files.file)
    monkeypatch.setattr(sys, "getandroidapilevel", lambda: 33, raising=False)
    assert untrusted(files.file) == ""
    files.set(files.file.parent, 10_123, 10_123, 0o700)
    assert untrusted(files.file)


def test_where_there_are_no_such_users_nothing_is_checked(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    files.set(files.file, OTHER, OTHER, 0o666)
    monkeypatch.setattr(ownership, "os", SimpleNamespace(environ=os.environ, pathsep=os.pathsep))
    assert untrusted(files.file) == ""


@pytest.mark.parametrize("change", [lambda path: path.chmod(0o666), lambda path: path.parent.chmod(0o777)])
def test_a_context_that_others_can_change_is_not_loaded(
    context: Context, tmp_path: Path, change: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(TRUSTED_FOLDERS, raising=False)
    path = tmp_path / "shared" / "context.bin"
    path.parent.mkdir()
    write_context(path, context)
    load(path, device="null")
    change(path)
    with pytest.raises(UntrustedFile, match=r"context.bin .*can be written by every user; .*: a context runs as a"):
        load(path, device="null")
    monkeypatch.setenv(TRUSTED_FOLDERS, str(tmp_path))
    load(path, device="null")
