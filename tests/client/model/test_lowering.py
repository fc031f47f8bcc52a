"""Compare whole plans with onnxruntime, using the kernel families' references in place of kernels."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from gputune.client.errors import ModelError
from gputune.client.model.reference import evaluate
from tests.client import models
from tests.client.models import build
from tests.client.plans import Lowered, assert_agrees, assert_whole, ops


@pytest.mark.parametrize(
    ("make", "operations"),
    [
        (models.conv_relu_gemm, ["Conv", "Transpose", "MatMul"]),
        (models.residual_block, ["Conv", "Transpose", "Conv", "Transpose"]),
    ],
)
def test_networks_run_nothing_that_they_need_not(
    lowered: Lowered, make: Callable[[], onnx.ModelProto], operations: list[str]
) -> None:
    model = make()
    plan = lowered(model)
    assert_whole(plan)
    assert_agrees(model, plan)
    assert ops(plan) == operations


def test_equal_problems_are_one_task_with_their_number(lowered: Lowered) -> None:
    body = "a = Conv(x, u) r = Relu(a) b = Conv(r, v) s = Relu(b) c = Conv(s, w) y = Tanh(c)"
    weights: Mapping[str, Any] = dict.fromkeys("uvw", (3, 3, 3, 3))
    plan = lowered(build("(float[1,3,40,40] x) => (float[1,3,34,34] y)", body, weights))
    assert len(plan.tasks) == 4
    pads = "<pads=[1,1,1,1]>"
    same = body.replace("Conv", f"Conv{pads}").replace("Tanh", "Relu")
    plan = lowered(build("(float[1,3,8,8] x) => (float[1,3,8,8] y)", same, weights))
    assert [(task.op, task.weight) for task in plan.tasks] == [("Conv", 1), ("Conv", 2), ("Transpose", 1)]
    assert [operation.task for operation in plan.operations][1:3] == [plan.tasks[1]] * 2


def test_operations_say_which_nodes_they_stand_for(lowered: Lowered) -> None:
    model = models.residual_block()
    for node in model.graph.node:
        node.name = f"the {node.output[0]}"
    plan = lowered(model)
    assert [operation.nodes for operation in plan.operations] == [
        ("the a", "the n", "the r"),
        (),
        ("the c", "the s", "the y"),
        (),
    ]


def test_a_pointwise_convolution_is_a_matrix_product_unless_it_strides_or_groups(lowered: Lowered) -> None:
    for attributes, op in (("", "MatMul"), ("<strides=[2,2]>", "Conv"), ("<pads=[0,0,0,1]>", "Conv")):
        model = build("(float[2,6,5,4] x) => (float[a,b,c,d] y)", f"y = Conv{attributes}(x, w)", {"w": (8, 6, 1, 1)})
        plan = lowered(model)
        assert ops(plan) == (["Transpose", op, "Transpose"] if op == "MatMul" else [op, "Transpose"])
        if op == "MatMul":
            problem = plan.operations[1].task.problem
            assert (problem.m, problem.k, problem.n) == (40, 6, 8)
    grouped = build("(float[2,6,5,4] x) => (float[a,b,c,d] y)", "y = Conv<group=2>(x, w)", {"w": (8, 3, 1, 1)})
    assert ops(lowered(grouped))[1] == "Conv"


def test_maps_of_one_position_or_one_channel_are_never_converted(lowered: Lowered) -> None:
    model = build("(float[2,1,5,4] x) => (float[2,3,1,1] y)", "y = Conv(x, w)", {"w": (3, 1, 5, 4)})
    plan = lowered(model)
    assert ops(plan) == ["Conv"]
    assert plan.operations[0].output in (plan.outputs[0].name, *plan.aliases)
    assert_agrees(model, plan)


def test_all_unsupported_uses_are_named_at_once(lowered: Lowered) -> None:
    body = "a = Conv(x, v) b = Relu(a) y = ConvTranspose(b, v)"
    model = build("(float[1,3,5,5] x, float[3,3,2,2] v) => (float[n,c,h,w] y)", body)
    for node in model.graph.node:
        node.name = f"the {node.op_type}"
    with pytest.raises(ModelError, match=r"the Conv', .*the ConvTranspose' are not supported"):
        lowered(model)


def test_an_output_that_nothing_computes_is_refused(lowered: Lowered) -> None:
    with pytest.raises(ModelError, match="also an input"):
        lowered(build("(float[2] x) => (float[2] r, float[2] x)", "r = Relu(x)"))


def test_a_division_by_zero_stays_behind_its_convolution(lowered: Lowered) -> None:
    """Weights divided by it would be infinite or, where they are zero, no numbers."""
    weights = np.array([[0, 1], [2, 0], [1, 3]], np.float32).reshape(3, 2, 1, 1)
    by = np.array([2, 0, -4], np.float32).reshape(3, 1, 1)
    model = build("(float[1,2,4,5] x) => (float[1,3,4,5] y)", "c = Conv(x, w) y = Div(c, by)", {"w": weights, "by": by})
    x = np.random.default_rng(3).standard_normal((1, 2, 4, 5), dtype=np.float32)
    x[0, 0, 0, 0] = 0
    (want,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    assert np.isinf(want).any() and np.isnan(want).any()
    np.testing.assert_allclose(evaluate(lowered(model), {"x": x})["y"], want, rtol=1e-6)


def test_a_convolution_of_any_depth_is_one_task(lowered: Lowered) -> None:
    maps = "(float[2,6,7,5,6] x) => (float[a,b,c,d,e] y)"
    plan = lowered(build(maps, "y = Conv<pads=[1,1,1,1,1,1]>(x, w)", {"w": (4, 6, 3, 3, 3)}))
    (conv,) = (operation.task.problem for operation in plan.operations if operation.task.op == "Conv")
    assert (conv.batch, conv.in_channels) == (2 * 7, 6 * 3)


def test_equal_walks_are_one_task(lowered: Lowered) -> None:
    body = "a = ReduceMean<axes=[2,3]>(x) b = ReduceMean<axes=[1]>(v)"
    plan = lowered(build("(float[2,3,4,5] x, float[6,20] v) => (float[2,3,1,1] a, float[6,1] b)", body))
    assert [(task.op, task.weight) for task in plan.tasks] == [("Reduce", 2)]


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8", "int8", "bool"])
def test_whole_numbers_and_bools(lowered: Lowered, dtype: str) -> None:
    body = "a = ReduceMax<keepdims=0>(x, k) b = ReduceMin(x)"
    outputs = f"{dtype}[2,4] a, {dtype}[1,1,1] b"
    if dtype.endswith(("64", "32")):
        body += " c = ReduceSum(x, k) d = ReduceProd(x, k) e = CumSum(x, k) f = ArgMax<axis=1>(x)"
        outputs += f", {dtype}[2,1,4] c, {dtype}[2,1,4] d, {dtype}[2,3,4] e, int64[2,1,4] f"
    opset = 20 if dtype == "bool" else 18
    model = build(f"({dtype}[2,3,4] x) => ({outputs})", body, {"k": np.array([1])}, opset, ir_version=9)
    if dtype == "int64":
        onnx.checker.check_model(model)
    plan = lowered(model)
    assert all(op in ("Reduce", "Scan", "ArgMax") for op in ops(plan))
    values = {"x": np.random.default_rng(1).integers(0, 2 if dtype == "bool" else 5, (2, 3, 4)).astype(dtype)}
    got, value = evaluate(plan, values), values["x"]
    wanted = {"a": value.max(1), "b": value.min(keepdims=True), "f": value.argmax(1)[:, np.newaxis]}
    wanted |= {"c": value.sum(1, dtype, keepdims=True), "d": value.prod(1, dtype, keepdims=True)} if "c" in got else {}
    wanted |= {"e": value.cumsum(1, dtype)} if "e" in got else {}
    for name, result in got.items():
        np.testing.assert_array_equal(result, wanted[name])
        assert result.dtype == wanted[name].dtype
