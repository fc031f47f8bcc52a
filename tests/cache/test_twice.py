"""Test a cache that is used twice: opened again, written again after a failed write, and next to another process."""

import dataclasses
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gputune.cache import CacheError, ChainRecord, PerformanceCache
from gputune.cache.record import Conclusion, Contents, Entry, Stored

from .conftest import FAILED, TASK, VALIDITY, WINNER, trial

SECRET = b"s" * 32
OTHER = dataclasses.replace(TASK, op="Pool")
THIRD = dataclasses.replace(TASK, op="Softmax")
LONG = "x" * 200_000
"""What no free page of a small file has room for."""
MANY = [dataclasses.replace(trial(number), measured={"long": LONG}) for number in range(3)]
BIG_WINNER = dataclasses.replace(WINNER, configuration={"A" * 100_000: 1})
CHAIN = ChainRecord({TASK.digest: BIG_WINNER}, {TASK.digest: 1.0}, 1.0, {"long": LONG})
TAKEN = Contents(
    (Entry(OTHER, VALIDITY, (Stored(FAILED, 1.0),), Conclusion(WINNER, 2.0)),),
    {"c" * 64: (ChainRecord({}, {}, 1.0), 1.0), "d" * 64: (CHAIN, 2.0)},
)


@dataclass(frozen=True)
class Write:
    """Something that a cache keeps, and what is there afterwards."""

    do: Callable[[PerformanceCache], Any]
    there: Callable[[PerformanceCache], bool]
    goes_on: bool = True
    """Whether a full disk is a warning, because a generation can go on without it."""


def forget(cache: PerformanceCache) -> None:
    cache.forget([one for one in cache.tasks() if one.task == THIRD])


WRITES = {
    "trials": Write(
        lambda cache: cache.store_trials(OTHER, VALIDITY, MANY), lambda cache: cache.trials_of(OTHER, VALIDITY) == MANY
    ),
    "winner": Write(
        lambda cache: cache.conclude(OTHER, VALIDITY, BIG_WINNER),
        lambda cache: cache.winner_of(OTHER, VALIDITY) == BIG_WINNER,
    ),
    "choice": Write(
        lambda cache: cache.conclude_chain("d" * 64, CHAIN), lambda cache: cache.chain_of("d" * 64) == CHAIN
    ),
    "program": Write(
        lambda cache: cache.keep_program("e" * 64, LONG.encode()),
        lambda cache: cache.program_of("e" * 64) == LONG.encode(),
    ),
    "generation": Write(
        lambda cache: cache.begin_generation(LONG, invalidate=False),
        lambda cache: bool(cache._rows("SELECT 1 FROM generation WHERE fingerprint = ?", (LONG,))),
        goes_on=False,
    ),
    "what another has measured": Write(
        lambda cache: cache.take_in(TAKEN, "elsewhere"),
        lambda cache: cache.chain_of("d" * 64) == CHAIN and cache.winner_of(OTHER, VALIDITY) == WINNER,
        goes_on=False,
    ),
}


@pytest.fixture
def made(path: Path) -> Path:
    with PerformanceCache.open(path, secret=SECRET) as cache:
        cache.store_trials(TASK, VALIDITY, [trial(1), FAILED])
        cache.conclude(TASK, VALIDITY, WINNER)
        cache.store_trials(THIRD, VALIDITY, [trial(1)])
        cache.keep_program("a" * 64, b"program")
    return path


def state(cache: PerformanceCache) -> Any:
    tables = ("task", "validity", "trial", "winner", "generation", "chain", "chain_winner", "origin", "program")
    return {table: cache._rows(f"SELECT * FROM {table}") for table in tables}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_write_that_the_disk_has_no_room_for_leaves_nothing_and_comes_later(made: Path, write: Write) -> None:
    with PerformanceCache.open(made, secret=SECRET) as cache:
        before = state(cache)
        (pages,) = cache._rows("PRAGMA page_count")[0]
        cache._connection.execute(f"PRAGMA max_page_count = {pages}")
        for _ in range(2):
            if write.goes_on:
                write.do(cache)
            else:
                with pytest.raises(CacheError, match="the disk is full; make room"):
                    write.do(cache)
            assert state(cache) == before
        assert (len(cache.warnings), cache.unkept) == ((1, 2) if write.goes_on else (0, 0))
        cache._connection.execute("PRAGMA max_page_count = 1000000")
        write.do(cache)
        assert write.there(cache)
    with PerformanceCache.open(made, secret=SECRET) as cache:
        assert write.there(cache)
        assert cache.trials_of(TASK, VALIDITY) == [trial(1), FAILED]
        assert cache.winner_of(TASK, VALIDITY) == WINNER
        assert cache.problems() == []


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_write_that_another_process_keeps_waiting_comes_later(made: Path, write: Write) -> None:
    other = sqlite3.connect(made, isolation_level=None)
    with PerformanceCache.open(made, secret=SECRET, busy_timeout_s=0.05) as cache:
        before = state(cache)
        for _ in range(2):
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(CacheError, match="another process keeps it locked"):
                write.do(cache)
            other.execute("ROLLBACK")
            assert state(cache) == before
        write.do(cache)
        assert write.there(cache)
    other.close()


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_two_that_have_a_file_open_see_what_the_other_has_written(made: Path, write: Write) -> None:
    with (
        PerformanceCache.open(made, secret=SECRET) as one,
        PerformanceCache.open(made, secret=SECRET) as two,
        PerformanceCache.open_readonly(made, secret=SECRET) as reader,
    ):
        assert not write.there(two)
        write.do(one)
        for cache in (one, two, reader):
            assert write.there(cache)
        forget(two)
        for cache in (one, two, reader):
            assert cache.trials_of(THIRD, VALIDITY) == []
            assert write.there(cache)
        one.store_trials(THIRD, VALIDITY, [trial(2)])
        assert reader.trials_of(THIRD, VALIDITY) == [trial(2)]


def test_a_closed_one_says_so_and_opens_again(made: Path) -> None:
    with PerformanceCache.open(made, secret=SECRET) as cache:
        before = state(cache)
    cache.close()
    for use in (lambda: cache.trials_of(TASK, VALIDITY), lambda: cache.store_trials(TASK, VALIDITY, [trial(3)])):
        with pytest.raises(CacheError, match="closed"):
            use()
    for _ in range(2):
        with PerformanceCache.open(made, secret=SECRET) as cache:
            assert state(cache) == before


def test_a_program_that_others_forget_meanwhile_is_kept_again(made: Path) -> None:
    with PerformanceCache.open(made, secret=SECRET) as one, PerformanceCache.open(made, secret=SECRET) as two:
        for _ in range(2):
            assert one.program_of("a" * 64) == b"program"
            two.forget_programs()
            assert one.program_of("a" * 64) is None
            one.keep_program("a" * 64, b"program")
            assert two.program_of("a" * 64) == b"program"
