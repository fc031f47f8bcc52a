"""Test that invalidation happens once per generation, whatever is interrupted."""

import contextlib
import functools
import sqlite3
from pathlib import Path

from gputune.cache import CacheError, GenerationStart, PerformanceCache

from .conftest import TASK, VALIDITY, WINNER, trial

NEW = GenerationStart(resumed=False, invalidated=False)
NEW_EMPTIED = GenerationStart(resumed=False, invalidated=True)
RESUMED = GenerationStart(resumed=True, invalidated=False)


def fill(cache: PerformanceCache, number: int = 1) -> None:
    cache.store_trials(TASK, VALIDITY, [trial(number)])
    cache.conclude(TASK, VALIDITY, WINNER)


def test_invalidating_empties_everything_and_shrinks_the_file(path: Path) -> None:
    PerformanceCache.open(path).close()
    empty = path.stat().st_size
    with PerformanceCache.open(path) as cache:
        for number in range(100):
            cache.store_trials(TASK, VALIDITY, [trial(number)] * 10)
        fill(cache)
        cache._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        assert path.stat().st_size > 2 * empty
        assert cache.begin_generation("f", invalidate=True) == NEW_EMPTIED
        assert path.stat().st_size == empty
        assert cache.trials_of(TASK, VALIDITY) == []
        assert cache.winner_of(TASK, VALIDITY) is None
        assert cache.tasks() == []
    assert path.stat().st_size == empty
    with PerformanceCache.open(path) as cache:
        fill(cache)
        assert len(cache.trials_of(TASK, VALIDITY)) == 1


def test_without_invalidate_nothing_is_lost(path: Path) -> None:
    with PerformanceCache.open(path) as cache:
        fill(cache)
        assert cache.begin_generation("f", invalidate=False) == NEW
        assert cache.begin_generation("f", invalidate=False) == RESUMED
        assert cache.winner_of(TASK, VALIDITY) == WINNER


def test_a_rerun_resumes_without_emptying_again(path: Path) -> None:
    with PerformanceCache.open(path) as cache:
        fill(cache)
        cache.begin_generation("f", invalidate=True)
        fill(cache, 2)
    with PerformanceCache.open(path) as cache:  # the first run did not finish
        assert cache.begin_generation("f", invalidate=True) == RESUMED
        assert cache.trials_of(TASK, VALIDITY) == [trial(2)]
        cache.finish_generation("f")
        assert cache.begin_generation("f", invalidate=True) == NEW_EMPTIED
        assert cache.trials_of(TASK, VALIDITY) == []


def test_an_unfinished_generation_that_had_not_invalidated_does_so_now(path: Path) -> None:
    with PerformanceCache.open(path) as cache:
        cache.begin_generation("f", invalidate=False)
        fill(cache)
        assert cache.begin_generation("f", invalidate=True) == GenerationStart(resumed=True, invalidated=True)
        assert cache.tasks() == []
        fill(cache)
        assert cache.begin_generation("f", invalidate=False) == RESUMED
        assert cache.begin_generation("f", invalidate=True) == RESUMED
        assert len(cache.tasks()) == 1


def test_generations_do_not_share_marks(path: Path) -> None:
    with PerformanceCache.open(path) as cache:
        cache.begin_generation("f", invalidate=True)
        fill(cache)
        assert cache.begin_generation("g", invalidate=True) == NEW_EMPTIED
        fill(cache, 2)
        cache.finish_generation("g")
        # f has emptied the file before; what g finished since then stays.
        assert cache.begin_generation("f", invalidate=True) == RESUMED
        assert cache.trials_of(TASK, VALIDITY) == [trial(2)]
        cache.finish_generation("f")
        cache.finish_generation("f")


def test_a_crash_while_emptying_is_before_or_after(path: Path) -> None:
    """Stopped at every single step of SQLite's: all trials and no mark, or no trials and the mark."""
    with PerformanceCache.open(path) as cache:
        fill(cache)
        seen = set()
        for limit in range(1, 2000):
            connection = cache._connection
            connection.set_progress_handler(functools.partial(next, iter([0] * limit + [1]), 0), 1)
            with contextlib.suppress(CacheError):
                cache.begin_generation("f", invalidate=True)
            connection.set_progress_handler(None, 1)
            marked = connection.execute("SELECT invalidated FROM generation").fetchall() == [(1,)]
            assert (cache.trials_of(TASK, VALIDITY) == []) == marked
            assert (cache.winner_of(TASK, VALIDITY) is None) == marked
            seen.add(marked)
            if marked:
                break
        assert seen == {False, True}
        assert limit > 20
        assert cache.begin_generation("f", invalidate=True) == RESUMED


def test_another_process_with_the_file_open_goes_on_in_the_same_file(path: Path) -> None:
    with PerformanceCache.open(path) as other, PerformanceCache.open(path) as cache:
        fill(other)
        cache.begin_generation("f", invalidate=True)
        assert other.trials_of(TASK, VALIDITY) == []
        other.store_trials(TASK, VALIDITY, [trial(5)])
        assert cache.trials_of(TASK, VALIDITY) == [trial(5)]


def test_a_reader_in_the_middle_does_not_stop_it(path: Path) -> None:
    with PerformanceCache.open(path) as cache:
        fill(cache)
        reader = sqlite3.connect(path)
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM trial").fetchone() == (1,)
        cache._connection.execute("PRAGMA busy_timeout = 100")
        assert cache.begin_generation("f", invalidate=True) == NEW_EMPTIED
        assert reader.execute("SELECT count(*) FROM trial").fetchone() == (1,)
        reader.close()
        assert cache.tasks() == []
