"""Test that the store returns what it was given, and that malformed content does no harm."""

import dataclasses
import json
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gputune.cache import CacheError, PerformanceCache

from .conftest import FAILED, TASK, VALIDITY, WINNER, edit, trial

NEW_DRIVER = dataclasses.replace(VALIDITY, driver_version="3.2")
OTHER_TASK = dataclasses.replace(TASK, op="Pool")


def test_trials_come_back_in_order_of_arrival_repeats_included(path: Path) -> None:
    with PerformanceCache.open(path) as cache:
        cache.store_trials(TASK, VALIDITY, [trial(3), FAILED])
        cache.store_trials(TASK, NEW_DRIVER, [trial(9)])
        cache.store_trials(TASK, VALIDITY, [trial(1), trial(3)])
        cache.store_trials(OTHER_TASK, VALIDITY, [trial(8)])
    with PerformanceCache.open(path) as cache:
        assert cache.trials_of(TASK, VALIDITY) == [trial(3), FAILED, trial(1), trial(3)]
        assert cache.trials_of(TASK, NEW_DRIVER) == [trial(9)]
        assert cache.trials_of(OTHER_TASK, NEW_DRIVER) == []
        assert cache.warnings == []


def test_a_batch_is_stored_whole_or_not_at_all(path: Path) -> None:
    def failing() -> Any:
        yield trial(1)
        raise KeyboardInterrupt

    with PerformanceCache.open(path) as cache:
        with pytest.raises(KeyboardInterrupt):
            cache.store_trials(TASK, VALIDITY, failing())
        edit(path, "CREATE UNIQUE INDEX once ON trial (status)")
        with pytest.raises(CacheError, match="cannot store trials: UNIQUE"):
            cache.store_trials(TASK, VALIDITY, [FAILED, trial(1), trial(3)])
        assert cache.trials_of(TASK, VALIDITY) == []
        cache.store_trials(TASK, VALIDITY, [trial(2)])
        assert cache.trials_of(TASK, VALIDITY) == [trial(2)]


def test_a_winner_is_kept_and_replaced(path: Path) -> None:
    with PerformanceCache.open(path) as cache:
        assert cache.winner_of(TASK, VALIDITY) is None
        cache.conclude(TASK, VALIDITY, dataclasses.replace(WINNER, default_ns=None))
        cache.conclude(TASK, VALIDITY, WINNER)
        assert cache.winner_of(TASK, VALIDITY) == WINNER
        assert cache.winner_of(TASK, NEW_DRIVER) is None
        assert cache.winner_of(OTHER_TASK, VALIDITY) is None


def test_durability_settings(path: Path) -> None:
    with PerformanceCache.open(path) as cache:
        values = [
            cache._connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "synchronous", "busy_timeout", "foreign_keys")
        ]
    assert values == ["wal", 2, 30_000, 1]  # 2: FULL


def test_closing_leaves_one_file(path: Path) -> None:
    with PerformanceCache.open(path) as cache:
        cache.store_trials(TASK, VALIDITY, [trial(1)])
        assert cache.trials_of(TASK, VALIDITY)
    assert list(path.parent.iterdir()) == [path]


def test_summaries(path: Path) -> None:
    before = datetime.now(UTC) - timedelta(seconds=1)
    with PerformanceCache.open(path) as cache:
        assert cache.tasks() == []
        cache.store_trials(OTHER_TASK, VALIDITY, [trial(1)])
        cache.store_trials(TASK, VALIDITY, [FAILED, trial(1), trial(2)])
        cache.conclude(TASK, VALIDITY, WINNER)
        cache.conclude(TASK, NEW_DRIVER, WINNER)
        first, second, third = cache.tasks()
    assert (first.task, first.validity, first.trials) == (TASK, VALIDITY, {"ok": 2, "device_limits": 1})
    assert first.winner == WINNER
    assert (second.validity, second.trials) == (NEW_DRIVER, {})
    assert (third.task, third.winner, third.trials) == (OTHER_TASK, None, {"ok": 1})
    assert (first.tier.family, first.tier.vendor) == ("cpu-avx512", "amd")
    assert before < first.last_change < datetime.now(UTC) + timedelta(seconds=1)


MALFORMED_TRIALS = [
    "status = 'fast'",
    "status = x'00ff'",
    "status = CAST(x'ff' AS TEXT)",
    "samples_ns = x'0102'",
    "samples_ns = 'text'",
    "samples_ns = x''",
    "samples_ns = x'000000000000f07f'",  # infinity
    "median_ns = 1e999",
    "median_ns = -5",
    "minimum_ns = 'x'",
    "compile_ns = x'00'",
    "configuration = '{'",
    "configuration = '[1]'",
    "configuration = '{\"MWG\": 1.5}'",
    "configuration = '" + "[" * 100_000 + "'",
    "measured = '3'",
    "measured = 7",
    "message = x'00'",
    "rendered_sha256 = 'abc'",
]


@pytest.mark.parametrize("change", MALFORMED_TRIALS, ids=lambda change: change[:40])
def test_a_malformed_trial_is_skipped_and_counted(path: Path, change: str) -> None:
    with PerformanceCache.open(path) as cache:
        cache.store_trials(TASK, VALIDITY, [trial(1), trial(2), trial(3)])
    edit(path, f"UPDATE trial SET {change} WHERE id = 2")
    heard: list[str] = []
    with PerformanceCache.open(path, warn=heard.append) as cache:
        assert cache.trials_of(TASK, VALIDITY) == [trial(1), trial(3)]
        assert cache.malformed_rows == 1
        assert cache.warnings == heard
    assert len(heard) == 1
    assert "skipped 1 malformed trials" in heard[0]
    assert len(heard[0]) < 1000
    assert "\n" not in heard[0]


@pytest.mark.parametrize(
    "change",
    [
        "median_ns = 0",
        "median_ns = 'fast'",
        "default_ns = 1e999",
        "effort = x'00'",
        "trials = '{\"inf\": 3}'",
        "configuration = 'null'",
        "rendered_sha256 = x'00'",
    ],
)
def test_a_malformed_winner_is_no_winner(path: Path, change: str) -> None:
    with PerformanceCache.open(path) as cache:
        cache.store_trials(TASK, VALIDITY, [trial(1)])
        cache.conclude(TASK, VALIDITY, WINNER)
    edit(path, f"UPDATE winner SET {change}")
    with PerformanceCache.open(path) as cache:
        assert cache.winner_of(TASK, VALIDITY) is None
        assert cache.malformed_rows == 1
        assert [summary.winner for summary in cache.tasks()] == [None]
        cache.conclude(TASK, VALIDITY, WINNER)
        assert cache.winner_of(TASK, VALIDITY) == WINNER


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE task SET key = 'x' WHERE id = 1",
        "UPDATE task SET key = '[]' WHERE id = 1",
        'UPDATE task SET key = \'{"op": 1, "problem": {}}\' WHERE id = 1',
        "UPDATE task SET key = replace(key, '56', '57') WHERE id = 1",
        "UPDATE task SET key = '{\"new_field\": 1}' WHERE id = 1",
        "UPDATE trial SET status = 'fast' WHERE task = 1",
        "UPDATE trial SET stored_at = 'today' WHERE task = 1",
        "UPDATE trial SET stored_at = 1e300 WHERE task = 1",
        "UPDATE task SET digest = x'00' WHERE id = 1",
    ],
)
def test_a_malformed_task_is_left_out_of_summaries(path: Path, statement: str) -> None:
    with PerformanceCache.open(path) as cache:
        cache.store_trials(TASK, VALIDITY, [trial(1)])
        cache.store_trials(OTHER_TASK, VALIDITY, [trial(1)])
    edit(path, statement)
    with PerformanceCache.open(path) as cache:
        assert [summary.task for summary in cache.tasks()] == [OTHER_TASK]
        assert cache.malformed_rows == 1


@pytest.mark.parametrize(
    "change",
    [
        "family = x'00'",
        "key = '{}'",
        "key = json_set(key, '$.compute_units', '2')",
        "key = json_set(key, '$.driver_version', '9')",
    ],
)
def test_a_malformed_validity_is_left_out_of_summaries(path: Path, change: str) -> None:
    with PerformanceCache.open(path) as cache:
        cache.store_trials(TASK, VALIDITY, [trial(1)])
    edit(path, f"UPDATE validity SET {change}")
    with PerformanceCache.open(path) as cache:
        assert cache.tasks() == []
        assert cache.malformed_rows == 1


def test_the_tier_is_stored_as_columns(path: Path) -> None:
    with PerformanceCache.open(path) as cache:
        cache.store_trials(TASK, VALIDITY, [trial(1)])
    with sqlite3.connect(path) as connection:
        tier, family, vendor, key = connection.execute("SELECT tier, family, vendor, key FROM validity").fetchone()
    connection.close()
    assert (tier, family, vendor) == ("pthread-skylake-avx512-amd-epyc-cu2", "cpu-avx512", "amd")
    assert json.loads(key) == VALIDITY.to_dict()
