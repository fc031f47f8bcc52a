"""Open the file of a performance cache, check it before anything in it is believed, and report SQLite's errors in one
line.

A file has one opener at a time, and a damaged file is set aside. The schema must be ours, row by row, because a
trigger, a CHECK or an expression in an index is code. SQLite also obeys a journal next to a file and deletes the file
that a journal names. So a journal that names a file counts as damage, and a cache is opened for writing only where no
other user could put a journal.

On a network file system the file has a rollback journal, because a write-ahead log needs memory that machines do not
share. If a disk is full, writing ends with one warning, and the generation goes on.
"""

import contextlib
import errno
import functools
import os
import sqlite3
import stat
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gputune.cache.schema import APPLICATION_ID, SCHEMA_VERSION, SCHEMAS, upgrade
from gputune.core.ownership import untrusted
from gputune.core.tier import SUFFIX
from gputune.core.whole_file import folders_to, locked_folder

BUSY_TIMEOUT_S = 30.0
_ANOTHER = "name another folder with --performance_cache_dir"
_MAKE_ROOM = f"make room, or {_ANOTHER}"
FULLY_CHECKED_BYTES = 32 << 20
"""Files up to this size are read in full (PRAGMA quick_check) when opened; larger ones would make opening
slow, so only their schema is checked. Damage inside shows when it is met; the mark that this leaves beside the
file has it read in full when it is opened again, whatever its size."""

JOURNAL = "-journal"
COMPANIONS = ("-wal", "-shm", JOURNAL)
"""Suffixes of the files that SQLite keeps beside a database; they belong to it and move with it."""

JOURNAL_END = bytes.fromhex("d9d505f920a163d7")
"""The last bytes of a journal that names another file: that of a transaction in several databases, which we never make.
SQLite deletes the file that such a journal names, whatever it is."""


def suspicion(path: Path) -> Path:
    """Return the mark beside a cache in whose file damage was met: the next process that opens it reads it in full
    first."""
    return Path(f"{path}-suspect")


class CacheError(Exception):
    """Report that a performance cache cannot be used; the text says which, why and what to do."""


class CacheFull(CacheError):
    """Report that nothing more can be written to a performance cache; what is in it stays and can be read."""


class Damaged(Exception):
    """Report that the file is not a performance cache, or no longer."""


LONGEST_SAID = 200
"""Characters of what a file, or SQLite about it, says that an error repeats."""


def one_line(said: object) -> str:
    """Return what is wrong with a file, as one short printable line. It quotes from the file: a value, a name, or its
    schema from a stray quote mark to the end, line ends included."""
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
    """Return the type of the network file system that a folder is on; empty where it is on none, or that is unknown."""
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


def cache_files(folder: Path) -> list[Path]:
    """Return the performance caches of a folder by name, none where there is no folder. Raises CacheError."""
    try:
        return sorted(path for path in folder.iterdir() if path.suffix == SUFFIX and path.is_file())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise CacheError(f"performance cache folder {folder} cannot be read: {error.strerror}") from error


def with_companions(path: Path) -> list[Path]:
    """Return a performance cache and the files that SQLite keeps beside it."""
    return [path, *(Path(f"{path}{suffix}") for suffix in COMPANIONS)]


def check_writable(folder: Path) -> None:
    """Show that files can be made in folder (and it itself and its parents), and leave nothing behind.

    Raises CacheError.
    """
    try:
        with folders_to(folder, keep=False), tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(b"x")
    except OSError as error:
        raise CacheError(_not_writable(folder, error)) from error


@contextlib.contextmanager
def folder_lock(folder: Path) -> Iterator[bool]:
    """Make folder and hold it while a file in it is checked, set aside or created; other openers wait. Gives whether it
    is held, which may not be so on a network file system: the race is then possible.

    Without this, a process that found a file damaged could set aside the new one that another has just
    started. The lock ends with the process and leaves no file. Raises CacheError.
    """
    with contextlib.ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            held = stack.enter_context(locked_folder(folder))
        except OSError as error:
            raise CacheError(_not_writable(folder, error)) from error
        yield held


def _remove(path: Path) -> None:
    """Remove a file with its companions."""
    for one in with_companions(path):
        with contextlib.suppress(OSError):
            one.unlink()


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
    remedy = _MAKE_ROOM if error.errno in (errno.ENOSPC, errno.EDQUOT) else _ANOTHER
    return f"performance cache folder {folder} cannot be written ({error.strerror}): {remedy}"


def connect(path: Path, busy_timeout_s: float, alone: bool) -> sqlite3.Connection:
    """Return a checked connection for reading and writing. Raises Damaged, and CacheError also where other users could
    put a journal beside the file. alone: no other process opens it now, so that a new file that cannot be completed
    goes."""
    if why := _others_beside(path):
        raise CacheError(f"performance cache {path} is not opened: SQLite trusts journals next to it, and it {why}")
    _check_companions(path)
    with named_errors(path, "open"):
        new = alone and not os.path.lexists(path)
        connection = _connection(path, "mode=rwc", busy_timeout_s)
        try:
            version = _inspect(connection, path)
            connection.execute(f"PRAGMA journal_mode = {'DELETE' if network_file_system(path.parent) else 'WAL'}")
            _bring_up_to_date(connection, version)
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
        except BaseException:
            connection.close()
            if new:
                _remove(path)
            raise
        return connection


def connect_readonly(path: Path) -> sqlite3.Connection:
    """Return a checked connection for reading. Raises Damaged or CacheError.

    Reading a file with a write-ahead log needs its -shm companion. Opened for writing, SQLite makes it and
    cleans it up again, so that is tried first, but not where other users could put a journal there; then companions
    that are there; then, with no log or journal to miss, the file alone.
    """
    _check_companions(path)
    logs = [Path(f"{path}{suffix}") for suffix in ("-wal", JOURNAL)]
    without_log = all(not log.exists() or log.stat().st_size == 0 for log in logs)
    modes = ("mode=ro", "mode=ro&immutable=1")
    with named_errors(path, "open"):
        for mode in modes if _others_beside(path) else ("mode=rw", *modes):
            connection = _connection(path, mode, BUSY_TIMEOUT_S)
            try:
                connection.execute("PRAGMA query_only = ON")
                if not _inspect(connection, path):
                    raise Damaged("it is empty")
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


def _others_beside(path: Path) -> str:
    """Return why other users could put a journal beside a cache, and what to do; empty if they could not."""
    try:
        return untrusted(Path(f"{path.resolve()}{JOURNAL}"), shared_folder=False)
    except OSError:  # then the file cannot be opened either
        return ""


def _check_companions(path: Path) -> None:
    """Raise Damaged for a companion that is no file, and for a journal that names another file."""
    for suffix in COMPANIONS:
        companion = Path(f"{path.resolve()}{suffix}")
        with contextlib.suppress(OSError):  # what is not there, or cannot be read, is SQLite's to say
            if not stat.S_ISREG(companion.lstat().st_mode):
                raise Damaged(f"{companion.name} is no regular file")
            if suffix == JOURNAL:
                with companion.open("rb") as journal:
                    journal.seek(-len(JOURNAL_END), os.SEEK_END)
                    if journal.read() == JOURNAL_END:
                        raise Damaged("its journal names another file")


def connect_copy(path: Path) -> sqlite3.Connection:
    """Return a copy in memory, for reading and writing, of a file or of none. Raises Damaged or CacheError."""
    copy = _connection_to(":memory:", BUSY_TIMEOUT_S)
    try:
        with named_errors(path, "copy"):
            if path.is_file():
                with contextlib.closing(connect_readonly(path)) as file:
                    file.backup(copy)
            _bring_up_to_date(copy, copy.execute("PRAGMA user_version").fetchone()[0])
    except BaseException:
        copy.close()
        raise
    return copy


def _bring_up_to_date(connection: sqlite3.Connection, version: int) -> None:
    """Turn a file of an older version, or a new one, into one of today's."""
    if version != SCHEMA_VERSION:
        connection.executescript(
            f"BEGIN IMMEDIATE; {upgrade(version)} PRAGMA application_id = {APPLICATION_ID};"
            f" PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
        )


def _connection(path: Path, mode: str, busy_timeout_s: float) -> sqlite3.Connection:
    return _connection_to(f"{path.absolute().as_uri()}?{mode}", busy_timeout_s)


def _connection_to(where: str, busy_timeout_s: float) -> sqlite3.Connection:
    connection = sqlite3.connect(where, uri=where.startswith("file:"), timeout=busy_timeout_s, isolation_level=None)
    # A schema is checked before it is used. Whatever is done to it later runs nothing.
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
    if sys.version_info >= (3, 12):
        connection.setconfig(sqlite3.SQLITE_DBCONFIG_DEFENSIVE, True)
        connection.setconfig(sqlite3.SQLITE_DBCONFIG_ENABLE_TRIGGER, False)
        connection.setconfig(sqlite3.SQLITE_DBCONFIG_ENABLE_VIEW, False)
    # A bad byte spoils its row, not the whole read.
    connection.text_factory = lambda text: text.decode("utf-8", "replace")
    return connection


def _inspect(connection: sqlite3.Connection, path: Path) -> int:
    """Return the version of the file, 0 where it is new and empty. Raises Damaged if it is not ours, CacheError if it
    is too new."""
    try:
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        schema = _schema_of(connection)
        if not schema and not application and not version:
            return 0
        if application != APPLICATION_ID:
            raise Damaged("it is not a performance cache")
        if version > SCHEMA_VERSION:
            raise CacheError(
                f"performance cache {path} was written by a newer gputune (schema {version}, this one reads "
                f"{SCHEMA_VERSION}): update gputune or name another folder with --performance_cache_dir"
            )
        if version not in SCHEMAS or schema != _expected_schema(version):
            raise Damaged("its tables are not those of a performance cache")
        suspect = suspicion(path).exists()
        if suspect or path.stat().st_size <= FULLY_CHECKED_BYTES:
            check = "integrity_check" if suspect else "quick_check"
            verdict = connection.execute(f"PRAGMA {check}(1)").fetchone()[0]
            if verdict != "ok":
                raise Damaged(one_line(verdict))
    except UnicodeDecodeError as error:  # Python could not read what SQLite says of a bad name in the schema
        raise Damaged("malformed database schema") from error
    except sqlite3.DatabaseError as error:
        # Our statements are right, so a plain SQLITE_ERROR also comes from the file.
        if _code(error) in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR):
            raise Damaged(one_line(error)) from error
        raise
    return int(version)


def _schema_of(connection: sqlite3.Connection) -> Counter[tuple[Any, ...]]:
    """Return all that a schema holds, SQLite's own indexes too: there is nothing that a file may add."""
    return Counter(connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master"))


@functools.cache
def _expected_schema(version: int) -> Counter[tuple[Any, ...]]:
    with contextlib.closing(sqlite3.connect(":memory:")) as model:
        model.executescript(SCHEMAS[version])
        return _schema_of(model)


def _code(error: sqlite3.Error) -> int:
    """Return the primary result code; 0 for an error that Python's own layer raised."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


@contextlib.contextmanager
def named_errors(path: Path, doing: str) -> Iterator[None]:
    """Turn what SQLite raises into one clear line; damage also leaves its mark."""
    try:
        yield
    except sqlite3.Error as error:
        if _code(error) == sqlite3.SQLITE_CORRUPT:
            with contextlib.suppress(OSError):  # a folder that cannot be written
                suspicion(path).touch()
        said = one_line(error)
        hints = {
            sqlite3.SQLITE_BUSY: "another process keeps it locked, or its file system has no locks; try again when "
            "that process has finished, or keep the cache on a local disk",
            sqlite3.SQLITE_NOTADB: f"it is damaged ({said}); the next generation sets it aside",
            sqlite3.SQLITE_CORRUPT: f"it is damaged ({said}); the next generation sets it aside",
            sqlite3.SQLITE_FULL: f"the disk is full; {_MAKE_ROOM}",
            sqlite3.SQLITE_IOERR: f"{said}; a full disk or quota can be the reason: {_MAKE_ROOM}",
        }
        why = hints.get(_code(error), said)
        kind = CacheFull if _code(error) in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR) else CacheError
        raise kind(f"performance cache {path}: cannot {doing}: {why}") from error
