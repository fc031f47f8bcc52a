"""Test the folder in memory: private, removed with its process, and cleared of what killed processes left."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gputune.runtime.devices.scratch import remove_scratch, scratch_folder

MAKE = """
import sys, time
from pathlib import Path
from gputune.runtime.devices.scratch import scratch_folder
folder = scratch_folder(Path(sys.argv[1]))
(folder / "program.so").write_text("code")
print(folder, flush=True)
sys.stdin.read()
"""


def started(base: Path) -> tuple["subprocess.Popen[str]", Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", MAKE, str(base)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def ended(process: "subprocess.Popen[str]") -> None:
    process.communicate(timeout=30)


@pytest.mark.slow
def test_folders_live_as_long_as_their_process_or_until_the_next_one_starts(tmp_path: Path) -> None:
    alive, kept = started(tmp_path)
    killed, abandoned = started(tmp_path)
    killed.kill()
    ended(killed)
    assert kept.parent == abandoned.parent and kept.parent.stat().st_mode & 0o777 == 0o700
    assert abandoned.exists()
    tidy, folder = started(tmp_path)
    assert not abandoned.exists()
    assert (kept / "program.so").exists()
    ended(tidy)
    assert not folder.exists()
    ended(alive)
    assert not kept.exists()


FORK = """
import os, sys
from pathlib import Path
from gputune.runtime.devices.scratch import scratch_folder
folder = scratch_folder(Path(sys.argv[1]))
child = os.fork()
if child == 0:
    sys.exit()
os.waitpid(child, 0)
print(folder, folder.exists(), flush=True)
"""


@pytest.mark.slow
def test_a_fork_that_ends_leaves_the_folder_of_its_parent(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORK, str(tmp_path)], capture_output=True, text=True, check=True, timeout=60
    )
    folder, existed = done.stdout.split()
    assert existed == "True"
    assert not Path(folder).exists()


def test_a_folder_can_go_before_its_process(tmp_path: Path) -> None:
    kept, folder = scratch_folder(tmp_path), scratch_folder(tmp_path)
    assert kept is not None and folder is not None
    (folder / "program.so").write_text("code")
    remove_scratch(folder)
    assert not folder.exists() and kept.exists()
    remove_scratch(folder)


def test_a_folder_that_others_can_write_is_not_used(tmp_path: Path) -> None:
    folder = scratch_folder(tmp_path)
    assert folder is not None
    folder.parent.chmod(0o777)
    assert scratch_folder(tmp_path) is None


def test_without_a_place_in_memory_there_is_none(tmp_path: Path) -> None:
    assert scratch_folder(tmp_path / "absent") is None


@pytest.mark.parametrize(
    ("flags", "free_mib", "useful"), [(0, 256, True), (0, 255, False), (os.ST_NOEXEC, 9999, False)]
)
def test_a_place_where_no_code_may_run_or_little_fits_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: int, free_mib: int, useful: bool
) -> None:
    blocks = free_mib << 8
    mounted = os.statvfs_result((4096, 4096, 2 * blocks, 2 * blocks, blocks, 9, 9, 9, flags, 255))
    monkeypatch.setattr(os, "statvfs", lambda path: mounted)
    assert (scratch_folder(tmp_path) is not None) is useful
