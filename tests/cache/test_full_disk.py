"""Test a full disk: it is reported once, nothing stored is lost, and the current work continues."""

import errno
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from gputune.cache import CacheError, PerformanceCache, check_writable, file
from tests.client import models
from tests.client.models import save

from .conftest import TASK, VALIDITY, WINNER, trial

FULL = (errno.ENOSPC, errno.EDQUOT)
OTHERS = (errno.EACCES, errno.EROFS, errno.EIO, errno.ENOTDIR, errno.ENAMETOOLONG)
LIMITED = """
import resource, sys
size = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
"""

WRITER = """
import json
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from conftest import TASK, VALIDITY, WINNER, trial
from gputune.cache import CacheError, PerformanceCache, check_writable

heard, kept = [], []
with PerformanceCache.open(Path(sys.argv[3]), warn=heard.append) as cache:
    for number in range(1000):
        cache.store_trials(TASK, VALIDITY, [trial(number)] * 8)
        if cache.unkept:
            break
        kept.append(number)
    cache.conclude(TASK, VALIDITY, WINNER)
    read = len(cache.trials_of(TASK, VALIDITY))
print(json.dumps({"heard": heard, "kept": len(kept), "read": read, "unkept": cache.unkept}))
"""


def python(code: str, size: int, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Runs code in a process that can write no file larger than `size` bytes."""
    command = [sys.executable, "-c", LIMITED + code, str(size), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_what_was_stored_stays_and_the_rest_is_given_up_with_one_warning(path: Path) -> None:
    ran = python(WRITER, 400_000, Path(__file__).parent, path)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    (warning,) = found["heard"]
    assert "cannot store trials" in warning
    assert "full" in warning
    assert found["unkept"] in (1, 2)  # a winner is smaller than a batch, and may find room
    assert found["read"] == 8 * found["kept"] > 0
    with PerformanceCache.open(path) as cache:
        assert cache.problems() == []
        stored = cache.trials_of(TASK, VALIDITY)
        assert stored == [trial(number) for number in range(found["kept"]) for _ in range(8)]
        assert cache.winner_of(TASK, VALIDITY) == (WINNER if found["unkept"] == 1 else None)
        cache.conclude(TASK, VALIDITY, WINNER)
        assert cache.winner_of(TASK, VALIDITY) == WINNER


@pytest.mark.parametrize("fails", ["mkdir", "probe", "lock"])
@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        *((code, "make room, or name another folder with --performance_cache_dir") for code in FULL),
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

    folder = path.parent / "new"
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


def test_a_cache_that_cannot_be_made_leaves_nothing_and_says_what_to_do(path: Path) -> None:
    code = (
        "from gputune.cache import PerformanceCache\nfrom pathlib import Path\nPerformanceCache.open(Path(sys.argv[2]))"
    )
    ran = python(code, 8192, path)
    assert ran.returncode == 1
    assert "full" in ran.stderr
    assert "make room, or name another folder with --performance_cache_dir" in ran.stderr
    assert list(path.parent.iterdir()) == []
    path.write_bytes(b"damaged")
    ran = python(code, 8192, path)
    assert ran.returncode == 1
    (aside,) = path.parent.iterdir()
    assert aside.read_bytes() == b"damaged"
    path.touch()
    assert python(code, 8192, path).returncode == 1
    assert path.exists(), "it was there before"


@pytest.mark.slow
def test_a_generation_finishes_although_nothing_more_can_be_kept(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"tuning_mode": True, "performance_cache_dir": str(tmp_path / "cache")}))
    model = save(models.conv_relu_gemm(), tmp_path)
    code = "from gputune.client.cli.main import main\nmain(sys.argv[2:])"
    words = [
        "context-binary-generator", "--model", model, "--binary_file", "m", "--output_dir", tmp_path,
        "--config_file", config, "--device", "null", "--tuning_effort", "quick",
    ]  # fmt: skip
    ran = python(code, 160_000, *words)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr.count("from now on nothing is stored") == 1
    assert (tmp_path / "m.bin").exists()
    (file,) = (tmp_path / "cache").glob("*.sqlite")
    with PerformanceCache.open(file) as cache:
        assert cache.problems() == []
        assert cache.tasks()


def test_a_folder_without_room_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    said = (
        r"cannot be written \(No space left on device\): make room, or name another folder with --performance_cache_dir"
    )
    with pytest.raises(CacheError, match=said):
        check_writable(tmp_path / "new" / "caches")
    assert not list(tmp_path.iterdir())
