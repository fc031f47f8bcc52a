"""Test damaged, foreign, newer and unreachable files."""

import contextlib
import dataclasses
import functools
import os
import shutil
import sqlite3
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gputune.cache import CacheError, ChainRecord, PerformanceCache, check_writable
from gputune.cache import file as file_module
from gputune.cache.file import JOURNAL_END, suspicion
from gputune.cache.schema import SCHEMA_VERSION, SCHEMAS
from gputune.core.ownership import TRUSTED_FOLDERS
from tests.waiting import PATIENCE_SECONDS

from .conftest import FAILED, TASK, VALIDITY, WINNER, as_version, edit, trial


def make(path: Path) -> None:
    with PerformanceCache.open(path) as cache:
        cache.store_trials(TASK, VALIDITY, [trial(1), FAILED] * 40)
        cache.conclude(TASK, VALIDITY, WINNER)


def asides(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{path.name}.damaged-*"))


def works(path: Path) -> None:
    with PerformanceCache.open(path) as cache:
        cache.store_trials(TASK, VALIDITY, [trial(7)])
        assert cache.trials_of(TASK, VALIDITY)[-1] == trial(7)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda path: path.write_bytes(b"hello"), "not a database"),
        (lambda path: path.write_bytes(os.urandom(20_000)), "not a database"),
        (lambda path: os.truncate(path, 6000), "malformed"),
        (lambda path: edit(path, "DROP TABLE winner"), "tables"),
        (lambda path: edit(path, "ALTER TABLE trial ADD COLUMN x"), "tables"),
        (lambda path: edit(path, "PRAGMA user_version = 0"), "tables"),
        (lambda path: edit(path, "PRAGMA user_version = 1"), "tables"),
        (lambda path: edit(path, "PRAGMA user_version = -3"), "tables"),
        (lambda path: edit(path, "PRAGMA application_id = 7"), "not a performance cache"),
    ],
)
def test_a_damaged_file_is_set_aside(path: Path, damage: object, reason: str) -> None:
    make(path)
    damage(path)  # type: ignore[operator]
    content = path.read_bytes()
    heard: list[str] = []
    with PerformanceCache.open(path, warn=heard.append) as cache:
        assert cache.tasks() == []
    (aside,) = asides(path)
    assert aside.read_bytes() == content
    assert len(heard) == 1
    assert reason in heard[0]
    assert aside.name in heard[0]
    works(path)


def in_schema(kind: str, name: str, table: str, sql: str) -> Callable[[Path], None]:
    """Puts a row into the schema that no statement could make, such as one with a name of SQLite's own."""

    def put(path: Path) -> None:
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("INSERT INTO sqlite_master VALUES (?, ?, ?, 0, ?)", (kind, name, table, sql))
        connection.execute("PRAGMA writable_schema = RESET")
        connection.close()

    return put


def said_otherwise(table: str, before: str, after: str) -> Callable[[Path], None]:
    """Changes what the schema says of a table, whose rows stay."""

    def put(path: Path) -> None:
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("PRAGMA writable_schema = ON")
        done = connection.execute(
            "UPDATE sqlite_master SET sql = replace(sql, ?, ?) WHERE name = ? AND sql LIKE ?",
            (before, after, table, f"%{before}%"),
        )
        assert done.rowcount == 1
        connection.execute("PRAGMA writable_schema = RESET")
        connection.close()

    return put


EVIL = "AFTER INSERT ON generation BEGIN DELETE FROM trial; END"
HOSTILE = {
    "trigger": lambda path: edit(path, f"CREATE TRIGGER evil {EVIL}"),
    "trigger of SQLite's": in_schema("trigger", "sqlite_evil", "generation", f"CREATE TRIGGER sqlite_evil {EVIL}"),
    "view": lambda path: edit(path, "CREATE VIEW v AS SELECT * FROM trial"),
    "view of SQLite's": in_schema("view", "sqlite_v", "sqlite_v", "CREATE VIEW sqlite_v AS SELECT 1"),
    "virtual table": lambda path: edit(path, "CREATE VIRTUAL TABLE v USING fts5(x)"),
    "virtual table of SQLite's": in_schema(
        "table", "sqlite_t", "sqlite_t", "CREATE VIRTUAL TABLE sqlite_t USING fts5(x)"
    ),
    "table of SQLite's": lambda path: edit(path, "ANALYZE"),
    "index on an expression": lambda path: edit(path, "CREATE INDEX i ON trial (upper(message))"),
    "partial index": lambda path: edit(path, "CREATE INDEX i ON trial (status) WHERE status = 'ok'"),
    "another index": said_otherwise("trial_of", "status, ", ""),
    "generated column": lambda path: edit(path, "ALTER TABLE trial ADD COLUMN x AS (upper(message))"),
    "CHECK": said_otherwise("trial", "status TEXT NOT NULL", "status TEXT NOT NULL CHECK (random())"),
    "default": said_otherwise("generation", "begun_at REAL NOT NULL", "begun_at REAL NOT NULL DEFAULT (random())"),
    "affinity": said_otherwise("trial", "message TEXT", "message BLOB"),
    "collation": said_otherwise("task", "digest TEXT NOT NULL", "digest TEXT NOT NULL COLLATE NOCASE"),
    "reference": said_otherwise("trial", "REFERENCES task (id)", "REFERENCES task (id) ON DELETE CASCADE"),
    "strict table": said_otherwise("generation", "NULL\n)", "NULL\n) STRICT"),
}


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE)
def test_what_a_schema_could_do_by_itself_is_not_there(path: Path, hostile: Callable[[Path], None]) -> None:
    make(path)
    hostile(path)
    with pytest.raises(CacheError, match="is damaged"):
        PerformanceCache.open_readonly(path)
    heard: list[str] = []
    with PerformanceCache.open(path, warn=heard.append) as cache:
        cache.begin_generation("f", invalidate=False)
        assert cache.tasks() == []
    (text,) = heard
    assert f"set aside as {asides(path)[0].name}" in text


def test_connections_run_nothing_of_a_schema(path: Path) -> None:
    """Not even what is put there while the file is open, where Python can ask SQLite for that."""
    make(path)
    with PerformanceCache.open(path) as cache:
        assert cache._rows("PRAGMA trusted_schema") == [(0,)]
        assert cache._rows("PRAGMA cell_size_check") == [(1,)]
        if sys.version_info >= (3, 12):
            edit(path, f"CREATE TRIGGER evil {EVIL}")
            cache.begin_generation("f", invalidate=False)
            assert len(cache.trials_of(TASK, VALIDITY)) == 80


def journal_that_names(path: Path, victim: Path) -> bytes:
    """A journal of a killed process, with the name of a file that belongs to its transaction, too."""
    code = (
        "import os, sqlite3, sys; file = sqlite3.connect(sys.argv[1], isolation_level=None);"
        "file.execute('PRAGMA journal_mode = DELETE'); file.execute('PRAGMA cache_size = 1'); file.execute('BEGIN');"
        "file.execute('UPDATE trial SET message = hex(randomblob(20000))'); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", code, path], check=True)
    name = str(victim).encode()
    page = struct.pack(">I", (1 << 30) // 4096 + 1)
    end = struct.pack(">II", len(name), sum(name)) + JOURNAL_END
    return Path(f"{path}-journal").read_bytes() + page + name + end


@pytest.mark.parametrize("opening", [PerformanceCache.open, PerformanceCache.open_readonly])
def test_a_journal_cannot_have_files_deleted(
    path: Path, tmp_path: Path, opening: Callable[[Path], PerformanceCache]
) -> None:
    """SQLite would delete the file that a journal names, whatever it is."""
    make(path)
    victim = tmp_path / "precious"
    victim.write_text("of the user")
    Path(f"{path}-journal").write_bytes(journal_that_names(path, victim))
    with contextlib.suppress(CacheError):
        opening(path).close()
    assert victim.exists()
    works(path)
    assert victim.exists()
    (aside,) = (one for one in asides(path) if not one.name.endswith("-journal"))
    assert Path(f"{aside}-journal").exists()


def test_a_journal_of_a_killed_process_is_rolled_back(path: Path, tmp_path: Path) -> None:
    make(path)
    before = path.read_bytes()
    journal_that_names(path, tmp_path)
    assert path.read_bytes() != before
    with PerformanceCache.open(path) as cache:
        assert cache.trials_of(TASK, VALIDITY) == [trial(1), FAILED] * 40
        assert cache.problems() == []
    assert not asides(path)


@pytest.mark.parametrize("suffix", ["-journal", "-wal", "-shm"])
def test_a_companion_that_is_no_file_makes_nobody_wait(path: Path, suffix: str) -> None:
    make(path)
    os.mkfifo(f"{path}{suffix}")
    code = (
        "import sys; from pathlib import Path; from gputune.cache import PerformanceCache;"
        "PerformanceCache.open_readonly(Path(sys.argv[1]))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, path], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )
    assert f"is damaged ({path.name}{suffix} is no regular file)" in ran.stderr
    works(path)


def test_a_cache_where_others_could_put_a_journal_is_only_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TRUSTED_FOLDERS, raising=False)
    make(path)
    path.parent.chmod(0o777)
    with PerformanceCache.open_readonly(path) as cache:
        assert cache.winner_of(TASK, VALIDITY) == WINNER
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            cache._connection.executescript("PRAGMA query_only = OFF; DELETE FROM trial;")
    with pytest.raises(CacheError, match=r"journals next to it, and it lies in .*, which can be written by every user"):
        PerformanceCache.open(path)
    monkeypatch.setenv(TRUSTED_FOLDERS, str(path.parent))
    works(path)


@pytest.mark.parametrize("opening", [PerformanceCache.open, PerformanceCache.open_readonly])
def test_damage_in_a_file_too_large_to_be_checked_is_set_aside_once_it_was_met(
    path: Path, opening: Callable[[Path], PerformanceCache], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_module, "FULLY_CHECKED_BYTES", 0)
    make(path)
    with sqlite3.connect(path) as connection:
        root = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'trial'").fetchone()[0]
    connection.close()
    with path.open("r+b") as file:
        file.seek((root - 1) * 4096)
        file.write(b"\xee" * 4096)
    with opening(path) as cache, pytest.raises(CacheError, match=r"damaged .* next generation sets it aside"):
        cache.trials_of(TASK, VALIDITY)
    assert asides(path) == []
    heard: list[str] = []
    with PerformanceCache.open(path, warn=heard.append) as cache:
        assert cache.tasks() == []
    (text,) = heard
    assert f"set aside as {asides(path)[0].name}" in text
    assert not suspicion(path).exists()
    works(path)


def test_a_suspect_file_that_is_sound_is_kept(path: Path) -> None:
    make(path)
    suspicion(path).touch()
    works(path)
    assert list(path.parent.iterdir()) == [path]


def test_two_damaged_files_in_one_second_keep_both(path: Path) -> None:
    path.parent.mkdir()
    for content in (b"first", b"second", b"third"):
        path.write_bytes(content)
        PerformanceCache.open(path).close()
    assert sorted(aside.read_bytes() for aside in asides(path)) == [b"first", b"second", b"third"]


def test_companions_move_with_their_file(path: Path) -> None:
    make(path)
    with PerformanceCache.open(path) as cache:  # leave a log behind, as a killed process would
        cache.store_trials(TASK, VALIDITY, [trial(5)])
        log = Path(f"{path}-wal").read_bytes()
    path.write_bytes(b"x" * 9000)
    Path(f"{path}-wal").write_bytes(log)
    with PerformanceCache.open(path) as cache:
        assert cache.tasks() == []
    assert not Path(f"{path}-wal").exists()
    works(path)


def test_an_empty_file_is_a_new_one(path: Path) -> None:
    path.parent.mkdir()
    path.touch()
    works(path)
    assert asides(path) == []


@functools.cache
def whole_file() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tier.sqlite"
        make(path)
        return path.read_bytes()


def survives(content: bytes, folder: Path) -> None:
    """Whatever the bytes: reading, writing and summaries end well or with one clear line."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    path = folder / "tier.sqlite"
    path.write_bytes(content)
    try:
        PerformanceCache.open_readonly(path).close()
    except CacheError as error:
        assert "\n" not in str(error)
    try:
        with PerformanceCache.open(path) as cache:
            cache.tasks()
            cache.winner_of(TASK, VALIDITY)
            cache.begin_generation("f", invalidate=False)
            cache.store_trials(TASK, VALIDITY, [trial(7)])
            assert cache.trials_of(TASK, VALIDITY)[-1] == trial(7)
    except CacheError as error:
        assert "\n" not in str(error)


PLACES = st.integers(0, 99) | st.integers(0, len(whole_file()) - 1)  # the header more often than chance has it


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(changes=st.lists(st.tuples(PLACES, st.integers(0, 255)), min_size=1, max_size=6))
@example(changes=[(whole_file().index(b" TABLE trial"), ord("'"))])  # SQLite quotes all that comes after it
@example(changes=[(whole_file().index(b"trialtrial"), ord("\n"))])  # a name of two lines
def test_changed_bytes_never_crash(tmp_path: Path, changes: list[tuple[int, int]]) -> None:
    content = bytearray(whole_file())
    for place, byte in changes:
        content[place] = byte
    survives(bytes(content), tmp_path / "x")


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_truncated_files_never_crash(tmp_path: Path, data: st.DataObject) -> None:
    whole = whole_file()
    length = data.draw(st.integers(0, len(whole) - 1) | st.integers(0, len(whole) // 4096 - 1).map(lambda n: n * 4096))
    survives(whole[:length], tmp_path / "x")


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(content=st.binary(max_size=3000), start=st.sampled_from([b"", b"SQLite format 3\0"]))
def test_random_bytes_never_crash(tmp_path: Path, content: bytes, start: bytes) -> None:
    survives(start + content, tmp_path / "x")


def test_a_newer_schema_is_left_alone(path: Path) -> None:
    make(path)
    edit(path, "PRAGMA user_version = 7")
    edit(path, "CREATE TABLE news (x)")
    content = path.read_bytes()
    for opening in (PerformanceCache.open, PerformanceCache.open_readonly):
        with pytest.raises(CacheError, match=r"newer gputune \(schema 7, this one reads 6\): update gputune"):
            opening(path)
    assert path.read_bytes() == content
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("version", [version for version in SCHEMAS if version < SCHEMA_VERSION])
def test_a_file_of_a_version_before_is_read_as_it_is_and_completed_for_writing(path: Path, version: int) -> None:
    chain = ChainRecord({TASK.digest: WINNER}, {TASK.digest: 2.0}, 1.0)
    make(path)
    with PerformanceCache.open(path) as cache:
        cache.conclude_chain("c", chain)
        before = cache.contents()
    as_version(path, version)
    with PerformanceCache.open_readonly(path) as cache:
        assert cache.contents() == (before if version > 2 else dataclasses.replace(before, chains={}))
        assert cache.origins() == []
    with PerformanceCache.open(path) as cache:
        assert cache.contents() == (before if version > 2 else dataclasses.replace(before, chains={}))
        cache.conclude_chain("d", chain)
        cache.take_in(before, "elsewhere")
        assert cache.problems() == []
    with PerformanceCache.open(path) as cache:
        assert cache.chain_of("d") == chain
        assert cache.warnings == []
    assert not asides(path)


@pytest.fixture
def unprivileged() -> Iterator[None]:
    """Permissions mean nothing to root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    yield
    os.seteuid(0)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder with a cache in it that every user can reach and none but root can write to."""
    folder = Path(tempfile.mkdtemp())
    make(folder / "tier.sqlite")
    (folder / "tier.sqlite").chmod(0o444)
    folder.chmod(0o555)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def test_a_read_only_folder_can_be_read_and_not_written(open_folder: Path, unprivileged: None) -> None:
    path = open_folder / "tier.sqlite"
    with PerformanceCache.open_readonly(path) as cache:
        assert cache.winner_of(TASK, VALIDITY) == WINNER
        with pytest.raises(CacheError, match="cannot store trials"):
            cache.store_trials(TASK, VALIDITY, [trial(1)])
    with pytest.raises(CacheError, match=r"tier\.sqlite"):
        PerformanceCache.open(path)
    with pytest.raises(CacheError, match=r"new\.sqlite: cannot open"):
        PerformanceCache.open(open_folder / "new.sqlite")
    with pytest.raises(CacheError, match="cannot be written"):
        PerformanceCache.open(open_folder / "deeper" / "new.sqlite")
    with pytest.raises(CacheError, match=r"cannot be written \(Permission denied\): name another folder"):
        check_writable(open_folder)
    with pytest.raises(CacheError, match="cannot be written"):
        check_writable(open_folder / "deeper")
    assert list(open_folder.iterdir()) == [path]


def test_reading_changes_nothing(path: Path) -> None:
    make(path)
    content = path.read_bytes()
    with PerformanceCache.open_readonly(path) as cache:
        assert len(cache.tasks()) == 1
        with pytest.raises(CacheError, match="cannot store a winner"):
            cache.conclude(TASK, VALIDITY, WINNER)
    assert path.read_bytes() == content
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("content", [None, b"", b"damaged"])
def test_reading_neither_creates_nor_sets_aside(path: Path, content: bytes | None) -> None:
    path.parent.mkdir()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CacheError, match="does not exist" if content is None else "is damaged"):
        PerformanceCache.open_readonly(path)
    assert list(path.parent.iterdir()) == ([] if content is None else [path])


def test_unusable_places(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "deeper", Path("/proc/gputune")):
        with pytest.raises(CacheError, match="cannot be written"):
            check_writable(folder)
        with pytest.raises(CacheError, match="cannot be written"):
            PerformanceCache.open(folder / "tier.sqlite")
    (tmp_path / "folder.sqlite").mkdir()
    with pytest.raises(CacheError, match="cannot open"):
        PerformanceCache.open(tmp_path / "folder.sqlite")


def test_checking_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_writable(tmp_path / "a" / "b")
    (tmp_path / "kept").mkdir()
    check_writable(tmp_path / "kept")
    monkeypatch.chdir(tmp_path)
    check_writable(Path("relative/deeper"))
    check_writable(Path())
    assert list(tmp_path.iterdir()) == [tmp_path / "kept"]
