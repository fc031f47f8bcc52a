"""Create a folder in memory for the files that a driver writes while it builds and loads programs.

PoCL unpacks every program binary into files and syncs each to the disk, which takes longer than the rest of a load. A
process that is killed would leave them in the user's cache. The folder belongs to the user alone, because code is
loaded from it, and is removed with the process. The next process removes what a killed process left.
"""

import atexit
import functools
import os
import shutil
import stat
import tempfile
from pathlib import Path

from gputune.core.quirks import CompiledFolder

IN_MEMORY = Path("/dev/shm")
LOCK = "lock"
FREE_BYTES = 256 << 20  # less may not do for the programs of a large model; containers often have 64 MB
_held: dict[Path, int] = {}  # descriptors whose locks say that this process is alive


def scratch_folder(base: Path = IN_MEMORY) -> Path | None:
    """Return a new private folder below base, or None where there is no such place."""
    if not base.is_dir() or not os.access(base, os.W_OK):
        return None
    root = base / f"gputune-{os.getuid()}"
    try:
        mounted = os.statvfs(base)
        if mounted.f_flag & os.ST_NOEXEC or mounted.f_bavail * mounted.f_frsize < FREE_BYTES:
            return None  # a driver loads code from there, and fails where the space runs out
        root.mkdir(mode=0o700, exist_ok=True)
        status = root.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
            return None  # another user made it
        guard = _locked(root / LOCK, wait=True)
        assert guard is not None
        try:
            _remove_abandoned(root)
            folder = Path(tempfile.mkdtemp(dir=root))
            held = _locked(folder / LOCK, wait=True)
        finally:
            os.close(guard)
    except OSError:
        return None
    assert held is not None
    _held[folder] = held
    atexit.register(_remove_own, folder, os.getpid())
    return folder


def _remove_own(folder: Path, process: int) -> None:
    """Remove a folder as its process ends; a fork of that, which ends earlier, leaves it."""
    if os.getpid() == process:
        remove_scratch(folder)


def remove_scratch(folder: Path) -> None:
    """Remove a folder that scratch_folder has made, before its process ends."""
    shutil.rmtree(folder, ignore_errors=True)
    if (held := _held.pop(folder, None)) is not None:
        os.close(held)


def _remove_abandoned(root: Path) -> None:
    for folder in root.iterdir():
        if folder.is_dir():
            lock = _locked(folder / LOCK, wait=False)
            if lock is not None:
                shutil.rmtree(folder, ignore_errors=True)
                os.close(lock)


def _locked(path: Path, wait: bool) -> int | None:
    """Return a descriptor that holds the lock of this file, or None when another process holds it."""
    import fcntl  # exists wherever /dev/shm does

    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


@functools.cache
def scratch_environment(names: CompiledFolder, compiled: Path | None) -> dict[str, str]:
    """Let a driver keep its files in memory, unless the user has chosen a folder or keeps a cache of kernels. In a
    folder that others share it finds again what they have compiled; the settings that are reported stay those of the
    user."""
    if names.folder in os.environ or os.environ.get(names.finds) != "0":
        return {}
    if compiled is not None:
        return {names.folder: str(compiled), names.finds: "1"}
    folder = scratch_folder()
    return {} if folder is None else {names.folder: str(folder)}
