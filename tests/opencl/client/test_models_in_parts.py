"""Test models in parts on a real device: what the generator writes computes the same as the model in onnxruntime."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from gputune.kernels.family import Array
from tests.client import models
from tests.client.commands import read_json
from tests.client.model.test_parts import WEIGHTS, double_inside
from tests.client.summaries import problems

X = np.random.default_rng(4).standard_normal((1, 3, 16, 16), dtype=np.float32)


def gputune(*arguments: object) -> str:
    """What a command says, in a process of its own: this one may have another driver open."""
    command = [sys.executable, "-m", "gputune", *map(str, arguments)]
    ran = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "COLUMNS": "200"})
    assert ran.returncode == 0, ran.stderr
    return ran.stdout + ran.stderr


def generate(folder: Path, model: onnx.ModelProto, *options: str) -> Path:
    """A folder with the model small.onnx and its parts."""
    path = models.save(model, folder).rename(folder / "small.onnx")
    gputune(
        "context-binary-generator", "--model", path, "--unsupported", "host", "--tuning_effort", "none",
        "--binary_file", "small", "--output_dir", folder, *options,
    )  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with a float64 tensor inside."""
    return generate(tmp_path_factory.mktemp("parts"), double_inside(), "--input_dimensions", "n=1")


def right(folder: Path, **more: Array) -> dict[str, Array]:
    """What onnxruntime computes on the CPU from the original model."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(folder / "small.onnx"), options, providers=["CPUExecutionProvider"])
    return dict(zip([one.name for one in session.get_outputs()], session.run(None, {"x": X, **more}), strict=True))


def check(found: Mapping[str, Array], wanted: Mapping[str, Array]) -> None:
    """Floats are equal but for rounding, integers exactly."""
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        assert found[name].dtype == array.dtype and found[name].shape == array.shape
        if array.dtype.kind == "f":
            assert np.abs(found[name] - array).max() <= 1e-5 * np.abs(array).max(), name
        else:
            assert np.array_equal(found[name], array), name


def test_net_run_computes_what_onnxruntime_does(folder: Path) -> None:
    np.save(folder / "x.npy", X)
    (folder / "inputs.txt").write_text(f"x:={folder / 'x.npy'}\n", encoding="utf-8")
    gputune(
        "net-run", "--retrieve_context", folder / "small_ctx.onnx", "--input_list", folder / "inputs.txt",
        "--output_dir", folder / "results", "--npy", "--summary_json", folder / "summary.json", "--num_inferences", 3,
    )  # fmt: skip
    results = folder / "results" / "Result_0"
    wanted = right(folder)
    check({name: np.load(results / f"{name}.npy") for name in wanted}, wanted)
    summary = read_json(folder / "summary.json")
    assert problems("net-run", summary) == []
    assert summary["parts"] == ["small_part1", "small_part2"] and len(summary["inference_ns"]) == 3
    assert summary["nodes"]["GputuneExecutionProvider"] == {"EPContext": 2}


@pytest.mark.slow
def test_parts_in_branches_compute_what_onnxruntime_does(tmp_path: Path) -> None:
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
    folder = generate(tmp_path, model)
    np.save(folder / "x.npy", X)
    for going in (True, False):
        np.save(folder / f"{going}.npy", np.array(going))
    lines = [f"x:={folder / 'x.npy'} go:={folder / f'{going}.npy'}\n" for going in (True, False)]
    (folder / "inputs.txt").write_text("".join(lines), encoding="utf-8")
    gputune(
        "net-run", "--retrieve_context", folder / "small_ctx.onnx", "--input_list", folder / "inputs.txt",
        "--output_dir", folder / "results", "--npy", "--summary_json", folder / "summary.json",
    )  # fmt: skip
    assert read_json(folder / "summary.json")["nodes"]["GputuneExecutionProvider"] == {"EPContext": 3}
    for number, going in enumerate((True, False)):
        wanted = right(folder, go=np.array(going))
        check({name: np.load(folder / "results" / f"Result_{number}" / f"{name}.npy") for name in wanted}, wanted)


LOADING = """
import sys
import numpy
import gputune
file, inputs, results, *device = sys.argv[1:]
with gputune.load(file, *device) as model:
    outputs = model.run(numpy.load(inputs))
    assert model.device.name in str(model), model
numpy.savez(results, **outputs)
"""


@pytest.mark.parametrize("device", [(), ("0",)], ids=["its own", "by number"])
def test_an_application_loads_it(folder: Path, device: tuple[str, ...]) -> None:
    """A device is chosen as gputune devices numbers them."""
    np.save(folder / "x.npy", X)
    files = [folder / name for name in ("small_ctx.onnx", "x.npy", "loaded.npz")]
    ran = subprocess.run([sys.executable, "-c", LOADING, *map(str, files), *device], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    with np.load(folder / "loaded.npz") as found:
        check(found, right(folder))


TOGETHER = """
import sys
import numpy
import gputune
import gputune.runtime
parts, context, inputs = sys.argv[1:]
given = {"x": numpy.load(inputs)}
alone = gputune.runtime.load(context, graph="small_part1")
before = alone.run(given)
with gputune.load(parts) as model:
    whole = model.run(given)
    after = alone.run(given)
assert all(numpy.array_equal(before[name], after[name]) for name in before)
assert numpy.array_equal(gputune.load(parts).run(given)["y"], whole["y"])
"""


def test_a_process_may_have_contexts_and_models_in_parts_open(folder: Path) -> None:
    """Both open the device by the same OpenCL library."""
    np.save(folder / "x.npy", X)
    files = [folder / name for name in ("small_ctx.onnx", "small.bin", "x.npy")]
    ran = subprocess.run([sys.executable, "-c", TOGETHER, *map(str, files)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.slow
def test_compare_takes_it_for_a_context(folder: Path) -> None:
    """It is untuned, so it has no untuned twin, and computes what onnxruntime does."""
    gputune(
        "compare", "--model", folder / "small.onnx", "--retrieve_context", folder / "small_ctx.onnx",
        "--input_dimensions", "n=1", "--compare_seconds", 1, "--summary_json", folder / "compare.json",
    )  # fmt: skip
    found = read_json(folder / "compare.json")
    assert problems("compare", found) == []
    assert [one["name"] for one in found["contenders"]][:2] == ["untuned", "onnxruntime"]
    assert found["contenders"][1]["deviation"] < 1e-5


def test_it_is_validated_without_onnxruntime(folder: Path) -> None:
    said = gputune("net-run", "--retrieve_context", folder / "small_ctx.onnx", "--validate_binary")
    assert "2 graphs, " in said and "optimal on " in said and "nodes run in onnxruntime" in said
