"""Compare rarer forms of quantising operators with onnxruntime: blocks, float16, 4 bits, and computed scales."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from gputune.client.errors import ModelError
from gputune.client.model.reference import evaluate
from tests.client.models import Array
from tests.client.plans import Lowered, assert_whole, computed_by_onnxruntime

RANDOM = np.random.default_rng(4)
MATRIX = "QLinearMatMul(a, sa, za, b, sb, zb, sc, zc)"
CONV = "QLinearConv<pads = [1, 1, 1, 1]>(maps, sa, za, filters, sf, zf, sc, zc, bias)"


def scales(*shape: int) -> Array:
    return (RANDOM.random(shape) * 0.1 + 0.01).astype(np.float32)


def whole(*shape: int) -> Array:
    return RANDOM.integers(0, 256, shape).astype(np.uint8)


def four_bits(name: str, kind: int, *shape: int) -> TensorProto:
    low = -8 if kind == TensorProto.INT4 else 0
    return helper.make_tensor(name, kind, shape, RANDOM.integers(low, low + 16, np.prod(shape)).tolist())


VALUES: dict[str, Any] = {
    "x": RANDOM.standard_normal((4, 32)).astype(np.float32), "q": whole(4, 32), "s": scales(4, 4), "z": whole(4, 4),
    "rows": scales(2, 32), "a": whole(3, 96), "b": whole(96, 20), "maps": whole(1, 8, 9, 9),
    "filters": whole(12, 8, 3, 3), "bias": RANDOM.integers(-900, 900, 12).astype(np.int32), "sa": np.float32(0.02),
    "za": np.uint8(120), "sb": np.float32(0.01), "zb": np.uint8(130), "sc": np.float32(0.4), "zc": np.uint8(110),
    "sf": scales(12) / 5, "zf": np.full(12, 130, np.uint8), "columns": scales(20) / 5,
    "i4": four_bits("i4", TensorProto.INT4, 32, 16), "u4": four_bits("u4", TensorProto.UINT4, 32, 16),
    "zi": four_bits("zi", TensorProto.INT4, 4, 16), "zu": four_bits("zu", TensorProto.UINT4, 16),
    "si": scales(4, 16), "su": scales(16),
    "h": RANDOM.standard_normal((4, 32)).astype(np.float16), "sh": np.float16(0.021),
    "hs": scales(32).astype(np.float16),
    "w": RANDOM.integers(-100, 101, (32, 16)).astype(np.int8), "sw": scales(16).astype(np.float16),
    "sy": np.float16(0.3), "zr": whole(32),
}  # fmt: skip


@dataclass(frozen=True)
class Form:
    """Nodes that compute y, and which of VALUES they are given at run time."""

    body: str
    given: str
    opset: int = 21
    off: float = field(default=0.0)


FORMS = {
    "blocks": Form("y = DequantizeLinear<axis = 1, block_size = 8>(q, s, z)", "q"),
    "blocks that are computed": Form("y = DequantizeLinear<axis = 1, block_size = 8>(q, s, z)", "q s z"),
    "quantised in blocks": Form("y = QuantizeLinear<axis = 1, block_size = 8>(x, s, z)", "x"),
    "quantised in computed blocks": Form("y = QuantizeLinear<axis = 1, block_size = 8>(x, s, z)", "x s z"),
    "blocks that do not divide": Form("y = QuantizeLinear<axis = 0, block_size = 3, output_dtype = 3>(x, rows)", "x"),
    "int4 in blocks": Form(
        "d = DequantizeLinear<axis = 0, block_size = 8>(i4, si, zi) y = MatMul(x, d)", "x", off=1e-5
    ),
    "uint4 of columns": Form(
        "e = QuantizeLinear(x, sa, za) f = DequantizeLinear(e, sa, za) d = DequantizeLinear<axis = 1>(u4, su, zu) "
        "y = MatMul(f, d)",
        "x",
        off=1e-5,
    ),
    "float16": Form("y = QuantizeLinear(h, sh, za)", "h"),
    "float16 along an axis": Form("y = QuantizeLinear<axis = 1>(h, hs, zr)", "h"),
    "to float16": Form("y = DequantizeLinear(q, sh, za)", "q"),
    "a product in float16": Form(
        "e = QuantizeLinear(h, sh, za) f = DequantizeLinear(e, sh, za) d = DequantizeLinear<axis = 1>(w, sw) "
        "m = MatMul(f, d) y = QuantizeLinear(m, sy, za)",
        "h",
    ),
    "a product of computed scales": Form(f"y = {MATRIX}", "a sa za b sb zb sc zc"),
    "a product with a computed zero point": Form(f"y = {MATRIX}", "a zc"),
    "a product of computed columns": Form(f"y = {MATRIX.replace('sb', 'columns')}", "a sa columns"),
    "a convolution of computed scales": Form(f"y = {CONV}", "maps sa za sf sc zc"),
}


def model_of(form: Form) -> tuple[onnx.ModelProto, dict[str, Array]]:
    head = f'<domain: "here", opset_import: ["" : {form.opset}]> f () => (y)'
    nodes = onnx.parser.parse_function(f"{head} {{ {form.body} }}").node
    read = dict.fromkeys(name for node in nodes for name in node.input if name in VALUES)
    given = {name: np.asarray(VALUES[name]) for name in form.given.split()}
    protos = {name: VALUES[name] for name in read if name not in given}
    graph = helper.make_graph(
        nodes,
        "form",
        [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
         for name, value in given.items()],
        [helper.make_empty_tensor_value_info("y")],
        [value if isinstance(value, TensorProto) else numpy_helper.from_array(np.asarray(value), name)
         for name, value in protos.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", form.opset)], ir_version=10), given


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_forms_compute_what_onnxruntime_does(lowered: Lowered, form: Form) -> None:
    model, given = model_of(form)
    plan = lowered(model)
    assert_whole(plan)
    (want,) = computed_by_onnxruntime(model, given).values()
    got = evaluate(plan, given)["y"]
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    assert np.abs(got.astype(np.float64) - want.astype(np.float64)).max() <= form.off
    assert len(np.unique(want)) > 5


@pytest.mark.parametrize(
    ("form", "why"),
    [
        (Form("y = QuantizeLinear(x, sh, za)", "x", opset=23), "'x' and its scale 'sh' are floats of two types"),
        (Form(f"y = {MATRIX.replace('sa, za', 'columns, za')}", "a columns"), "its scale 'columns' has 20 numbers"),
        (Form("y = DequantizeLinear<axis = 1, block_size = 7>(q, s, z)", "q"), r"its blocks need \(4, 5\)"),
    ],
    ids=["two types", "scales of rows", "shape of blocks"],
)
def test_what_has_no_meaning_here_is_refused(lowered: Lowered, form: Form, why: str) -> None:
    with pytest.raises(ModelError, match=why):
        lowered(model_of(form)[0])
