"""Write results safely: never over an input, checked for writability before the work, and complete or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gputune.client.errors import OutputError, Overwrites
from gputune.core.json_text import json_text
from gputune.core.version import software_version
from gputune.core.whole_file import folders_to, whole_file

SCHEMA = 1
"""The version of all summaries for scripts. Raise it if a name is gone or means something else; docs/schemas/ says what
there is."""

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""The errors of a disk, a quota or a limit on files without room for an output."""

STEM_BYTES = 200
"""File systems take names of 255 bytes, and a number and an ending follow the stem."""

Role = Literal["read", "changed", "written", "folder"]
"""What a command does with a file: reads it, changes it in place because that is its task, or writes it anew. A folder
is where it writes files."""


@dataclass(frozen=True)
class KnownFile:
    """A file of a command. name: the option that gave it, in words that can begin a message."""

    role: Role
    path: Path
    name: str


class Files:
    """The files of one command. Every file is told here before anything is written; an output that is also read, or
    that is another output, is refused when the second of the two is told.

    Files are compared as files: links are followed, every spelling of a path counts, and hard links are one file.
    Outputs that do not exist yet are compared by their resolved paths. Devices and pipes are left out: nothing in them
    can be lost.
    """

    def __init__(self) -> None:
        self._known: dict[object, list[KnownFile]] = {}
        """By resolved path, and by device and number."""
        self._above: dict[str, KnownFile] = {}
        """An output by the resolved path of each folder above it."""
        self._resolved: dict[str, str] = {}
        """Folders. All paths are texts, since a run may have results by the hundred thousand."""

    def __iter__(self) -> Iterator[KnownFile]:
        """Return every file that was told, once."""
        return iter(dict.fromkeys(file for files in self._known.values() for file in files))

    def read(self, path: Path, name: str) -> None:
        """Tell a file that is read. A folder has nothing that could be overwritten. Raises Overwrites."""
        if not _is_folder(path):
            self._tell(KnownFile("read", path, name))

    def change(self, path: Path, name: str) -> None:
        """Tell a file that is read and changed in place. Raises Overwrites."""
        if not _is_folder(path):
            self._tell(KnownFile("changed", path, name))

    def write(self, path: Path, name: str) -> None:
        """Tell an output. The same output may be told again. Raises Overwrites."""
        self._tell(KnownFile("written", path, name))

    def write_below(self, folder: Path, name: str) -> None:
        """Tell a folder for outputs, which are told one by one when they are known. Raises Overwrites."""
        self._tell(KnownFile("folder", folder, name))

    def _tell(self, file: KnownFile) -> None:
        place, inode = self._identity(file.path)
        keys = [key for key in (place, inode) if key is not None]
        for key in keys:
            for other in self._known.get(key, ()):
                _check_apart(file, other)
        if place is not None and file.role in ("written", "folder"):
            self._check_folders(file, place)
        for key in keys:
            if file not in (known := self._known.setdefault(key, [])):
                known.append(file)

    def _check_folders(self, file: KnownFile, place: str) -> None:
        """Check that no output is the folder of another one."""
        if file.role == "written" and (inner := self._above.get(place)) is not None:
            raise Overwrites(f"{_said(file)} cannot be a file: it is the folder of {_said(inner)}; {_ADVICE}")
        while (place := place.rpartition("/")[0]) and place not in self._above:
            for outer in self._known.get(place, ()):
                if outer.role == "written":
                    raise Overwrites(f"{_said(outer)} cannot be a file: it is the folder of {_said(file)}; {_ADVICE}")
            self._above[place] = file

    def _identity(self, path: Path) -> tuple[str | None, tuple[int, int] | None]:
        """Return the resolved path of a file, and its device and number if it exists; None for both if it is neither
        file nor folder."""
        place = str(path)
        folder, slash, name = place.rpartition("/")
        try:
            if (resolved := self._resolved.get(folder + slash)) is None:
                resolved = self._resolved[folder + slash] = str(path.parent.resolve())
            place = f"{resolved.rstrip('/')}/{name}"
            found = os.lstat(place)
            if stat.S_ISLNK(found.st_mode) or name in ("", ".", ".."):
                place = str(path.resolve())
                found = os.lstat(place)
        except (OSError, RuntimeError, ValueError):  # not there, a circle of links, or a name that no file can have
            return place, None
        if stat.S_ISREG(found.st_mode):
            return place, (found.st_dev, found.st_ino)
        return (place, None) if stat.S_ISDIR(found.st_mode) else (None, None)


_ADVICE = "give it another name"


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # too long for a name
        return False


def _said(file: KnownFile) -> str:
    return f"{file.name} {file.path}"


def _check_apart(one: KnownFile, other: KnownFile) -> None:
    """Raise Overwrites if one of two entries for the same file is an output that would replace the other."""
    outputs = [file for file in (one, other) if file.role in ("written", "folder")]
    if not outputs or one == other or one.role == other.role == "folder":
        return
    if len(outputs) == 2:
        raise Overwrites(f"{_said(other)} and {_said(one)} are one file; give each a name of its own")
    kept = other if outputs[0] is one else one
    raise Overwrites(f"{_said(outputs[0])} would overwrite {_said(kept)}; {_ADVICE}")


def check_output(path: Path, folder: bool = False) -> None:
    """Show that the file `path`, or files in the folder `path`, can be written, and leave nothing behind.

    Folders that are missing count as writable where they can be made. Raises OutputError.
    """
    home = path if folder else path.parent
    with writing(path):
        for last in (False, False, True):
            try:
                with folders_to(home, keep=False):
                    if folder or not path.exists():
                        tempfile.TemporaryFile(dir=home).close()
                    elif path.is_file() or path.is_dir():  # anything else, such as a pipe, notices being opened
                        path.open("ab").close()
                return
            except FileNotFoundError:  # another process that checks the same folder has taken it away
                if last:
                    raise


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an OSError in the block into an OutputError that says why `path` cannot be written."""
    try:
        yield
    except OSError as error:
        remedy = "; make room on its disk, or choose another folder" if error.errno in _FULL else ""
        raise OutputError(f"{path} cannot be written: {error.strerror or error}{remedy}") from error


@contextlib.contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Yield where to write what appears at `path` when the block ends, as `whole_file` does; its folder is made. Raises
    OutputError."""
    with writing(path), folders_to(path.parent), whole_file(path) as unfinished:
        yield unfinished


def write_text(path: Path, text: str) -> None:
    """Write a text, as `whole` does. Raises OutputError."""
    with whole(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")


def write_json(path: Path, content: Any) -> None:
    """Write JSON for tools, as `whole` does. Raises OutputError."""
    write_text(path, json_text(content, indent=1) + "\n")


def write_summary(path: Path, content: Mapping[str, Any]) -> None:
    """Write what --summary_json names, as `whole` does: what it is, and the rest. Raises OutputError."""
    version = software_version().removeprefix("gputune").strip()
    write_json(path, {"schema": SCHEMA, "gputune_version": version, **content})


def file_stems(tensors: Iterable[str]) -> dict[str, str]:
    """Return a file name for each tensor. A name that can be one stays as it is; of others that would share one, the
    later in the list gets a number, so no tensor's stem is the name of another."""
    tensors = list(tensors)
    stems: dict[str, str] = dict.fromkeys(tensors, "")
    taken: set[str] = set()
    for tensor in sorted(tensors, key=lambda tensor: file_stem(tensor) != tensor):
        wanted = stem = file_stem(tensor)
        number = 1
        while stem.casefold() in taken:  # some file systems do not tell A from a
            number += 1
            stem = f"{wanted}.{number}"
        taken.add(stem.casefold())
        stems[tensor] = stem
    return stems


def file_stem(tensor: str) -> str:
    """Return a tensor's name as a file name, as runtime/native/main.c does: what is no letter, digit, dot, hyphen or
    underscore of ASCII becomes an underscore, so does a dot in front, and what is over STEM_BYTES is cut off."""
    stem = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in tensor)[:STEM_BYTES]
    return f"_{stem[1:]}" if stem.startswith(".") else stem
