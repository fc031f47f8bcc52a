"""Write files that appear complete or not at all, create the folders that they need, and lock folders meanwhile."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # a system without such locks
    fcntl = None  # type: ignore[assignment]

_HAS_LOCKS = fcntl is not None
_POLL_S = 0.02


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield where to write what appears at `path` when the block ends, complete or not at all. A link is replaced, and
    what it leads to stays; a device or a pipe is written to as it is. Raises OSError."""
    if is_stream(path):
        yield path
        return
    unfinished = path.with_name(f".gputune-{secrets.token_hex(8)}")
    try:
        yield unfinished
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


@contextlib.contextmanager
def folders_to(home: Path, keep: bool = True) -> Iterator[None]:
    """Make the folder `home` and those above it that are missing. They go again after an error, and if they are not to
    be kept. Raises OSError."""
    made: list[Path] = []
    try:
        for level in [*reversed(home.parents), home]:
            if not level.exists():
                level.mkdir(exist_ok=True)
                made.append(level)
        yield
        if keep:
            made.clear()
    finally:
        for level in reversed(made):
            with contextlib.suppress(OSError):  # another program may use it by now
                level.rmdir()


@contextlib.contextmanager
def locked_folder(folder: Path, limit_s: float | None = None) -> Iterator[bool]:
    """Hold a folder while files in it are checked or made; other processes that ask for it wait. Yield whether it is
    held: not where the system or the file system has no locks, or another process holds it for longer than the limit.

    The lock ends with the process and leaves no file. Raises OSError for a folder that cannot be opened.
    """
    if not _HAS_LOCKS:
        yield False
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield _locked(descriptor, limit_s)
    finally:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # closing is not enough where a fork has a copy
        os.close(descriptor)


def _locked(descriptor: int, limit_s: float | None) -> bool:
    """Lock a file; return whether that was possible."""
    until = None if limit_s is None else time.monotonic() + limit_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if until is None else fcntl.LOCK_NB))
        except BlockingIOError:
            if until is None or time.monotonic() > until:
                return False
            time.sleep(_POLL_S)
        except OSError:  # a network file system without locks
            return False
        else:
            return True


def sync(path: Path) -> None:
    """Have the disk hold a file, or the names in a folder, before this returns. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_stream(path: Path) -> bool:
    """Return whether a path is that of a device, a pipe or an open file, as /dev/null and /dev/stdout are."""
    if path.is_symlink() and any(path.absolute().is_relative_to(folder) for folder in ("/dev", "/proc")):
        return True
    return path.exists() and not path.is_file() and not path.is_dir()
