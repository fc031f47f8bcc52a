"""Test which nodes stay in onnxruntime when a model is cut, and what is said about them."""

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from gputune.client.generation.model_check import check_model
from gputune.client.model.parts import Cut, cut_model, cutting, rest_of, told
from tests.client.model.test_parts import check, check_parts, cut_of, drawn, ops, stand_in
from tests.client.models import Array, build, save

KEPT = {
    "If": "r = If (c2) <then_branch = g3 () => (float[4,4] p) { p = MatMul(h, w) },"
    " else_branch = g4 () => (float[4,4] p) { p = Neg(h) }>",
    "Loop": "r = Loop<body = g3 (int64 i, bool c, float[4,4] s) => (bool d, float[4,4] t)"
    " { t = Add(s, h) d = Not(c2) }>(sixteen, c2, h)",
    "Det": "r = Det(h)",
    "float64": "d = Cast<to=11>(h) n = Neg(d) r = Cast<to=1>(n)",
    "NonZero": "f = NonZero(h) c = Size(f) r = Cast<to=1>(c)",
}  # fmt: skip
"""What cannot run, by an operator, in the branch of an If that is taken when the model is read."""


@pytest.mark.parametrize("decided", ["by a weight", "by a value", "by a shape"])
@pytest.mark.parametrize("kept", KEPT)
def test_what_cannot_run_in_a_taken_branch_stays_on_the_host(kept: str, decided: str, tmp_path: Path) -> None:
    """The branch is cut as a model of its own, and what is in the other is neither a part nor counted."""
    given = {"by a value": "bool c1, "}.get(decided, "")
    weights: dict[str, tuple[int, ...] | Array] = {"w": (4, 4), "zero": np.zeros(4, np.float32)}
    weights["sixteen"] = np.array(16)
    condition = {"by a shape": "size = Size(x) c1 = Equal(size, sixteen)"}.get(decided, "")
    model = build(
        f"(float[4,4] x, {given}bool c2) => (float[4,4] y)",
        f"""{condition} h = MatMul(x, w)
           y = If (c1) <then_branch = g1 () => (float[4,4] o) {{ {KEPT[kept]} m = MatMul(h, w) o = Add(r, m) }},
                        else_branch = g2 () => (float[4,4] p) {{ e = MatMul(h, w) p = Neg(e) }}>""",
        {**weights, "c1": np.array(True)} if decided == "by a weight" else weights,
        opset=18,
    )
    values = {"c1": True} if decided == "by a value" else {}
    cut = cut_model(save(model, tmp_path), {}, values)
    (outer, *inner) = cut.scopes
    assert [sorted(part.ops) for part in outer.own] == [["MatMul"]] and len(inner) == (3 if kept == "If" else 1)
    assert cut.share == pytest.approx(1) and cut.host_ops[kept if kept != "float64" else "Cast"]
    assert f"; {cut.host_ops.total()} nodes stay in onnxruntime (" in told(cut)
    for scope in cut.scopes:
        check_parts(scope, drawn(scope))
    (branching,) = (node for node in rest_of(cut, stand_in).graph.node if node.op_type == "If")
    taken, other = ([node.op_type for node in item.g.node] for item in branching.attribute)
    assert "Part" in taken and other == ["MatMul", "Neg"]


VECTORS = """<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 3]> small (float[n,16] x) => (float y)
            <{stated}> {{ z = ai.onnx.ml.FeatureVectorizer<inputdimensions = [16]>(x) k = Relu(x) y = MatMul(z, w) }}"""


@pytest.mark.parametrize(
    ("stated", "believed"),
    [
        ("float[n,16] z", True),
        ("float[4,16] z", True),
        ("float[m,16] z", False),
        ("float[4,7] z", False),  # what reads it would not be valid
        ("float[1,16] z, float[1,16] k", False),  # exported for another size than is given
    ],
)
def test_shapes_behind_unknown_operators_are_what_the_model_states(stated: str, believed: bool, tmp_path: Path) -> None:
    model = onnx.parser.parse_model(VECTORS.format(stated=stated))
    w = np.random.default_rng(0).standard_normal((16, 16), dtype=np.float32)
    model.graph.initializer.append(numpy_helper.from_array(w, "w"))
    model.graph.output.append(helper.make_tensor_value_info("k", 1, None))
    cut = cut_of(model, tmp_path, n=(4,))
    if believed:
        assert ops(cut) == [["MatMul"]] and cut.stays == {cutting.TOO_SMALL: 1}
        check(cut, {"x": np.ones((4, 16), np.float32)})
    else:
        assert "MatMul" in cut.host_ops and cut.stays["the shapes after ai.onnx.ml.FeatureVectorizer are unknown"] == 1
        assert "; 1 of them could run, but the shapes after ai.onnx.ml.FeatureVectorizer are unknown" in told(cut)


def test_a_part_that_does_less_than_it_hands_over_stays_on_the_host(tmp_path: Path) -> None:
    """Unless the whole model runs, which hands over no more than it needs."""
    body = "t = Transpose<perm=[0,2,1]>(x) y = MatMul(t, w)"
    rest = "{} q = Cast<to=11>(y) z = Neg(q)"
    for size, parts in (((1, 1, 64), 0), ((1, 8, 64), 1)):
        weights = {"w": (size[1], 2)}
        shape = ",".join(map(str, size))
        cut = cut_of(build(f"(float[{shape}] x) => (double z)", rest.format(body), weights), tmp_path)
        assert len(cut.parts) == parts and cut.stays == ({} if parts else {cutting.COSTLY: 2})
        assert cut_of(build(f"(float[{shape}] x) => (float y)", body, weights), tmp_path).is_whole


@pytest.mark.parametrize("behind", ["", "k = mine.Other(t)"])
def test_what_is_refused_is_not_read(behind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither its attributes, of which there may be millions, nor is onnxruntime asked for shapes that no other node
    needs."""
    text = f"""<ir_version: 8, opset_import: ["" : 17, "mine" : 1, "ai.onnx.ml" : 3]>
               small (float[4,16] x) => (float y) {{
                t = mine.Trees<numbers = [1, 2, 3], words = ["a"]>(x) {behind}
                p = ai.onnx.ml.TreeEnsembleRegressor<nodes_values = [1.0, 2.0]>(x)
                q = NonZero(x) y = MatMul(x, w) }}"""
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(numpy_helper.from_array(np.ones((16, 16), np.float32), "w"))
    model.graph.output.extend(helper.make_tensor_value_info(name, 1, None) for name in ("k" if behind else "t", "p"))
    path = save(model, tmp_path)
    read: list[str] = []
    read_attribute = helper.get_attribute_value

    def reading(item: onnx.AttributeProto) -> object:
        read.append(item.name)
        return read_attribute(item)

    monkeypatch.setattr(helper, "get_attribute_value", reading)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    checked = check_model(path, {})
    assert {one.op for one in checked.refusals} >= {"mine.Trees", "ai.onnx.ml.TreeEnsembleRegressor"}
    assert not {"numbers", "words", "nodes_values"} & set(read)
    assert isinstance(checked.cut, Cut) and ops(checked.cut) == [["MatMul"]]
