"""Run a sample of the sweep of tests/client/model/test_windows.py, and joined maps, on the device with defaults."""

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from gputune.client.model.lowering import Plan
from gputune.kernels.catalogue import family_of
from gputune.kernels.family import Array
from gputune.runtime.measuring.verification import mismatch
from tests.client.model.conftest import lowered, model_folder
from tests.client.model.test_windows import convolutions, poolings, products, transposed_convolutions
from tests.client.models import build
from tests.client.plans import Lowered

__all__ = ["lowered", "model_folder"]

TOLERANCE = 1e-4
ON_HOST = frozenset(("Elementwise", "Transpose"))
"""What lies around the operators that are swept; their kernels have tests of their own."""


def on_device(bench: Any, plan: Plan, inputs: dict[str, Array]) -> dict[str, Array]:
    """The outputs of a plan, one operation after the other."""
    memory = {**inputs, **plan.constants}
    for operation in plan.operations:
        family, problem = family_of(operation.task.op), operation.task.problem
        names = {spec.name: (plan.root(operation.inputs[spec.name]), spec.shape) for spec in family.inputs(problem)}
        values = {name: memory[tensor].reshape(shape) for name, (tensor, shape) in names.items()}
        if operation.task.op in ON_HOST:
            result = family.reference(problem, values)
        else:
            result, damage = bench.run(family, problem, family.default(problem, bench.limits), values)
            assert not damage, f"{problem}: {damage}"
        memory[plan.root(operation.output)] = result
    return {tensor.name: memory[tensor.name].reshape(tensor.shape) for tensor in plan.outputs}


@pytest.mark.night
@seed(6)
@settings(
    max_examples=16,
    phases=(Phase.generate,),
    suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large),
)
@given(model=st.one_of(convolutions(), transposed_convolutions(), poolings(), products()))
def test_windows_and_products(bench: Any, lowered: Lowered, model: onnx.ModelProto) -> None:
    assert_agrees(bench, model, lowered(model))


def test_parts_of_joined_maps(bench: Any, lowered: Lowered) -> None:
    """As in SqueezeNet, with one part twice behind it."""
    body = """
        a = Conv(x, u) b = Conv<pads=[1,1,1,1]>(x, v) c = Concat<axis=1>(a, b)
        p = MaxPool<kernel_shape=[3,3], strides=[2,2]>(c) s = Conv(p, w, bias) t = Relu(s)
        d = Conv<pads=[1,1,1,1]>(t, r) e = Concat<axis=1>(t, d, t) y = Conv(e, z)"""
    weights = {
        "u": (7, 3, 1, 1), "v": (10, 3, 3, 3), "w": (5, 17, 1, 1), "bias": (5,), "r": (3, 5, 3, 3), "z": (18, 13, 1, 1),
    }  # fmt: skip
    model = build("(float[2,3,13,11] x) => (float[i,j,k,l] y)", body, weights)
    plan = lowered(model)
    products = [each.task.problem for each in plan.operations if each.task.op == "MatMul"]
    assert [each.parts for each in products] == [(), (7, 10), (5, 3, 5)]
    assert_agrees(bench, model, plan)


@pytest.mark.parametrize(
    "attributes",
    ["pads=[1,1,1,1]", "pads=[1,1,1,1], strides=[2,2]", "dilations=[2,2]", "strides=[2,2], dilations=[2,3]"],
)
@pytest.mark.parametrize("place", [0, 1, 44])
def test_transposed_convolutions_leave_the_padding_out_of_infinite_weights(
    bench: Any, lowered: Lowered, attributes: str, place: int
) -> None:
    weight = np.random.default_rng(place).standard_normal((3, 5, 3, 3), dtype=np.float32)
    weight.flat[place], weight.flat[place + 45] = np.inf, -np.inf
    model = build("(float[1,3,5,4] x) => (float[i,j,k,l] y)", f"y = ConvTranspose<{attributes}>(x, w)", {"w": weight})
    assert_agrees(bench, model, lowered(model))


def test_channels_of_one_value_in_training_are_the_bias(bench: Any, lowered: Lowered) -> None:
    """The rounding of a mean of 140 numbers is neither a deviation nor a variance."""
    signature = "(float[4,3,5,7] x, float[3] b, float[3] v) => (float[4,3,5,7] y, float[3] m, float[3] w)"
    body = "y, m, w = BatchNormalization<training_mode=1>(x, b, b, v, v)"
    plan = lowered(build(signature, body, opset=20, ir_version=9))
    bias, given = np.array([3, -0.5, 7], np.float32), np.array([1, 2, 4], np.float32)
    value = np.full((4, 3, 5, 7), 1234.1, np.float32) * np.array([1, 0.1, 700], np.float32).reshape(3, 1, 1)
    got = on_device(bench, plan, {"x": value, "b": bias, "v": given})
    np.testing.assert_array_equal(got["y"], np.broadcast_to(bias.reshape(3, 1, 1), value.shape))
    np.testing.assert_allclose(got["w"], 0.9 * given, rtol=1e-6)


def assert_agrees(bench: Any, model: onnx.ModelProto, plan: Plan) -> None:
    """The plan computes y as onnxruntime does."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    numbers = np.random.default_rng(1)
    inputs = {tensor.name: numbers.standard_normal(tensor.shape, dtype=np.float32) for tensor in plan.inputs}
    want = session.run(["y"], inputs)[0]
    wrong = mismatch(on_device(bench, plan, inputs)["y"], want, TOLERANCE, TOLERANCE)
    assert not wrong, f"{[operation.task for operation in plan.operations]}: {wrong}"
