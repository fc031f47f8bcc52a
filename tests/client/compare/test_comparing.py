"""Test gputune compare on the null device: what it finds, writes and refuses, and that contenders stand still."""

import json
import math
import os
import platform
import re
import signal
import subprocess
import sys
import xml.etree.ElementTree as Xml
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from gputune.client.compare import comparing
from gputune.client.compare.comparing import Comparison, Entries, Measured
from gputune.client.compare.gains import chart
from gputune.client.compare.turns import Contender, Process
from gputune.client.errors import ConfigError, DeviceOrContextError
from gputune.client.options.config import Config
from gputune.client.progress import SILENT, Progress
from gputune.client.tuning.measuring.quiet import LoadRecord, Quiet, Read
from gputune.client.tuning.measuring.sequential import Gain, gain_of
from tests.client import models
from tests.client.commands import Gputune, read_json
from tests.client.contexts import small_context
from tests.client.model.test_quantised import MATRIX, Given, model_of
from tests.waiting import becomes

pytestmark = pytest.mark.slow  # each starts processes

SVG = "{http://www.w3.org/2000/svg}"
TENSOR = {"name": "x", "shape": [1, 3, 9, 7], "dtype": "float32"}


FLAT = "(float[2, 4] x) => (float[8] y)", "s = Constant<value_ints=[8]>() y = Reshape(x, s)"
"""What a small context takes and gives."""
SLOWED = [1.0, 5.0, 2.0, 1.5, 3.0, 1.0, 1.2, 2.5] * 4
UNSURE = [0.5, 2.0, 3.0, 0.25] * 8


def measured(name: str, rounds: Sequence[float]) -> Measured:
    """A contender that took so many times as long as the tuned context in each round."""
    gain = gain_of(rounds)
    return Measured(name, tuple(1e6 * a * b for a, b in zip(SLOWED, rounds, strict=False)), gain, 1e6 * gain.median, 0)


def comparison(*others: Measured) -> Comparison:
    tuned = Measured("tuned", tuple(1e6 * each for each in SLOWED), None, 1e6, None)
    chosen = others or (measured("untuned", [2.0] * 32), measured("onnxruntime", UNSURE))
    return Comparison("a<b>.onnx", "a device", 2, 12.5, LoadRecord().to_dict(), (tuned, *chosen))


def test_ratios_are_those_of_the_same_rounds() -> None:
    """Whatever slows down all contenders of a round."""
    times = {"tuned": SLOWED, "untuned": [2 * each for each in SLOWED], "onnxruntime": SLOWED[:20]}
    gains = comparing.gains_of("tuned", times)
    assert (gains["untuned"].low, gains["untuned"].high, gains["untuned"].rounds) == (2, 2, 32)
    assert (gains["onnxruntime"].median, gains["onnxruntime"].rounds) == (1, 20)


@pytest.mark.parametrize(
    ("deviation", "said"),
    [
        (1e-4, "onnxruntime ran with a=1; by default its outputs differ by 0.0001 of their largest value"),
        (
            0.85,
            "onnxruntime ran with a=1; by default its outputs differ by 0.85 of their largest value: set this "
            "wherever onnxruntime runs the model",
        ),
    ],
)
def test_it_is_said_whether_an_entry_of_onnxruntime_matters(deviation: float, said: str) -> None:
    found = replace(comparison(), entries=Entries({"a": "1"}, deviation))
    assert found.entries is not None and found.entries.line == said
    assert found.to_dict()["onnxruntime"] == {"entries": {"a": "1"}, "default_deviation": deviation}
    assert comparison().to_dict()["onnxruntime"] is None


def test_products_of_bytes_saturate_without_the_entry(tmp_path: Path) -> None:
    """On x86 processors without VNNI; elsewhere both are the same."""
    full = np.full((96, 40), 127, np.int8)
    given = Given("(float[3,96] x) => (float[3,40] y)", MATRIX + "y = MatMul(d, v)", weights={"matrix": full})
    model = models.save(model_of(given), tmp_path)
    tensor = {"name": "x", "shape": [3, 96], "dtype": "float32"}
    with Process() as process:
        arguments = {"model": str(model), "inputs": [tensor], "threads": 1}
        own = Contender("onnxruntime", process, "onnxruntime", arguments)
        found = comparing._entries([own], 0)
    assert found is not None and found.told == {"session.x64quantprecision": "1"}
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    saturates = platform.machine() == "x86_64" and "vnni" not in flags
    assert (found.deviation > 0.01) == saturates


def test_a_contender_that_is_known_takes_no_part_any_more() -> None:
    """And the comparison ends once all are known, or when it is late."""
    turns: list[list[str]] = []

    def run(names: Sequence[str]) -> dict[str, float]:
        turns.append(list(names))
        unsure = 1.0 if len(turns) % 2 else 1.2
        return {name: {"tuned": 1.0, "far": 2.0, "near": 1.0}.get(name, unsure) for name in names}

    times = comparing.take_turns("tuned", ["far", "near"], run, lambda: False)
    rounds = len(times["tuned"])
    assert len(times["far"]) == len(times["near"]) == rounds < 20
    assert comparing.take_turns("tuned", ["far"], run, lambda: True) == {"tuned": (), "far": ()}
    turns.clear()
    times = comparing.take_turns("tuned", ["far", "unsure"], run, lambda: len(turns) >= 50)
    assert len(times["far"]) == rounds and len(times["unsure"]) == len(times["tuned"]) == 50
    assert turns[-1] == ["tuned", "unsure"]


def test_the_times_told_have_the_ratios_told() -> None:
    facts = json.loads(json.dumps(comparison().to_dict()))
    assert facts["rounds"] == 32 and facts["contenders"][0]["tuned_times_as_fast"] is None
    for one in facts["contenders"][1:]:
        assert one["time_ns"] == facts["contenders"][0]["time_ns"] * one["tuned_times_as_fast"]["median"]


def test_the_chart_has_a_bar_for_each_as_long_as_its_ratio() -> None:
    drawn = Xml.fromstring(chart(comparison()))
    lengths = [float(each.attrib["d"].split("H")[1].split("V")[0]) for each in paths(drawn, "box")]
    assert len(lengths) == 3 and lengths[1] == pytest.approx(2 * lengths[0], abs=0.2)
    written = [each.text or "" for each in drawn.iter(f"{SVG}text")]
    assert "a<b>.onnx on a device" in written and any("2.00 x the time" in text for text in written)
    assert any("no difference found (0.25–3.00)" in text for text in written)


def test_the_chart_breaks_a_title_that_is_wider_than_it() -> None:
    drawn = Xml.fromstring(chart(replace(comparison(), device="pthread-skylake-avx512 " * 6)))
    lines = [each.text or "" for each in drawn.iter(f"{SVG}text") if each.attrib["class"] == "head"]
    assert len(lines) == 2 and max(map(len, lines)) <= 80 and " ".join(lines).startswith("a<b>.onnx on pthread")


def paths(drawn: Xml.Element, style: str) -> list[Xml.Element]:
    """The paths of a style, first among its classes."""
    return [each for each in drawn.iter(f"{SVG}path") if each.attrib["class"].split()[0] == style]


def test_the_chart_has_no_whisker_while_no_interval_is_known() -> None:
    drawn = Xml.fromstring(chart(comparison(measured("untuned", [2.0]))))
    assert paths(drawn, "whisker") == []
    written = [each.text or "" for each in drawn.iter(f"{SVG}text")]
    assert any("not known after 1 round" in text for text in written)
    assert not any("intervals" in text for text in written)


@pytest.mark.parametrize(
    ("gain", "style"),
    [
        (Gain(2.0, 1.9, 2.1, 20), "other"),
        (Gain(1.0, 0.995, 1.005, 90), "other"),
        (Gain(1.17, 0.36, 2.46, 20), "other unknown"),
        (Gain(1.17, 0.0, math.inf, 3), "other unknown"),
    ],
)
def test_the_bar_of_what_is_not_known_is_hollow(gain: Gain, style: str) -> None:
    drawn = Xml.fromstring(chart(comparison(Measured("onnxruntime", (1e6,), gain, 1e6 * gain.median, 0))))
    assert [each.attrib["class"] for each in paths(drawn, "box")] == ["box tuned", f"box {style}"]
    (said,) = [each.text or "" for each in drawn.iter(f"{SVG}text") if "relative to" in (each.text or "")]
    assert ("hollow: not known" in said, "99.5% intervals" in said) == (style == "other unknown", gain.low > 0)


def test_a_model_is_compared_with_its_context_once_the_machine_is_quiet(
    gputune: Gputune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[object] = []
    rounds_of = comparing.rounds_of

    class Heard(Quiet):
        def __init__(self, machines: Sequence[Read], progress: Progress, minutes: int | None) -> None:
            super().__init__(machines, progress, minutes)
            order.append(minutes)

        def settle(self) -> None:
            order.append("settled")

    def taken(*what: Any) -> Any:
        order.append("rounds")
        return rounds_of(*what)

    monkeypatch.setattr(comparing, "Quiet", Heard)
    monkeypatch.setattr(comparing, "rounds_of", taken)
    monkeypatch.setattr(comparing, "TURN_S", 0.001)
    monkeypatch.setattr(comparing, "OTHERS", {"onnxruntime": "onnxruntime"})
    model = models.save(models.build(*FLAT), tmp_path)
    context, figures, picture = small_context(tmp_path / "tuned.bin"), tmp_path / "c.json", tmp_path / "c.svg"
    asked = ("compare", "--model", model, "--retrieve_context", context, "--device", "null", "--compare_seconds", 0.1)
    ran = gputune(*asked, "--summary_json", figures, "--chart", picture, "--wait_for_quiet", 7)
    assert ran.code == 0, ran.err
    assert order == [7, "settled", "rounds"]
    content = read_json(figures)
    names = [each["name"] for each in content["contenders"]]
    assert names == ["tuned", "untuned", "onnxruntime"]
    assert all(each["rounds_ns"] and min(each["rounds_ns"]) > 0 for each in content["contenders"])
    assert all(name in ran.out and name in picture.read_text(encoding="utf-8") for name in names)
    assert f"wrote the chart {picture}" in ran.out and "warning: the device computes nothing" in ran.err
    assert content["load"].keys() == LoadRecord().to_dict().keys()
    assert content["load"]["end"] is not None, "the contender says how busy the machine was"
    assert content["load"]["busy"] is False, "a device that computes nothing is not kept waiting by others"


@pytest.mark.parametrize(
    ("configuration", "tuning", "said", "engine"),
    [
        ({"tuning_effort": "none"}, "none", "the context is untuned, of tuning effort none", True),
        pytest.param(
            {"tuning_effort": "quick", "end_to_end": {"main": {"kept": "untuned"}}},
            "untuned",
            "the context is untuned, because tuning found nothing faster for certain",
            False,
            marks=pytest.mark.night,
        ),
    ],
)
def test_an_untuned_context_is_called_so_and_has_no_twin(
    gputune: Gputune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, configuration: Any, tuning: str, said: str,
    engine: bool,
) -> None:  # fmt: skip
    """On a device that computes nothing, which the environment chooses."""
    monkeypatch.setattr(comparing, "TURN_S", 0.001)
    monkeypatch.setattr(comparing, "OTHERS", {"onnxruntime": "onnxruntime"} if engine else {})
    monkeypatch.setenv("GPUTUNE_DEVICE", "null")
    model = models.save(models.build(*FLAT), tmp_path)
    context = small_context(tmp_path / "c.bin", **configuration)
    figures, picture = tmp_path / "c.json", tmp_path / "c.svg"
    asked = ("compare", "--model", model, "--retrieve_context", context, "--compare_seconds", 0.1)
    ran = gputune(*asked, "--summary_json", figures, "--chart", picture)
    assert ran.code == 0 and "warning: the device computes nothing" in ran.err, ran.err
    content = read_json(figures)
    names = ["untuned", "onnxruntime"][: 1 + engine]
    assert (content["tuning"], [each["name"] for each in content["contenders"]]) == (tuning, names)
    assert content["contenders"][0]["rounds_ns"] and content["contenders"][0]["time_ns"] > 0
    assert f"{said}: it is not compared with itself" in ran.out and "tuned against" not in ran.out
    assert "making an untuned context" not in ran.err
    assert "relative to the untuned context" in picture.read_text(encoding="utf-8")


@pytest.mark.parametrize("rules", ["exact", "float"])
def test_the_twin_of_a_context_rounds_and_stores_as_it_does(
    gputune: Gputune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rules: str
) -> None:
    told = {"rules": rules, "whole_numbers": {}, "exceptions": [], "steps": {}}
    types: dict[str, Any] = {"precision_mode": "float16_storage", "io_type": {"x": "float32"}, "keep_float32": ["Relu"]}
    context = small_context(tmp_path / "c.bin", quantised_graphs={"main": told}, **types)
    asked: list[Config] = []

    def compared(origin: object, untuned: Callable[[], Path], *_: object) -> None:
        untuned()
        raise ConfigError("that is enough")

    monkeypatch.setattr("gputune.client.cli.compare.compare", compared)
    monkeypatch.setattr("gputune.client.cli.compare.generate", lambda request, *_, **__: asked.append(request.config))
    model = models.save(models.build(*FLAT), tmp_path)
    assert "that is enough" in gputune("compare", "--model", model, "--retrieve_context", context).last_line
    (precision,) = (config.precision for config in asked)
    assert (precision.quantised, precision.mode) == (rules, "float16_storage")
    assert (precision.io_types, precision.kept) == ({"x": "float32"}, ("Relu",))


def test_contexts_of_other_models_are_refused(gputune: Gputune, tmp_path: Path) -> None:
    model, context = models.save(models.conv_relu_gemm(), tmp_path), small_context(tmp_path / "other.bin")
    ran = gputune("compare", "--model", model, "--retrieve_context", context, "--device", "null")
    assert ran.code == 3, ran.err
    assert "has the input 'x' with the shape [2, 4], the model with 1x3x9x7" in ran.last_line
    dynamic = tmp_path / "dynamic.onnx"
    onnx.save(
        models.build("(float[N, 4] x) => (float[M] y)", "s = Constant<value_ints=[-1]>() y = Reshape(x, s)"), dynamic
    )
    untuned = small_context(tmp_path / "untuned.bin", tuning_effort="none")  # no twin shows its shapes
    asked = ("compare", "--model", dynamic, "--retrieve_context", untuned, "--device", "null")
    ran = gputune(*asked, "--input_dimensions", "N=3")
    assert ran.code == 3 and re.search(r"\.bin takes x \[2, 4\], but .*onnx takes x \[3, 4\]", ran.last_line)


def test_a_contender_stands_still_while_others_run(tmp_path: Path) -> None:
    model = models.save(models.conv_relu_gemm(), tmp_path)
    arguments = {"model": str(model), "inputs": [TENSOR], "threads": 1}
    with Process() as process:
        contender = Contender("peer", process, "onnxruntime", arguments)
        (first,), (again,) = (contender.outputs().values() for _ in range(2))
        assert np.array_equal(first, again) and np.any(first)
        status = Path(f"/proc/{process.pid}/status")
        assert becomes(lambda: "State:\tT" in status.read_text(encoding="utf-8"))
        with pytest.raises(DeviceOrContextError, match=r"other does not run: .*nothing\.onnx"):
            Contender("other", process, "onnxruntime", arguments | {"model": str(tmp_path / "nothing.onnx")})
        other = Contender("other", process, "onnxruntime", arguments)
        other.open_again()
        assert contender.block_ns(0.001) and other.block_ns(0.001), "they share a process"


@pytest.mark.night
def test_a_process_that_has_ended_costs_a_round(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a driver that crashes; one that always does ends the comparison."""
    model = models.save(models.conv_relu_gemm(), tmp_path)
    arguments = {"model": str(model), "inputs": [TENSOR], "threads": 1}
    with Process() as process:
        pair = [Contender(name, process, "onnxruntime", arguments) for name in ("tuned", "other")]
        os.kill(process.pid, signal.SIGKILL)
        times = comparing.rounds_of(pair, 0.001, SILENT)
        assert all(len(own) == 1 for own in times.values())
        assert "exit code -9" in caplog.text and "the round is repeated" in caplog.text
        monkeypatch.setattr(pair[1], "open_again", lambda: os.kill(process.pid, signal.SIGKILL))
        with pytest.raises(DeviceOrContextError, match="exit code -9"):
            comparing.rounds_of(pair, 0.001, SILENT)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a stopped process with its parent")
def test_a_contender_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    model = models.save(models.conv_relu_gemm(), tmp_path)
    arguments = {"model": str(model), "inputs": [TENSOR], "threads": 1}
    script = (
        "import signal; from gputune.client.compare.turns import Contender, Process\n"
        f"process = Process(); Contender('peer', process, 'onnxruntime', {arguments!r})\n"
        "print(process.pid, flush=True); signal.pause()"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        status = Path(f"/proc/{int(parent.stdout.readline())}/status")
        assert becomes(lambda: "State:\tT" in status.read_text(encoding="utf-8"))
        parent.kill()
    # where nothing waits for orphans, its entry stays, as one that has ended
    assert becomes(lambda: not status.exists() or "State:\tZ" in status.read_text(encoding="utf-8"))
