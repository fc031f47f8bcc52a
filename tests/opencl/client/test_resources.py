"""Test that what kernels take of a real device goes from its driver through server and cache to people."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import onnx
import pytest

from tests.client.commands import Gputune
from tests.client.models import save


@pytest.mark.usefixtures("_reached")
def test_what_a_tuned_kernel_takes_is_shown(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    gputune = Gputune(capfd)
    value = partial(onnx.helper.make_tensor_value_info, elem_type=onnx.TensorProto.FLOAT, shape=[8, 64])
    node = onnx.helper.make_node("Softmax", ["x"], ["y"], "softmax")
    model = save(onnx.helper.make_model(onnx.helper.make_graph([node], "net", [value("x")], [value("y")])), tmp_path)
    chosen, cache = "VW=1,LANES=4,DIMY=1,KEEP=1,EXP=1", ("--performance_cache_dir", tmp_path / "cache")
    ran = gputune(
        "context-binary-generator", "--model", model, "--binary_file", "m", "--output_dir", tmp_path, *cache,
        "--tuning_effort", "quick", "--pin", f"Softmax={chosen}",
    )  # fmt: skip
    assert ran.code == 0, ran.err

    def resources(configuration: str) -> Any:
        shown = gputune("show-kernel", "Softmax", "--model", model, *cache, "--configuration", configuration, "--json")
        assert shown.code == 0, shown.err
        (kernel,) = json.loads(shown.out)["kernels"]
        return kernel["launches"][-1]["kernels"][-1]["resources"]

    assert resources(chosen)["local_bytes"] >= 16
    report = tmp_path / "report.html"
    assert gputune("tuning-report", *cache, "--output", report).code == 0
    assert '"head":"Local"' in report.read_text(encoding="utf-8")
