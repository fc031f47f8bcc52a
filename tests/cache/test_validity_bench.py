"""Test the benchmark of what a cache measures again, on one field."""

from pathlib import Path

import pytest

from benchmarks.peers.comparing import Failed
from benchmarks.validity import bench


@pytest.mark.slow
def test_exactly_what_has_changed_is_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "WORK", tmp_path)
    (row,) = bench.measure("null", "platform_version")
    assert (row["measured"], row["tasks"]) == (2, 3)
    with pytest.raises(Failed, match="'colour' is none of"):
        bench.measure("null", "colour")


@pytest.mark.slow
def test_other_memory_sizes_ask_for_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "WORK", tmp_path)
    monkeypatch.setattr(bench, "discover", list)
    (row,) = bench.measure_room("null")
    assert (row["measured"], row["tasks"]) == (0, 3)
    monkeypatch.setitem(bench.ROOM, "driver_version", lambda version: f"{version}.1")
    with pytest.raises(Failed, match=r"requests in the second generation: .* stale"):
        bench.measure_room("null")
