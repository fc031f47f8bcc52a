"""Read bytes of an open file when they are requested.

Others may overwrite or truncate a file at any time. A memory mapping would show other bytes than were checked, or raise
SIGBUS. Nothing is therefore mapped: a part is read into memory of this process, checked there, and used from there.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from gputune.core.errors import ChecksumMismatch, FileChanged
from gputune.core.files import open_descriptor

PIECE_BYTES = 1 << 20
_MOST_AT_ONCE = 1 << 30


class OpenFile:
    """A regular file as it was when it was opened. It is closed when nothing refers to it any more."""

    def __init__(self, path: Path | str) -> None:
        """Open the file. Raises OSError."""
        self.path = str(path)
        self._descriptor = open_descriptor(path)
        self._state = self._now()
        self.nbytes = self._state[0]

    def read(self, start: int, nbytes: int) -> bytes:
        """Return bytes that the file had when it was opened. Raises FileChanged, OSError."""
        pieces: list[bytes] = []
        while nbytes:
            piece = os.pread(self._descriptor, min(nbytes, _MOST_AT_ONCE), start)
            if not piece:
                raise self.changed()
            pieces.append(piece)
            start, nbytes = start + len(piece), nbytes - len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    @property
    def is_changed(self) -> bool:
        """Whether the file was changed since it was opened."""
        return self._now() != self._state

    def changed(self) -> FileChanged:
        """Return the error for a file that was changed."""
        return FileChanged(
            f"{self.path}: it was changed while it was open; open it again, and replace files by renaming new ones"
        )

    def is_at(self, path: str) -> bool:
        """Return whether it is the file that has this path now."""
        try:
            return os.path.samestat(Path(path).stat(), os.fstat(self._descriptor))
        except OSError:
            return False

    def _now(self) -> tuple[int, int, int]:
        status = os.fstat(self._descriptor)
        return status.st_size, status.st_mtime_ns, status.st_ctime_ns

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):
            os.close(self._descriptor)


class Extent:
    """A part of an open file, or of memory, that is read when it is asked for."""

    def __init__(self, source: OpenFile | memoryview, start: int = 0, nbytes: int | None = None) -> None:
        """Without nbytes it is all that follows."""
        self._source, self._start = source, start
        self.nbytes = source.nbytes - start if nbytes is None else nbytes

    def part(self, start: int, nbytes: int) -> Extent:
        """Return the part of it from a place on that has so many bytes, or as many as there are."""
        return Extent(self._source, self._start + start, max(0, min(nbytes, self.nbytes - start)))

    def read(self) -> memoryview:
        """Return its bytes. Raises FileChanged, OSError."""
        if isinstance(self._source, memoryview):
            return self._source[self._start : self._start + self.nbytes]
        return memoryview(self._source.read(self._start, self.nbytes))

    @property
    def whole_file(self) -> str | None:
        """The path of the file of which this is all; None for memory, and for less than a file."""
        if isinstance(self._source, memoryview) or self._start or self.nbytes != self._source.nbytes:
            return None
        return self._source.path

    def is_at(self, path: str) -> bool:
        """Return whether the file that is open has this path now."""
        return isinstance(self._source, OpenFile) and self._source.is_at(path)

    def pieces(self) -> Iterator[memoryview]:
        """Yield its bytes piece by piece. Raises FileChanged, OSError."""
        for start in range(0, self.nbytes, PIECE_BYTES):
            yield self.part(start, PIECE_BYTES).read()

    def checked(self, sha256: str, damaged: str) -> memoryview:
        """Return its bytes, which have this digest. Raises ChecksumMismatch with the words of `damaged` where they have
        not, and FileChanged where that is because the file was changed since it was opened; OSError."""
        content = self.read()
        if hashlib.sha256(content).hexdigest() != sha256:
            raise self.wrong(damaged)
        return content

    def wrong(self, damaged: str) -> ChecksumMismatch | FileChanged:
        """Return the error for bytes that have another digest than they should have."""
        if isinstance(self._source, OpenFile) and self._source.is_changed:
            return self._source.changed()
        return ChecksumMismatch(damaged)

    def in_turn(self) -> Callable[[int], memoryview]:
        """Return what reads the next bytes with each call, as many as are asked for or are there."""
        place = 0

        def read(count: int) -> memoryview:
            nonlocal place
            place += count
            return self.part(place - count, count).read()

        return read
