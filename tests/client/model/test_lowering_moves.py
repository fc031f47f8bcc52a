"""Test importing, fusing and lowering Concat, ConvTranspose and Sum, compared with onnxruntime."""

import re
from typing import Any

import numpy as np
import onnx
import pytest

from gputune.client.errors import ModelError
from gputune.client.model.lowering import Plan
from tests.client.models import build

from .test_lowering import Lowered, assert_agrees, lowered, ops

__all__ = ["lowered"]


def refusal(lowered: Lowered, model: onnx.ModelProto) -> str:
    with pytest.raises(ModelError) as caught:
        lowered(model)
    return caught.value.message


class TestConcat:
    """In the order in which the inputs lie already, along whatever axis."""

    @pytest.mark.parametrize("axis", [0, 1, 2, 3, -1])
    def test_maps_are_joined_as_they_lie(self, lowered: Lowered, axis: int) -> None:
        body = f"a = Conv(x, u) b = Conv(x, v) c = Concat<axis={axis}>(a, b, a) y = Relu(c)"
        model = build("(float[2,3,4,6] x) => (float[i,j,k,l] y)", body, {"u": (5, 3, 3, 3), "v": (5, 3, 3, 3)})
        plan = lowered(model)
        assert_agrees(model, plan)
        assert ops(plan) == ["Conv", "Conv", "Concat", "Elementwise", "Transpose"]

    def test_channels_of_different_numbers_are_joined_pixel_by_pixel(self, lowered: Lowered) -> None:
        body = "a = Conv(x, u) b = Conv(x, v) y = Concat<axis=1>(a, b)"
        model = build("(float[2,3,4,6] x) => (float[i,j,k,l] y)", body, {"u": (5, 3, 1, 1), "v": (7, 3, 1, 1)})
        plan = lowered(model)
        assert_agrees(model, plan)
        problem = plan.operations[3].task.problem
        assert (problem.rows, problem.parts) == (48, (5, 7))

    def test_what_lies_in_the_models_order_stays_there(self, lowered: Lowered) -> None:
        model = build("(float[2,3,4,6] x, float[2,1,4,6] z) => (float[i,j,k,l] y)", "y = Concat<axis=1>(x, z, x)")
        plan = lowered(model)
        assert_agrees(model, plan)
        assert ops(plan) == ["Concat"]

    def test_constants_and_empty_tensors_take_part(self, lowered: Lowered) -> None:
        body = "a = Conv(x, u) y = Concat<axis=1>(w, a, e)"
        weights: dict[str, Any] = {"u": (5, 3, 1, 1), "w": (1, 2, 4, 6), "e": np.zeros((1, 0, 4, 6), np.float32)}
        model = build("(float[1,3,4,6] x) => (float[i,j,k,l] y)", body, weights)
        assert_agrees(model, lowered(model))

    def test_other_ranks_and_many_inputs(self, lowered: Lowered) -> None:
        names = [f"t{k}" for k in range(12)]
        body = " ".join(f"{name} = Relu(x)" for name in names) + f" y = Concat<axis=-2>({', '.join(names)})"
        model = build("(float[3,2,5] x) => (float[i,j,k] y)", body)
        assert_agrees(model, lowered(model))

    def test_more_inputs_than_arguments_are_refused_by_name(self, lowered: Lowered) -> None:
        model = build("(float[1,2] x) => (float[i,j] y)", f"y = Concat<axis=1>({', '.join(['x'] * 65)})")
        model.graph.node[0].name = "wide"
        assert re.search("Concat node 'wide' .* up to 64 tensors, not 65", refusal(lowered, model))


class TestConvTranspose:
    """Every way to say how large the result is, and what is fused behind it."""

    @staticmethod
    def plan_of(lowered: Lowered, attributes: str, kernel: tuple[int, int]) -> Plan:
        body = f"y = ConvTranspose{attributes}(x, w, b)"
        model = build("(float[2,3,5,4] x) => (float[i,j,k,l] y)", body, {"w": (3, 7, *kernel), "b": (7,)})
        plan = lowered(model)
        assert_agrees(model, plan)
        return plan

    @pytest.mark.parametrize("kernel", [(2, 2), (3, 4)])
    @pytest.mark.parametrize(
        "attributes",
        [
            "",
            "<strides=[2,2]>",
            "<strides=[2,3], pads=[1,0,0,1]>",
            "<strides=[3,2], output_padding=[2,1]>",
            "<strides=[2,2], dilations=[2,1], pads=[1,1,1,1]>",
            '<strides=[2,2], auto_pad="SAME_UPPER">',
            '<strides=[2,2], auto_pad="SAME_LOWER">',
            '<strides=[2,3], auto_pad="VALID">',
            "<strides=[2,2], output_shape=[9,7]>",
            '<strides=[2,2], auto_pad="VALID", output_shape=[9,7]>',
        ],
    )
    def test_agrees(self, lowered: Lowered, attributes: str, kernel: tuple[int, int]) -> None:
        assert ops(self.plan_of(lowered, attributes, kernel)) == ["Transpose", "ConvTranspose", "Transpose"]

    def test_scales_fold_and_activations_fuse(self, lowered: Lowered) -> None:
        body = """a = ConvTranspose<strides=[2,2]>(x, w)
                  n = BatchNormalization(a, scale, shift, mean, variance)
                  r = Relu(n)
                  c = ConvTranspose<strides=[2,2]>(r, v, b)
                  y = Sigmoid(c)"""
        weights: dict[str, Any] = {"w": (3, 6, 2, 2), "v": (6, 1, 2, 2), "b": (1,)}
        weights |= dict.fromkeys(("scale", "shift", "mean"), (6,)) | {"variance": np.full(6, 0.7, np.float32)}
        model = build("(float[1,3,5,4] x) => (float[i,j,k,l] y)", body, weights)
        plan = lowered(model)
        assert_agrees(model, plan)
        assert ops(plan) == ["Transpose", "ConvTranspose", "ConvTranspose"]

    @pytest.mark.parametrize(
        ("attributes", "weight", "message"),
        [
            ('<auto_pad="SAME">', (3, 2, 2, 2), "auto_pad 'SAME' is unknown"),
        ],
    )
    def test_what_is_not_supported_is_said(
        self, lowered: Lowered, attributes: str, weight: tuple[int, ...], message: str
    ) -> None:
        body = f"y = ConvTranspose{attributes}(x, w)"
        model = build("(float[1,3,5,4] x) => (float[i,j,k,l] y)", body, {"w": weight})
        assert message in refusal(lowered, model)


class TestSum:
    """A Sum is Adds: the steps of chains."""

    @pytest.mark.parametrize(
        ("body", "operations"),
        [
            ("a = Conv(x, u) s = Sum(a, x) y = Relu(s)", ["Transpose", "MatMul", "Transpose"]),
            ("s = Sum(x) y = Relu(s)", ["Elementwise"]),
            ("s = Sum(v, x, w, x) y = Relu(s)", ["Elementwise"]),
        ],
    )
    def test_agrees(self, lowered: Lowered, body: str, operations: list[str]) -> None:
        weights: dict[str, Any] = {"u": (3, 3, 1, 1), "v": (1, 3, 1, 1), "w": (5, 4)}
        model = build("(float[2,3,5,4] x) => (float[2,3,5,4] y)", body, weights)
        plan = lowered(model)
        assert_agrees(model, plan)
        assert ops(plan) == operations
