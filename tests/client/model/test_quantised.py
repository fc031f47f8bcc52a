"""Lower quantised models, which compute by whole numbers what onnxruntime does by ONNX's definitions."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

from gputune.client.model.graph import Precision
from gputune.client.model.importer import import_model
from gputune.client.model.lowering import lower
from gputune.client.model.passes import whole_products
from gputune.client.model.plan import Plan
from gputune.client.model.reference import evaluate
from gputune.core.dtypes import HALF
from gputune.core.precision import STORED
from models.onnx_suite_worker import of_file
from tests.client.models import Array, build
from tests.client.plans import Lowered, assert_whole, computed_by_onnxruntime, ops
from tests.client.quantised_graphs import QuantisedMaker

RANDOM = np.random.default_rng(3)


def whole(dtype: str, *shape: int) -> Array:
    """Numbers of all sizes, but for the -128 that quantisers leave out."""
    limits = np.iinfo(dtype)
    return RANDOM.integers(max(limits.min, -127), limits.max + 1, shape).astype(dtype)


def scales(count: int) -> Array:
    return (RANDOM.random(count) * 0.01 + 0.001).astype(np.float32)


def scalar(value: float, dtype: str = "float32") -> Array:
    return np.array(value, dtype)


SCALARS = {
    "sx": scalar(0.04), "zx": scalar(119, "uint8"), "sy": scalar(0.3), "zy": scalar(100, "uint8"), "one": scalar(0.01),
    "big": scalar(40), "zi": scalar(-5, "int8"), "zw": scalar(130, "uint8"), "six": scalar(6),
}  # fmt: skip
S24, S40 = scales(24), scales(40)
WEIGHTS: dict[str, Array] = SCALARS | {
    "filters": whole("int8", 24, 8, 3, 3), "s24": S24, "z24": np.zeros(24, np.int8),
    "bias": RANDOM.integers(-3000, 3000, 24).astype(np.int32), "sb": SCALARS["sx"] * S24, "zb": np.zeros(24, np.int32),
    "other": RANDOM.integers(-3000, 3000, 24).astype(np.int32), "so": 2 * S24,
    "float24": RANDOM.standard_normal(24).astype(np.float32), "float40": RANDOM.standard_normal(40).astype(np.float32),
    "matrix": whole("int8", 96, 40), "turned": whole("int8", 40, 96), "s40": S40, "z40": np.zeros(40, np.int8),
    "b40": RANDOM.integers(-3000, 3000, 40).astype(np.int32), "sb40": SCALARS["sx"] * S40,
    "bytes": whole("uint8", 96, 40), "long": whole("uint8", 4000, 7), "maps": whole("uint8", 24, 8, 3, 3),
    "point": whole("uint8", 24, 2000, 1, 1), "lines": whole("int8", 6, 3, 5), "s6": scales(6),
    "columns": whole("uint8", 40), "s1": scales(1),
}  # fmt: skip
IN = "q = QuantizeLinear(x, sx, zx) d = DequantizeLinear(q, sx, zx) "
FILTERS = IN + "v = DequantizeLinear<axis=0>(filters, s24, z24) "
BIASED = FILTERS + "b = DequantizeLinear<axis=0>(bias, sb, zb) "
CONV = BIASED + "c = Conv<pads=[1,1,1,1]>(d, v, b) "
MATRIX = IN + "v = DequantizeLinear<axis=1>(matrix, s40, z40) "


@dataclass(frozen=True)
class Given:
    """A model, and the operations that it becomes. off: the share of bytes that may be a step away, where floats
    between two roundings are added up in another order."""

    signature: str
    body: str
    runs: str = ""
    opset: int = 13
    off: float = 0.0
    weights: Mapping[str, Any] = field(default_factory=dict)


GIVEN: dict[str, Given] = {
    "a pair alone": Given("(float[3,96] x) => (float[3,96] d)", IN, "Elementwise"),
    "no zero point": Given(
        "(float[3,96] x) => (float[3,96] y)", "q = QuantizeLinear(x, sx) y = DequantizeLinear(q, sx)"
    ),
    "16 bits": Given(
        "(float[3,96] x) => (uint16[3,96] q, float[3,96] y)",
        "q = QuantizeLinear(x, sx, wide) y = DequantizeLinear(q, sx, wide)",
        opset=21,
        weights={"wide": scalar(30000, "uint16")},
    ),
    "of com.microsoft": Given(
        "(float[3,96] x) => (float[3,96] y)",
        "q = com.microsoft.QuantizeLinear(x, sx, zx) y = com.microsoft.DequantizeLinear(q, sx, zx)",
        "Elementwise",
    ),
    "a convolution": Given(
        "(float[1,8,9,11] x) => (uint8[1,24,9,11] p)",
        CONV + "r = Relu(c) p = QuantizeLinear(r, sy, zy)",
        "Elementwise Conv Transpose Typed",
    ),
    "a convolution of lines": Given(
        "(float[2,3,19] x) => (uint8[2,6,17] p)",
        IN + "v = DequantizeLinear<axis=0>(lines, s6) c = Conv(d, v) p = QuantizeLinear(c, sy, zy)",
    ),
    "depthwise": Given(
        "(float[1,24,9,11] x) => (uint8[1,24,9,11] p)",
        IN + "v = DequantizeLinear<axis=0>(taps, s24, z24) c = Conv<pads=[1,1,1,1], group=24>(d, v) "
        "p = QuantizeLinear(c, one, zy)",
        "Elementwise Transpose DepthwiseConv Transpose Typed",
        weights={"taps": whole("int8", 24, 1, 3, 3)},
    ),
    "a bias of other scales": Given(
        "(uint8[1,8,9,11] x) => (float[1,24,9,11] c)",
        "d = DequantizeLinear(x, sx, zx) v = DequantizeLinear<axis=0>(filters, s24, z24) "
        "b = DequantizeLinear<axis=0>(other, so, zb) c = Conv<pads=[1,1,1,1]>(d, v, b)",
    ),
    "floats behind it": Given(
        "(uint8[1,8,9,11] x) => (float[1,24,9,11] y)",
        "d = DequantizeLinear(x, sx, zx) v = DequantizeLinear<axis=0>(filters, s24, z24) "
        "c = Conv<pads=[1,1,1,1]>(d, v, float24) y = HardSwish(c)",
        opset=14,
    ),
    "a pooling between": Given(
        "(float[1,8,9,11] x) => (float[1,24,4,5] y)",
        CONV + "p = QuantizeLinear(c, sy, zy) e = DequantizeLinear(p, sy, zy) "
        "m = MaxPool<kernel_shape=[2,2], strides=[2,2]>(e) n = QuantizeLinear(m, sy, zy) "
        "y = DequantizeLinear(n, sy, zy)",
        "Elementwise Conv Pool Transpose",
    ),
    "a pooling of bytes": Given(
        "(uint8[1,8,8,10] x) => (uint8[1,8,4,5] m, float[1,8,4,5] y)",
        "m = MaxPool<kernel_shape=[2,2], strides=[2,2]>(x) y = DequantizeLinear(m, sx, zx)",
    ),
    "a pooling with places": Given(
        "(float[1,8,8,10] x) => (float[1,8,4,5] m, int64[1,8,4,5] i)",
        IN + "m, i = MaxPool<kernel_shape=[2,2], strides=[2,2]>(d)",
    ),
    "a cast of floats": Given(
        "(float[3,96] x) => (float[3,40] y)", MATRIX + "s = MatMul(d, v) y = Cast<to=1>(s)"
    ),
    "moves between": Given(
        "(float[4,6,16] x) => (int8[6,4,8] y)",
        IN + "t = Transpose<perm=[1,0,2]>(d) a, b = Split<axis=2>(t) j = Concat<axis=0>(a, b) s, r = Split<axis=0>(j) "
        "y = QuantizeLinear(r, sx, zi)",
    ),
    "a joint of two scales": Given(
        "(float[4,6] x) => (uint8[8,6] y)",
        IN + "p = QuantizeLinear(x, sy, zy) e = DequantizeLinear(p, sy, zy) j = Concat<axis=0>(d, e) "
        "y = QuantizeLinear(j, sy, zy)",
    ),
    "a sum": Given(
        "(float[2,7,96] x) => (float[2,7,40] y, uint8[2,7,40] u)",
        MATRIX + "c = MatMul(d, v) a = Add(c, float40) u = QuantizeLinear(a, sy, zy) e = DequantizeLinear(u, sy, zy) "
        "h = Mul(e, six) f = Add(h, e) k = QuantizeLinear(f, sy, zy) y = DequantizeLinear(k, sy, zy)",
        off=1e-3,
    ),
    "a Gemm": Given(
        "(float[3,96] x) => (int8[3,40] y)",
        IN + "v = DequantizeLinear<axis=0>(turned, s40, z40) b = DequantizeLinear<axis=0>(b40, sb40) "
        "s = Gemm<transB=1>(d, v, b) y = QuantizeLinear(s, sy, zi)",
        "Elementwise MatMul Typed",
    ),
    "a weight that is turned": Given(
        "(float[3,96] x) => (uint8[3,40] y)",
        IN + "v = DequantizeLinear<axis=0>(turned, s40, z40) t = Transpose(v) s = MatMul(d, t) "
        "y = QuantizeLinear(s, sy, zy)",
        "Elementwise MatMul Typed",
    ),
    "a product of two computed ones": Given(
        "(float[2,300,16] x) => (uint8[2,300,16] y)",
        IN + "t = Transpose<perm=[0,2,1]>(d) s = MatMul(d, t) i = QuantizeLinear(s, sy, zy) "
        "e = DequantizeLinear(i, sy, zy) o = MatMul(e, d) y = QuantizeLinear(o, big, zy)",
        "Elementwise MatMul Elementwise MatMul Elementwise Typed",
    ),
    "a product in runs": Given(
        "(float[1,2000,3,2] x) => (float[1,24,3,2] c)",
        IN + "v = DequantizeLinear(point, one) c = Conv(d, v)",
        off=1e-3,
    ),
    "rows": Given(
        "(bool[3] c) => (float[3,40] y)",
        "n = Cast<to=7>(c) r = Gather(bytes, n) y = DequantizeLinear(r, one, zw)",
    ),
    "a range": Given("(float[3,96] x) => (uint8[3,96] y, float s, uint8 z)", "y, s, z = DynamicQuantizeLinear(x)"),
    "a range of one number": Given(
        "(float[3,96] x) => (uint8[3,96] y, float s, uint8 z)", "o = Sub(x, x) y, s, z = DynamicQuantizeLinear(o)"
    ),
    "a range and back": Given(
        "(float[3,96] x) => (float[3,96] y)", "q, s, z = DynamicQuantizeLinear(x) y = DequantizeLinear(q, s, z)"
    ),
    "a dynamic product": Given(
        "(float[3,96] x) => (float[3,40] y)",
        "q, s, z = DynamicQuantizeLinear(x) p = MatMulInteger(q, bytes, z, zw) f = Cast<to=1>(p) t = Mul(s, s40) "
        "m = Mul(f, t) y = Add(m, float40)",
        "Reduce Reduce Elementwise Elementwise Elementwise MatMul",
    ),
    "a dynamic convolution": Given(
        "(float[1,8,9,9] x) => (float[1,24,9,9] y)",
        "q, s, z = DynamicQuantizeLinear(x) p = ConvInteger<pads=[1,1,1,1]>(q, maps, z, zw) f = Cast<to=1>(p) "
        "t = Mul(s, one) y = Mul(f, t)",
        "Reduce Reduce Elementwise Elementwise Elementwise Conv Transpose",
    ),
    "a bias that is rounded": Given(
        "(float[1,8,9,9] x) => (float[1,24,9,9] y)",
        "q, s, z = DynamicQuantizeLinear(x) p = ConvInteger<pads=[1,1,1,1]>(q, maps, z, zw) t = Mul(s, one) "
        "d = Div(float24, t) f = Floor(d) n = Cast<to=6>(f) r = Reshape(n, channels) i = Add(p, r) c = Cast<to=1>(i) "
        "y = Mul(c, t)",
        "Reduce Reduce Elementwise Elementwise Elementwise Elementwise Elementwise Conv Transpose",
        weights={"channels": np.array([1, 24, 1, 1])},
    ),
    "integers and a constant": Given(
        "(uint8[3,96] x) => (int32[3,40] i, float[3,40] y)",
        "p = MatMulInteger(x, bytes, zw, columns) i = Add(b40, p) y = Cast<to=1>(i)",
    ),
    "integers": Given("(uint8[3,96] x) => (int32[3,40] p)", "p = MatMulInteger(x, bytes, zw, columns)"),
    "integers of two inputs": Given(
        "(uint8[3,400] x, uint8[400,7] v) => (int32[3,7] p)", "p = MatMulInteger(x, v, zw, zw)"
    ),
    "integers in runs": Given("(uint8[3,4000] x) => (int32[3,7] p)", "p = MatMulInteger(x, long)"),
    "integers in two runs, and in one operator": Given(
        "(uint8[3,3000] x) => (int32[3,7] p, uint8[3,7] y)",
        "p = MatMulInteger(x, tall, zw, zw) y = QLinearMatMul(x, one, zw, tall, one, zw, two, zw)",
        weights={"tall": whole("uint8", 3000, 7), "two": scalar(2.0)},
    ),
    "integers of two inputs in runs": Given(
        "(uint8[3,800] x, uint8[800,7] v) => (int32[3,7] p)", "p = MatMulInteger(x, v)"
    ),
    "in one operator": Given(
        "(uint8[1,8,9,11] x) => (uint8[1,24,4,5] y)",
        "c = QLinearConv<pads=[1,1,1,1]>(x, sx, zx, maps, one, zw, sy, zy, bias) "
        "m = MaxPool<kernel_shape=[2,2], strides=[2,2]>(c) "
        "y = QLinearConv(m, sy, zy, again, one, zw, sy, zy, bias)",
        "Typed Elementwise Conv Pool MatMul Transpose Typed",
        weights={"again": whole("uint8", 24, 24, 1, 1)},
    ),
    "a matrix in one operator": Given(
        "(uint8[3,96] x) => (uint8[3,40] y)", "y = QLinearMatMul(x, sx, zx, bytes, one, zw, sy, zy)"
    ),
}  # fmt: skip


def model_of(given: Given) -> onnx.ModelProto:
    used = {**WEIGHTS, **given.weights}
    read = set(re.findall(r"\w+", given.body))
    weights = {name: value for name, value in used.items() if name in read}
    model = build(given.signature, given.body, weights, given.opset, 10 if given.opset > 13 else 8)
    model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    return model


def inputs_of(plan: Plan) -> dict[str, Array]:
    generator = np.random.default_rng(5)

    def values(dtype: str, shape: tuple[int, ...]) -> Array:
        if dtype == "float32":
            return 2 * generator.standard_normal(shape, dtype=np.float32)
        return generator.integers(0, 256 if dtype == "uint8" else 2, shape).astype(dtype)

    return {tensor.name: values(tensor.dtype, tensor.shape) for tensor in plan.inputs}


@pytest.mark.parametrize("given", GIVEN.values(), ids=GIVEN)
def test_quantised_models_compute_what_onnx_defines(lowered: Lowered, given: Given) -> None:
    model = model_of(given)
    plan = lowered(model)
    assert_whole(plan)
    assert ops(plan) == (given.runs.split() or ops(plan))
    inputs = inputs_of(plan)
    got, wanted = evaluate(plan, inputs), computed_by_onnxruntime(model, inputs)
    for name, want in wanted.items():
        assert (got[name].dtype, got[name].shape) == (want.dtype, want.shape)
        assert len(np.unique(want)) > 1 or "one number" in given.body or not want.shape or "Sub(x, x)" in given.body
        apart = np.abs(got[name].astype(np.float64) - want)
        if want.dtype.kind == "f" and not given.off:
            assert apart.max() <= 1e-6 * np.abs(want).max(), name
        else:
            step = 0.3 if want.dtype.kind == "f" else 1
            assert apart.max() <= step * 1.001 and np.mean(apart > 1e-3 * step) <= given.off, name


def test_sums_are_those_of_int64_whatever_the_runs(lowered: Lowered, monkeypatch: pytest.MonkeyPatch) -> None:
    """And requantised in the order of the rule: one factor of all three scales."""
    given = GIVEN["in one operator"]
    model = model_of(Given(given.signature.replace("4,5", "9,11"), given.body.split("m = ")[0].replace("c =", "y =")))
    x = whole("uint8", 1, 8, 9, 11)
    total = np.zeros((24, 9, 11), np.int64)
    padded = np.pad(x[0].astype(np.int64) - 119, ((0, 0), (1, 1), (1, 1)))
    for row, column in np.ndindex(3, 3):
        taps = WEIGHTS["maps"][:, :, row, column].astype(np.int64) - 130
        total += np.einsum("oc,chw->ohw", taps, padded[:, row : row + 9, column : column + 11])
    total += WEIGHTS["bias"].reshape(-1, 1, 1)
    factor = np.float32(np.float32(SCALARS["sx"] * SCALARS["one"]) / SCALARS["sy"])
    want = (np.rint(np.clip(total.astype(np.float32) * factor, -100, 155)) + 100).astype(np.uint8)
    for limit in (2**24, 2**18):
        monkeypatch.setattr(whole_products, "LIMIT", limit)
        plan = lowered(model)
        np.testing.assert_array_equal(evaluate(plan, {"x": x})["y"][0], want)
    assert ops(plan).count("Conv") > 1


@pytest.mark.parametrize("group", ["convinteger", "qlinearconv", "qlinearmatmul"])
def test_cases_of_onnx_are_right_with_parameters_that_are_known(lowered: Lowered, group: str) -> None:
    """All but the first input, which else are computed at run time."""
    ran = 0
    for case in of_file(group):
        model = onnx.ModelProto()
        model.CopyFrom(case.model)
        for given, wanted in case.data_sets or ():
            values = dict(zip((item.name for item in model.graph.input), given, strict=True))
            (name, value), *others = values.items()
            model.graph.initializer.extend(numpy_helper.from_array(each, other) for other, each in others)
            del model.graph.input[1:]
            if any(each.dtype == np.float16 for each in given):
                continue
            got = evaluate(lowered(model), {name: value})
            np.testing.assert_array_equal(got[model.graph.output[0].name], wanted[0])
            ran += 1
    assert ran


Q = "q = QuantizeLinear(x, sx, zx) "
END = "p = QuantizeLinear(c, sy, zy)"
SPELLINGS = {
    "a convolution": (
        "(float[1,8,9,11] x) => (uint8[1,24,9,11] p)",
        CONV + END,
        Q + "p = QLinearConv<pads=[1,1,1,1]>(q, sx, zx, filters, s24, z24, sy, zy, bias)",
    ),
    "a product": (
        "(float[3,96] x) => (uint8[3,40] p)",
        MATRIX + "c = MatMul(d, v) " + END,
        Q + "p = QLinearMatMul(q, sx, zx, matrix, s40, z40, sy, zy)",
    ),
    "a product and a bias": (
        "(float[3,96] x) => (uint8[3,40] p)",
        IN + "v = DequantizeLinear<axis=0>(turned, s40, z40) b = DequantizeLinear<axis=0>(b40, sb40) "
        "c = Gemm<transB=1>(d, v, b) " + END,
        Q + "p = com.microsoft.QGemm<transB=1>(q, sx, zx, turned, s40, z40, b40, sy, zy)",
    ),
    "a function": (
        "(float[3,96] x) => (uint8[3,96] p)",
        IN + "c = Sigmoid(d) " + END,
        Q + "p = com.microsoft.QLinearSigmoid(q, sx, zx, sy, zy)",
    ),
    "a joint": (
        "(float[3,96] x) => (uint8[6,96] p)",
        IN + "c = Concat<axis=0>(d, d) " + END,
        Q + "p = com.microsoft.QLinearConcat<axis=0>(sy, zy, q, sx, zx, q, sx, zx)",
    ),
    "integers": (
        "(float[3,96] x) => (float[3,40] y)",
        "q, s, z = DynamicQuantizeLinear(x) i = MatMulInteger(q, bytes, z, zw) f = Cast<to=1>(i) t = Mul(s, s40) "
        "m = Mul(f, t) y = Add(m, float40)",
        "y = com.microsoft.DynamicQuantizeMatMul(x, bytes, s40, zw, float40)",
        "q, s, z = DynamicQuantizeLinear(x) y = com.microsoft.MatMulIntegerToFloat(q, bytes, s, s40, z, zw, float40)",
    ),
}


@pytest.mark.parametrize(("signature", "bodies"), [(one, rest) for one, *rest in SPELLINGS.values()], ids=SPELLINGS)
def test_spellings_give_the_same_operations(lowered: Lowered, signature: str, bodies: list[str]) -> None:
    plans = [lowered(model_of(Given(signature, body))) for body in bodies]
    first, *others = ([operation.task for operation in plan.operations] for plan in plans)
    assert all(each == first for each in others)


@pytest.mark.parametrize("seed", [*range(8), *(pytest.param(seed, marks=pytest.mark.night) for seed in range(8, 300))])
def test_made_up_models_have_the_same_bytes(lowered: Lowered, seed: int) -> None:
    """What follows from the first byte that is a step away, if there is one, is not compared."""
    made = QuantisedMaker(seed)
    plan = lowered(made.model)
    assert_whole(plan)
    inputs = {"x": made.input}
    got, wanted = evaluate(plan, inputs), computed_by_onnxruntime(made.model, inputs)
    apart = (np.abs(got[name].astype(np.int64) - wanted[name]) for name in made.bytes)
    first = next((each for each in apart if each.any()), np.zeros(1))
    assert first.max() <= 1 and first.sum() <= 1 + 1e-3 * first.size


@pytest.mark.parametrize("mode", [STORED, HALF])
def test_numbers_stay_exact_where_others_are_stored_in_float16(mode: str) -> None:
    model = model_of(GIVEN["a product of two computed ones"])
    graph = import_model(model, Path("quantised"), {})
    exact, half = lower(graph), lower(replace(graph, precision=Precision(mode)))
    inputs = inputs_of(exact)
    np.testing.assert_array_equal(evaluate(half, inputs)["y"], evaluate(exact, inputs)["y"])


def test_onnxruntime_agrees_with_optimisations_but_for_saturation(lowered: Lowered) -> None:
    """Which it is told to leave out (docs/quantised.md)."""
    model = model_of(GIVEN["a convolution"])
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    plan = lowered(model)
    inputs = inputs_of(plan)
    np.testing.assert_array_equal(evaluate(plan, inputs)["p"], session.run(["p"], inputs)[0])
