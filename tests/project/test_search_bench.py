"""Test `scripts/bench search`: its table, its numbers, and what it refuses before it has worked for minutes."""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.search import bench
from benchmarks.search.replay import mean_over_seeds
from benchmarks.search.spaces import NotRecorded, load

SPACE = Path(__file__).parents[1] / "recordings" / "depthwise_pocl_T4.json.gz"


def arguments(*given: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    bench.add_arguments(parser)
    return parser.parse_args(["--strategies", "random", "--seeds", "2", "--evaluations", "2,400", *given])


def test_a_recorded_space_is_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bench.main(arguments("--space", str(SPACE), "--json", str(tmp_path / "numbers.json")))
    assert "| random, cold             | " in capsys.readouterr().out
    found = json.loads((tmp_path / "numbers.json").read_text())["depthwise"]["random, cold"]
    assert list(found) == [bench.ALL_DEVICES], "one space is all of a kernel"
    found = found[bench.ALL_DEVICES]
    assert found["400"] == {"percent": 100, "standard_error": 0}, "after all of a space its best is known"
    assert 0 < found["2"]["standard_error"] < found["2"]["percent"] < 100


def test_searches_with_records_are_compared_with_the_same_without(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a copy of the device what was best is found as soon as it is tried; other vendors' records are apart."""
    devices = {name: tmp_path / f"depthwise_{name}_T4.json.gz" for name in ("A4000", "A6000", "W6600")}
    for path in devices.values():
        path.write_bytes(SPACE.read_bytes())
    looks = ("--records", "--evaluations", "3,8", "--json", str(tmp_path / "numbers.json"))
    bench.main(arguments("--space", *map(str, devices.values()), *looks))
    found = json.loads((tmp_path / "numbers.json").read_text())["depthwise"]
    of_one = [title.partition(" records of ")[2] for title in found if title.startswith("A4000 (nvidia)")]
    assert of_one == ["A6000", "W6600", "A6000, W6600"]
    assert len(found) == 3 + 3 + 3
    assert {each["8"]["percent"] for each in found.values()} == {100}
    assert "| points at 3 |" in capsys.readouterr().out


def test_a_cache_file_of_kernel_tuner_is_a_space(tmp_path: Path) -> None:
    path = tmp_path / "gemm_RTX_3090_cachefile.json"
    rows: list[dict[str, Any]] = [{"A": a, "B": 7, "time": 2.0, "times": [1.0, 2.0, 6.0]} for a in (4, 1)]
    rows.append({"A": 2, "B": 7, "time": "RuntimeFailedConfig"})
    path.write_text(json.dumps({"tune_params_keys": ["A", "B"], "cache": dict(enumerate(rows))}))
    space = load(path)
    assert (space.kernel, space.device, space.vendor) == ("gemm", "RTX_3090", "nvidia")
    assert [cost for _, cost in space.records()] == [2e6, None, 2e6]
    path.write_text("[]")
    with pytest.raises(NotRecorded, match=r"gemm_RTX_3090_cachefile\.json is no cache file"):
        load(path)


def test_errors_are_of_the_seeds_and_not_of_the_devices() -> None:
    first, second = np.array([[40.0], [60.0]]), np.array([[90.0], [90.0]])
    mean, error = mean_over_seeds([first, second])
    assert mean.tolist() == [70.0]
    assert error.tolist() == [5.0]  # 10 for the first device, none for the second, over two
    assert mean_over_seeds([first[:1]])[1].tolist() == [0.0]


def test_an_interpreter_that_is_not_there_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.search.bench.load", lambda path: pytest.fail("a space was read"))
    with pytest.raises(SystemExit, match="there is no program no/such/python"):
        bench.main(arguments("--space", str(SPACE), "--kernel_tuner_python", "no/such/python"))


def test_an_interpreter_may_be_named_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs in another folder."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 3\n")
    python.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match=f"{python} ended with exit code 3"):
        bench.main(arguments("--space", str(SPACE), "--kernel_tuner_python", "./python"))
