"""Where results go: shown to be writable before the work, and one error when they are not."""

import contextlib
import secrets
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from gputune.client.errors import OutputError
from gputune.core.json_text import json_text

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
    """Where to write what is to appear at `path` when the block ends, complete or not at all; its folder is made where
    it is missing. Raises OutputError."""
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    with writing(path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            yield unfinished
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)


def write_json(path: Path, content: Any) -> None:
    """Writes JSON for tools, into a folder that is made where it is missing. Raises OutputError."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json_text(content, indent=1) + "\n", encoding="utf-8")


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
