"""Test a full disk: it is reported once, nothing stored is lost, and the current work continues."""

import errno
import os
import re
import tempfile
from pathlib import Path

import pytest

from gputune.cache import CacheError, PerformanceCache, check_writable, file
from tests.disks import no_room

from .conftest import TASK, VALIDITY, WINNER, trial

FULL = (errno.ENOSPC, errno.EDQUOT)
OTHERS = (errno.EACCES, errno.EROFS, errno.EIO, errno.ENOTDIR, errno.ENAMETOOLONG)
MAKE_ROOM = "make room, or name another folder with --performance_cache_dir"


def test_what_was_stored_stays_and_the_rest_is_given_up_with_one_warning(path: Path) -> None:
    heard: list[str] = []
    kept = 0
    with no_room(400_000), PerformanceCache.open(path, warn=heard.append) as cache:
        while not cache.unkept:
            cache.store_trials(TASK, VALIDITY, [trial(kept)] * 8)
            kept += not cache.unkept
        cache.conclude(TASK, VALIDITY, WINNER)
        unkept = cache.unkept
        assert unkept in (1, 2)  # a winner is smaller than a batch, and may find room
        assert len(cache.trials_of(TASK, VALIDITY)) == 8 * kept > 0
    (warning,) = heard
    assert "cannot store trials" in warning and "full" in warning
    with PerformanceCache.open(path) as cache:
        assert cache.problems() == []
        assert cache.trials_of(TASK, VALIDITY) == [trial(number) for number in range(kept) for _ in range(8)]
        assert cache.winner_of(TASK, VALIDITY) == (WINNER if unkept == 1 else None)
        cache.conclude(TASK, VALIDITY, WINNER)
        assert cache.winner_of(TASK, VALIDITY) == WINNER


@pytest.mark.parametrize("fails", ["mkdir", "probe", "lock"])
@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        *((code, MAKE_ROOM) for code in FULL),
        *((code, "name another folder with --performance_cache_dir") for code in OTHERS),
    ],
    ids=lambda value: errno.errorcode[value] if isinstance(value, int) else "",
)
def test_the_advice_fits_the_reason(
    path: Path, monkeypatch: pytest.MonkeyPatch, code: int, remedy: str, fails: str
) -> None:
    """Whichever step fails."""

    def fail(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    folder = path.parent / "new" / "caches"
    if fails == "mkdir":
        monkeypatch.setattr(Path, "mkdir", fail)
    elif fails == "probe":
        monkeypatch.setattr(tempfile, "TemporaryFile", fail)
    else:
        monkeypatch.setattr(file, "locked_folder", fail)
    words = re.escape(f"performance cache folder {folder} cannot be written ({os.strerror(code)}): {remedy}")
    with pytest.raises(CacheError, match=f"^{words}$"):
        if fails == "lock":
            with file.folder_lock(folder):
                pass
        else:
            check_writable(folder)
    if fails == "probe":
        assert not folder.parent.exists()


def test_a_cache_that_cannot_be_made_leaves_nothing_and_says_what_to_do(path: Path) -> None:
    def refused() -> None:
        with no_room(8192), pytest.raises(CacheError, match=f"full.*{MAKE_ROOM}"):
            PerformanceCache.open(path)

    refused()
    assert list(path.parent.iterdir()) == []
    path.write_bytes(b"damaged")
    refused()
    (aside,) = path.parent.iterdir()
    assert aside.read_bytes() == b"damaged"
    path.touch()
    refused()
    assert path.exists(), "it was there before"
