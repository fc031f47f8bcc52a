"""Damaged, foreign, newer and unreachable files."""

import functools
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gputune.cache import CacheError, ChainRecord, PerformanceCache, check_writable
from gputune.cache import file as file_module
from gputune.cache.file import suspicion

from .conftest import FAILED, TASK, VALIDITY, WINNER, trial


def make(path: Path) -> None:
    with PerformanceCache.open(path) as cache:
        cache.store_trials(TASK, VALIDITY, [trial(1), FAILED] * 40)
        cache.conclude(TASK, VALIDITY, WINNER)


def asides(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{path.name}.damaged-*"))


def change(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()


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
        (lambda path: change(path, "DROP TABLE winner"), "tables"),
        (lambda path: change(path, "ALTER TABLE trial ADD COLUMN x"), "tables"),
        (lambda path: change(path, "PRAGMA user_version = 0"), "tables"),
        (lambda path: change(path, "PRAGMA user_version = 1"), "tables"),
        (lambda path: change(path, "PRAGMA user_version = -3"), "tables"),
        (lambda path: change(path, "PRAGMA application_id = 7"), "not a performance cache"),
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
    change(path, "PRAGMA user_version = 6")
    change(path, "CREATE TABLE news (x)")
    content = path.read_bytes()
    for opening in (PerformanceCache.open, PerformanceCache.open_readonly):
        with pytest.raises(CacheError, match=r"newer gputune \(schema 6, this one reads 5\): update gputune"):
            opening(path)
    assert path.read_bytes() == content
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    ("version", "missing"),
    [(2, ("program", "origin", "chain_winner", "chain")), (3, ("program", "origin")), (4, ())],
    ids=["2", "3", "4"],
)
def test_a_file_of_a_version_before_is_read_as_it_is_and_completed_for_writing(
    path: Path, version: int, missing: tuple[str, ...]
) -> None:
    make(path)
    for statement in (*(f"DROP TABLE {table}" for table in missing), f"PRAGMA user_version = {version}"):
        change(path, statement)
    with PerformanceCache.open_readonly(path) as cache:
        assert cache.winner_of(TASK, VALIDITY) == WINNER
        assert len(cache.contents().entries) == 1
        assert cache.origins() == []
    chain = ChainRecord({TASK.digest: WINNER}, {}, 0.0)
    with PerformanceCache.open(path) as cache:
        assert cache.winner_of(TASK, VALIDITY) == WINNER
        cache.conclude_chain("d", chain)
    with PerformanceCache.open(path) as cache:
        assert cache.chain_of("d") == chain
    assert not asides(path)


def test_a_locked_file_is_named(path: Path) -> None:
    make(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with (
        PerformanceCache.open(path, busy_timeout_s=0.1) as cache,
        pytest.raises(CacheError, match="cannot store trials: another process keeps it locked"),
    ):
        cache.store_trials(TASK, VALIDITY, [trial(1)])
    other.close()


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


def test_reading_sees_what_a_running_process_has_stored(path: Path) -> None:
    with PerformanceCache.open(path) as writer:
        writer.store_trials(TASK, VALIDITY, [trial(1)])
        with PerformanceCache.open_readonly(path) as reader:
            assert reader.trials_of(TASK, VALIDITY) == [trial(1)]
            writer.store_trials(TASK, VALIDITY, [trial(2)])
            assert reader.trials_of(TASK, VALIDITY) == [trial(1), trial(2)]


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
