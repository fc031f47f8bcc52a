"""Test gputune performance-cache list and show."""

import dataclasses
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from gputune.cache import CacheError, PerformanceCache, TrialRecord, tier_of
from gputune.client.report.problems import words
from gputune.kernels.chain import Step
from stress import made_up_cache

from . import conftest
from .conftest import FAILED, TASK, VALIDITY, WINNER, trial

TIER = tier_of(VALIDITY.device_name, VALIDITY.compute_units)
CLIP = dataclasses.replace(TASK, op="Elementwise", problem={"steps": [["clip", [0.0, math.inf]]]})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with PerformanceCache.open(tmp_path / TIER.file_name) as cache:
        cache.store_trials(TASK, VALIDITY, [trial(8), FAILED])
        cache.conclude(TASK, VALIDITY, dataclasses.replace(WINNER, configuration={"MWG": 8}))
        cache.store_trials(CLIP, VALIDITY, [trial(1)])
    return tmp_path


def run(*arguments: object) -> str:
    result = conftest.run(*arguments)
    if result.exception is not None:
        raise result.exception
    return result.stdout


def run_json(*arguments: object) -> Any:
    def no_constant(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(run(*arguments, "--json"), parse_constant=no_constant)


def test_list(folder: Path) -> None:
    first, _, tier, device, counts = run("list", "--performance_cache_dir", folder).splitlines()
    assert first == f"{folder}: 1 file"
    assert tier == TIER.name
    assert device == "  pthread-skylake-avx512-AMD EPYC, 2 compute units"
    assert counts.startswith("  2 tasks, 3 trials, ")
    assert max(map(len, (tier, device, counts))) <= 80
    (entry,) = run_json("list", "--performance_cache_dir", folder)["files"]
    assert (entry["tier"], entry["tasks"], entry["trials"]) == (TIER.name, 2, 3)
    assert (entry["families"], entry["vendors"]) == (["cpu-avx512"], ["amd"])
    assert entry["size_bytes"] == (folder / TIER.file_name).stat().st_size
    assert entry["last_change"].startswith("20")


def test_list_names_damaged_files_and_leaves_them(folder: Path) -> None:
    (folder / "a.sqlite").write_bytes(b"damaged")
    assert "a.sqlite is damaged" in " ".join(run("list", "--performance_cache_dir", folder).split())
    first, second = run_json("list", "--performance_cache_dir", folder)["files"]
    assert "is damaged" in first["problem"]
    assert second["tasks"] == 2
    assert (folder / "a.sqlite").read_bytes() == b"damaged"


@pytest.mark.parametrize("made", [True, False])
def test_list_of_nothing(tmp_path: Path, made: bool) -> None:
    folder = tmp_path / "caches"
    if made:
        folder.mkdir()
    assert run("list", "--performance_cache_dir", folder) == (
        f"no performance cache in {folder}: tuning a model makes one\n"
    )
    assert run_json("list", "--performance_cache_dir", folder)["files"] == []
    assert folder.exists() == made


def test_list_looks_into_the_users_cache_by_default() -> None:
    assert "/gputune/performance:" in run("list")


def test_list_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CacheError, match="cannot be read"):
        run("list", "--performance_cache_dir", tmp_path / "file")


def test_the_beginning_of_a_tier_is_enough_where_no_other_begins_so(folder: Path) -> None:
    (folder / f"{TIER.name[:7]}-other.sqlite").touch()
    with pytest.raises(CacheError, match=f"several .* begin with {TIER.name[:7]}: {TIER.name[:7]}-other, {TIER.name}"):
        run("show", TIER.name[:7], "--performance_cache_dir", folder)
    for name in ("", TIER.name[1:]):
        with pytest.raises(CacheError, match=r"no performance cache .* \(there: "):
            run("show", name, "--performance_cache_dir", folder)


@pytest.mark.parametrize("command", ["show", "stats", "verify"])
def test_a_name_may_be_left_out_where_there_is_one_file(folder: Path, tmp_path: Path, command: str) -> None:
    assert run(command, "--performance_cache_dir", folder).startswith(f"{folder / TIER.file_name}: ")
    (folder / "other.sqlite").touch()
    with pytest.raises(CacheError, match=r"several performance caches in .*; name one: .*other"):
        run(command, "--performance_cache_dir", folder)
    (tmp_path / "empty").mkdir()
    with pytest.raises(CacheError, match=r"no performance cache in .*empty: tuning a model makes one"):
        run(command, "--performance_cache_dir", tmp_path / "empty")


@pytest.mark.parametrize("by", ["tier", "beginning", "name", "path", "nothing"])
def test_show_tasks(folder: Path, by: str) -> None:
    ways = {"tier": TIER.name, "beginning": TIER.name[:9], "name": TIER.file_name, "path": folder / TIER.file_name}
    which = [ways[by]] if by in ways else []
    text = run("show", *which, "--performance_cache_dir", folder)
    path, _, place, _, row, *_ = text.splitlines()
    assert path == f"{folder / TIER.file_name}: 2 tasks"
    assert place == f"on {VALIDITY.device_name}, driver 3.1"
    assert row.split()[:8] == [TASK.digest[:12], "4", "µs", "1", "µs", "4.00x", "2", "1"]
    conv, clip = run_json("show", *which, "--performance_cache_dir", folder)["tasks"]
    assert (conv["key"], conv["op"], conv["problem"]) == (TASK.digest, "Conv", TASK.problem)
    assert (conv["default_ns"], conv["tuned_ns"], conv["effort"]) == (4000.0, 1000.5, "quick")
    assert conv["configuration"] == {"MWG": 8}
    assert conv["trials"] == {"ok": 1, "device_limits": 1}
    assert conv["measured_on"] == VALIDITY.to_dict()
    assert clip["problem"] == {"steps": [["clip", [0.0, "Infinity"]]]}
    assert clip["tuned_ns"] is None


def test_show_trials_of_a_task(folder: Path) -> None:
    arguments = ("show", TIER.name, "--performance_cache_dir", folder, "--task", TASK.digest[:6].upper())
    text = run(*arguments)
    assert "MWG=8" in text
    assert FAILED.message in text
    (entry,) = run_json(*arguments)["tasks"]
    first, second = entry["all_trials"]
    assert first == {**vars(trial(8)), "samples_ns": list(trial(8).samples_ns)}
    assert (second["status"], second["message"], second["median_ns"]) == ("device_limits", FAILED.message, None)


LARGE = dataclasses.replace(
    made_up_cache.TASKS[0].key,
    problem={**made_up_cache.TASKS[0].key.problem, "epilogue": {"steps": [vars(Step("hard_swish"))] * 5}},
)


def test_show_fits_a_narrow_terminal_with_the_titles_of_model_check(folder: Path) -> None:
    path = folder / TIER.file_name
    long = dataclasses.replace(trial(1), configuration={f"PARAMETER{n}": n for n in range(30)})
    with PerformanceCache.open(path) as cache:
        cache.store_trials(LARGE, VALIDITY, [long, dataclasses.replace(FAILED, message="no such thing " * 20)])
    for arguments in ((), ("--task", LARGE.digest)):
        first, *lines = run("show", path, *arguments).splitlines()
        assert max(map(len, lines)) <= 80
        shown = " ".join(" ".join([first, *lines]).split())
        assert f"Conv {words('Conv', LARGE.problem)}" in shown
    assert "PARAMETER29=29" in shown and "no such thing " * 19 in shown


def test_one_trial_is_the_winner_and_one_sample_has_no_spread(folder: Path) -> None:
    path = folder / TIER.file_name
    again = [TrialRecord({"MWG": 8}, "ok", samples) for samples in ([1000.5], [900.0, 1100.0], [2000.0] * 3)]
    with PerformanceCache.open(path) as cache:
        cache.store_trials(TASK, VALIDITY, again)
    shown = run("show", path, "--task", TASK.digest)
    rows = re.findall(r"^(winner|) .*?([-\d.%]+) +(?:–|\S+ \S+)  ok$", shown, re.MULTILINE)
    assert rows == [("", "20.0%"), ("winner", "-"), ("", "29.8%"), ("", "0.0%")]


def test_show_an_empty_cache(tmp_path: Path) -> None:
    PerformanceCache.open(tmp_path / "new.sqlite").close()
    assert (
        run("show", tmp_path / "new.sqlite") == f"performance cache {tmp_path / 'new.sqlite'} holds no measurements\n"
    )


@pytest.mark.parametrize("prefix", ["", "xyz", TASK.digest + "0"])
def test_show_of_an_unknown_task(folder: Path, prefix: str) -> None:
    with pytest.raises(CacheError, match="no task in"):
        run("show", folder / TIER.file_name, "--task", prefix)


def test_show_of_an_ambiguous_task(folder: Path) -> None:
    with PerformanceCache.open(folder / TIER.file_name) as cache:
        for number in range(17):  # more tasks than first digits
            cache.store_trials(dataclasses.replace(TASK, problem={"n": number}), VALIDITY, [trial(1)])
        digits = [summary.task.digest[0] for summary in cache.tasks()]
    twice = next(digit for digit in digits if digits.count(digit) > 1)
    with pytest.raises(CacheError, match=f"several tasks in .* start with '{twice}': "):
        run("show", folder / TIER.file_name, "--task", twice)


def test_show_of_an_unknown_file_names_what_is_there(folder: Path) -> None:
    with pytest.raises(CacheError, match=rf"no performance cache adreno: .*\(there: {TIER.name}\)"):
        run("show", "adreno", "--performance_cache_dir", folder)


def test_malformed_rows_are_warned_of_on_standard_error(folder: Path) -> None:
    path = folder / TIER.file_name
    with PerformanceCache.open(path) as cache:
        cache._connection.execute("UPDATE trial SET samples_ns = 'x' WHERE configuration = '{\"MWG\":8}'")
    result = conftest.run("show", path, "--task", TASK.digest, "--json")
    assert result.exit_code == 0
    assert "warning: performance cache" in result.stderr
    assert len(json.loads(result.stdout)["tasks"][0]["all_trials"]) == 1
