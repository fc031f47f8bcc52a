"""Test which parts of a model stay on the device once they were measured, on the null device as if it computed."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

from gputune.client.context import context_runner, part_gains
from gputune.client.context.context_runner import ContextRunner
from gputune.client.context.part_gains import FASTER_THERE, NOT_MEASURED, PartTimes
from gputune.client.generation import generation
from gputune.client.model.parts import alone, cut_model, host_session
from gputune.client.tuning.measuring.quiet import Quiet
from gputune.client.tuning.search.effort import EFFORTS
from gputune.runtime.devices.load import CLOCK
from tests.client.commands import Generate, Generated
from tests.client.model.test_parts import double_inside
from tests.client.models import save
from tests.client.summaries import problems

Ratios = Mapping[str, float]
Measure = Callable[[Ratios], tuple[Generated, Any]]


@pytest.fixture
def measured(generate: Generate, monkeypatch: pytest.MonkeyPatch) -> Measure:
    """Tunes a model of two parts, which take so many times as long on the device as in onnxruntime."""
    monkeypatch.setattr(generation, "SIMULATED", frozenset())
    monkeypatch.setattr(ContextRunner, "round_ns", lambda runner, contexts: [1e6 for _ in contexts])
    monkeypatch.setattr(context_runner, "ROUNDS", 2)
    monkeypatch.setattr(context_runner, "MOST_INFERENCES", 2)
    monkeypatch.setitem(EFFORTS, "quick", replace(EFFORTS["quick"], trials=2, light_trials=2, compare_seconds=0.1))
    monkeypatch.setattr(generation, "Quiet", lambda machines, *how, **more: Quiet([], *how, **more))

    def run(ratios: Ratios) -> tuple[Generated, Any]:
        monkeypatch.setattr(part_gains._Host, "turn_ns", lambda host: (1e6 + part_gains.WAIT_NS) / ratios[host.name])
        asked = ("--unsupported", "host", "--input_dimensions", "n=1")
        ran = generate(*asked, model=double_inside(), effort="quick")
        assert ran.code == 0, ran.err
        assert problems("context-binary-generator", ran.summary) == []
        return ran, ran.summary["models_in_parts"][0]

    return run


def test_a_part_that_onnxruntime_is_faster_at_stays_there(measured: Measure, tmp_path: Path) -> None:
    ran, cut = measured({"small_part1": 2.0, "small_part2": 0.5})
    assert "part small_part1: 1.020 ms on the device, 0.510 ms in onnxruntime; its nodes stay in onnxruntime" in ran.err
    assert "part small_part2: 1.020 ms on the device, 2.040 ms in onnxruntime\n" in ran.err
    assert [part["graph"] for part in cut["parts"]] == ["small_part2"]
    assert cut["host_ops"]["Conv"] == cut["host_ops"]["Relu"] == 1 and cut["could_run"][FASTER_THERE] == 2
    assert [graph.name for graph in ran.header.graphs] == ["small_part2"]
    ops = [node.op_type for node in onnx.load(str(tmp_path / "output" / "small_ctx.onnx")).graph.node]
    assert ops.count("EPContext") == 1 and {"Conv", "Relu"} < set(ops)


@pytest.mark.slow
def test_without_a_part_that_gains_no_context_is_written(measured: Measure, tmp_path: Path) -> None:
    ran, cut = measured({"small_part1": 1.01, "small_part2": 3.0})
    assert cut["parts"] == [] and cut["could_run"][FASTER_THERE] == 5
    assert [path.name for path in (tmp_path / "output").iterdir()] == ["small_ctx.onnx"]
    assert "small.bin is not written, because no part runs on the device" in ran.err


@pytest.mark.slow
def test_a_target_elsewhere_is_not_held_against_onnxruntime_here(
    measured: Measure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part_gains, "is_here", lambda client: False)
    ran, cut = measured({})
    assert len(cut["parts"]) == 2 and FASTER_THERE not in cut["could_run"] and NOT_MEASURED in ran.err


@pytest.mark.parametrize(
    ("ahead_s", "here"), [(0.0, True), (-0.2, True), (60.0, False), (-3600.0, False), (None, False)]
)
def test_a_target_is_here_if_it_has_this_machines_clock(
    ahead_s: float | None, here: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = {} if ahead_s is None else {CLOCK: time.monotonic() + ahead_s}
    monkeypatch.setattr(part_gains, "state_of", lambda client: state)
    client: Any = None
    assert part_gains.is_here(client) is here


def test_turns_are_taken_in_pairs(tmp_path: Path) -> None:
    """So what slows both does not count."""
    (part, _) = (cut := cut_model(save(double_inside(), tmp_path), {"n": (1,)})).parts
    model = alone(cut, part)
    assert model is not None
    host = part_gains._Host(host_session(model, tmp_path, spins=False), part)
    slow = iter([1.0, 100.0, 1.0, 100.0] * 2)
    now = [1.0]

    def round_ns(contexts: object) -> list[float]:
        now[0] = next(slow)
        return [3e6 * now[0] - part_gains.WAIT_NS]

    running: Any = SimpleNamespace(load=lambda *what: "context", round_ns=round_ns)
    host.turn_ns = lambda: 2e6 * now[0]  # type: ignore[method-assign]
    decision: Any = SimpleNamespace(plan=None, outcomes=None, persistent=False)
    times = part_gains._times(running, decision, host)
    assert times.ratio == pytest.approx(1.5) and not times.gains
    assert PartTimes(1.0, 1.0, 1.0).gains and np.isfinite(times.host_ns)
