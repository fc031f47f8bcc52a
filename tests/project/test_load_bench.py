"""Test what `scripts/bench load` and `scripts/bench executor` count, on the null device."""

import argparse
import json
from pathlib import Path

import pytest

from benchmarks import executor, load
from gputune.runtime.backends import Backend, Bound
from gputune.runtime.backends.null import NullBackend
from tests.runtime.conftest import context, context_path

__all__ = ["context", "context_path"]


@pytest.mark.slow
def test_the_load_of_a_context_is_told_with_its_kernels(
    tmp_path: Path, context_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "WORK", tmp_path)
    found = tmp_path / "found.json"
    load.run(argparse.Namespace(context=context_path, device=None, rounds=2, json=found, forms=False))
    told = json.loads(found.read_text(encoding="utf-8"))
    assert (told["kernels"], told["programs"]) == (2, 1)
    for run, over_ns in zip(told["runs"], told["over_steady_ns"], strict=True):
        assert over_ns == run["load_ns"] + run["first_inference_ns"] - run["median_inference_ns"]


def test_the_overhead_is_that_of_the_longest_chain_without_its_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    launched: list[int] = []

    def in_order(self: Backend, bounds: list[Bound]) -> object:
        return lambda: launched.append(len(bounds))

    monkeypatch.setattr(NullBackend, "in_order", in_order)
    found = tmp_path / "found.json"
    executor.run(argparse.Namespace(device="null", rounds=2, json=found))
    told = json.loads(found.read_text(encoding="utf-8"))
    assert launched == 5 * [0, 1, 50, 200]  # three runs to warm up, then in turns
    assert told["per_launch_ns"] == (told["run_ns"]["200"] - told["run_ns"]["0"]) / 200
    assert "per launch, median" in capsys.readouterr().out
