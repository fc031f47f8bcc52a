"""Test `scripts/bench search`: its table, its numbers, and what it refuses before it has worked for minutes."""

import argparse
import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.search import bench
from benchmarks.search.replay import mean_over_seeds

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
