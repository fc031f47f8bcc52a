"""The performance cache: one SQLite file per device tier; the only file that knows SQLite.

Durability: each batch of trials is one transaction in a write-ahead log that is synchronised at every commit,
so a stored batch survives kill -9 and power loss. Several processes may use one file; a writer waits for its
turn. An instance belongs to the thread that opened it.
"""

import contextlib
import functools
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from gputune.cache.chain import CHAIN_COLUMNS, ChainRecord, chain_from_rows, chain_to_row
from gputune.cache.files import CacheError, folder_lock, set_aside, suspicion
from gputune.cache.key import TaskKey, Validity, canonical_json
from gputune.cache.record import (
    TRIAL_COLUMNS,
    WINNER_COLUMNS,
    RecordError,
    TrialRecord,
    WinnerRecord,
    trial_from_row,
    trial_to_row,
    winner_from_row,
    winner_to_row,
)
from gputune.cache.schema import APPLICATION_ID, DATA_TABLES, SCHEMA_VERSION, SCHEMAS, missing_tables
from gputune.cache.summary import TaskSummary, gather, summary_from_rows
from gputune.cache.tier import tier_of

_Parsed = TypeVar("_Parsed")

BUSY_TIMEOUT_S = 30.0
FULLY_CHECKED_BYTES = 32 << 20
"""Files up to this size are read in full (PRAGMA quick_check) when opened; larger ones would make opening
slow, so only their schema is checked. Damage inside shows when it is met; the mark that this leaves beside the
file has it read in full when it is opened again, whatever its size."""


@dataclass(frozen=True)
class GenerationStart:
    """resumed: this generation had begun before and not finished; invalidated: the file was emptied now."""

    resumed: bool
    invalidated: bool


class _Damaged(Exception):
    """The file is not a performance cache, or no longer."""


class PerformanceCache:
    """An open performance cache file; use open or open_readonly, and close or a with statement.

    path: the file; warnings: texts given to warn so far; malformed_rows: rows skipped so far because their
    contents were impossible. Methods raise CacheError when the file cannot be read or written.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path, warn: Callable[[str], None] | None) -> None:
        self._connection = connection
        self._warn_caller = warn
        self.path = path
        self.warnings: list[str] = []
        self.malformed_rows = 0

    @classmethod
    def open(
        cls, path: Path, *, warn: Callable[[str], None] | None = None, busy_timeout_s: float = BUSY_TIMEOUT_S
    ) -> Self:
        """Open path for reading and writing; it and its folder are made on demand.

        A damaged file is set aside as PATH.damaged-YYYYmmdd-HHMMSS and a new one is started; warn hears of
        it. Raises CacheError where the folder cannot be written, the file stays locked, or a newer gputune
        wrote it.
        """
        aside = None
        with folder_lock(path.parent):
            try:
                connection = _connect(path, busy_timeout_s)
            except _Damaged as damage:
                reason, aside = str(damage), set_aside(path)
                connection = _connect(path, busy_timeout_s)
            with contextlib.suppress(OSError):  # then it is checked once more
                suspicion(path).unlink(missing_ok=True)
        cache = cls(connection, path, warn)
        if aside is not None:
            cache._warn(
                f"performance cache {path} is damaged ({reason}): set aside as {aside.name}, a new one is started"
            )
        return cache

    @classmethod
    def open_readonly(cls, path: Path, *, warn: Callable[[str], None] | None = None) -> Self:
        """Open an existing file without changing it, also where its folder cannot be written.

        Raises CacheError, also for a damaged file, which stays where it is.
        """
        if not path.is_file():
            raise CacheError(f"performance cache {path} does not exist")
        try:
            return cls(_connect_readonly(path), path, warn)
        except _Damaged as damage:
            raise CacheError(f"performance cache {path} is damaged ({damage})") from damage

    def close(self) -> None:
        """Release the file; the last process to do so also removes its -wal and -shm companions."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # What was measured.

    def store_trials(self, task: TaskKey, validity: Validity, trials: Iterable[TrialRecord]) -> None:
        """Add a batch, all or nothing; on return it is on the disk."""
        now = time.time()
        rows = [trial_to_row(trial) for trial in trials]
        with self._transaction("store trials"):
            owner = self._owner(task, validity)
            self._connection.executemany(
                f"INSERT INTO trial (task, validity, {', '.join(TRIAL_COLUMNS)}, stored_at)"
                f" VALUES (?, ?, {', '.join('?' * len(TRIAL_COLUMNS))}, ?)",
                [(*owner, *row, now) for row in rows],
            )

    def trials_of(self, task: TaskKey, validity: Validity) -> list[TrialRecord]:
        """All trials in order of arrival; malformed rows are skipped with a warning."""
        rows = self._rows(
            f"SELECT {_columns('trial', TRIAL_COLUMNS)} FROM trial {_owned('trial')} ORDER BY trial.id",
            (task.digest, validity.digest),
        )
        return self._checked("trials", trial_from_row, rows)

    def conclude(self, task: TaskKey, validity: Validity, winner: WinnerRecord) -> None:
        """Remember the outcome of tuning, in place of an earlier one (so also to add the binary later)."""
        row = winner_to_row(winner)
        with self._transaction("store a winner"):
            owner = self._owner(task, validity)
            self._connection.execute(
                f"INSERT OR REPLACE INTO winner (task, validity, {', '.join(WINNER_COLUMNS)}, stored_at)"
                f" VALUES (?, ?, {', '.join('?' * len(WINNER_COLUMNS))}, ?)",
                (*owner, *row, time.time()),
            )

    def winner_of(self, task: TaskKey, validity: Validity) -> WinnerRecord | None:
        """The outcome of tuning; None where there is none, or only a malformed one (with a warning).

        A binary that is not the one that was stored is left out with a warning: it has to be compiled again.
        """
        rows = self._rows(
            f"SELECT {_columns('winner', WINNER_COLUMNS)} FROM winner {_owned('winner')}",
            (task.digest, validity.digest),
        )
        winners = self._checked("winners", winner_from_row, rows)
        if not winners:
            return None
        (winner,), (row,) = winners, rows
        if row[WINNER_COLUMNS.index("binary")] and not winner.binary:
            self._warn(f"performance cache {self.path}: the binary of a {task.op} is damaged and not used")
        return winner

    def tasks(self) -> list[TaskSummary]:
        """A summary of every task and validity with a trial or a winner, by op, then by first arrival."""
        counts = self._rows(
            "SELECT task, validity, status, count(*), max(stored_at) FROM trial GROUP BY task, validity, status"
        )
        columns = _columns("winner", WINNER_COLUMNS).replace("winner.binary", "x''")
        rows = self._rows(f"SELECT task, validity, stored_at, {columns} FROM winner")
        winners = self._checked("winners", lambda row: (*row[:3], winner_from_row(row[3:])), rows)
        owners = self._rows(
            "SELECT task.id, validity.id, task.digest, task.key, validity.digest, validity.key,"
            " tier, family, vendor FROM task, validity ORDER BY task.op, task.id, validity.id"
        )
        return self._checked("tasks", summary_from_rows, gather(owners, counts, winners))

    # What was chosen inside whole models.

    def conclude_chain(self, digest: str, chain: ChainRecord) -> None:
        """Remember what was chosen in a chain, in place of an earlier choice."""
        row = chain_to_row(chain)
        with self._transaction("store what was chosen in a chain"):
            self._connection.execute("DELETE FROM chain_winner WHERE chain = ?", (digest,))
            self._connection.execute(
                f"INSERT OR REPLACE INTO chain (digest, {', '.join(CHAIN_COLUMNS)}, stored_at) VALUES (?, ?, ?, ?, ?)",
                (digest, *row, time.time()),
            )
            self._connection.executemany(
                f"INSERT INTO chain_winner (chain, task, {', '.join(WINNER_COLUMNS)})"
                f" VALUES (?, ?, {', '.join('?' * len(WINNER_COLUMNS))})",
                [(digest, task, *winner_to_row(winner)) for task, winner in chain.winners.items()],
            )

    def chain_of(self, digest: str) -> ChainRecord | None:
        """What was chosen in a chain; None where nothing was, or only something malformed (with a warning)."""
        rows = self._rows(f"SELECT {', '.join(CHAIN_COLUMNS)} FROM chain WHERE digest = ?", (digest,))
        winners = self._rows(f"SELECT task, {', '.join(WINNER_COLUMNS)} FROM chain_winner WHERE chain = ?", (digest,))
        chains = self._checked("chains", lambda row: chain_from_rows(row, winners), rows)
        return chains[0] if chains else None

    # Generations.

    def begin_generation(self, fingerprint: str, invalidate: bool) -> GenerationStart:
        """Mark the generation as begun; with invalidate, empty the file first unless it resumes one that did.

        Emptying and marking are one transaction, so no crash can come between: either nothing has happened
        yet, or the file is empty and the rerun knows it. The file is emptied and shrunk instead of unlinked,
        because a process that still had the old file open would go on writing into nowhere, or mix its log
        with the new file's.
        """
        with self._transaction("begin a generation"):
            mark = self._connection.execute(
                "SELECT invalidated FROM generation WHERE fingerprint = ?", (fingerprint,)
            ).fetchone()
            had_invalidated = mark is not None and mark[0] == 1
            invalidates = invalidate and not had_invalidated
            if invalidates:
                for table in DATA_TABLES:
                    self._connection.execute(f"DELETE FROM {table}")
            self._connection.execute(
                "INSERT OR REPLACE INTO generation (fingerprint, invalidated, begun_at) VALUES (?, ?, ?)",
                (fingerprint, int(had_invalidated or invalidates), time.time()),
            )
        if invalidates:
            with contextlib.suppress(sqlite3.OperationalError):  # others use it: the space is reused instead
                self._connection.execute("VACUUM")
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return GenerationStart(resumed=mark is not None, invalidated=invalidates)

    def finish_generation(self, fingerprint: str) -> None:
        """Remove the mark: the next generation of this fingerprint is a new one."""
        with self._transaction("finish a generation"):
            self._connection.execute("DELETE FROM generation WHERE fingerprint = ?", (fingerprint,))

    # Inside.

    def _owner(self, task: TaskKey, validity: Validity) -> tuple[int, int]:
        """Row ids of the task and the validity, made on demand inside the caller's transaction."""
        tier = tier_of(validity.device_name, validity.compute_units, validity.vendor, validity.device_version)
        self._connection.execute(
            "INSERT OR IGNORE INTO task (digest, op, key) VALUES (?, ?, ?)",
            (task.digest, task.op, canonical_json(task.to_dict())),
        )
        self._connection.execute(
            "INSERT OR IGNORE INTO validity (digest, tier, family, vendor, key) VALUES (?, ?, ?, ?, ?)",
            (validity.digest, tier.name, tier.family, tier.vendor, canonical_json(validity.to_dict())),
        )
        ids = self._connection.execute(
            "SELECT task.id, validity.id FROM task, validity WHERE task.digest = ? AND validity.digest = ?",
            (task.digest, validity.digest),
        ).fetchone()
        return ids[0], ids[1]

    @contextlib.contextmanager
    def _transaction(self, doing: str) -> Iterator[None]:
        with _named_errors(self.path, doing):
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield
                self._connection.commit()
            except BaseException:
                self._connection.rollback()
                raise

    def _rows(self, query: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        with _named_errors(self.path, "read"):
            return self._connection.execute(query, values).fetchall()

    def _checked(self, kind: str, parse: Callable[[Any], _Parsed], rows: Iterable[Any]) -> list[_Parsed]:
        """The rows that can be parsed; the others are counted, with one warning for all of them."""
        good: list[_Parsed] = []
        reasons: list[str] = []
        for row in rows:
            try:
                good.append(parse(row))
            except RecordError as error:
                reasons.append(str(error))
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


def _columns(table: str, names: Iterable[str]) -> str:
    return ", ".join(f"{table}.{name}" for name in names)


def _owned(table: str) -> str:
    """Those rows of table that belong to the task digest and the validity digest given as values."""
    return (
        f"JOIN task ON task.id = {table}.task JOIN validity ON validity.id = {table}.validity"
        " WHERE task.digest = ? AND validity.digest = ?"
    )


# Opening.


def _connect(path: Path, busy_timeout_s: float) -> sqlite3.Connection:
    """A checked connection for reading and writing. Raises _Damaged or CacheError."""
    with _named_errors(path, "open"):
        connection = _connection(path, "mode=rwc", busy_timeout_s)
        try:
            version = _inspect(connection, path)
            connection.execute("PRAGMA journal_mode = WAL")
            if version != SCHEMA_VERSION:
                connection.executescript(
                    f"BEGIN IMMEDIATE; {missing_tables(version)} PRAGMA application_id = {APPLICATION_ID};"
                    f" PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
                )
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
        except BaseException:
            connection.close()
            raise
        return connection


def _connect_readonly(path: Path) -> sqlite3.Connection:
    """A checked connection for reading. Raises _Damaged or CacheError.

    Reading a file with a write-ahead log needs its -shm companion. Opened for writing, SQLite makes it and
    cleans it up again, so that is tried first; then companions that are there; then, with no log to miss, the
    file alone.
    """
    log = Path(f"{path}-wal")
    without_log = not log.exists() or log.stat().st_size == 0
    with _named_errors(path, "open"):
        for mode in ("mode=rw", "mode=ro", "mode=ro&immutable=1"):
            connection = _connection(path, mode, BUSY_TIMEOUT_S)
            try:
                connection.execute("PRAGMA query_only = ON")
                if not _inspect(connection, path):
                    raise _Damaged("it is empty")
                return connection
            except sqlite3.OperationalError as error:
                connection.close()
                last_resort = "immutable" in mode or (mode == "mode=ro" and not without_log)
                if last_resort or _code(error) not in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN):
                    raise
            except BaseException:
                connection.close()
                raise
    raise AssertionError("the last mode returns or raises")


def _connection(path: Path, mode: str, busy_timeout_s: float) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?{mode}"
    connection = sqlite3.connect(uri, uri=True, timeout=busy_timeout_s, isolation_level=None)
    # A bad byte spoils its row, not the whole read.
    connection.text_factory = lambda text: text.decode("utf-8", "replace")
    return connection


def _inspect(connection: sqlite3.Connection, path: Path) -> int:
    """The version of the file, 0 where it is new and empty. Raises _Damaged if it is not ours, CacheError if it is too
    new."""
    try:
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        schema = _schema_of(connection)
        if not schema and not application and not version:
            return 0
        if application != APPLICATION_ID:
            raise _Damaged("it is not a performance cache")
        if version > SCHEMA_VERSION:
            raise CacheError(
                f"performance cache {path} was written by a newer gputune (schema {version}, this one reads "
                f"{SCHEMA_VERSION}): update gputune or name another folder with performance_cache_dir"
            )
        if version not in SCHEMAS or schema != _expected_schema(version):
            raise _Damaged("its tables are not those of a performance cache")
        suspect = suspicion(path).exists()
        if suspect or path.stat().st_size <= FULLY_CHECKED_BYTES:
            check = "integrity_check" if suspect else "quick_check"
            verdict = connection.execute(f"PRAGMA {check}(1)").fetchone()[0]
            if verdict != "ok":
                raise _Damaged(" ".join(str(verdict).split()))
    except UnicodeDecodeError as error:  # Python could not read what SQLite says of a bad name in the schema
        raise _Damaged("malformed database schema") from error
    except sqlite3.DatabaseError as error:
        # Our statements are right, so a plain SQLITE_ERROR also comes from the file.
        if _code(error) in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR):
            raise _Damaged(str(error)) from error
        raise
    return int(version)


def _schema_of(connection: sqlite3.Connection) -> set[tuple[Any, ...]]:
    rows = connection.execute("SELECT type, name, sql FROM sqlite_master")
    return {row for row in rows if not str(row[1]).startswith("sqlite_")}  # those are SQLite's own


@functools.cache
def _expected_schema(version: int) -> set[tuple[Any, ...]]:
    with contextlib.closing(sqlite3.connect(":memory:")) as model:
        model.executescript(SCHEMAS[version])
        return _schema_of(model)


def _code(error: sqlite3.Error) -> int:
    """The primary result code; 0 for an error that Python's own layer raised."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


@contextlib.contextmanager
def _named_errors(path: Path, doing: str) -> Iterator[None]:
    """Turn what SQLite raises into one clear line; damage also leaves its mark."""
    try:
        yield
    except sqlite3.Error as error:
        if _code(error) == sqlite3.SQLITE_CORRUPT:
            with contextlib.suppress(OSError):  # a folder that cannot be written
                suspicion(path).touch()
        hints = {
            sqlite3.SQLITE_BUSY: "another process keeps it locked; try again when that one has finished",
            sqlite3.SQLITE_NOTADB: f"it is damaged ({error}); the next generation sets it aside",
            sqlite3.SQLITE_CORRUPT: f"it is damaged ({error}); the next generation sets it aside",
            sqlite3.SQLITE_FULL: "the disk is full",
        }
        why = hints.get(_code(error), " ".join(str(error).split()))
        raise CacheError(f"performance cache {path}: cannot {doing}: {why}") from error
