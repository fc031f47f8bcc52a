"""Test models in float64 that are read in float32."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from gputune.client.errors import ModelError, UnsupportedNodes
from gputune.client.model.importer import load, read_model
from gputune.client.model.lowering import lower
from gputune.client.model.parts import cut_model
from gputune.client.model.reference import evaluate
from tests.client.models import Array, build, save
from tests.strategies.graphs.comparing import differing

X = np.linspace(-2, 3, 12, dtype=np.float32).reshape(3, 4)
WEIGHTS: dict[str, tuple[int, ...] | Array] = {
    "w": (4, 4),
    "two": np.array(2.0),
    "row": np.linspace(0, 1, 4),
    "like": np.zeros(1),
    "size": np.array([3, 4]),
    "yes": np.array(True),
}
TAILS = {
    "a cast": "d = Cast<to=11>(m) y = Mul(d, two)",
    "a network": "d = Cast<to=11>(m) s = Softmax(d) e = Exp(s) y = Add(e, row)",
    "a constant": "d = Cast<to=11>(m) k = Constant<value = double[4] {1.0, 2.0, 3.0, 4.0}>() y = Mul(d, k)",
    "a filled tensor": "d = Cast<to=11>(m) k = ConstantOfShape<value = double[1] {1.5}>(size) y = Mul(d, k)",
    "an identity": "e = EyeLike<dtype=11>(m) d = Cast<to=11>(m) y = Add(d, e)",
    "a type": "d = CastLike(m, like) y = Neg(d)",
    "a branch": "y = If (yes) <then_branch = g () => (double[3,4] t) { d = Cast<to=11>(m) t = Mul(d, two) },"
    " else_branch = h () => (double[3,4] t) { t = Cast<to=11>(x) }>",
    "and back": "d = Cast<to=11>(m) s = Mul(d, two) f = Cast<to=1>(s) y = Cast<to=11>(f)",
}


@pytest.mark.parametrize("external", [False, True])
@pytest.mark.parametrize("tail", TAILS)
def test_a_model_computes_in_float32_what_it_says_in_float64(tail: str, external: bool, tmp_path: Path) -> None:
    model = build("(float[3,4] x) => (double[3,4] y)", f"m = MatMul(x, w) {TAILS[tail]}", WEIGHTS, opset=17)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    path = save(model, tmp_path)
    if external:
        onnx.save(model, path, save_as_external_data=True, size_threshold=0, location="weights.data")
    with pytest.raises(UnsupportedNodes) as refused:
        read_model(path)
    assert all(
        one.instead.startswith("--float64 float32, which computes it in float32") for one in refused.value.refusals
    )
    graph = read_model(path, narrow=True)
    assert graph.stored("y") == "float32" and not any(info.dtype == "float64" for info in graph.tensors.values())
    got, right = evaluate(lower(graph), {"x": X})["y"], session.run(["y"], {"x": X})[0]
    assert right.dtype == np.float64 and differing({"y": got}, {"y": right.astype(np.float32)}) == ""


def test_inputs_are_float32_too_and_functions_are_looked_into(tmp_path: Path) -> None:
    text = """<ir_version: 9, opset_import: ["" : 17, "own" : 1]>
              small (double[3,4] x) => (double[3,4] y) { y = own.f(x) }
              <opset_import: ["" : 17], domain: "own"> f (a) => (b) {
                  k = Constant<value = double[1] {0.5}>() c = Mul(a, k) b = Cast<to=11>(c) }"""
    path = save(onnx.parser.parse_model(text), tmp_path)
    graph = read_model(path, narrow=True)
    assert graph.stored("x") == "float32"
    assert np.array_equal(evaluate(lower(graph), {"x": X})["y"], X / 2)


def test_a_model_without_float64_is_as_it_was(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = save(build("(float[3,4] x) => (float[3,4] y)", "y = MatMul(x, w)", {"w": (4, 4)}), tmp_path)
    assert load(path, narrow=True) == load(path)
    assert [record.getMessage() for record in caplog.records] == [
        f"--float64 has no effect on model {path}, which has no float64; leave it out"
    ]


@pytest.mark.parametrize("place", ["weight", "constant"])
def test_numbers_that_float32_cannot_hold_are_refused(place: str, tmp_path: Path) -> None:
    known = "" if place == "weight" else "two = Constant<value = double[1] {1e300}>()"
    weights: dict[str, tuple[int, ...] | Array] = {"two": np.array(-1e300)} if place == "weight" else {}
    model = build("(float[3,4] x) => (double y)", f"{known} d = Cast<to=11>(x) y = Mul(d, two)", weights)
    with pytest.raises(ModelError, match=r"has numbers that float32 cannot hold, such as 1e\+300; leave --float64 out"):
        read_model(save(model, tmp_path), narrow=True)


def test_infinity_stays(tmp_path: Path) -> None:
    """It is no number that became too large."""
    weights: dict[str, tuple[int, ...] | Array] = {"top": np.array(np.inf)}
    model = build("(float[3,4] x) => (double y)", "d = Cast<to=11>(x) y = Min(d, top)", weights)
    graph = read_model(save(model, tmp_path), narrow=True)
    assert np.array_equal(evaluate(lower(graph), {"x": X})["y"], X)


def test_what_stays_on_the_host_is_in_float32_too(tmp_path: Path) -> None:
    body = "m = MatMul(x, w) d = Cast<to=11>(m) e = Mul(d, two) f = NonZero(e) c = Cast<to=11>(f) y = ReduceSum(c)"
    model = build("(float[3,4] x) => (double y, double e)", body, WEIGHTS)
    cut = cut_model(save(model, tmp_path), {}, narrow=True)
    assert [sorted(part.ops) for part in cut.parts] == [["Cast", "MatMul", "Mul"]]
    types = {item.name: item.type.tensor_type.elem_type for item in cut.imported.model.graph.output}
    assert types == {"y": onnx.TensorProto.FLOAT, "e": onnx.TensorProto.FLOAT}
    casts = [node for node in cut.imported.model.graph.node if node.op_type == "Cast"]
    assert [helper.get_node_attr_value(node, "to") for node in casts] == [onnx.TensorProto.FLOAT] * 2
