"""Test the tools of scripts/bench tune on the null device."""

import argparse
import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.tuning import bench as tune_bench
from benchmarks.tuning import exhaustive, tools, twice
from benchmarks.tuning.in_process import InProcess
from benchmarks.tuning.tools import NotTimed, Ratio, TaskOnTarget
from gputune.client.errors import TargetError
from gputune.client.tuning.search.effort import EFFORTS
from gputune.kernels.catalogue import family_of
from gputune.runtime.backends import open_backend
from gputune.runtime.devices.discovery import NULL_REPORT
from models import tune_models

FAKE_KERNEL_TUNER = """
import json, pathlib, sys
import numpy as np
folder = pathlib.Path(sys.argv[2])
job = json.loads((folder / "job.json").read_text())
arrays = {name: np.load(folder / f"{name}.npy") for name in [*job["arguments"], "answer"]}
assert arrays["output"].shape == arrays["answer"].shape and not arrays["output"].any() and arrays["answer"].any()
assert arrays["packed"].nbytes >= 64 * 64 * 9 * 4
assert "-DPIXELS=784" in job["options"] and not any("MR" in option for option in job["options"])
configurations = job["configurations"][: int(sys.argv[3]) if len(sys.argv) > 3 else None]
for one in configurations:
    across, down = one["groups"]
    assert down * one["values"]["LM"] * one["values"]["MR"] >= 784
print(json.dumps({"seconds": 4.0, "milliseconds": {json.dumps(one["values"]): 1.0 for one in configurations}}))
"""


def run(tool: str, work: Path, *more: str) -> dict[str, Any]:
    """What a tool's JSON holds after a quick run."""
    parser = argparse.ArgumentParser()
    tune_bench.add_arguments(parser)
    numbers = work / "numbers.json"
    tune_bench.main(parser.parse_args([tool, "--quick", "--work", str(work), "--json", str(numbers), *more]))
    result: dict[str, Any] = json.loads(numbers.read_text())
    return result


@pytest.fixture
def here() -> InProcess:
    return InProcess(open_backend(NULL_REPORT))


@pytest.mark.slow
def test_exhaustive_is_at_least_as_good_as_what_it_has_measured(tmp_path: Path) -> None:
    for found in run("exhaustive", tmp_path, "--effort", "quick")["tasks"].values():
        assert found["measured"] == 48
        assert 0 < found["evaluations"] < found["space"]
        assert found["by_best"]["value"] == pytest.approx(found["pick_ns"] / found["best_ns"])


def test_the_exhaustive_measurement_goes_on_where_it_was(tmp_path: Path, here: InProcess) -> None:
    task = tune_models.ten_tasks()[6]
    with TaskOnTarget(here.as_client(), task) as bench:
        costs = exhaustive.measure_all(here.as_client(), bench, 40, tmp_path)
        (file,) = tmp_path.iterdir()
        kept = file.read_bytes().splitlines(keepends=True)[:33]
        file.write_bytes(b"".join(kept) + b'{"configuration": {"MR"')  # killed while it wrote
        before = here.requests["profile"]
        again = exhaustive.measure_all(here.as_client(), bench, 40, tmp_path)
    assert here.requests["profile"] - before == 1
    assert again == costs
    assert len(costs) == 40


@pytest.mark.slow
def test_the_same_generation_picks_the_same_where_time_is_a_model(tmp_path: Path) -> None:
    figures = run("twice", tmp_path)
    tasks = figures["models"]["a small model"].values()
    assert len(tasks) == 3
    for task in tasks:
        assert list(task) == ["what searches pick", "what ships"]
        assert all(one["picks"][0] == one["picks"][1] and one["second_by_first"] == 1 for one in task.values())


def test_picks_that_ship_as_they_were_found_are_timed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    timed: list[Any] = []

    def second_by_first(client: Any, task: Any, picks: Any) -> Ratio:
        timed.append(picks)
        return Ratio(1.03, 1.02, 1.04)

    monkeypatch.setattr(twice, "second_by_first", second_by_first)
    one, other = {"MR": 1}, {"MR": 2}
    client: Any = None
    found = twice.compare(client, tune_models.peer_task(), [(one, other), (one, other), (other, other)])
    assert timed == [(one, other)]
    assert [(pair.same, pair.near) for pair in found] == [(False, False), (False, False), (True, True)]
    assert list(map(str, found)) == [*2 * ["1.030 (1.020-1.040) no"], "the same"]


@pytest.mark.parametrize(("spread", "wanted"), [(1.0, 6), (500.0, 30)])
def test_picks_are_timed_until_it_is_known_how_far_they_are_apart(
    here: InProcess, monkeypatch: pytest.MonkeyPatch, spread: float, wanted: int
) -> None:
    chance, timed = random.Random(0), 0

    def retime(bench: TaskOnTarget, configurations: list[Any], rounds: int) -> list[list[tuple[float, ...]]]:
        nonlocal timed
        timed += rounds
        return [[(1000 + chance.uniform(-spread, spread),) * 3 for _ in range(rounds)] for _ in configurations]

    monkeypatch.setattr(TaskOnTarget, "retime", retime)
    task = tune_models.peer_task()
    compared = twice.second_by_first(here.as_client(), task, [{"MR": 1}, {"MR": 2}])
    assert timed == wanted
    assert compared.low < 1 < compared.high


@pytest.mark.slow
def test_gains_are_those_of_the_model_of_time(tmp_path: Path) -> None:
    found = run("gains", tmp_path)["models"]["a small model"]
    assert found["slower"] == []
    assert all(gain["low"] == gain["high"] >= 1 for gain in found["tasks"].values())
    assert max(gain["value"] for gain in found["tasks"].values()) > 1


@pytest.mark.slow
def test_generations_from_empty_caches_are_equally_fast_where_time_is_a_model(tmp_path: Path) -> None:
    found = run("stable", tmp_path)["models"]["a small model"]
    costs, times = found["costs"], found["times_ns"]
    assert list(costs) == ["generation 1", "generation 2"]
    assert list(times) == [*costs, "untuned"]
    first, second = (sum(cost["trials"].values()) for cost in costs.values())
    assert first == second > 0


@pytest.mark.slow
def test_times_come_out_again_where_time_is_a_model(tmp_path: Path) -> None:
    figures = run("retime", tmp_path, "--kernels", "3")
    assert len(figures["kernels"]) == 3
    assert figures["off"]["p90"] < 1e-6
    assert figures["off_by_default"]["most"] < 1e-6


@pytest.mark.slow
def test_the_same_search_runs_with_and_without_a_server(tmp_path: Path) -> None:
    figures = run("remote", tmp_path)
    assert figures["same"]
    assert figures["ratio"] == figures["turns"]["remote"][0]["seconds"] / figures["turns"]["in process"][0]["seconds"]
    assert figures["turns"]["remote"][0]["measured"] >= (EFFORTS["quick"].trials or 0)


@pytest.mark.slow
def test_kernel_tuner_gets_what_ours_gets(tmp_path: Path) -> None:
    (tmp_path / "fake.py").write_text(FAKE_KERNEL_TUNER)
    figures = run(
        "peer", tmp_path, "--device", "null", "--kernel_tuner_python", f"{sys.executable} {tmp_path / 'fake.py'}"
    )
    assert figures["rates"]["kernel_tuner==1.5.*"] == [2.0]
    assert figures["ratio"] == figures["rates"]["gputune"][0] / 2


def test_the_classifier_is_as_large_as_the_original() -> None:
    plan = tune_models.classifier().plan()
    flops = sum(family_of(task.op).work(task.problem).flops * task.weight for task in plan.tasks)
    assert flops / 2 == pytest.approx(385e6, rel=0.03)


def test_drift_between_rounds_is_no_difference_within_them() -> None:
    numbers = random.Random(5)
    levels = [1.0, 1.3, 1.7, 1.0, 2.0]

    def rounds(time_ns: float) -> list[list[float]]:
        return [[time_ns * level * numbers.uniform(0.99, 1.01) for _ in range(16)] for level in levels]

    compared = tools.ratio(rounds(100), rounds(80))
    assert compared.low < 1.25 < compared.high
    assert compared.high - compared.low < 0.03
    assert tools.ratio(rounds(100), rounds(100)).value == pytest.approx(1, abs=0.01)


def test_drift_within_a_round_is_no_difference_between_those_that_take_turns() -> None:
    numbers = random.Random(6)
    levels = [numbers.uniform(0.5, 2) for _ in range(24)]

    def rounds(time_ns: float) -> list[list[float]]:
        return [[time_ns * level * numbers.uniform(0.99, 1.01) for level in levels] for _ in range(4)]

    mine, other = rounds(100), [samples[:16] for samples in rounds(80)]
    compared = tools.paired_ratio(mine, other)
    assert 1.24 < compared.low < 1.25 < compared.high < 1.26
    assert tools.ratio(mine, other).high - tools.ratio(mine, other).low > 0.2


def test_a_variant_that_fails_is_not_timed(here: InProcess) -> None:
    task = tune_models.peer_task()
    with TaskOnTarget(here.as_client(), task) as bench:
        too_large = {**bench.default, "LM": 1 << 20}
        with pytest.raises(NotTimed, match=r"Conv \w+ .*device_limits"):
            bench.retime([bench.default, too_large], rounds=1)


def test_what_is_refused_in_process_is_a_targets_error(here: InProcess) -> None:
    task = tune_models.peer_task()
    with TaskOnTarget(here.as_client(), task) as bench:
        bench.buffers["input"] = 12345
        with pytest.raises(TargetError, match="12345"):
            bench.measure([bench.default], 3)
        del bench.buffers["input"]
        bench.buffers["input"] = here.upload(bench.inputs["input"])
        assert bench.measure([bench.default], 3).trials[0].status == "ok"
