"""Test kernels that need a feature on a real device, from tuning to results: an answer that is kept in the place of the
device's own says whether it has the feature."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

from gputune.runtime.context.format import read_header
from gputune.runtime.context.records import NEEDS
from gputune.runtime.devices.discovery import DeviceReport
from gputune.runtime.devices.features import PROBES
from gputune.runtime.devices.proofs import Answer, Proofs
from gputune.runtime.native.binding import Native
from tests.asking_package.tenfold import FEATURE, OPERATOR
from tests.client import models
from tests.client.commands import Gputune, Ran, config_file, read_json
from tests.native.conftest import c_compiler, native

__all__ = ["c_compiler", "native"]

PACKAGE = Path(__file__).parents[2] / "asking_package"
SIZE = 16384


@pytest.fixture
def answers(report: DeviceReport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Gives the device an answer, under which the servers of commands are started afterwards."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert report.identity is not None
    proofs = Proofs(report.identity)

    def give(reason: str) -> None:
        proofs.add({FEATURE: Answer(PROBES[FEATURE].digest, reason)})

    return give


@pytest.fixture
def generate(report: DeviceReport, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[Ran, Any]]:
    domain, _ = OPERATOR.rsplit(".", 1)
    text = f"""<ir_version: 8, opset_import: ["" : 13, "{domain}" : 1]>
        m (float[{SIZE}] x) => (float[{SIZE}] y) {{ y = {OPERATOR} (x) }}"""
    model = models.save(onnx.parser.parse_model(text), tmp_path)

    def run(*arguments: object) -> tuple[Ran, Any]:
        summary = tmp_path / "summary.json"
        ran = Gputune(capfd)(
            "context-binary-generator", "--model", model, "--binary_file", "m", "--output_dir", tmp_path,
            "--op_packages", PACKAGE, "--tuning_effort", "quick", "--device", report.index, "--summary_json", summary,
            "--config_file", config_file(tmp_path, compare_seconds=1), "--performance_cache_dir", tmp_path / "p",
            *arguments,
        )  # fmt: skip
        assert ran.code == 0, ran.err
        return ran, read_json(summary)["tasks"][0]

    return run


@pytest.mark.night
def test_a_variant_that_needs_a_feature_ships_where_that_is_proven(
    answers: Any, generate: Any, native: Native, report: DeviceReport, tmp_path: Path, capfd: Any
) -> None:
    x = np.random.default_rng(1).standard_normal(SIZE, np.float32)
    np.save(tmp_path / "x.npy", x)
    (tmp_path / "inputs.txt").write_text(f"x:={tmp_path / 'x.npy'}\n", encoding="utf-8")
    path = tmp_path / "m.bin"
    run = (
        "net-run", "--retrieve_context", path, "--input_list", tmp_path / "inputs.txt", "--npy",
        "--output_dir", tmp_path / "out", "--device", report.index,
    )  # fmt: skip

    answers("not today")
    ran, task = generate()
    assert f"the device does not have the feature {FEATURE}: not today" in ran.err
    assert task["configuration"] == {"FAST": 0}
    assert NEEDS not in read_header(path).requires

    answers("")
    ran, task = generate()
    assert (task["hit"], task["configuration"]) == (False, {"FAST": 1}), ran.err
    assert "gputune.feature.subgroups" in ran.err, "it says why it measures again"
    header = read_header(path)
    assert NEEDS in header.requires
    assert {program.needs for program in header.programs} == {(FEATURE,)}
    shown = Gputune(capfd)("context-binary-utility", "--context_binary", path)
    assert f"  needs of the device: {FEATURE}" in shown.out
    ran = Gputune(capfd)(*run)
    assert ran.code == 0, ran.err
    np.testing.assert_allclose(np.load(tmp_path / "out" / "Result_0" / "y.npy"), 10 * x, rtol=1e-6)
    assert report.identity is not None
    with native.open(path) as file, native.device(file, report.identity.name) as device, device.load(file) as graph:
        np.testing.assert_allclose(graph.run({"x": x})["y"], 10 * x, rtol=1e-6)

    _, task = generate()
    assert task["hit"]
    answers("no longer")
    ran = Gputune(capfd)(*run)
    assert ran.code != 0
    refused = f"graph 'm' needs features that {report.identity.name} does not prove: {FEATURE}, because no longer"
    assert refused in ran.err
