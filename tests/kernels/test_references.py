"""Compare references of convolutions and products with onnxruntime, over all difficult problems."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from gputune.kernels.catalogue import family_of
from gputune.kernels.family import Array
from gputune.kernels.ops.conv import ConvProblem
from gputune.kernels.ops.conv_transpose import ConvTransposeProblem
from gputune.kernels.ops.depthwise import DepthwiseProblem
from gputune.kernels.ops.inverted_residual import InvertedResidualProblem
from gputune.kernels.ops.matmul import MatMulProblem
from gputune.kernels.ops.separable import SeparableProblem

from .difficult import DIFFICULT
from .problems import random_inputs

Inputs = Mapping[str, Array]
RunNode = Callable[..., Array]


def convolved(run: RunNode, problem: Any, inputs: Inputs, groups: int) -> Array:
    """Return the convolution alone, without the epilogue, as [N, Ho, Wo, C]."""
    planes = inputs["input"] if problem.layout == "NCHW" else inputs["input"].transpose(0, 3, 1, 2)
    given = [planes, inputs["weight"], *([inputs["bias"]] if problem.bias else [])]
    attributes = {"strides": problem.strides, "pads": problem.pads, "dilations": problem.dilations, "group": groups}
    return run("Conv", given, **attributes).transpose(0, 2, 3, 1)


def conv(run: RunNode, problem: ConvProblem, inputs: Inputs) -> Array:
    return convolved(run, problem, inputs, problem.groups)


def depthwise(run: RunNode, problem: DepthwiseProblem, inputs: Inputs) -> Array:
    return convolved(run, problem, inputs, problem.channels // problem.group)


def separable(run: RunNode, problem: SeparableProblem, inputs: Inputs) -> Array:
    first = DepthwiseProblem(
        problem.batch, problem.height, problem.width, problem.channels, problem.kernel, problem.strides, problem.pads,
        problem.dilations, problem.depthwise_bias,
    )  # fmt: skip
    given = {"input": inputs["input"], "weight": inputs["depthwise_weight"], "bias": inputs.get("depthwise_bias")}
    middle = problem.depthwise_epilogue.apply(depthwise(run, first, given))  # type: ignore[arg-type]
    return middle.astype(np.float64) @ inputs["weight"] + inputs.get("bias", np.zeros(1, np.float32))


def inverted(run: RunNode, problem: InvertedResidualProblem, inputs: Inputs) -> Array:
    expanded = inputs["input"] @ inputs["expand_weight"] + inputs.get("expand_bias", np.zeros(1, np.float32))
    return separable(run, problem.separable, {**inputs, "input": problem.expand_epilogue.apply(expanded)})


def transposed(run: RunNode, problem: ConvTransposeProblem, inputs: Inputs) -> Array:
    """Of the output's size follows the end of the pads, or how many rows and columns have nothing but the bias."""
    rest = [
        stride * (size - 1) + (taps - 1) * apart + 1 - first - output
        for size, stride, taps, apart, first, output in zip(
            (problem.height, problem.width), problem.strides, problem.kernel, problem.dilations, problem.pads,
            problem.output, strict=True,
        )
    ]  # fmt: skip
    given = [inputs["input"].transpose(0, 3, 1, 2), inputs["weight"]]
    attributes = {"strides": problem.strides, "dilations": problem.dilations, "group": problem.groups}
    sums = run("ConvTranspose", given, **attributes, pads=[*problem.pads, *(max(each, 0) for each in rest)])
    behind = [(0, max(-each, 0)) for each in rest]
    return np.pad(sums, [(0, 0), (0, 0), *behind]).transpose(0, 2, 3, 1) + inputs.get("bias", np.zeros(1, np.float32))


def product(run: RunNode, problem: MatMulProblem, inputs: Inputs) -> Array:
    parts = [inputs[f"a{k}"] for k in range(len(problem.parts))] or [inputs["a"]]
    return run("Gemm", [np.concatenate(parts, axis=1), inputs["b"], *([inputs["bias"]] if problem.bias else [])])


AS_ONNX: Mapping[str, Callable[..., Array]] = {
    "Conv": conv,
    "ConvTranspose": transposed,
    "DepthwiseConv": depthwise,
    "InvertedResidual": inverted,
    "MatMul": product,
    "SeparableConv": separable,
}
CASES = [(op, name) for op in AS_ONNX for name in DIFFICULT[op] if not name.startswith("computed")]


@pytest.mark.parametrize(("op", "name"), CASES, ids=["-".join(case) for case in CASES])
def test_the_reference_is_onnxruntime(run_node: RunNode, op: str, name: str) -> None:
    family, problem = family_of(op), DIFFICULT[op][name]
    inputs = random_inputs(op, problem)
    want = problem.epilogue.apply_to(AS_ONNX[op](run_node, problem, inputs), inputs)
    np.testing.assert_allclose(family.reference(problem, inputs), want, rtol=1e-4, atol=1e-5 * np.abs(want).max())
