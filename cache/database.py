"""Open a performance cache file: transactions, checked rows, and messages about them.

Durability: each batch of trials is one transaction in a write-ahead log (on a network file system, in a rollback
journal) that is synchronised at every commit. A stored batch therefore survives kill -9 and power loss. Several
processes may use one file; a writer waits for its turn. An instance belongs to the thread that opened it.
"""

import contextlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Self, TypeVar

from gputune.cache.file import (
    BUSY_TIMEOUT_S,
    CacheError,
    CacheFull,
    Damaged,
    connect,
    connect_copy,
    connect_readonly,
    folder_lock,
    named_errors,
    network_file_system,
    one_line,
    set_aside,
    suspicion,
)
from gputune.cache.record import RecordError
from gputune.core.opened import Closing

_Parsed = TypeVar("_Parsed")


class Database(Closing):
    """Read and write an open performance cache file; use open or open_readonly, and close or a with statement.

    path: the file; warnings: texts given to warn so far; malformed_rows: rows skipped so far because their contents
    were impossible; unkept: writes that were given up so far; seen_since: what was stored before, in seconds since
    1970, is not seen by trials_of, winner_of and chain_of; writable: whether it was not opened for reading only; secret
    and foreign: as programs.py says. Methods raise CacheError when the file cannot be read or written.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        path: Path,
        warn: Callable[[str], None] | None,
        secret: bytes | None = None,
        writable: bool = True,
    ) -> None:
        self._connection = connection
        self._warn_caller = warn
        self.path = path
        self.warnings: list[str] = []
        self.malformed_rows = 0
        self.unkept = 0
        self.seen_since = 0.0
        self.secret = secret
        self.writable = writable
        self.foreign: set[str] = set()
        self._used: set[str] = set()

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        warn: Callable[[str], None] | None = None,
        secret: bytes | None = None,
        busy_timeout_s: float = BUSY_TIMEOUT_S,
    ) -> Self:
        """Open path for reading and writing; it and its folder are made on demand.

        A damaged file is set aside as PATH.damaged-YYYYmmdd-HHMMSS and a new one is started; warn hears of
        it. Raises CacheError where the folder cannot be written, the file stays locked, or a newer gputune
        wrote it.
        """
        aside = None
        with folder_lock(path.parent) as held:
            try:
                connection = connect(path, busy_timeout_s, alone=held)
            except Damaged as damage:
                reason, aside = str(damage), set_aside(path)
                connection = connect(path, busy_timeout_s, alone=held)
            with contextlib.suppress(OSError):  # then it is checked once more
                suspicion(path).unlink(missing_ok=True)
        cache = cls(connection, path, warn, secret)
        if kind := network_file_system(path.parent):
            cache._warn(
                f"performance cache {path} is on a network file system ({kind}): it uses a rollback journal, which "
                "is slower, and is only as safe as that file system's locks; a local folder is better"
            )
        if aside is not None:
            cache._warn(
                f"performance cache {path} is damaged ({reason}): set aside as {aside.name}, a new one is started"
            )
        return cache

    @classmethod
    def open_readonly(
        cls, path: Path, *, warn: Callable[[str], None] | None = None, secret: bytes | None = None
    ) -> Self:
        """Open an existing file without changing it, also where its folder cannot be written.

        Raises CacheError, also for a damaged file, which stays where it is.
        """
        if not path.is_file():
            raise CacheError(f"performance cache {path} does not exist")
        try:
            return cls(connect_readonly(path), path, warn, secret, writable=False)
        except Damaged as damage:
            raise CacheError(f"performance cache {path} is damaged ({damage})") from damage

    @classmethod
    def open_copy(cls, path: Path, *, warn: Callable[[str], None] | None = None) -> Self:
        """Open a copy in memory of what path holds, of nothing where there is no file: what is done to it tells what a
        generation would do, and is forgotten when it is closed.

        Raises CacheError, also for a damaged file.
        """
        try:
            return cls(connect_copy(path), path, warn)
        except Damaged as damage:
            raise CacheError(f"performance cache {path} is damaged ({damage})") from damage

    def close(self) -> None:
        """Release the file; the last process to do so also removes its -wal and -shm companions."""
        self._connection.close()

    @contextlib.contextmanager
    def _keeping(self, doing: str) -> Iterator[None]:
        """Hold a transaction, and give it up where the disk is full, with one warning for all of them. What was
        measured is still good for the program that has measured it, and must not be lost with what comes after it."""
        try:
            with self._transaction(doing):
                yield
        except CacheFull as error:
            self.unkept += 1
            if self.unkept == 1:
                self._warn(f"{error}; from now on nothing is stored, and the next generation measures it again")

    @contextlib.contextmanager
    def _transaction(self, doing: str) -> Iterator[None]:
        with named_errors(self.path, doing):
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield
                self._connection.commit()
            except BaseException:
                self._connection.rollback()
                raise

    def _shrink(self) -> None:
        with contextlib.suppress(sqlite3.OperationalError):  # others use it: the space is reused instead
            self._connection.execute("VACUUM")
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _has(self, table: str) -> bool:
        """Return whether the file has a table; one of an older version that is only read may lack some."""
        return bool(self._rows("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (table,)))

    def _rows(self, query: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        return list(self._each(query, values))

    def _each(self, query: str, values: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
        """Yield the rows one by one."""
        with named_errors(self.path, "read"):
            yield from self._connection.execute(query, values)

    def _checked(self, kind: str, parse: Callable[[Any], _Parsed], rows: Iterable[Any]) -> list[_Parsed]:
        """Return the rows that can be parsed; the others are counted, with one warning for all of them."""
        good: list[_Parsed] = []
        reasons: list[str] = []
        for row in rows:
            try:
                good.append(parse(row))
            except RecordError as error:
                reasons.append(one_line(error))
        if reasons:
            self.malformed_rows += len(reasons)
            self._warn(
                f"performance cache {self.path}: skipped {len(reasons)} malformed {kind},"
                f" the first because {reasons[0]}"
            )
        return good

    def _warn(self, text: str) -> None:
        self.warnings.append(text)
        if self._warn_caller is not None:
            self._warn_caller(text)
