"""Convolution with groups over NHWC maps: register tiles of output pixels in conv_direct.cl.

output[n, y, x, o] = epilogue(bias[o] + sum over ky, kx, c of
                     input[n, y * sh + ky * dh - top, x * sw + kx * dw - left, c] * weight[o, c, ky, kx])
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from gputune.kernels.chain import Chain
from gputune.kernels.family import Array, TensorSpec
from gputune.kernels.window import Pads, Pair, check_window, shifted_maps, window_positions


@dataclass(frozen=True)
class ConvProblem:
    """A convolution: input [N, H, W, C], weight [O, C/groups, kh, kw], output [N, Ho, Wo, O].

    Pads are (top, left, bottom, right); the epilogue's operands are output-shaped.
    """

    batch: int
    height: int
    width: int
    in_channels: int
    out_channels: int
    kernel: Pair
    strides: Pair = (1, 1)
    pads: Pads = (0, 0, 0, 0)
    dilations: Pair = (1, 1)
    groups: int = 1
    bias: bool = False
    epilogue: Chain = Chain()
    layout: str = "NHWC"
    dtype: str = "float32"

    def __post_init__(self) -> None:
        if min(self.batch, self.in_channels, self.out_channels, self.groups) < 1:
            raise ValueError("Conv needs a positive batch, channels and groups")
        if self.in_channels % self.groups or self.out_channels % self.groups:
            raise ValueError(
                f"Conv: {self.groups} groups do not divide {self.in_channels} input"
                f" and {self.out_channels} output channels"
            )
        if (self.layout, self.dtype) != ("NHWC", "float32"):
            raise ValueError(f"Conv knows NHWC float32, not {self.layout} {self.dtype}")
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

    @property
    def pixels(self) -> int:
        """Output pixels of the whole batch."""
        return self.batch * prod(self.output_size)

    @property
    def group_inputs(self) -> int:
        """Input channels one output channel sees."""
        return self.in_channels // self.groups

    @property
    def group_outputs(self) -> int:
        """Output channels of one group."""
        return self.out_channels // self.groups


class Conv:
    """The family of op "Conv"."""

    op = "Conv"
    problem_type = ConvProblem

    def inputs(self, problem: ConvProblem) -> tuple[TensorSpec, ...]:
        weight = (problem.out_channels, problem.group_inputs, *problem.kernel)
        bias = (TensorSpec("bias", (problem.out_channels,), constant=True),) if problem.bias else ()
        shape = self.output(problem).shape
        return (
            TensorSpec("input", (problem.batch, problem.height, problem.width, problem.in_channels)),
            TensorSpec("weight", weight, constant=True),
            *bias,
            *(TensorSpec(f"operand{i}", shape) for i in range(problem.epilogue.operands)),
        )

    def output(self, problem: ConvProblem) -> TensorSpec:
        return TensorSpec("output", (problem.batch, *problem.output_size, problem.out_channels))

    def reference(self, problem: ConvProblem, inputs: Mapping[str, Array]) -> Array:
        """A matrix product per tap over the whole padded map, in float64."""
        groups, outputs = problem.groups, problem.group_outputs
        weight = inputs["weight"].astype(np.float64).reshape(groups, outputs, -1, *problem.kernel)
        total = np.zeros((groups, problem.pixels, outputs))
        for row, column, seen in shifted_maps(
            inputs["input"], problem.kernel, problem.strides, problem.pads, problem.dilations, problem.output_size
        ):
            pixels = seen.reshape(problem.pixels, groups, -1).transpose(1, 0, 2)
            total += pixels @ weight[..., row, column].transpose(0, 2, 1)
        result = total.transpose(1, 0, 2).reshape(self.output(problem).shape)
        if problem.bias:
            result = result + inputs["bias"]
        operands = [inputs[f"operand{i}"] for i in range(problem.epilogue.operands)]
        return problem.epilogue.apply(result, operands).astype(np.float32)
