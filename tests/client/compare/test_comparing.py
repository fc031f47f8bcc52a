"""gputune compare on the null device: what it finds, writes and refuses, and that contenders stand still."""

import json
import subprocess
import sys
import xml.etree.ElementTree as Xml
from pathlib import Path

import numpy as np
import pytest

from gputune.client.compare import comparing
from gputune.client.compare.chart import chart
from gputune.client.compare.comparing import Comparison, Measured
from gputune.client.compare.turns import Contender
from gputune.client.errors import ConfigError, DeviceOrContextError
from gputune.client.progress import SILENT
from tests.client import models
from tests.client.commands import Gputune, read_json
from tests.client.contexts import small_context
from tests.waiting import becomes

pytestmark = pytest.mark.slow  # each starts processes

TENSOR = {"name": "x", "shape": [1, 3, 9, 7], "dtype": "float32"}


def comparison() -> Comparison:
    """The second is twice as slow in each round, whatever slows down both; the third is as slow at times."""
    slowed = [1.0, 5.0, 2.0, 1.5, 3.0, 1.0]
    return Comparison(
        "a<b>.onnx",
        "a device",
        2,
        (
            Measured("tuned", tuple(1e6 * each for each in slowed), None),
            Measured("untuned", tuple(2e6 * each for each in slowed), 0.0),
            Measured("onnxruntime", tuple(1e6 * each for each in sorted(slowed)), 1e-7),
        ),
    )


def test_ratios_are_those_of_the_same_rounds() -> None:
    found = comparison()
    twice, unsure = (found.speed(each) for each in found.contenders[1:])
    assert (twice.median, twice.low, twice.high) == (2, 2, 2)
    assert unsure.low < 1 < unsure.high
    facts = json.loads(json.dumps(found.to_dict()))
    assert facts["rounds"] == 6 and facts["contenders"][0]["tuned_times_as_fast"] is None
    assert facts["contenders"][1]["tuned_times_as_fast"] == {"median": 2, "low": 2, "high": 2}


def test_the_chart_has_a_bar_for_each_as_long_as_its_time() -> None:
    drawn = Xml.fromstring(chart(comparison()))
    lengths = [float(each.attrib["width"]) for each in drawn.iter("{http://www.w3.org/2000/svg}rect")]
    assert len(lengths) == 3 and lengths[1] == pytest.approx(2 * lengths[0], abs=0.2)
    assert "a<b>.onnx on a device" in [each.text for each in drawn.iter("{http://www.w3.org/2000/svg}text")]


def test_a_model_is_compared_with_its_context(
    gputune: Gputune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparing, "BLOCK_S", 0.001)
    model = models.save(models.build("(float[2, 4] x) => (float[2, 4] y)", "y = Relu(x)"), tmp_path)
    context, figures, picture = small_context(tmp_path / "tuned.bin"), tmp_path / "c.json", tmp_path / "c.svg"
    asked = ("compare", "--model", model, "--retrieve_context", context, "--device", "null", "--rounds", 6)
    ran = gputune(*asked, "--summary_json", figures, "--chart", picture)
    assert ran.code == 0, ran.err
    content = read_json(figures)
    names = [each["name"] for each in content["contenders"]]
    assert names[:3] == ["tuned", "untuned", "onnxruntime"]
    assert all(len(each["rounds_ns"]) == 6 and min(each["rounds_ns"]) > 0 for each in content["contenders"])
    assert all(name in ran.out and name in picture.read_text(encoding="utf-8") for name in names)
    assert f"wrote the chart {picture}" in ran.out and "warning: the device computes nothing" in ran.err


def test_a_device_that_computes_nothing_may_be_chosen_by_the_environment(
    gputune: Gputune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparing, "BLOCK_S", 0.001)
    monkeypatch.setenv("GPUTUNE_DEVICE", "null")
    model = models.save(models.build("(float[2, 4] x) => (float[2, 4] y)", "y = Relu(x)"), tmp_path)
    context = small_context(tmp_path / "tuned.bin")
    ran = gputune("compare", "--model", model, "--retrieve_context", context, "--rounds", 6)
    assert ran.code == 0 and "warning: the device computes nothing" in ran.err


def test_contexts_of_other_models_and_missing_ones_are_refused(
    gputune: Gputune, null_target: tuple[object, ...], tmp_path: Path
) -> None:
    model, context = models.save(models.conv_relu_gemm(), tmp_path), small_context(tmp_path / "other.bin")
    made = gputune(
        *("context-binary-generator", "--model", model, *null_target, "--tuning_effort", "none"),
        *("--output_dir", tmp_path, "--binary_file", "untuned"),
    )
    assert made.code == 0, made.err
    with pytest.raises(ConfigError, match=r"other\.bin takes x float32\[2, 4\], and .*onnx x float32\[1, 3, 9, 7\]"):
        comparing.compare(model, context, tmp_path / "untuned.bin", "null", 6, SILENT)
    ran = gputune("compare", "--model", model, "--retrieve_context", tmp_path / "none.bin")
    assert ran.code == 8 and "none.bin" in ran.last_line
    ran = gputune("compare", "--model", model, "--chart", tmp_path / "gain.png")
    assert ran.code == 2 and "gain.png" in ran.last_line and ".svg" in ran.last_line
    ran = gputune("compare", "--model", model, "--retrieve_context", context, "--tuning_effort", "quick")
    assert ran.code == 2 and "drop --retrieve_context" in ran.last_line


def test_a_contender_stands_still_while_others_run(tmp_path: Path) -> None:
    model = models.save(models.conv_relu_gemm(), tmp_path)
    arguments = {"model": str(model), "inputs": [TENSOR], "threads": 1}
    with Contender("peer", "onnxruntime", arguments) as contender:
        (first,), (again,) = (contender.outputs().values() for _ in range(2))
        assert np.array_equal(first, again) and np.any(first)
        status = Path(f"/proc/{contender._process.pid}/status")
        assert becomes(lambda: "State:\tT" in status.read_text(encoding="utf-8"))
    with pytest.raises(DeviceOrContextError, match=r"peer does not run: .*nothing\.onnx"):
        Contender("peer", "onnxruntime", arguments | {"model": str(tmp_path / "nothing.onnx")})


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a stopped process with its parent")
def test_a_contender_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    model = models.save(models.conv_relu_gemm(), tmp_path)
    arguments = {"model": str(model), "inputs": [TENSOR], "threads": 1}
    script = (
        "import signal; from gputune.client.compare.turns import Contender\n"
        f"print(Contender('peer', 'onnxruntime', {arguments!r})._process.pid, flush=True); signal.pause()"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        status = Path(f"/proc/{int(parent.stdout.readline())}/status")
        assert becomes(lambda: "State:\tT" in status.read_text(encoding="utf-8"))
        parent.kill()
    # where nothing waits for orphans, its entry stays, as one that has ended
    assert becomes(lambda: not status.exists() or "State:\tZ" in status.read_text(encoding="utf-8"))
