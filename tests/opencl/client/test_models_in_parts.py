"""Test models in parts on a real device: what the generator writes computes the same as the model in onnxruntime."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import gputune
from tests.client import models
from tests.client.commands import Gputune, Ran, read_json
from tests.client.model.test_parts import WEIGHTS, double_inside

X = np.random.default_rng(4).standard_normal((1, 3, 16, 16), dtype=np.float32)


@pytest.fixture
def command(_reached: None, _plugin: None, capfd: pytest.CaptureFixture[str]) -> Gputune:
    return Gputune(capfd)


def well(ran: Ran) -> str:
    """Return what a command said, unless it failed."""
    assert ran.code == 0, ran.err
    return ran.out + ran.err


def generate(command: Gputune, folder: Path, model: onnx.ModelProto, *options: str) -> Path:
    """Return a folder with the model small.onnx, its parts, and the input x.npy."""
    path = models.save(model, folder).rename(folder / "small.onnx")
    np.save(folder / "x.npy", X)
    ran = command(
        "context-binary-generator", "--model", path, "--unsupported", "host", "--tuning_effort", "none",
        "--binary_file", "small", "--output_dir", folder, *options,
    )  # fmt: skip
    well(ran)
    return folder


@pytest.fixture
def folder(command: Gputune, tmp_path: Path) -> Path:
    """A model with a float64 tensor inside."""
    return generate(command, tmp_path, double_inside(), "--input_dimensions", "n=1")


def right(folder: Path, **more: models.Array) -> dict[str, models.Array]:
    """Return what onnxruntime computes on the CPU from the original model."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(folder / "small.onnx"), options, providers=["CPUExecutionProvider"])
    return dict(zip([one.name for one in session.get_outputs()], session.run(None, {"x": X, **more}), strict=True))


def check(found: Mapping[str, models.Array], wanted: Mapping[str, models.Array]) -> None:
    """Floats are equal but for rounding, integers exactly."""
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        assert found[name].dtype == array.dtype and found[name].shape == array.shape
        if array.dtype.kind == "f":
            assert np.abs(found[name] - array).max() <= 1e-5 * np.abs(array).max(), name
        else:
            assert np.array_equal(found[name], array), name


def net_run(command: Gputune, folder: Path, lines: str, *options: object) -> None:
    (folder / "inputs.txt").write_text(lines, encoding="utf-8")
    ran = command(
        "net-run", "--retrieve_context", folder / "small_ctx.onnx", "--input_list", folder / "inputs.txt",
        "--output_dir", folder / "results", "--npy", "--summary_json", folder / "summary.json", *options,
    )  # fmt: skip
    well(ran)


def results(folder: Path, number: int, wanted: Mapping[str, models.Array]) -> dict[str, models.Array]:
    return {name: np.load(folder / "results" / f"Result_{number}" / f"{name}.npy") for name in wanted}


def test_commands_and_applications_compute_what_onnxruntime_does(command: Gputune, folder: Path) -> None:
    """A device is chosen as gputune devices numbers them. The parts' context is open beside, on the same library."""
    wanted = right(folder)
    net_run(command, folder, f"x:={folder / 'x.npy'}\n", "--num_inferences", 3)
    check(results(folder, 0, wanted), wanted)
    summary = read_json(folder / "summary.json")
    assert summary["parts"] == ["small_part1", "small_part2"] and len(summary["inference_ns"]) == 3
    assert summary["nodes"]["GputuneExecutionProvider"] == {"EPContext": 2}
    said = well(command("net-run", "--retrieve_context", folder / "small_ctx.onnx", "--validate_binary"))
    assert "2 graphs, " in said and "optimal on " in said and "nodes run in onnxruntime" in said
    with gputune.runtime.load(folder / "small.bin", graph="small_part1") as alone:
        before = alone.run({"x": X})
        for device in (None, "0"):
            with gputune.load(folder / "small_ctx.onnx", device) as model:
                check(model.run(X), wanted)
                assert model.device.name in str(model)
            check(alone.run({"x": X}), before)


@pytest.mark.night
def test_parts_in_branches_compute_what_onnxruntime_does(command: Gputune, tmp_path: Path) -> None:
    model = models.build(
        "(float[1,3,16,16] x, bool go) => (float y, int64 n)",
        """b = Conv(x, w)
           y, n = If (go) <then_branch = g1 () => (float[1,8,12,12] t, int64 c) {
                               u = Conv(b, v) t = Relu(u) f = NonZero(t) c = Size(f) },
                           else_branch = g2 () => (float[1,8,12,12] s, int64 k) {
                               p = Conv(b, v) s = Neg(p) g = NonZero(s) k = Size(g) }>""",
        {name: WEIGHTS[name] for name in "wv"},
        opset=17,
    )
    folder, both = generate(command, tmp_path, model), (True, False)
    for going in both:
        np.save(folder / f"{going}.npy", np.array(going))
    net_run(command, folder, "".join(f"x:={folder / 'x.npy'} go:={folder / f'{going}.npy'}\n" for going in both))
    assert read_json(folder / "summary.json")["nodes"]["GputuneExecutionProvider"] == {"EPContext": 3}
    for number, going in enumerate(both):
        wanted = right(folder, go=np.array(going))
        check(results(folder, number, wanted), wanted)


@pytest.mark.night
def test_compare_takes_it_for_a_context(command: Gputune, folder: Path) -> None:
    """It is untuned, so it has no untuned twin, and computes what onnxruntime does."""
    ran = command(
        "compare", "--model", folder / "small.onnx", "--retrieve_context", folder / "small_ctx.onnx",
        "--input_dimensions", "n=1", "--compare_seconds", 1, "--summary_json", folder / "compare.json",
    )  # fmt: skip
    well(ran)
    contenders = read_json(folder / "compare.json")["contenders"]
    assert [one["name"] for one in contenders][:2] == ["untuned", "onnxruntime"]
    assert contenders[1]["deviation"] < 1e-5
