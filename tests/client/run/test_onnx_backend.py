"""Test ONNX's backend interface on the null device: what is bound, what is known, what is refused.

tests/client/model/test_onnx_cases.py compares numbers, and tests/opencl/client/test_every_onnx_case.py on a device.
"""

import unittest
from typing import Any

import numpy as np
import onnx
import onnx.checker
import onnx.parser
import pytest
from onnx import helper
from onnx.backend.base import Backend

from gputune.client.errors import ModelError
from gputune.client.model.importer.shape_inputs import compile_time_inputs, computed_from
from gputune.client.run import onnx_backend
from gputune.client.run.onnx_backend import GputuneBackend, PreparedModel, Unsupported
from tests.client.models import build, integers

PICTURE = np.ones((1, 3, 5, 7), np.float32)


def prepared(signature: str, body: str, **weights: Any) -> PreparedModel:
    return GputuneBackend.prepare(build(signature, body, weights), "null")


def run(node: onnx.NodeProto, *inputs: Any, **options: Any) -> tuple[Any, ...]:
    return GputuneBackend.run_node(node, inputs, "null", **options)


def test_it_is_a_backend_and_a_module_that_looks_like_one() -> None:
    assert issubclass(GputuneBackend, Backend)
    for name in ("prepare", "run_model", "run_node", "supports_device"):
        assert getattr(onnx_backend, name) == getattr(GputuneBackend, name)
    assert GputuneBackend.supports_device("null")


def test_a_model_is_ready_once_it_is_prepared_and_runs_on_lists_and_maps() -> None:
    model = prepared("(float[1,3,5,7] x) => (float[1,3,5,7] y)", "y = Relu(x)")
    loaded = model.loaded
    assert loaded is not None
    assert loaded.operations == 1
    assert model.run([PICTURE])[0].shape == (1, 3, 5, 7)
    assert model.run({"x": PICTURE})[0].dtype == np.float32
    assert model.loaded is loaded


def test_open_shapes_are_those_of_the_inputs() -> None:
    model = prepared("(float[N,3,h,w] x) => (float[N,3,h,w] y)", "y = Relu(x)")
    assert model.loaded is None
    assert model.run([PICTURE])[0].shape == (1, 3, 5, 7)
    assert model.run([np.ones((2, 3, 1, 1), np.float32)])[0].shape == (2, 3, 1, 1)


def test_inputs_that_steer_are_bound_and_others_are_not() -> None:
    """Other values make another context, which is kept."""
    model = prepared("(float[2,3] x, int64[N] s) => (float[a,b] y)", "r = Reshape(x, s) y = Relu(r)")
    x = np.ones((2, 3), np.float32)
    assert model.run([x, integers(3, 2)])[0].shape == (3, 2)
    first = model.loaded
    assert first is not None
    assert first.operations == 1
    assert model.run([x, integers(-1, 1, 1)])[0].shape == (6, 1, 1)
    assert model.run([-x, integers(3, 2)])[0].shape == (3, 2)
    assert model.loaded is first


def test_contexts_are_kept_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_backend, "MOST_KEPT", 2)
    model = prepared("(float[n] x) => (float[n] y)", "y = Relu(x)")
    made = []
    for size in (1, 2, 2, 3, 1):
        model.run([np.ones(size, np.float32)])
        made.append(model.loaded)
    assert made[1] is made[2]
    assert made[0] is not made[4]


def test_outputs_that_are_known_need_no_kernel() -> None:
    model = prepared("(float[2,3] x) => (int64[2] s, float[2,3] y)", "s = Shape(x) y = Relu(x)")
    shape, y = model.run([np.ones((2, 3), np.float32)])
    assert shape.tolist() == [2, 3]
    assert not y.any()  # the null device computes nothing
    assert run(helper.make_node("Shape", ["x"], ["y"]), PICTURE)[0].tolist() == [1, 3, 5, 7]


def test_what_has_no_elements_is_known() -> None:
    x = np.ones((2, 0), np.float32)
    total, nothing = prepared(
        "(float[2,n] x) => (float[2,1] t, float[2,n] y)", "t = ReduceSum(x, a) y = Neg(x)", a=integers(1)
    ).run([x])
    assert total.tolist() == [[0], [0]]
    assert nothing.shape == (2, 0)


def test_values_in_the_model_can_be_replaced() -> None:
    model = build("(float[2,3] x, float[4,5] unread, float[3,4] w) => (float[2,4] y)", "y = MatMul(x, w)", ir_version=3)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((3, 4), np.float32), "w"))
    x, unread = np.ones((2, 3), np.float32), np.ones((4, 5), np.float32)
    ready = GputuneBackend.prepare(model, "null")
    assert ready.run([x, unread])[0].shape == (2, 4)
    given = ready.loaded
    ready.run([x, unread, np.zeros((3, 4), np.float32)])
    assert ready.loaded is not given


def test_inputs_with_values_may_come_first() -> None:
    model = build("(float[3,4] w, float[2,3] x) => (float[2,4] y)", "y = MatMul(x, w)", ir_version=3)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((3, 4), np.float32), "w"))
    ready, x = GputuneBackend.prepare(model, "null"), np.ones((2, 3), np.float32)
    assert ready.run([x])[0].shape == (2, 4)
    assert ready.run([np.zeros((3, 4), np.float32), x])[0].shape == (2, 4)


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ([], "needs the input 'x'"),
        ([PICTURE, PICTURE], "2 inputs for a model that has 1"),
        ({"x": PICTURE, "y": PICTURE}, "no input 'y'"),
        ([PICTURE.astype(np.float64)], "input 'x' is float64, the model takes float32"),
        ([PICTURE[0]], "'x'"),
    ],
)
def test_inputs_that_do_not_fit_are_named(inputs: Any, said: str) -> None:
    model = prepared("(float[1,3,5,7] x) => (float[1,3,5,7] y)", "y = Relu(x)")
    with pytest.raises((ValueError, Unsupported), match=said):
        model.run(inputs)


def test_nothing_is_ignored() -> None:
    model = prepared("(float[1,3,5,7] x) => (float[1,3,5,7] y)", "y = Relu(x)")
    with pytest.raises(TypeError, match="fast"):
        model.run([PICTURE], fast=True)
    with pytest.raises(TypeError, match="fast"):
        GputuneBackend.prepare(build("(float[2] x) => (float[2] y)", "y = Relu(x)"), "null", fast=True)


def test_nodes_run_by_the_operator_set_asked_for() -> None:
    node = helper.make_node("Softmax", ["x"], ["y"], axis=1)
    assert run(node, PICTURE, opset_version=11)[0].shape == PICTURE.shape
    with pytest.raises(onnx.checker.ValidationError):
        run(helper.make_node("Softmax", ["x"], ["y"], nonsense=1), PICTURE)
    with pytest.raises(ValueError, match="1 inputs for a node that reads 2"):
        run(helper.make_node("Add", ["x", "z"], ["y"]), PICTURE)


class TestRefusals:
    """Whatever does not run is skipped by test suites, with the reason."""

    def test_an_operator_that_nothing_runs_is_refused_when_the_model_is_prepared(self) -> None:
        model = build("(float[2] x, bool c) => (float[2] y)", "r = RandomNormalLike(x) y = Add(x, r)")
        with pytest.raises(Unsupported, match="RandomNormalLike node 'r'") as caught:
            GputuneBackend.prepare(model, "null")
        assert isinstance(caught.value, ModelError)
        assert isinstance(caught.value, unittest.SkipTest)
        assert not GputuneBackend.is_compatible(model, "null")

    def test_a_type_is_refused(self) -> None:
        with pytest.raises(Unsupported, match="input 'x' is not supported: it is float64"):
            prepared("(double[2] x) => (double[2] y)", "y = Relu(x)")

    def test_a_type_that_numpy_does_not_know_can_be_bound(self) -> None:
        few = onnx.helper.tensor_dtype_to_np_dtype(onnx.TensorProto.FLOAT8E4M3FN)
        model = prepared("(float[2] x, float8e4m3fn[0] none) => (float[2] y)", "y = Relu(x)")
        assert model.run([np.ones(2, np.float32), np.empty(0, few)])[0].shape == (2,)

    def test_a_result_that_is_no_tensor_is_refused(self) -> None:
        with pytest.raises(Unsupported, match="output 's' of model small is not a tensor"):
            prepared("(float[2] x) => (seq(float[2]) s)", "s = SequenceConstruct(x)")

    def test_an_operator_of_another_domain_is_named(self) -> None:
        text = """<ir_version: 8, opset_import: ["mine" : 1]> g (float[2] x) => (float[2] y) { y = mine.Magic(x) }"""
        with pytest.raises(Unsupported, match=r"mine\.Magic node 'y'"):
            GputuneBackend.prepare(onnx.parser.parse_model(text), "null")


def test_a_shape_may_be_computed_from_inputs() -> None:
    model = prepared("(float[2,3] x, int64[2] i) => (float[a,b] y)", "s = Neg(i) y = Reshape(x, s)")
    assert model.run([np.ones((2, 3), np.float32), integers(-3, -2)])[0].shape == (3, 2)


class TestSteering:
    """Which inputs say how to compute."""

    NODES = (
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Mul", ["s", "factor"], ["t"]),
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Reshape", ["r", "t"], ["y"]),
        helper.make_node("Resize", ["y", "", "scales"], ["z"]),
    )

    def test_so_do_those_from_which_a_shape_is_computed(self) -> None:
        assert compile_time_inputs(self.NODES) == {"s", "factor", "t", "scales"}

    def test_what_is_known_from_them(self) -> None:
        assert computed_from(self.NODES, {"factor"}) == {"factor", "s", "t"}
