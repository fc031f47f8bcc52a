"""Depthwise convolution (one filter per channel) over NHWC maps: pixel tiles in depthwise_direct.cl.

output[n, y, x, c] = epilogue(bias[c] + sum over ky, kx of
                     input[n, y * sh + ky * dh - top, x * sw + kx * dw - left, c] * weight[c, 0, ky, kx])
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gputune.kernels.chain import Chain
from gputune.kernels.family import Array, TensorSpec
from gputune.kernels.window import Pads, Pair, check_window, shifted_maps, window_positions


@dataclass(frozen=True)
class DepthwiseProblem:
    """A depthwise convolution: input [N, H, W, C], weight [C, 1, kh, kw], output [N, Ho, Wo, C].

    Pads are (top, left, bottom, right); the epilogue's operands are output-shaped.
    """

    batch: int
    height: int
    width: int
    channels: int
    kernel: Pair
    strides: Pair = (1, 1)
    pads: Pads = (0, 0, 0, 0)
    dilations: Pair = (1, 1)
    bias: bool = False
    epilogue: Chain = Chain()
    layout: str = "NHWC"
    dtype: str = "float32"

    def __post_init__(self) -> None:
        if min(self.batch, self.channels) < 1:
            raise ValueError("DepthwiseConv needs a positive batch and channels")
        if (self.layout, self.dtype) != ("NHWC", "float32"):
            raise ValueError(f"DepthwiseConv knows NHWC float32, not {self.layout} {self.dtype}")
        check_window(
            (self.height, self.width), self.kernel, self.strides, self.pads, self.dilations, self.output_size
        )

    @property
    def output_size(self) -> Pair:
        """(Ho, Wo)."""
        (kh, kw), (sh, sw), (dh, dw) = self.kernel, self.strides, self.dilations
        top, left, bottom, right = self.pads
        return (
            window_positions(self.height, kh, sh, (top, bottom), dh),
            window_positions(self.width, kw, sw, (left, right), dw),
        )


class Depthwise:
    """The family of op "DepthwiseConv"."""

    op = "DepthwiseConv"
    problem_type = DepthwiseProblem

    def inputs(self, problem: DepthwiseProblem) -> tuple[TensorSpec, ...]:
        bias = (TensorSpec("bias", (problem.channels,), constant=True),) if problem.bias else ()
        shape = self.output(problem).shape
        return (
            TensorSpec("input", (problem.batch, problem.height, problem.width, problem.channels)),
            TensorSpec("weight", (problem.channels, 1, *problem.kernel), constant=True),
            *bias,
            *(TensorSpec(f"operand{i}", shape) for i in range(problem.epilogue.operands)),
        )

    def output(self, problem: DepthwiseProblem) -> TensorSpec:
        return TensorSpec("output", (problem.batch, *problem.output_size, problem.channels))

    def reference(self, problem: DepthwiseProblem, inputs: Mapping[str, Array]) -> Array:
        """Whole shifted maps times one weight per channel, in float64."""
        weight = inputs["weight"].astype(np.float64)
        total = np.zeros(self.output(problem).shape)
        for row, column, seen in shifted_maps(
            inputs["input"], problem.kernel, problem.strides, problem.pads, problem.dilations, problem.output_size
        ):
            total += seen * weight[:, 0, row, column]
        if problem.bias:
            total += inputs["bias"]
        operands = [inputs[f"operand{i}"] for i in range(problem.epilogue.operands)]
        return problem.epilogue.apply(total, operands).astype(np.float32)
