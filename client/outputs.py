"""Where results go: shown to be writable before the work, complete or not at all."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from gputune.client.errors import OutputError
from gputune.core.json_text import json_text
from gputune.core.whole_file import whole_file

STEM_BYTES = 200
"""File systems take names of 255 bytes, and a number and an ending follow the stem."""


def check_output(path: Path, folder: bool = False) -> None:
    """Shows that the file `path`, or files in the folder `path`, can be written, and leaves nothing behind.

    Folders that are missing count as writable where they can be made. Raises OutputError.
    """
    made: list[Path] = []
    with writing(path):
        try:
            home = path if folder else path.parent
            for level in [*reversed(home.parents), home]:
                if not level.exists():
                    level.mkdir()
                    made.append(level)
            if folder or not path.exists():
                tempfile.TemporaryFile(dir=home).close()
            elif path.is_file() or path.is_dir():  # anything else, such as a pipe, notices being opened
                path.open("ab").close()
        finally:
            for level in reversed(made):
                with contextlib.suppress(OSError):  # another program may use it by now
                    level.rmdir()


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """An OSError in the block becomes an OutputError that says why `path` cannot be written."""
    try:
        yield
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror or error}") from error


@contextlib.contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Yield where to write what appears at `path` when the block ends, as `whole_file` does; its folder is made. Raises
    OutputError."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as unfinished:
            yield unfinished


def write_text(path: Path, text: str) -> None:
    """Write a text, as `whole` does. Raises OutputError."""
    with whole(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")


def write_json(path: Path, content: Any) -> None:
    """Write JSON for tools, as `whole` does. Raises OutputError."""
    write_text(path, json_text(content, indent=1) + "\n")


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
    """Return a tensor's name as a file name: what separates folders, or hides a file, becomes an underscore, and what
    is over STEM_BYTES is cut off."""
    stem = "".join(c if c.isalnum() or c in "._-" else "_" for c in tensor)
    stem = stem.encode()[:STEM_BYTES].decode(errors="ignore")
    return f"_{stem[1:]}" if stem.startswith(".") else stem
