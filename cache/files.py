"""The folder of a performance cache: may we write there, one opener at a time, a damaged file set aside."""

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

COMPANIONS = ("-wal", "-shm")
"""Suffixes of the files that SQLite keeps beside a database; they belong to it and move with it."""


def suspicion(path: Path) -> Path:
    """The mark beside a cache in whose file damage was met: the next process that opens it reads it in full first."""
    return Path(f"{path}-suspect")


SUFFIX = ".sqlite"
"""Of the name of a performance cache, which is its tier's otherwise."""


def cache_files(folder: Path) -> list[Path]:
    """The performance caches of a folder by name, none where there is no folder. Raises CacheError."""
    try:
        return sorted(path for path in folder.iterdir() if path.suffix == SUFFIX and path.is_file())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise CacheError(f"performance cache folder {folder} cannot be read: {error.strerror}") from error


class CacheError(Exception):
    """A performance cache cannot be used; the text says which, why and what to do."""


class CacheFull(CacheError):
    """Nothing more can be written to a performance cache; what is in it stays and can be read."""


LONGEST_SAID = 200
"""Characters of what a file, or SQLite about it, says that an error repeats."""


def one_line(said: object) -> str:
    """What is wrong with a file, as one short printable line. It quotes from the file: a value, a name, or its schema
    from a stray quote mark to the end, line ends included."""
    printable = "".join(character if character.isprintable() else " " for character in str(said))
    line = " ".join(printable.split())
    return line if len(line) <= LONGEST_SAID else f"{line[:LONGEST_SAID]}..."


MOUNTS = Path("/proc/self/mountinfo")
NETWORK_FILE_SYSTEMS = frozenset(
    ("9p", "afs", "ceph", "cifs", "fuse.glusterfs", "fuse.s3fs", "fuse.sshfs", "glusterfs", "lustre", "ncpfs", "nfs",
     "nfs4", "smb2", "smb3", "smbfs", "virtiofs")
)  # fmt: skip
"""File systems on which processes of different machines do not share memory, which a write-ahead log needs."""


def network_file_system(folder: Path) -> str:
    """The type of the network file system that a folder is on; empty where it is on none, or that is unknown."""
    try:
        lines = MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        place = folder.resolve()
    except OSError:
        return ""
    found, depth = "", -1
    for line in lines:
        fields, _, kind = line.partition(" - ")
        words = fields.split()
        if len(words) < 5 or not kind:
            continue
        mount = Path(words[4].replace("\\040", " "))
        if place.is_relative_to(mount) and len(mount.parts) >= depth:
            found, depth = kind.split()[0], len(mount.parts)
    return found if found in NETWORK_FILE_SYSTEMS else ""


def check_writable(folder: Path) -> None:
    """Show that files can be made in folder (and it itself and its parents), and leave nothing behind.

    Raises CacheError.
    """
    made: list[Path] = []
    try:
        for level in [*reversed(folder.parents), folder]:
            with contextlib.suppress(FileExistsError):
                level.mkdir()
                made.append(level)
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(b"x")
    except OSError as error:
        raise CacheError(_not_writable(folder, error)) from error
    finally:
        for level in reversed(made):
            with contextlib.suppress(OSError):  # another program may use it by now
                level.rmdir()


@contextlib.contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Make folder and hold it while a file in it is checked, set aside or created; other openers wait.

    Without this, a process that found a file damaged could set aside the new one that another has just
    started. The lock ends with the process and leaves no file. Raises CacheError.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise CacheError(_not_writable(folder, error)) from error
    try:
        with contextlib.suppress(OSError):  # a network file system without locks: the race is then possible
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def set_aside(path: Path) -> Path:
    """Rename path and its companions to PATH.damaged-YYYYmmdd-HHMMSS[-n]; returns the new path.

    Raises CacheError.
    """
    stamp = time.strftime("%Y%m%d-%H%M%S")
    number = 0
    while True:
        aside = path.with_name(f"{path.name}.damaged-{stamp}" + (f"-{number}" if number else ""))
        if not os.path.lexists(aside):
            break
        number += 1
    try:
        # Companions first: a new database must never find the log of an old one beside it.
        for suffix in COMPANIONS:
            with contextlib.suppress(FileNotFoundError):
                Path(f"{path}{suffix}").rename(f"{aside}{suffix}")
        path.rename(aside)
    except OSError as error:
        raise CacheError(
            f"performance cache {path} is damaged and cannot be set aside ({error.strerror}): move it away yourself"
        ) from error
    return aside


def _not_writable(folder: Path, error: OSError) -> str:
    return (
        f"performance cache folder {folder} cannot be written ({error.strerror}): "
        "name another folder with performance_cache_dir"
    )
