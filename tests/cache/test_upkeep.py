"""Test pruning, what a file holds, whether it is intact, how two differ, and why a task is measured again."""

import dataclasses
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gputune.cache import PerformanceCache, Validity
from gputune.cache.lookup import Change, Earlier, look_up
from gputune.cache.upkeep import beyond_size, differences, not_changed_for
from gputune.client.errors import ConfigError

from .conftest import FAILED, TASK, VALIDITY, WINNER, run, trial

OTHER = dataclasses.replace(TASK, problem={"n": 1})
NEW_DRIVER = dataclasses.replace(VALIDITY, driver_version="4.0")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.sqlite"
    with PerformanceCache.open(path) as cache:
        cache.store_trials(TASK, VALIDITY, [trial(8), FAILED])
        cache.conclude(TASK, VALIDITY, WINNER)
        cache.store_trials(OTHER, NEW_DRIVER, [trial(1)] * 5)
    return path


def tasks(path: Path) -> Any:
    with PerformanceCache.open_readonly(path) as cache:
        return cache.tasks()


def test_what_is_old_goes_and_leaves_nothing_behind(file: Path) -> None:
    old, new = tasks(file)
    now = datetime.now(UTC)
    assert not_changed_for([old, new], 1, now) == []
    assert not_changed_for([old, new], 1, now + timedelta(days=2)) == [old, new]
    assert run("prune", file, "--driver", "3.1", "--dry_run").output.startswith(f"{file}: 1 of 2 tasks with 2 trials")
    assert len(tasks(file)) == 2
    assert "1 of 2 tasks with 2 trials are gone" in run("prune", file, "--driver", "3.1").output
    (left,) = tasks(file)
    assert (left.task, left.trials) == (OTHER, {"ok": 5})
    with PerformanceCache.open(file) as cache:
        assert cache._rows("SELECT count(*) FROM validity") == [(1,)]
        assert cache.winner_of(TASK, VALIDITY) is None


def test_the_oldest_go_until_the_file_is_small_enough(file: Path) -> None:
    first, second = tasks(file)
    older = dataclasses.replace(second, last_change=first.last_change - timedelta(days=1))
    assert beyond_size([first, older], 900, 900) == []
    assert beyond_size([first, older], 900, 400) == [older]
    assert beyond_size([first, older], 900, 0) == [older, first]
    assert "2 of 2 tasks" in run("prune", file, "--most_size", "0").output


def test_each_that_goes_takes_its_share_of_what_is_left(file: Path) -> None:
    """Four tasks that weigh 1 to 4 tenths of the file, a winner's weight included, the lightest being the oldest."""
    one = tasks(file)[0]
    four = [
        dataclasses.replace(one, trials={"ok": weight - 1}, last_change=one.last_change + timedelta(days=weight))
        for weight in (1, 2, 3, 4)
    ]
    for goes, most_bytes in ((0, 1000), (1, 999), (1, 900), (2, 899), (2, 700), (3, 699), (3, 400), (4, 399), (4, 0)):
        assert beyond_size(four[::-1], 1000, most_bytes) == four[:goes], most_bytes


def test_programs_go_before_measurements(file: Path) -> None:
    with PerformanceCache.open(file, secret=b"s" * 32) as cache:
        for number in range(8):
            cache.keep_program(f"{number:064x}", bytes([number]) * 100_000)
    size = file.stat().st_size
    for words in (("--dry_run",), ()):
        said = run("prune", file, "--most_size", size - 250_000, *words).output
        assert f"{file}: 244 KiB of compiled programs {'would go' if words else 'are gone'}" in said
        assert "0 of 2 tasks with 0 trials" in said
    assert len(tasks(file)) == 2
    assert file.stat().st_size <= size - 250_000
    with PerformanceCache.open_readonly(file) as cache:
        assert cache.program_bytes() == 500_000


def test_pruning_needs_a_reason_and_a_size_that_is_one(file: Path) -> None:
    assert isinstance(run("prune", file).exception, ConfigError)
    assert "is not a size" in str(run("prune", file, "--most_size", "many").exception)


def test_stats_count_and_verify_reads_everything(file: Path) -> None:
    assert "2 tasks, 1 winners, 0 choices between whole contexts" in run("stats", file).output
    assert run("verify", file).exit_code == 0
    with PerformanceCache.open(file) as cache:
        cache._connection.execute("UPDATE trial SET samples_ns = 'x' WHERE id = 1")
        cache._connection.execute("INSERT INTO program VALUES ('a', x'00', 'b', x'', 0)")
    result = run("verify", file)
    assert result.exit_code == 1
    assert "malformed trials" in result.output
    assert "1 compiled programs are damaged" in result.output


def test_differences_are_of_choices(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "b.sqlite"
    with PerformanceCache.open(other) as cache:
        cache.conclude(TASK, NEW_DRIVER, dataclasses.replace(WINNER, configuration={"MWG": 16}))
    (found,) = differences(tasks(file), tasks(other))
    assert (found.same_choice, found.same_place) == (False, False)
    assert differences(tasks(file), tasks(file))[0].same_choice
    told = run("diff", file, other).output
    assert "measured in different places" in told and "MWG=16" in told
    assert max(map(len, told.splitlines())) <= 80
    assert "1 of 1 tasks that both know have the same winner" in run("diff", file, file).output


@pytest.mark.parametrize("field", [item.name for item in dataclasses.fields(Validity)])
def test_every_field_of_a_validity_is_a_reason_that_is_named(file: Path, field: str) -> None:
    value = getattr(VALIDITY, field)
    changed: Any = {"POCL_AFFINITY": "0"} if isinstance(value, dict) else value + 1 if isinstance(value, int) else "new"
    now = dataclasses.replace(VALIDITY, **{field: changed})
    earlier = look_up(TASK, now, tasks(file))
    if field in ("device_name", "compute_units", "vendor"):
        assert (earlier.winner, earlier.changes) == (None, ())
        assert "AMD EPYC, 2 compute units" in earlier.origin
    elif field == "settings":
        assert earlier.changes == (Change("settings.POCL_AFFINITY", "1", "0"),)
    else:
        assert earlier.winner is not None
        assert earlier.changes == (Change(field, value, changed),)


def test_what_was_never_concluded_is_not_known(file: Path) -> None:
    known = tasks(file)
    assert look_up(OTHER, NEW_DRIVER, known) == look_up(OTHER, VALIDITY, []) == Earlier()
