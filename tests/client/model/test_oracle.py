"""Test that the oracle multiplies bytes without saturating, and floats without rounding, whatever the processor."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from gputune.client.model.oracle import Oracle, without_saturation
from tests.client.model.test_block_weights import product
from tests.client.model.test_contrib_operators import model_of
from tests.client.models import Array, build, save

X = np.full((3, 64), 255, np.uint8)
W = np.where(np.arange(64)[:, np.newaxis] % 4 < 2, 127, -128).astype(np.int8) * np.ones((1, 5), np.int8)
ZERO = np.array([0, 3, -5, 127, -128], np.int8)
SCALARS: dict[str, tuple[int, ...] | Array] = {
    "s": np.array(0.5, np.float32), "t": np.array(40, np.float32),
    "z": np.array(7, np.uint8), "n": np.array(9, np.int8), "c": np.array(0, np.uint8),
}  # fmt: skip
SUMS = X.astype(np.int64) - 7


def requantised(sums: Array) -> Array:
    return np.clip(np.rint(sums * np.float32(0.5 * 0.5 / 40)), 0, 255).astype(np.uint8)


CASES = {
    "MatMulInteger": ("int32[3,5] y", "y = MatMulInteger(x, w, z, zw)", SUMS @ (W.astype(np.int64) - ZERO)),
    "no zero point": ("int32[3,5] y", "y = MatMulInteger(x, w, z)", SUMS @ W.astype(np.int64)),
    "a weight for two": (
        "int32[3,5] y",
        "a = MatMulInteger(x, w, z, zw) b = MatMulInteger(x, w, z, n) y = Add(a, b)",
        SUMS @ (2 * W.astype(np.int64) - ZERO - 9),
    ),
    "QLinearMatMul": (
        "uint8[3,5] y",
        "y = QLinearMatMul(x, s, z, w, s, n, t, c)",
        requantised(SUMS @ (W.astype(np.int64) - 9)),
    ),
    "QLinearConv": (
        "uint8[1,5,3] y",
        "i = Transpose(x) u = Unsqueeze(i, axes) y = QLinearConv(u, s, z, f, s, n, t, c)",
        requantised(SUMS @ (W.astype(np.int64) - 9)).T[np.newaxis],
    ),
    "ConvInteger": (
        "int32[1,5,3] y",
        "i = Transpose(x) u = Unsqueeze(i, axes) y = ConvInteger(u, f, z)",
        (SUMS @ W.astype(np.int64)).T[np.newaxis],
    ),
}


@pytest.mark.parametrize(("output", "body", "want"), CASES.values(), ids=CASES)
def test_products_of_bytes_are_exact(output: str, body: str, want: Array, tmp_path: Path) -> None:
    own = {"w": W, "zw": ZERO, "f": W.T[:, :, np.newaxis].copy(), "axes": np.array([0])}
    weights: dict[str, tuple[int, ...] | Array] = {**own, **SCALARS}
    model = build(f"(uint8[3,64] x) => ({output})", body, weights)
    path = save(model, tmp_path)
    np.testing.assert_array_equal(Oracle(path).run({"x": X})["y"], want)
    rewritten = onnx.ModelProto()
    rewritten.CopyFrom(model)
    assert without_saturation(rewritten, tmp_path)
    np.testing.assert_array_equal(Oracle(path, model).tensors(["y"], {"x": X})["y"], want)


def test_other_models_stay_as_they_are(tmp_path: Path) -> None:
    model = build(
        "(float[3,64] x) => (float[3,5] y)", "v = DequantizeLinear(w, s) y = MatMul(x, v)", {"w": W, **SCALARS}
    )
    assert not without_saturation(model, tmp_path)


def test_an_oracle_with_optimisations_multiplies_bytes_exactly(tmp_path: Path) -> None:
    """And has the values of inputs that do not change, while the other oracle stays as it was."""
    body = (
        "d = DequantizeLinear(x, s, z) v = DequantizeLinear(w, s, n) m = MatMul(d, v) p = QuantizeLinear(m, t, c) "
        "e = DequantizeLinear(p, t, c) y = Add(e, k)"
    )
    path = save(build("(uint8[3,64] x, float k) => (float[3,5] y)", body, {"w": W, **SCALARS}), tmp_path)
    plain = Oracle(path).given({"k": np.array(2, np.float32)})
    want = np.float32(40) * requantised(SUMS @ (W.astype(np.int64) - 9)) + 2
    for oracle in (plain.optimised(), plain):
        np.testing.assert_array_equal(oracle.run({"x": X})["y"], want)
        np.testing.assert_array_equal(oracle.tensors(["y"], {"x": X})["y"], want)


def test_an_oracle_rounds_no_factor_of_weights_of_a_few_bits(tmp_path: Path) -> None:
    inputs, attributes = product(64, 24, 4, 32)
    found: list[Any] = []
    for level in (0, 4):
        model, given = model_of("MatMulNBits", inputs, attributes | {"accuracy_level": level}, "y")
        onnx.save(model, tmp_path / "model.onnx")
        found.append(Oracle(tmp_path / "model.onnx").run(given)["y"])
    np.testing.assert_array_equal(found[0], found[1])
