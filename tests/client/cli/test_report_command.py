"""Test gputune tuning-report: options, folders, errors, and its numbers compared with the generator's."""

import json
import math
from pathlib import Path

import pytest

from gputune.cache import PerformanceCache, TaskKey, TrialRecord
from stress import made_up_cache
from tests.client import models
from tests.client.commands import Generate, Gputune


def test_the_command_writes_the_page_and_its_numbers(gputune: Gputune, made: tuple[Path, Path], tmp_path: Path) -> None:
    output = tmp_path / "new" / "report.html"
    context = ("--context_binary", made[1])
    ran = gputune("tuning-report", "--performance_cache_dir", made[0], *context, "--output", output, "--json")
    assert ran.code == 0, ran.err
    content = json.loads(ran.out)
    assert content["places"][0]["operations"] == 20
    assert math.isfinite(content["places"][0]["before_ns"])
    assert output.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert f"wrote {output}" in ran.err


def test_the_sums_are_those_of_the_generators_summary(gputune: Gputune, generate: Generate, tmp_path: Path) -> None:
    """For two models in one cache: each report has its own model's sums, whatever else lies there."""
    cache = tmp_path / "cache"
    sums: dict[Path, list[float]] = {}
    for model in (models.conv_relu_gemm(), models.residual_block()):
        ran = generate(model=model, effort="quick", output=f"output{len(sums)}")
        assert ran.code == 0, ran.err
        tasks = ran.summary["tasks"]
        sums[ran.context] = [sum(task["weight"] * task[time] for task in tasks) for time in ("default_ns", "tuned_ns")]
        assert all(task["weight"] for task in tasks)
    for context, expected in sums.items():
        arguments = ("--performance_cache_dir", cache, "--context_binary", context, "--json")
        (place,) = json.loads(gputune("tuning-report", *arguments).out)["places"]
        assert [place["before_ns"], place["after_ns"]] == pytest.approx(expected)
        assert place["others"] and place["summed"] == place["operations"] == len(place["runs"])


def test_the_tier_says_which_file_of_a_folder_is_meant(
    gputune: Gputune, made: tuple[Path, Path], tmp_path: Path
) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.sqlite").write_bytes(made[0].read_bytes())
    ran = gputune("tuning-report", "--performance_cache_dir", tmp_path, "--json")
    assert (ran.code, "(there: one, two); --device_tier says which" in ran.err) == (7, True)
    ran = gputune("tuning-report", "--performance_cache_dir", tmp_path, "--device_tier", "two", "--json")
    assert json.loads(ran.out)["tier"] == "two"
    ran = gputune("tuning-report", "--performance_cache_dir", tmp_path, "--device_tier", "three", "--json")
    assert (ran.code, "no performance cache of the tier three" in ran.err) == (7, True)


def test_the_folder_above_the_caches_will_do(gputune: Gputune, made: tuple[Path, Path], tmp_path: Path) -> None:
    """~/.cache/gputune holds the folder performance, which holds the files."""
    (tmp_path / "performance").mkdir()
    (tmp_path / "performance" / "one.sqlite").write_bytes(made[0].read_bytes())
    ran = gputune("tuning-report", "--performance_cache_dir", tmp_path, "--json")
    assert json.loads(ran.out)["tier"] == "one"
    ran = gputune("performance-cache", "list", "--performance_cache_dir", tmp_path, "--json")
    assert [entry["tier"] for entry in json.loads(ran.out)["files"]] == ["one"]
    (tmp_path / "empty").mkdir()
    ran = gputune("tuning-report", "--performance_cache_dir", tmp_path / "empty", "--json")
    assert (ran.code, "--performance_cache_dir is the folder that tuning wrote to" in ran.last_line) == (7, True)


def test_a_context_of_another_device_is_noted(gputune: Gputune, made: tuple[Path, Path], tmp_path: Path) -> None:
    path = tmp_path / "c.sqlite"
    with PerformanceCache.open(path) as cache:
        trial = TrialRecord({"A": 1}, "ok", [1e3])
        cache.store_trials(TaskKey(op="Other", problem={}), made_up_cache.VALIDITY, [trial])
    ran = gputune(
        "tuning-report", "--performance_cache_dir", path, "--context_binary", made[1], "--output", tmp_path / "r.html"
    )
    assert ran.code == 0
    assert "this cache has no measurement of made_up.bin" in ran.err
