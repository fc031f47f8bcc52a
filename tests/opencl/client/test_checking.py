"""Test on a real device that only outputs which were compared are called right, and that other models are found out."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.client import models
from tests.client.commands import Gputune, Ran, read_json
from tests.client.model.test_quantised import MATRIX, Given, model_of

SIGNATURE = "(float[4,16] x) => (float[4,16] y)"
W = np.random.default_rng(0).standard_normal((16, 16), np.float32)


@pytest.fixture
def generate(_reached: None, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Any:
    """Verifies a context of effort none; returns how that ended, and the context."""

    def run(body: str, weights: models.Array, *arguments: object) -> tuple[Ran, Path]:
        model = models.save(models.build(SIGNATURE, body, {"w": weights}), tmp_path)
        ran = Gputune(capfd)(
            "context-binary-generator", "--model", model, "--binary_file", "m", "--output_dir", tmp_path,
            "--tuning_effort", "none", "--summary_json", tmp_path / "summary.json", *arguments,
        )  # fmt: skip
        return ran, tmp_path / "m.bin"

    return run


@pytest.mark.parametrize(
    ("body", "weights", "share", "words"),
    [
        ("y = MatMul(x, w)", W, 0.0, "verified: output 'y'"),
        ("l = Log(x) y = MatMul(l, w)", W, 0.0, "random inputs are from 0 to 1; normal ones make outputs NaN"),
        ("y = Div(x, z)", W, 0.25, "25.0% of 64 values of output 'y' are NaN or infinite on both sides"),
        ("y = MatMul(x, w)", W * np.nan, 1.0, "all 64 values of output 'y' are NaN or infinite on both sides"),
    ],
)
def test_verified_is_what_was_compared(
    generate: Any, tmp_path: Path, body: str, weights: models.Array, share: float, words: str
) -> None:
    zeros = "z = Constant<value_floats=[0.0,1.0,1.0,1.0,0.0,1.0,1.0,1.0,0.0,1.0,1.0,1.0,0.0,1.0,1.0,1.0]>() "
    ran, context = generate(zeros * ("z)" in body) + body, weights, "--verify")
    assert (ran.code, words in ran.err) == (10 if share == 1 else 0, True), ran.err
    assert ("verified: output" in ran.err) == (share < 1) and context.exists()
    if share < 1:
        assert read_json(tmp_path / "summary.json")["not_compared"] == {"small": {"y": share}}


@pytest.mark.parametrize(
    ("body", "weights", "code", "words"),
    [
        ("y = MatMul(x, w)", W, 0, "was made from model.onnx (SHA-256 "),
        ("r = MatMul(x, w) y = Identity(r)", W, 0, "is another file"),
        ("y = MatMul(x, w)", W * 3, 10, "do not compute the same: output 'y' differs by"),
        ("c = MatMul(x, w) y = Concat<axis=0>(c, c)", W, 3, "output 'y' is float32[4, 16], and float32[8, 16] of the"),
        ("y = MatMul(x, w) z = Relu(y)", W, 3, "has no output 'z'"),
    ],
)
def test_the_model_of_a_context_is_known(
    generate: Any, tmp_path: Path, capfd: Any, body: str, weights: models.Array, code: int, words: str
) -> None:
    """By all commands, which say the same; comparing starts a process with onnxruntime."""
    made, context = generate("y = MatMul(x, w)", W)
    assert made.code == 0, made.err
    result = {"Concat": "float[M,16] y", "z =": "float[4,16] z"}
    given = next((text for word, text in result.items() if word in body), "float[4,16] y")
    signature = SIGNATURE.replace("float[4,16] y", given)
    other = models.build(signature, body, {"w": weights})
    if body != "y = MatMul(x, w)" or weights is not W:
        onnx.save(other, tmp_path / "model.onnx")
    np.save(tmp_path / "x.npy", np.ones((4, 16), np.float32))
    (inputs := tmp_path / "inputs.txt").write_text(f"x:={tmp_path / 'x.npy'}\n", encoding="utf-8")
    model = tmp_path / "model.onnx"
    run = ("--input_list", inputs, "--output_dir", tmp_path / "out", "--summary_json", tmp_path / "run.json")
    for command in (
        ("context-binary-utility", "--context_binary", context, "--check", model),
        ("net-run", "--retrieve_context", context, *run, "--verify", model),
        ("compare", "--retrieve_context", context, "--model", model, "--compare_seconds", 0.1),
    )[: 3 if code == 10 else 2]:
        ran = Gputune(capfd)(*command)
        assert (ran.code, words in ran.out + ran.err) == (code, True), ran.err
        assert ("is another file" in ran.err) == (body != "y = MatMul(x, w)" or weights is not W)
        if ran.code == 0 and "is another file" in words:
            assert "warning: " in ran.err


@pytest.mark.parametrize("rules", ["exact", "float"])
def test_a_quantised_context_is_compared_unless_it_rounds_less(
    _reached: None, tmp_path: Path, capfd: pytest.CaptureFixture[str], rules: str
) -> None:
    """And it is said what onnxruntime ran with."""
    body = MATRIX + "c = MatMul(d, v) g = Softmax(c) q8 = QuantizeLinear(g, one, zx) y = DequantizeLinear(q8, one, zx)"
    model = models.save(model_of(Given("(float[30,96] x) => (float[30,40] y)", body)), tmp_path)
    gputune, context = Gputune(capfd), tmp_path / "m.bin"
    made = gputune(
        "context-binary-generator", "--model", model, "--binary_file", "m", "--output_dir", tmp_path,
        "--tuning_effort", "none", "--quantised", rules, *["--verify"] * (rules == "exact"),
    )  # fmt: skip
    assert made.code == 0 and ("verified: output 'y'" in made.err) == (rules == "exact"), made.err
    (tmp_path / "inputs.txt").write_text(f"x:={tmp_path / 'x.npy'}\n", encoding="utf-8")
    np.save(tmp_path / "x.npy", np.random.default_rng(0).standard_normal((30, 96)).astype(np.float32))
    lines = ("--input_list", tmp_path / "inputs.txt", "--output_dir", tmp_path / "out")
    for command in (
        ("net-run", "--retrieve_context", context, *lines, "--verify", model),
        ("compare", "--retrieve_context", context, "--model", model, "--compare_seconds", 0.1),
    ):
        ran = gputune(*command)
        assert ran.code == 0, ran.err
        assert ("was made with --quantised float" in ran.err) == (rules == "float")
        if command[0] == "compare":
            assert "onnxruntime ran with session.x64quantprecision=1; by default its outputs differ by " in ran.out
