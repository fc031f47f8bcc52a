"""Test a cache on a network file system, which the list of mounts reveals."""

from pathlib import Path

import pytest

from gputune.cache import PerformanceCache, file

from .conftest import TASK, VALIDITY, trial


@pytest.fixture
def mounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A list of mounts in which the folder `share` is on a server, and `share/my disk` is local again."""
    lines = [
        "22 1 253:1 / / rw,relatime shared:1 - ext4 /dev/vda rw",
        f"40 22 0:42 / {tmp_path}/share rw,relatime shared:2 - nfs4 server:/share rw,vers=4.2",
        f"41 40 253:2 / {tmp_path}/share/my\\040disk rw,relatime shared:3 - ext4 /dev/vdb rw",
        "broken line",
    ]
    path = tmp_path / "mountinfo"
    path.write_text("\n".join(lines))
    monkeypatch.setattr(file, "MOUNTS", path)
    return tmp_path


def test_the_innermost_mount_counts(mounts: Path) -> None:
    assert file.network_file_system(mounts / "share" / "caches") == "nfs4"
    assert file.network_file_system(mounts / "share" / "my disk" / "caches") == ""
    assert file.network_file_system(mounts / "shared") == ""


def test_no_list_of_mounts_is_no_reason_to_fail(mounts: Path) -> None:
    file.MOUNTS.unlink()
    assert file.network_file_system(mounts / "share") == ""


def test_a_cache_there_has_a_journal_and_says_so(mounts: Path) -> None:
    heard: list[str] = []
    path = mounts / "share" / "a.sqlite"
    with PerformanceCache.open(path, warn=heard.append) as cache:
        assert cache._connection.execute("PRAGMA journal_mode").fetchone()[0] == "delete"
        cache.store_trials(TASK, VALIDITY, [trial(1)])
        assert not path.with_name("a.sqlite-wal").exists()
    assert "network file system (nfs4)" in heard[0]
