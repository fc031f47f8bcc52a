"""Open files that others have made, and only regular files.

Such a path may be anything. Opening a named pipe would wait for as long as nothing writes to it, and devices do what
they like.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from io import BufferedReader
from pathlib import Path

_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
_LFS = b"version https://git-lfs"
_PAGES = (b"<!doctype", b"<html", b"<?xml", b"<error")
_ARCHIVES = (b"PK\x03\x04", b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00", b"7z\xbc\xaf", b"Rar!")
TELLING_BYTES = 64
"""So many of the first bytes of a file tell what `mistaken` knows."""
_KINDS = ((stat.S_ISFIFO, "a named pipe"), (stat.S_ISCHR, "a device"), (stat.S_ISBLK, "a device"))


def open_descriptor(path: Path | str) -> int:
    """Open a regular file for reading. Raises OSError, at once for what is no such file."""
    descriptor = os.open(path, _FLAGS)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    kind = next((words for known, words in _KINDS if known(mode)), "something else")
    raise OSError(errno.EINVAL, f"it is {kind} and no file", str(path))


def open_file(path: Path | str) -> BufferedReader:
    """Open a regular file as a stream of its bytes. Raises OSError as open_descriptor does."""
    return os.fdopen(open_descriptor(path), "rb")


def read_file(path: Path | str) -> bytes:
    """Return the content of a regular file. Raises OSError as open_descriptor does."""
    with open_file(path) as file:
        return file.read()


def sha256_of(path: Path | str) -> str:
    """Return the SHA-256 of a regular file in hex. Raises OSError as open_descriptor does."""
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def first_bytes(path: Path | str) -> bytes:
    """Return the bytes by which `mistaken` knows a file. Raises OSError as open_descriptor does."""
    with open_file(path) as file:
        return file.read(TELLING_BYTES)


def mistaken(begin: bytes) -> str:
    """Return what a file is by its first bytes in place of what it ought to be, as words behind its name, and the
    remedy; empty if they do not tell."""
    if not begin:
        return "is empty (0 bytes): copy or download it again"
    if begin.startswith(_LFS):
        return "is a Git LFS pointer to the file: run `git lfs pull` where it was cloned"
    if begin.removeprefix(b"\xef\xbb\xbf").lstrip().lower().startswith(_PAGES):
        return "is a web page (HTML or XML): the download has failed; get the file itself"
    return "is an archive: unpack it" if begin.startswith(_ARCHIVES) else ""
