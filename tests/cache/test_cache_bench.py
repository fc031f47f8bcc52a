"""Test the benchmark of large caches, on a small cache."""

from pathlib import Path

import pytest

from benchmarks import cache as cache_bench
from gputune.cache import PerformanceCache


def test_it_fills_a_file_and_finds_its_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_bench, "WORK", tmp_path)
    result = cache_bench.measure(1000, 2)
    assert (result["trials"], result["tasks"]) == (1000, 2)
    assert set(cache_bench.MARKS) < set(result["ns"])
    assert [row for row in cache_bench.rows_of(result) if "promised" in row[1]]
    with PerformanceCache.open_readonly(tmp_path / "made-up.sqlite") as cache:
        assert [sum(summary.trials.values()) for summary in cache.tasks()] == [508, 508]
