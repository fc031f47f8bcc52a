"""Lower quantised models by each of their rules, and say of exact ones where they are not exact."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gputune.client.context.verifying.exactness import lines_of
from gputune.client.model.graph import Exactness, Precision, kind_of
from gputune.client.model.importer import import_model
from gputune.client.model.lowering import lower
from gputune.client.model.plan import Plan
from gputune.client.model.reference import evaluate
from gputune.core.precision import EXACT, IN_FLOATS, MIXED, STORED
from tests.client.model.test_quantised import BIASED, IN, MATRIX, Given, inputs_of, model_of, scalar, scales, whole
from tests.client.plans import ops

MAPS = "(float[1,8,9,11] x) => "
ROWS = "(float[3,96] x) => "
CLIPPED = "d = Clip(x, lowest, highest) "
"""What IN is without a rounding: its range stays."""
PARAMETERS: dict[str, Any] = {
    "lowest": scalar(0.04 * (0 - 119)), "highest": scalar(0.04 * (255 - 119)), "low": scalar(0.3 * -100),
    "high": scalar(0.3 * 155), "none": scalar(0, "uint8"), "top": scalar(0.04 * 255), "nothing": scalar(0),
    "wide": scalar(30000, "uint16"), "words": whole("int16", 96, 40), "z16": scalar(0, "int16"),
    "cubes": whole("int8", 4, 8, 2, 2, 2), "s4": scales(4), "up": whole("int8", 8, 5, 2, 2), "s8": scales(8),
    "s96": scales(96),
}  # fmt: skip


def lowered_by(rules: str, signature: str, body: str, mode: str = "", opset: int = 13) -> Plan:
    graph = import_model(model_of(Given(signature, body, opset=opset, weights=PARAMETERS)), Path("quantised"), {})
    return lower(replace(graph, precision=Precision(mode, quantised=rules)))


@dataclass(frozen=True)
class Floats:
    """A model, and one of floats that computes the same but for roundings. runs: operations of the former."""

    signature: str
    quantised: str
    floats: str
    runs: str = ""


FLOATS: dict[str, Floats] = {
    "a pair": Floats(ROWS + "(float[3,96] d)", IN, CLIPPED, "Elementwise"),
    "a Relu that a range implies": Floats(
        ROWS + "(float[3,96] y)",
        "q = QuantizeLinear(x, sx, none) y = DequantizeLinear(q, sx, none)",
        "y = Clip(x, nothing, top)",
    ),
    "other scales behind": Floats(
        ROWS + "(float[3,96] y)",
        "q = QuantizeLinear(x, sx, zx) y = DequantizeLinear(q, sy, zy)",
        CLIPPED + "k = Div(sy, sx) m = Mul(d, k) r = Constant<value_float=19.0>() s = Mul(r, sy) y = Add(m, s)",
    ),
    "products and a pooling": Floats(
        MAPS + "(float[1,24,4,5] y)",
        BIASED + "c = Conv<pads=[1,1,1,1]>(d, v, b) p = QuantizeLinear(c, sy, zy) e = DequantizeLinear(p, sy, zy) "
        "m = MaxPool<kernel_shape=[2,2], strides=[2,2]>(e) n = QuantizeLinear(m, sy, zy) "
        "y = DequantizeLinear(n, sy, zy)",
        CLIPPED + "v = DequantizeLinear<axis=0>(filters, s24, z24) b = DequantizeLinear<axis=0>(bias, sb, zb) "
        "c = Conv<pads=[1,1,1,1]>(d, v, b) e = Clip(c, low, high) y = MaxPool<kernel_shape=[2,2], strides=[2,2]>(e)",
        "Elementwise Conv Pool Transpose",
    ),
    "moves of bytes": Floats(
        ROWS + "(float[48,6] y)",
        "q = QuantizeLinear(x, sx, zx) t = Transpose(q) a, b = Split<axis=0>(t) j = Concat<axis=1>(b, a) "
        "y = DequantizeLinear(j, sx, zx)",
        CLIPPED + "t = Transpose(d) a, b = Split<axis=0>(t) y = Concat<axis=1>(b, a)",
    ),
    "a dynamic product": Floats(
        ROWS + "(float[3,40] y)",
        "q, s, z = DynamicQuantizeLinear(x) p = MatMulInteger(q, bytes, z, zw) f = Cast<to=1>(p) t = Mul(s, s40) "
        "m = Mul(f, t) y = Add(m, float40)",
        "w = DequantizeLinear(bytes, one, zw) o = Div(s40, one) u = Mul(w, o) m = MatMul(x, u) y = Add(m, float40)",
        "MatMul",
    ),
    "a dynamic convolution": Floats(
        MAPS + "(float[1,24,9,11] y)",
        "q, s, z = DynamicQuantizeLinear(x) p = ConvInteger<pads=[1,1,1,1]>(q, maps, z, zw) f = Cast<to=1>(p) "
        "t = Mul(s, one) y = Mul(f, t)",
        "w = DequantizeLinear(maps, one, zw) y = Conv<pads=[1,1,1,1]>(x, w)",
    ),
    "a range and back": Floats(
        ROWS + "(float[3,96] y)",
        "q, s, z = DynamicQuantizeLinear(x) y = DequantizeLinear(q, s, z)",
        "y = Identity(x)",
    ),
    "products in one operator": Floats(
        ROWS + "(float[3,40] y)",
        "q = QuantizeLinear(x, sx, zx) p = QLinearMatMul(q, sx, zx, bytes, one, zw, sy, zy) "
        "y = DequantizeLinear(p, sy, zy)",
        CLIPPED + "w = DequantizeLinear(bytes, one, zw) m = MatMul(d, w) y = Clip(m, low, high)",
        "Elementwise MatMul",
    ),
    "a convolution in one operator": Floats(
        "(uint8[1,8,9,11] x) => (float[1,24,9,11] y)",
        "p = QLinearConv<pads=[1,1,1,1]>(x, sx, zx, maps, one, zw, sy, zy, bias) y = DequantizeLinear(p, sy, zy)",
        "d = DequantizeLinear(x, sx, zx) w = DequantizeLinear(maps, one, zw) s = Mul(sx, one) "
        "k = DequantizeLinear(bias, s) c = Conv<pads=[1,1,1,1]>(d, w, k) y = Clip(c, low, high)",
    ),
    "other scales in one operator": Floats(
        ROWS + "(float[3,40] y)",
        "q = QuantizeLinear(x, sx, zx) p = QLinearMatMul(q, one, zy, bytes, one, zw, sx, zx) "
        "y = DequantizeLinear(p, sx, zx)",
        CLIPPED + "k = Div(one, sx) n = Mul(d, k) r = Constant<value_float=19.0>() s = Mul(r, one) a = Add(n, s) "
        "w = DequantizeLinear(bytes, one, zw) m = MatMul(a, w) y = Clip(m, lowest, highest)",
    ),
    "a sum in one operator": Floats(
        ROWS + "(float[3,96] y)",
        IN + "p = QuantizeLinear(x, sy, zy) a = com.microsoft.QLinearAdd(q, sx, zx, p, sy, zy, sy, zy) "
        "y = DequantizeLinear(a, sy, zy)",
        CLIPPED + "e = Clip(x, low, high) s = Add(d, e) y = Clip(s, low, high)",
    ),
}


@pytest.mark.parametrize("given", FLOATS.values(), ids=FLOATS)
def test_nothing_is_rounded_where_floats_are_asked_for(given: Floats) -> None:
    plan = lowered_by(IN_FLOATS, given.signature, given.quantised)
    assert ops(plan) == (given.runs.split() or ops(plan))
    inputs = inputs_of(plan)
    got, want = evaluate(plan, inputs), evaluate(lowered_by(EXACT, given.signature, given.floats), inputs)
    exact = evaluate(lowered_by(EXACT, given.signature, given.quantised), inputs)
    for name, right in want.items():
        np.testing.assert_allclose(got[name], right, rtol=0, atol=2e-5 * np.abs(right).max())
        assert np.abs(exact[name] - right).max() > 1e-3 * np.abs(right).max()
    assert plan.exactness is not None and plan.exactness.kind == IN_FLOATS


INTEGERS = {
    "an output of the model": (ROWS + "(uint8[3,96] q)", IN),
    "a range that is an output": (ROWS + "(uint8[3,96] q, float s, uint8 z)", "q, s, z = DynamicQuantizeLinear(x)"),
    "a sum that is an output": (
        ROWS + "(int32[3,40] p)", "q, s, z = DynamicQuantizeLinear(x) p = MatMulInteger(q, bytes, z, zw)"
    ),
    "a scale that something else reads": (
        ROWS + "(float[3,40] f, float r)",
        "q, s, z = DynamicQuantizeLinear(x) p = MatMulInteger(q, bytes, z, zw) f = Cast<to=1>(p) r = Sqrt(s)",
    ),
    "two computed factors": (
        "(float[96,96] x) => (float[96,96] f)",
        "q, s, z = DynamicQuantizeLinear(x) t = Transpose(x) r, k, l = DynamicQuantizeLinear(t) "
        "p = MatMulInteger(q, r, z, l) f = Cast<to=1>(p)",
    ),
    "another scale": (
        ROWS + "(float[3,96] y)", "q, s, z = DynamicQuantizeLinear(x) y = DequantizeLinear(q, sx, zx)"
    ),
    "another zero point": (
        ROWS + "(float[3,40] f)",
        "q, s, z = DynamicQuantizeLinear(x) p = MatMulInteger(q, bytes, zx, zw) f = Cast<to=1>(p)",
    ),
    "bytes of the application": (
        "(uint8[3,96] x) => (uint8[3,40] y)", "y = QLinearMatMul(x, sx, zx, bytes, one, zw, sy, zy)"
    ),
}  # fmt: skip


@pytest.mark.parametrize(("signature", "body"), INTEGERS.values(), ids=INTEGERS)
def test_integers_that_are_read_are_exact_in_floats_too(signature: str, body: str) -> None:
    exact, floats = (lowered_by(rules, signature, body) for rules in (EXACT, IN_FLOATS))
    inputs = inputs_of(exact)
    for name, want in evaluate(exact, inputs).items():
        np.testing.assert_array_equal(evaluate(floats, inputs)[name], want)


EXCEPTIONS = {
    "16 bits": (
        ROWS + "(float[3,40] y)",
        "q = QuantizeLinear(x, sx, wide) d = DequantizeLinear(q, sx, wide) w = DequantizeLinear(words, one, z16) "
        "y = MatMul(d, w)",
        "MatMul: its inputs have more than 8 bits, or a scale that is computed or along an axis of an activation",
    ),
    "a computed scale": (
        ROWS + "(float[3,40] y)",
        "q, s, z = DynamicQuantizeLinear(x) d = DequantizeLinear(q, s, z) "
        "w = DequantizeLinear(bytes, one, zw) y = MatMul(d, w)",
        "MatMul: its inputs have more than 8 bits, or a scale that is computed or along an axis of an activation",
    ),
    "scales within a sum": (
        ROWS + "(float[3,40] y)", IN + "w = DequantizeLinear<axis=0>(matrix, s96) y = MatMul(d, w)",
        "MatMul: its scales differ within a sum",
    ),
    "alpha": (
        ROWS + "(float[3,40] y)", MATRIX + "t = Transpose(d) u = Transpose(t) y = Gemm<alpha=0.5>(u, v)",
        "Gemm: its alpha or beta is not 1",
    ),
    "a volume": (
        "(float[1,8,3,4,5] x) => (float[1,4,2,3,4] y)",
        IN + "w = DequantizeLinear<axis=0>(cubes, s4) y = Conv(d, w)",
        "Conv: it is a convolution of volumes",
    ),
    "a transposed convolution": (
        MAPS + "(float[1,5,10,12] y)", IN + "w = DequantizeLinear(up, one) y = ConvTranspose(d, w)",
        "ConvTranspose: there are no whole numbers in a ConvTranspose",
    ),
    "weights that are floats": (ROWS + "(float[3,1] y)", IN + "n = Reshape(s96, turn) y = MatMul(d, n)", ""),
    "none": (ROWS + "(float[3,40] y)", MATRIX + "y = MatMul(d, v)", ""),
}  # fmt: skip
PARAMETERS["turn"] = np.array([96, 1])


@pytest.mark.parametrize(("signature", "body", "told"), EXCEPTIONS.values(), ids=EXCEPTIONS)
def test_products_of_floats_are_named(signature: str, body: str, told: str) -> None:
    found = lowered_by(EXACT, signature, body, opset=21).exactness
    assert found is not None
    assert [f"{one.op}: {one.why}" for one in found.exceptions] == ([told] if told else [])
    assert found.kind == (MIXED if told else EXACT)
    loose = lowered_by(IN_FLOATS, signature, body, opset=21).exactness
    assert loose is not None and (loose.kind, loose.exceptions) == (IN_FLOATS, ())


STEPS = {
    "of a product": (MATRIX + "c = MatMul(d, v) y = QuantizeLinear(c, sy, zy)", {}),
    "of floats between": (
        MATRIX + "c = MatMul(d, v) g = Softmax(c) k = QuantizeLinear(g, sx, zx) t = Transpose(k) y = Transpose(t)",
        {"k": 1.0, "t": 1.0, "y": 1.0},
    ),
    "and back": (
        MATRIX + "c = MatMul(d, v) g = Softmax(c) k = QuantizeLinear(g, sx, zx) y = DequantizeLinear(k, sx, zx)",
        {"k": 1.0, "y": np.float32(0.04)},
    ),
    "of a product of such": (
        MATRIX + "c = MatMul(d, v) g = Softmax(c) k = QuantizeLinear(g, sx, zx) e = DequantizeLinear(k, sx, zx) "
        "w = Transpose(e) m = MatMul(e, w) y = QuantizeLinear(m, sy, zy)",
        {"k": 1.0, "e": np.float32(0.04), "w": np.float32(0.04), "y": 1.0},
    ),
}


@pytest.mark.parametrize(("body", "steps"), STEPS.values(), ids=STEPS)
def test_what_floats_are_rounded_to_has_steps(body: str, steps: dict[str, float]) -> None:
    shape = "3,3" if "m = " in body else "3,40"
    dtype = "float" if "y = Dequantize" in body else "uint8"
    plan = lowered_by(EXACT, f"{ROWS}({dtype}[{shape}] y)", body)
    assert plan.exactness is not None
    assert plan.exactness.steps == pytest.approx(steps)
    assert plan.exactness.told(["y"])["steps"] == pytest.approx({name: steps[name] for name in steps if name == "y"})


def test_floats_without_roundings_may_be_short() -> None:
    """Exact ones keep float32."""
    given = FLOATS["products in one operator"]
    plans = [lowered_by(rules, given.signature, given.quantised, STORED) for rules in (EXACT, IN_FLOATS)]
    assert [plan.coarsest for plan in plans] == ["float32", "float16"]


def test_a_graph_that_is_not_quantised_says_nothing() -> None:
    assert lowered_by(EXACT, ROWS + "(float[3,96] y)", "y = Relu(x)").exactness is None


def test_lines_name_what_is_whole_and_each_kind_of_exception() -> None:
    signature, body, _ = EXCEPTIONS["16 bits"]
    found = lowered_by(EXACT, signature, body, opset=21).exactness
    assert found is not None
    one = found.exceptions[0]
    several = replace(found, exceptions=tuple(replace(one, node=f"n{number}") for number in range(5)))
    assert list(lines_of(several.told(()))) == [
        "quantised, mixed; in whole numbers: QuantizeLinear 1",
        f"not exact: MatMul 'n0', 'n1', 'n2' and 2 more: {one.why}",
    ]
    assert list(lines_of(Exactness().told(()))) == ["quantised, exact; in whole numbers: nothing"]


@pytest.mark.parametrize(
    ("graphs", "kind"),
    [([], ""), ([EXACT], EXACT), ([EXACT, EXACT], EXACT), ([EXACT, MIXED], MIXED), ([IN_FLOATS], IN_FLOATS)],
)
def test_a_context_is_exact_if_all_of_its_graphs_are(graphs: list[str], kind: str) -> None:
    assert kind_of({"rules": one} for one in graphs) == kind
