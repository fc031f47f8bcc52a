"""Test models that onnx's checker refuses: sound models, which onnxruntime runs, and unsound models."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from gputune.client.errors import ModelError
from gputune.client.model.importer import read_model
from gputune.client.model.reference import evaluate
from gputune.client.run.onnx_backend import GputuneBackend
from tests.client.models import build, save
from tests.client.plans import Lowered, assert_agrees

IF = "y = If(yes) <then_branch = a () => (float[2] p) {{ {} }}, else_branch = b () => (float[2] q) {{ q = Exp(t) }}>"
BRANCH = IF.format("r = Neg(t) p = Add(t, r)")


def parsed(body: str, signature: str = "(float[2] x) => (float[2] y) <bool yes = {1}>", rest: str = "") -> Any:
    text = f'<ir_version: 8, opset_import: ["" : 17, "mine" : 1]> small {signature} {{ {body} }} {rest}'
    return onnx.parser.parse_model(text)


class TestOrder:
    """onnxruntime sorts the nodes of a model."""

    def test_nodes_are_sorted(self, lowered: Lowered) -> None:
        model = build("(float[2] x) => (float[2] y)", "y = Relu(t) t = Mul(x, w)", {"w": (2,)})
        assert_agrees(model, lowered(model))

    def test_what_can_stays_where_it_is(self, tmp_path: Path) -> None:
        body = "a = Exp(x) y = Add(c, b) b = Relu(a) c = Neg(x)"
        graph = read_model(save(build("(float[2] x) => (float[2] y)", body), tmp_path))
        assert [node.op for node in graph.nodes] == ["Exp", "Relu", "Neg", "Add"]

    def test_a_branch_waits_for_what_it_takes_from_around_it(self, lowered: Lowered) -> None:
        assert_agrees(parsed(f"t = Exp(x) {BRANCH}"), lowered(parsed(f"{BRANCH} t = Exp(x)")))

    def test_the_nodes_of_branches_and_functions_are_sorted(self, lowered: Lowered) -> None:
        """onnxruntime leaves these as they are, so it is given sorted ones."""
        function = '<domain: "mine", opset_import: ["" : 17]> Twice (a) => (c) {{ {} }}'
        right = parsed(f"t = mine.Twice(x) {BRANCH}", rest=function.format("b = Neg(a) c = Add(b, b)"))
        branch = IF.format("p = Add(t, r) r = Neg(t)")
        plan = lowered(parsed(f"{branch} t = mine.Twice(x)", rest=function.format("c = Add(b, b) b = Neg(a)")))
        assert_agrees(right, plan)

    @pytest.mark.parametrize(
        ("body", "cycle"),
        [
            ("y = Add(t, x) t = Relu(y)", "Add node 'y' reads 't', Relu node 't' reads 'y'"),
            ("y = Neg(u) u = Add(u, x)", "Add node 'u' reads 'u'"),
            (f"{BRANCH} t = Exp(y)", "If node 'y' reads 't', Exp node 't' reads 'y'"),
        ],
    )
    def test_nodes_that_wait_for_each_other_are_named(self, tmp_path: Path, body: str, cycle: str) -> None:
        with pytest.raises(ModelError) as caught:
            read_model(save(parsed(body), tmp_path))
        assert caught.value.message.endswith(f"model.onnx is not valid: its nodes form a cycle: {cycle}")

    def test_long_cycles_are_cut(self, tmp_path: Path) -> None:
        body = "y = Neg(t0) " + " ".join(f"t{place} = Neg(t{place + 1})" for place in range(9)) + " t9 = Neg(t0)"
        with pytest.raises(ModelError, match="'t3' reads 't4', and so on through 6 more"):
            read_model(save(parsed(body), tmp_path))

    def test_names_that_two_nodes_compute_are_no_cycle(self, tmp_path: Path) -> None:
        with pytest.raises(ModelError, match="single static assignment"):
            read_model(save(parsed("t = Neg(x) t = Exp(t) y = Relu(t)"), tmp_path))

    def test_weights_in_another_file_are_found(self, tmp_path: Path) -> None:
        model = build("(float[2] x) => (float[2] y)", "y = Relu(t) t = Mul(x, w)", {"w": (2,)})
        path = tmp_path / "model.onnx"
        onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
        assert [node.op for node in read_model(path).nodes] == ["Mul", "Relu"]

    def test_the_backend_takes_them_too(self) -> None:
        model = build("(float[2] x) => (float[2] y)", "y = Relu(t) t = Neg(x)")
        assert GputuneBackend.prepare(model, "null").loaded is not None
        with pytest.raises(onnx.checker.ValidationError, match="nodes form a cycle"):
            GputuneBackend.prepare(build("(float[2] x) => (float[2] y)", "y = Add(t, x) t = Neg(y)"), "null")


def normalised(opset: int, numbers: int, known: bool = False, **attributes: Any) -> onnx.ModelProto:
    """A GroupNormalization of six channels in two groups, with so many scales and biases."""
    generator = np.random.default_rng(6)
    constants = {name: generator.standard_normal(numbers, dtype=np.float32) for name in ("s", "b")}
    if known:
        constants["x"] = generator.standard_normal((2, 6, 3, 5), dtype=np.float32)
    node = helper.make_node("GroupNormalization", ["x", "s", "b"], ["y"], name="it", **attributes)
    inputs = [] if known else [helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 6, 3, 5))]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, (2, 6, 3, 5))]
    weights = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph([node], "one", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


class TestGroupNormalization:
    """Operator sets 18 to 20 give each group a scale and a bias, later ones each channel."""

    @pytest.mark.parametrize(("opset", "numbers"), [(18, 2), (19, 2), (20, 2), (21, 6)])
    def test_it_is_that_of_onnxruntime(self, lowered: Lowered, opset: int, numbers: int) -> None:
        model = normalised(opset, numbers, num_groups=2, epsilon=0.01)
        assert_agrees(model, lowered(model))

    def test_it_may_be_known_beforehand(self, lowered: Lowered) -> None:
        model = normalised(18, 2, known=True, num_groups=2)
        (want,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {})
        np.testing.assert_allclose(evaluate(lowered(model), {})["y"], want, rtol=1e-5, atol=1e-6)

    def test_functions_and_branches_may_hold_it(self, lowered: Lowered) -> None:
        function = """<domain: "mine", opset_import: ["" : 18]> Norm (a, s, b) => (c) {
                        c = GroupNormalization<num_groups=2>(a, s, b) }"""
        text = f"""<ir_version: 8, opset_import: ["" : 18, "mine" : 1]> small (float[2,6,3] x) => (float[2,6,3] y)
                   <bool yes = {{1}}, float[2] s = {{2, 3}}, float[2] b = {{1, -1}}> {{
                     t = mine.Norm(x, s, b)
                     y = If(yes) <then_branch = a () => (float[2,6,3] p) {{
                                    p = GroupNormalization<num_groups=2>(t, b, s) }},
                                  else_branch = b () => (float[2,6,3] q) {{ q = Neg(t) }}> }} {function}"""
        model = onnx.parser.parse_model(text)
        assert_agrees(model, lowered(model))

    def test_its_attributes_are_checked(self, tmp_path: Path) -> None:
        with pytest.raises(ModelError, match="num_groups"):
            read_model(save(normalised(18, 2), tmp_path))
        with pytest.raises(ModelError, match="groups"):
            read_model(save(normalised(18, 2, num_groups=2, groups=3), tmp_path))

    def test_the_backend_runs_it(self) -> None:
        model = normalised(18, 2, num_groups=2)
        loaded = GputuneBackend.prepare(model, "null").loaded
        assert loaded is not None and loaded.operations == 1
        numbers = [np.ones((2, 6, 3, 5), np.float32), np.ones(2, np.float32), np.ones(2, np.float32)]
        (got,) = GputuneBackend.run_node(model.graph.node[0], numbers, "null", opset_version=18)
        assert got.shape == (2, 6, 3, 5)


@pytest.mark.parametrize("place", ["graph", "input", "output", "node"])
def test_a_name_with_a_zero_character_is_refused(tmp_path: Path, place: str) -> None:
    """A text of C ends there, so no context can hold it."""
    model = build("(float[2] x) => (float[2] y)", "y = Relu(x)")
    graph, node = model.graph, model.graph.node[0]
    if place == "graph":
        graph.name = "a\0b"
    elif place == "input":
        graph.input[0].name = node.input[0] = "a\0b"
    elif place == "output":
        graph.output[0].name = node.output[0] = "a\0b"
    else:
        node.name = "a\0b"
    with pytest.raises(ModelError, match=r"the name 'a\\x00b' has a zero character; rename it"):
        read_model(save(model, tmp_path))
