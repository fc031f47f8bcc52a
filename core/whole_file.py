"""Write files that appear complete or not at all, and create the folders that they need."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from pathlib import Path


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


def is_stream(path: Path) -> bool:
    """Return whether a path is that of a device, a pipe or an open file, as /dev/null and /dev/stdout are."""
    if path.is_symlink() and any(path.absolute().is_relative_to(folder) for folder in ("/dev", "/proc")):
        return True
    return path.exists() and not path.is_file() and not path.is_dir()
