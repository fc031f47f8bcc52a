"""Test the refusal of models that cannot run: every reason, in one form, by the names in the model."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

from gputune.client.errors import UnsupportedNodes
from gputune.client.model.graph import Graph
from gputune.client.model.importer import read_model
from gputune.client.model.lowering import lower, refusals_of
from gputune.client.model.nearest import line_with_advice
from tests.client.commands import Gputune
from tests.client.models import build, integers, numbers, save
from tests.client.plans import Lowered, assert_agrees


def refused(model: onnx.ModelProto, folder: Path) -> UnsupportedNodes:
    for index, node in enumerate(model.graph.node):
        node.name = f"n{index}"
    with pytest.raises(UnsupportedNodes) as caught:
        lower(read_model(save(model, folder)))
    return caught.value


def reasons(error: UnsupportedNodes) -> list[tuple[str, str, str]]:
    return [(one.op, one.node, one.why) for one in error.refusals]


NO = "there are no kernels for"


def test_every_reason_is_told(tmp_path: Path) -> None:
    """Foreign nodes, types and shapes, in the model's order."""
    text = """<ir_version: 9, opset_import: ["" : 17, "mine" : 1]> g
              (float[4,8] x, double[2] d, int64[1] k) => (float y, int64 z, float m, float t, double e) {
                y = Relu(x)
                z = NonZero(x)
                m = mine.Magic(x)
                t, i = TopK(x, k)
                e = Neg(d) }"""
    error = refused(onnx.parser.parse_model(text), tmp_path)
    assert [(op, node, why.split(";")[0]) for op, node, why in reasons(error)] == [
        ("Input", "d", "it is float64"),
        ("NonZero", "n1", f"{NO} NonZero"),
        ("mine.Magic", "n2", f"{NO} mine.Magic"),
        ("TopK", "n3", "the shape of its output 't' depends on 'k'"),
        ("Neg", "n4", "it computes float64"),
    ]
    assert error.looked_at == 5
    line = line_with_advice(error)
    assert "input 'd' is not supported: it is float64; supported are float32" in line
    assert "; instead of the input 'd' and Neg: --float64 float32, which computes it in float32, or a model" in line
    assert "; `gputune model-check` lists them all; " in line
    assert line.endswith("; --unsupported host lets onnxruntime run what cannot run on the device")


@pytest.mark.parametrize(
    ("signature", "body", "first", "advice"),
    [
        ("(float[4] x) => (double[4] y)", "y = Cast<to=11>(x)", "Cast node 'Cast_0': it computes float64", "float"),
        ("(double[N] x) => (double[N] y)", "y = Neg(x)", "input 'x': it is float64", "--float64 float32, which"),
        ("(string[4] x) => (string[4] y)", "y = Identity(x)", "input 'x': it is string", "give the model numbers"),
        ("(seq(float[4]) x) => (float[4] y)", "y = ConcatFromSequence<axis=0>(x)", "input 'x': it is not a tensor",
         "with tensors in place of sequences"),
        ("(float[4,8] x, int64[1] k) => (float y, int64 i)", "y, i = TopK(x, k)",
         "TopK node 'TopK_0': the shape of its output 'y' depends on 'k'", "e.g. --input_value k=1"),
        ("(float[4] x, int64[2] n) => (float[a,b] y)", "m = Neg(n) y = Reshape(x, m)",
         "Reshape node 'Reshape_1': the shape of its output 'y' depends on 'm'", "e.g. --input_value n=1,1"),
        ("(int64[2] n) => (float[a,b] y)", "y = ConstantOfShape(n)",
         "ConstantOfShape node 'ConstantOfShape_0': 'n' must be known before it runs", "make 'n' a constant"),
        ("(int64 n) => (int64[N] y)", "y = Range(a, n, b)", "Range node 'Range_0': 'n' must be known before it runs",
         "make 'n' a constant of the model"),
    ],
)  # fmt: skip
def test_types_and_shapes_have_the_form_of_all_others(
    gputune: Gputune, tmp_path: Path, signature: str, body: str, first: str, advice: str
) -> None:
    weights: dict[str, Any] = {"a": np.array(0), "b": np.array(1)} if "Range" in body else {}
    path = save(build(signature, body, weights), tmp_path)
    ran = gputune("model-check", path)
    assert ran.code == 9
    title, _, _, line, *_ = ran.out.splitlines()
    reason, _, instead = line.partition("; instead: ")
    assert "cannot run; of " in title and ("inputs cannot be taken" in title) == first.startswith("input")
    assert reason.strip().startswith(first) and advice in instead
    content = json.loads(gputune("model-check", path, "--json").out)
    assert content["unsupported"][0]["nearest"] in instead


class TestNames:
    """Nodes are called as the model calls them, whatever they were replaced by."""

    def test_what_onnx_defines_by_others_is_named_itself(self, tmp_path: Path) -> None:
        error = refused(build("(float[3] x) => (float[3] y)", "y = Bernoulli(x)", opset=15), tmp_path)
        assert reasons(error) == [("Bernoulli", "n0", f"{NO} RandomUniformLike, part of its ONNX definition")]
        assert error.looked_at == 1

    def test_so_is_what_passes_take_apart(self, tmp_path: Path) -> None:
        model = build("(float[2,3] x) => (float y)", "y = Gemm(x, w, c)", {"w": (3, 4), "c": (5,)})
        ((op, name, why),) = reasons(refused(model, tmp_path))
        assert (op, name) == ("Gemm", "n0") and why.endswith(", in the Elementwise that replaces it")

    def test_passes_tell_all_that_they_refuse(self, tmp_path: Path) -> None:
        body = "a = Clip(x, bounds) y = Softmax(a) z = Clip(y, bounds)"
        model = build("(float[2,3] x) => (float y, float z)", body, {"bounds": numbers(1, 2)})
        assert [(op, node) for op, node, _ in reasons(refused(model, tmp_path))] == [("Clip", "n0"), ("Clip", "n2")]

    def test_a_node_of_a_branch_is_named_in_its_if(self, tmp_path: Path) -> None:
        text = """<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (int64 y) <bool yes = {1}> {
                    y = If(yes) <then_branch = a () => (int64[1,n] p) { p = NonZero(x) },
                                 else_branch = b () => (int64[1,2] q) { q = Magic(x) }> }"""
        model = onnx.parser.parse_model(text.replace("Magic", "Shape"))
        assert reasons(refused(model, tmp_path)) == [("NonZero", "n0/NonZero", f"{NO} NonZero")]


class TestRefusalsOf:
    TEXT = """(float[1,3,5,5] x, float[4,3,3,3] w, float[3] m) => (float[1,4,3,3] y, float[1,3,5,5] z) {
                a = Relu(x)
                b = Clip(a, m)
                y = Conv(b, w)
                c = LpNormalization<p=3>(b)
                z = Relu(c) }"""

    def graph(self, folder: Path, text: str) -> Graph:
        model = onnx.parser.parse_model('<ir_version: 9, opset_import: ["" : 17]> g ' + text)
        for index, node in enumerate(model.graph.node):
            node.name = f"n{index}"
        return read_model(save(model, folder))

    def test_they_are_those_of_every_pass_and_step(self, tmp_path: Path) -> None:
        graph = self.graph(tmp_path, self.TEXT)
        with pytest.raises(UnsupportedNodes) as caught:
            lower(graph)
        assert [one.node for one in caught.value.refusals] == ["n1"]
        found = refusals_of(graph)
        assert [(one.node, one.op) for one in found] == [("n1", "Clip"), ("n2", "Conv"), ("n3", "LpNormalization")]
        assert found[0] == caught.value.refusals[0]
        assert "'w' is computed at run time" in found[1].why and "p = 3" in found[2].why

    def test_a_graph_that_can_be_lowered_has_none(self, tmp_path: Path) -> None:
        assert refusals_of(self.graph(tmp_path, "(float[2] x) => (float[2] y) { a = Relu(x) y = Neg(a) }")) == ()

    def test_nothing_is_left_to_lower(self, tmp_path: Path) -> None:
        graph = self.graph(tmp_path, "(float[4] x, float[4] m) => (float[4] y) { y = Clip(x, m) }")
        assert [one.node for one in refusals_of(graph)] == ["n0"]


def test_a_branch_that_is_not_taken_is_not_looked_at(lowered: Lowered) -> None:
    """Its nodes may be such as cannot run, or do not fit."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) <bool yes = {1}> {
                y = If(yes) <then_branch = a () => (float[2] p) { p = Relu(x) },
                             else_branch = b () => (float q) { n = NonZero(x) c = Cast<to=1>(n) s = Flatten<axis=2>(x)
                                                               q = MatMul(c, s) }> }"""
    plan = lowered(onnx.parser.parse_model(text))
    assert len(plan.operations) == 1


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("aligned", [0, 1])
def test_grids_of_a_batch_of_one(lowered: Lowered, batch: int, aligned: int) -> None:
    """ONNX's definition of AffineGrid drops every axis of size 1, that of the batch too."""
    body = f"g = AffineGrid<align_corners={aligned}>(t, size) y = GridSample(x, g)"
    signature = f"(float[{batch},2,5,4] x, float[{batch},2,3] t) => (float[{batch},2,5,4] y)"
    model = build(signature, body, {"size": integers(batch, 2, 5, 4)}, opset=20, ir_version=9)
    assert_agrees(model, lowered(model))
