"""Test throughput-net-run: parallel instances on the null device, what they count, and what ends a run."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gputune.client.errors import ConfigError, DeviceOrContextError, WrongResults
from gputune.client.run.inferences import Times
from gputune.client.run.throughput import running
from gputune.client.run.throughput.config import ContextPlan
from gputune.client.run.throughput.contexts import Instance
from gputune.client.run.throughput.meters import Energy, EnergyCounter
from gputune.client.run.throughput.running import Counted, difference
from gputune.client.run.throughput.summary import by_minute, energy_of, slower_minutes
from gputune.client.run.throughput.turns import Turns
from gputune.core.errors import LaunchFailed
from gputune.runtime.backends.null import NullBackend
from tests.client.commands import Gputune, Ran, read_json
from tests.client.contexts import small_context

Run = Callable[..., Ran]
TWO_AND_TWO: list[dict[str, Any]] = [
    {"path": "a.bin", "group": "g", "priority": "high"},
    {"path": "b.bin", "group": "g", "instances": 2},
    {"path": "c.bin", "instances": 2},
    {"path": "d.bin"},
]


@pytest.fixture
def run(gputune: Gputune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """throughput-net-run of contexts, each with an input list of two lines."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(running, "TICK_S", 0.02)
    Path("x.raw").write_bytes(bytes(32))
    Path("two.txt").write_text("x.raw\nx.raw\n")
    for name in "abcd":
        small_context(Path(f"{name}.bin"), (256,))

    def run_them(contexts: list[dict[str, Any]], *options: object, **keys: object) -> Ran:
        listed = [{"input_list": "two.txt", **context} for context in contexts]
        listed = [{key: value for key, value in one.items() if value is not None} for one in listed]
        Path("config.json").write_text(json.dumps({"contexts": listed, "duration": 0.2, "device": "null", **keys}))
        return gputune("throughput-net-run", "--config", "config.json", "--summary_json", "summary.json", *options)

    return run_them


@pytest.mark.parametrize("streams", [1, 2])
def test_all_counts_agree(run: Run, streams: int) -> None:
    ran = run(TWO_AND_TWO, "--export_times", "times.json", warmup=5, groups={"g": {"streams": streams}})
    assert ran.code == 0, ran.err
    summary, times = read_json(Path("summary.json")), read_json(Path("times.json"))
    instances, contexts = summary["instances"], summary["contexts"]
    assert list(instances) == ["a.0", "b.0", "b.1", "c.0", "c.1", "d.0"]
    assert summary["inferences"] == sum(one["inferences"] for one in instances.values()) == len(times)
    for name, context in contexts.items():
        own = [one for one in instances.values() if one["context"] == name]
        assert context["inferences"] == sum(one["inferences"] for one in own)
        assert context["executed"] == context["inferences"] + context["warmup"]
        assert context["warmup"] == 5 * len(own) == 5 * context["instances"]
    for name, one in instances.items():
        took_ns = [row["inference_ns"] for row in times if row["context"] == name]
        assert one["inferences"] == len(took_ns) == sum(minute["inferences"] for minute in one["minutes"])
        for percentile, value in (one["percentiles_ns"] or {}).items():
            assert value == np.percentile(took_ns, float(percentile[1:]))
    assert (summary["wrong"], summary["interrupted"], summary["failed"]) == (0, False, None)
    assert summary["groups"]["g"]["streams"] == streams
    assert "no wrong result" in ran.last_line


def test_a_wrong_result_is_counted_and_ends_with_an_error(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    reads, read = [0], NullBackend.read

    def read_wrongly(self: NullBackend, buffer: Any, into: Any = None) -> Any:
        result = read(self, buffer, into)
        reads[0] += 1
        result[:3] = 7 if reads[0] in (8, 9) else 0
        return result

    monkeypatch.setattr(NullBackend, "read", read_wrongly)
    ran = run([{"path": "a.bin"}])
    assert ran.code == WrongResults.exit_code == 10
    assert (
        "2 results differ from the first result on the same inputs; a.0: inference 7: output 'y' differs in 3 of 32"
        in ran.err
    )
    assert read_json(Path("summary.json"))["wrong"] == 2


def test_ctrl_c_ends_a_run_with_what_was_counted(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    sample, pressed = Energy.sample, [False]

    def press(self: Energy) -> None:
        sample(self)
        if not pressed[0]:
            pressed[0] = True
            raise KeyboardInterrupt

    monkeypatch.setattr(Energy, "sample", press)
    ran = run(TWO_AND_TWO, "--duration", "1h")
    assert (ran.code, ran.last_line) == (130, "interrupted")
    summary = read_json(Path("summary.json"))
    assert summary["interrupted"] is True
    assert summary["inferences"] == sum(one["inferences"] for one in summary["instances"].values()) > 0


@pytest.mark.parametrize("warmup", [0, 50])
def test_a_failed_inference_ends_all_instances(run: Run, monkeypatch: pytest.MonkeyPatch, warmup: int) -> None:
    finishes, finish = [0], NullBackend.read

    def fail(self: NullBackend, buffer: Any, into: Any = None) -> Any:
        finishes[0] += 1
        if finishes[0] == 20:
            raise LaunchFailed("the device is gone")
        return finish(self, buffer, into)

    monkeypatch.setattr(NullBackend, "read", fail)
    ran = run(TWO_AND_TWO, "--duration", "1h", warmup=warmup)
    assert ran.code == DeviceOrContextError.exit_code
    assert "the device is gone" in ran.last_line
    assert "the device is gone" in read_json(Path("summary.json"))["failed"]


@pytest.mark.parametrize(
    ("context", "code", "complaint"),
    [
        ({"graph": "other"}, ConfigError.exit_code, "there is no graph 'other'"),
        ({"graph": "other", "group": "g"}, ConfigError.exit_code, "there is no graph 'other'; the graphs are ['main']"),
        ({"input_list": "gone.txt"}, ConfigError.exit_code, "gone.txt cannot be read"),
        ({"input_list": None}, ConfigError.exit_code, "'a': its graph has inputs ('x'); give it an"),
        ({"path": "gone.bin"}, DeviceOrContextError.exit_code, "gone.bin cannot be read"),
    ],
)
def test_what_cannot_run_is_refused(run: Run, context: dict[str, Any], code: int, complaint: str) -> None:
    ran = run([{"path": "a.bin", **context}])
    assert (ran.code, complaint in ran.last_line) == (code, True), ran.err


def test_no_inference_begins_when_the_run_is_over_by_the_time_that_its_turn_comes() -> None:
    def infer(inputs: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
        begun.append(1)
        return {}, 5

    begun: list[int] = []
    counted = Counted(Instance("a.0", ContextPlan("a", Path("a.bin")), infer, [{}], Turns()))
    counted.warm_up(lambda: True)
    counted.count(lambda: True)
    assert (begun, counted.warmup, counted.times.elapsed_ns, counted.waited_ns > 0) == ([], 0, [], True)
    counted.count(lambda: False)
    assert (begun, counted.times.elapsed_ns) == ([1], [5])


def test_bits_decide_about_results() -> None:
    nan = {"y": np.array([np.nan, 0.0], np.float32), "z": np.array(1.0)}
    assert difference(nan, {name: value.copy() for name, value in nan.items()}) == ""
    assert difference({"y": np.array([0.0])}, {"y": np.array([-0.0])}) == "output 'y' differs in 1 of 8 bytes"


def test_minutes_show_how_times_drift() -> None:
    begins = [0, 59, 60, 61, 62, 180]
    times = Times(begins, [10, 20, 30, 40, 50, 15])
    minutes = by_minute(times, 0, minute_ns=60)
    assert [minute["inferences"] for minute in minutes] == [2, 3, 0, 1]
    assert [minute["p50_ns"] for minute in minutes] == [15, 40, None, 15]
    assert [minute["p50_over_first"] for minute in minutes] == [1, 40 / 15, None, 1]
    assert minutes[1]["p99_ns"] == np.percentile([30, 40, 50], 99)
    assert by_minute(Times(), 0) == []
    (line,) = slower_minutes({"instances": {"a.0": {"minutes": minutes}, "b.0": {"minutes": minutes[:1]}}})
    assert line.startswith("a.0: in minute 1 p50 was 2.67 times that of the first")


def test_energy_is_told_by_inference() -> None:
    meter = EnergyCounter("rapl", "file", lambda: 0.0)
    meter.joules = 12.0
    told = energy_of(Energy([meter], ["hwmon: no"]), seconds=4.0, inferences=6)
    assert told["unreadable"] == ["hwmon: no"]
    assert told["meters"] == [
        {"name": "rapl", "source": "file", "joules": 12.0, "watts": 3.0, "joules_per_inference": 2.0}
    ]
    assert energy_of(Energy([meter]), 0.0, 0)["meters"][0]["watts"] is None
