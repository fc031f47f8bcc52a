"""Test on a real device: an op package end to end, several graphs in one context, and --verify of a wrong context."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

from gputune.client.context import builder, persistent
from gputune.client.context.argument_form import IN_WORDS
from gputune.client.context.memory import storage
from gputune.client.context.persistent import Persistent
from gputune.client.model.oracle import Oracle
from gputune.core.launches import ArgumentForm
from gputune.core.quirks import groups_at_once
from gputune.kernels.family import Array
from gputune.kernels.ops.matmul import MatMulFamily
from gputune.runtime.backends import Backend
from gputune.runtime.context.format import read_header
from tests.client import models
from tests.client.commands import Gputune, Ran, config_file, read_json
from tests.client.model.test_alternatives import two_blocks
from tests.client.model.test_input_values import RATE
from tests.client.model.test_op_packages import EXAMPLE, wave_model, wave_reference
from tests.client.model.test_several_graphs import model as two_shapes
from tests.shared_server import SharedServer


@pytest.fixture
def generate(_reached: None, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    def run(model: Any, *arguments: object) -> Ran:
        return Gputune(capfd)(
            "context-binary-generator", "--model", models.save(model, tmp_path), "--binary_file", "m",
            "--output_dir", tmp_path, "--summary_json", tmp_path / "summary.json", *arguments,
        )  # fmt: skip

    return run


def outputs(folder: Path, target: SharedServer, capfd: Any, x: Array, *arguments: object) -> dict[str, Array]:
    """What net-run computes, which knows of no op package."""
    np.save(folder / "x.npy", x)
    (folder / "inputs.txt").write_text(f"x:={folder / 'x.npy'}\n", encoding="utf-8")
    (folder / "token").touch(0o600)
    (folder / "token").write_text(target.token, encoding="utf-8")
    ran = Gputune(capfd)(
        "net-run", "--retrieve_context", folder / "m.bin", "--input_list", folder / "inputs.txt", "--npy",
        "--output_dir", folder / "out", "--target", f"{target.host}:{target.port}",
        "--token_file", folder / "token", *arguments,
    )  # fmt: skip
    assert ran.code == 0, ran.err
    return {file.stem: np.load(file) for file in (folder / "out" / "Result_0").glob("*.npy")}


@pytest.mark.parametrize(
    "form", ["offsets", *(pytest.param(one, marks=pytest.mark.night) for one in ("buffers", "svm"))]
)
def test_kernels_are_tuned_in_the_form_in_which_they_ship(
    generate: Any, tmp_path: Path, capfd: Any, form: ArgumentForm
) -> None:
    model = models.build("(float[4,24] x) => (float[4] y)", "y = ReduceMean<axes=[1], keepdims=0>(x)", opset=13)
    asked = config_file(tmp_path, argument_form=form, tasks=["Reduce*"], compare_seconds=0.1)
    ran = generate(model, "--tuning_effort", "quick", "--config_file", asked, "--verify")
    assert ran.code == 0, ran.err
    header = read_header(tmp_path / "m.bin")
    assert {graph.argument_form for graph in header.graphs} == {form}
    assert {launch.offsets for graph in header.graphs for launch in graph.launches} == {form == "offsets"}
    shown = Gputune(capfd)("context-binary-utility", "--context_binary", tmp_path / "m.bin")
    assert f"  arguments: {IN_WORDS[form]}" in shown.out


def test_an_op_package_from_tuning_to_results(generate: Any, server: Any, tmp_path: Path, capfd: Any) -> None:
    model = wave_model()
    ran = generate(
        model,
        "--op_packages",
        EXAMPLE,
        "--tuning_effort",
        "quick",
        "--tasks",
        "Wave",
        "--config_file",
        config_file(tmp_path),
    )
    assert ran.code == 0, ran.err
    assert "op package op_package_example 1.0: kernels of Softmax, kernels of Wave, com.example.Wave" in ran.err
    tasks = {task["op"]: task for task in read_json(tmp_path / "summary.json")["tasks"]}
    assert tasks["Wave"]["tuned_ns"] > 0
    assert set(tasks["Softmax"]["configuration"]) == {"DIMX"}, "the package's family, and not the stock one"
    x = np.random.default_rng(2).standard_normal((2, 3, 4, 5)).astype(np.float32)
    got = outputs(tmp_path, server, capfd, x)
    for name, want in zip(("y", "z"), wave_reference(model, x), strict=True):
        np.testing.assert_allclose(got[name], want, atol=1e-5)


def verified(generate: Any, folder: Path, model: onnx.ModelProto, *options: str) -> dict[str, dict[str, float]]:
    """Return the errors of the outputs of each graph of a context with default configurations."""
    ran = generate(model, "--tuning_effort", "none", "--verify", *options)
    assert ran.code == 0, ran.err
    found: dict[str, dict[str, float]] = read_json(folder / "summary.json")["verified"]
    return found


def test_each_graph_of_a_context_is_verified_and_runs(generate: Any, server: Any, tmp_path: Path, capfd: Any) -> None:
    found = verified(generate, tmp_path, two_shapes(), "--input_dimensions", "x=1,3,6,5;x=1,3,6,7")
    names = [graph.name for graph in read_header(tmp_path / "m.bin").graphs]
    assert list(found) == names
    assert all(0 < errors["y"] < 1e-4 for errors in found.values())
    x = np.random.default_rng(3).standard_normal((1, 3, 6, 7)).astype(np.float32)
    assert outputs(tmp_path, server, capfd, x, "--graph", names[1])["y"].shape == (1, 5)


@pytest.mark.parametrize("rate", [8000, 16000])
def test_onnxruntime_is_given_the_value_of_an_input(generate: Any, tmp_path: Path, rate: int) -> None:
    """An If on it takes another branch."""
    found = verified(generate, tmp_path, onnx.parser.parse_model(RATE), "--input_value", f"sr={rate}")
    assert found["g"]["y"] < 1e-5


def test_each_model_of_a_context_is_verified_by_itself(_reached: None, tmp_path: Path, capfd: Any) -> None:
    """Two models whose tensors have the same names, and whose operations differ."""
    for name, op in (("a", "Exp"), ("b", "Tanh")):
        onnx.save(models.build("(float[2,3] x) => (float[2,3] y)", f"y = {op}(x)"), tmp_path / f"{name}.onnx")
    ran = Gputune(capfd)(
        "context-binary-generator", "--model", f"{tmp_path / 'a.onnx'},{tmp_path / 'b.onnx'}", "--binary_file", "m",
        "--output_dir", tmp_path, "--summary_json", tmp_path / "summary.json", "--tuning_effort", "none", "--verify",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    assert list(read_json(tmp_path / "summary.json")["verified"]) == ["a", "b"]


def test_the_first_tensor_that_differs_is_named(generate: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that forgets the bias, in the middle of a network: what is before it is right, what is behind it not."""
    model = models.build(
        "(float[1,3,6,5] x) => (float[1,7,6,5] y)",
        """a = Conv<pads=[1,1,1,1]>(x, k)
           b = Conv(a, one, bias)
           r = Relu(b)
           c = Conv<pads=[1,1,1,1]>(r, last)
           y = Exp(c)""",
        {"k": (4, 3, 3, 3), "one": (6, 4, 1, 1), "bias": models.numbers(1, 2, 3, 4, 5, 6), "last": (7, 6, 3, 3)},
    )
    inputs = np.random.default_rng(1).standard_normal((1, 3, 6, 5)).astype(np.float32)
    np.save(tmp_path / "x.npy", 0.01 * inputs)
    (tmp_path / "list").write_text(f"{tmp_path / 'x.npy'}\n", encoding="utf-8")
    arguments = ("--tuning_effort", "none", "--verify", "--input_list", tmp_path / "list")
    ran = generate(model, *arguments)
    assert ran.code == 0, ran.err
    render = MatMulFamily.render

    def forgetful(family: Any, problem: Any, configuration: Any) -> Any:
        instance = render(family, problem, configuration)
        source = instance.main.source.replace("LOAD(bias, v * VW)", "(vec)(0.0f)")
        assert source != instance.main.source
        return replace(instance, main=replace(instance.main, source=source, source_sha256=""))

    monkeypatch.setattr(MatMulFamily, "render", forgetful)
    ran = generate(model, *arguments)
    assert ran.code == 10, ran.err
    assert "output 'y' is not what onnxruntime computes" in ran.last_line
    assert "the first tensor that differs is 'r' (off by " in ran.last_line and "computed by MatMul" in ran.last_line
    assert "the 1 tensors of the model that were computed before it agree; its kernel does not" in ran.last_line


def test_a_tensor_that_is_overwritten_too_early_is_told_from_a_wrong_kernel(
    generate: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A memory plan that ends a tensor's life before its last reader: every kernel is right."""
    model = models.build(
        "(float[1,64] x) => (float[1,64] y)",
        "a = MatMul(x, k) b = MatMul(a, k) c = MatMul(b, k) d = MatMul(c, k) y = Sub(a, d)",
        {"k": (64, 64)},
    )
    lifetimes = storage._lifetimes

    def short(*what: Any) -> Any:
        found = lifetimes(*what)
        return [replace(each, last_use=each.first_use + 1) if each.name == "a" else each for each in found]

    monkeypatch.setattr(storage, "_lifetimes", short)
    ran = generate(model, "--tuning_effort", "none", "--verify")
    assert ran.code == 10, ran.err
    assert "its input 'a' was overwritten by MatMul of MatMul_2 before it ran" in ran.last_line


def test_persistent_kernels_are_told_from_the_launches_that_they_stand_for(
    generate: Any, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not groups_at_once(backend.identity):
        pytest.skip("this driver does not say that groups run at the same time")
    fewer = persistent.in_fewer_launches

    def wrong(*arguments: Any) -> Any:
        for each in fewer(*arguments):
            yield (
                replace(
                    each, source=each.source.replace("PRODUCT(r, left, right[v]", "PRODUCT(r, left + left, right[v]")
                )
                if isinstance(each, Persistent)
                else each
            )

    monkeypatch.setattr(builder, "in_fewer_launches", wrong)
    ran = generate(two_blocks(), "--tuning_effort", "none", "--verify")
    assert ran.code == 10, ran.err
    assert "launched one by one, all tensors of the model are right" in ran.last_line


def test_a_context_whose_persistent_kernels_do_not_compile_says_what_it_lacks(
    generate: Any, backend: Backend, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if not groups_at_once(backend.identity):
        pytest.skip("this driver does not say that groups run at the same time")
    fewer = persistent.in_fewer_launches

    def broken(*arguments: Any) -> Any:
        for each in fewer(*arguments):
            yield replace(each, source="#error no such kernel") if isinstance(each, Persistent) else each

    monkeypatch.setattr(builder, "in_fewer_launches", broken)
    ran = generate(two_blocks(), "--tuning_effort", "none", "--verify")
    assert ran.code == 0, ran.err
    (graph,) = read_header(tmp_path / "m.bin").graphs
    assert not graph.persistent
    told = f"Its results are the same, but each of its {len(graph.launches)} launches is started separately"
    assert "the context has no persistent kernels: " in ran.err and told in ran.err and "no such kernel" in ran.err


def test_launches_that_share_programs_compute_the_same_bits(
    generate: Any, server: Any, tmp_path: Path, capfd: Any
) -> None:
    x = np.random.default_rng(4).standard_normal((1, 4, 6, 6)).astype(np.float32)
    found = []
    for sharing in ("each", "one"):
        (asked := tmp_path / "asked.json").write_text(json.dumps({"programs": sharing}), encoding="utf-8")
        verified(generate, tmp_path, models.residual_block(), "--config_file", str(asked))
        header = read_header(tmp_path / "m.bin")
        found.append((len(header.programs), outputs(tmp_path, server, capfd, x)["y"].tobytes()))
    (apart, one), (together, other) = found
    assert together < apart and one == other


def test_inner_tensors_are_returned_and_verified(generate: Any, server: Any, tmp_path: Path, capfd: Any) -> None:
    """What is fused away by itself, next to a net-run that knows nothing of it."""
    model = models.conv_relu_gemm()
    assert list(verified(generate, tmp_path, model, "--set_output_tensors", "c")["small"]) == ["y", "c"]
    x = np.random.default_rng(3).standard_normal((1, 3, 9, 7)).astype(np.float32)
    got = outputs(tmp_path, server, capfd, x)
    (want,) = Oracle(tmp_path / "model.onnx").tensors(["c"], {"x": x}).values()
    np.testing.assert_allclose(got["c"], want, atol=1e-5)
