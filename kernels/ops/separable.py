"""Compute a depthwise separable convolution over NHWC maps in one kernel: a depthwise, then a 1x1 convolution.

middle[n, y, x, c] = depthwise_epilogue(depthwise_bias[c] + sum over ky, kx of
                     input[n, y * sh + ky * dh - top, x * sw + kx * dw - left, c] * depthwise_weight[c, 0, ky, kx])
output[n, y, x, o] = epilogue(bias[o] + sum over c of middle[n, y, x, c] * weight[c, o])

The kernel is the fused form of a DepthwiseConv and a MatMul task: the middle is never a tensor in memory.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gputune.core.dtypes import ELEMENT_TYPES, FLOAT
from gputune.core.launches import on_buffers
from gputune.kernels.chain import EMPTY, Chain
from gputune.kernels.family import (
    Array,
    DeviceLimits,
    Instance,
    Launch,
    Problem,
    TensorSpec,
    TiledFamily,
    Tolerance,
    Work,
)
from gputune.kernels.pointers import aligned
from gputune.kernels.space import Configuration
from gputune.kernels.template import build_options, template
from gputune.kernels.tiling.packing import Packing
from gputune.kernels.tiling.streaming import check_indices
from gputune.kernels.tiling.strips import Strips
from gputune.kernels.tiling.window import Pads, Pair, Window, check_layout
from gputune.kernels.tiling.workgroups import few_registers


@dataclass(frozen=True)
class SeparableProblem(Problem):
    """A depthwise separable convolution.

    input [N, H, W, C], depthwise_weight [C, 1, kh, kw], weight [C, O], output [N, Ho, Wo, O]. Pads are (top, left,
    bottom, right). The epilogue's operands are output-shaped; the depthwise epilogue has none.
    """

    op = "SeparableConv"

    batch: int
    height: int
    width: int
    channels: int
    out_channels: int
    kernel: Pair
    strides: Pair = (1, 1)
    pads: Pads = (0, 0, 0, 0)
    dilations: Pair = (1, 1)
    depthwise_bias: bool = False
    bias: bool = False
    depthwise_epilogue: Chain = EMPTY
    epilogue: Chain = EMPTY
    layout: str = "NHWC"
    dtype: str = FLOAT

    def check(self) -> None:
        if min(self.batch, self.channels, self.out_channels) < 1:
            raise ValueError("SeparableConv needs a positive batch and channels")
        check_layout("SeparableConv", self.layout, "NHWC")
        if self.depthwise_epilogue.operands or self.depthwise_epilogue.has_domain:
            raise ValueError("SeparableConv needs a depthwise epilogue without operands that is defined everywhere")
        check_indices(
            "SeparableConv",
            (self.batch, self.height, self.width, self.channels),
            (self.batch, *self.window.output, self.out_channels),
            (self.channels, self.out_channels),
        )

    @property
    def window(self) -> Window:
        """The depthwise convolution's sliding window."""
        return Window((self.height, self.width), self.kernel, self.strides, self.pads, self.dilations)

    @property
    def pixels(self) -> int:
        """Output pixels of the whole batch."""
        return self.batch * math.prod(self.window.output)


FEW_REGISTERS_WEIGHT_BYTES = 128 << 10
"""Measured with 16 registers: with more weights, two kernels take 0.80 to 0.98 times as long on maps of 28 x 28 pixels
down to 7 x 7, with fewer mostly 1.03 to 1.2 times."""


class SeparableFamily(TiledFamily):
    """One template: a strip of the middle, then register tiles of pixels and channels."""

    op = SeparableProblem.op

    def inputs(self, problem: SeparableProblem) -> tuple[TensorSpec, ...]:
        channels, outputs = problem.channels, problem.out_channels
        first = (problem.tensor("depthwise_bias", (channels,), constant=True),) if problem.depthwise_bias else ()
        second = (problem.tensor("bias", (outputs,), constant=True),) if problem.bias else ()
        shape = self.output(problem).shape
        return (
            problem.tensor("input", (problem.batch, problem.height, problem.width, channels)),
            problem.tensor("depthwise_weight", (channels, 1, *problem.kernel), constant=True),
            *first,
            problem.tensor("weight", (channels, outputs), constant=True),
            *second,
            *problem.operands(shape),
        )

    def output(self, problem: SeparableProblem) -> TensorSpec:
        return problem.tensor("output", (problem.batch, *problem.window.output, problem.out_channels))

    def tiling(self, problem: SeparableProblem) -> Strips:
        return Strips(problem.batch, problem.window, problem.channels, problem.out_channels, problem.dtype)

    def pays(self, problem: SeparableProblem, limits: DeviceLimits) -> bool:
        """On CPUs, where a strip of the map between the two stays in a cache; with few registers not where strips,
        which are short then, would read many weights again and again."""
        many = (
            problem.channels * problem.out_channels * ELEMENT_TYPES[problem.dtype].nbytes > FEW_REGISTERS_WEIGHT_BYTES
        )
        return limits.device_type == "cpu" and not (few_registers(limits) and many)

    def render(self, problem: SeparableProblem, configuration: Configuration) -> Instance:
        strips, filters = self.tiling(problem), _filters(problem)
        packed = strips.packing(configuration["NV"], configuration["VW"], configuration["LN"])
        global_size, local_size = strips.launch_sizes(configuration)
        sizes = {
            "MAPS": problem.batch,
            "CHANNELS": problem.channels,
            "OUTPUTS": problem.out_channels,
            **problem.window.macros,
        }
        middle = problem.depthwise_epilogue.source("(value)")
        prelude = f"#define DEPTHWISE_EPILOGUE(value, T) {{ {middle} }}\n{problem.epilogue.prelude()}"
        operands = problem.epilogue.operand_names
        main = Launch(
            source=prelude + template("separable_strips.cl", dtype=problem.dtype),
            entry="separable_strips",
            needs=strips.needs.of(configuration),
            writes=("output",),
            aligned=aligned(configuration["VW"], problem.channels, problem.out_channels),
            options=build_options(sizes | dict(configuration)),
            global_size=global_size,
            local_size=local_size,
            arguments=("input", "filters", "packed", "output", *operands),
        )
        names = {"packed": "filters", "bias": "depthwise_bias"}
        first = filters.launch("depthwise_weight", problem.depthwise_bias)
        prepare = (on_buffers(first, lambda name: names.get(name, name)), packed.launch("weight", problem.bias))
        return Instance(main, prepare, {"filters": filters.nbytes, "packed": packed.nbytes})

    def reference(self, problem: SeparableProblem, inputs: Mapping[str, Array]) -> Array:
        """Whole shifted maps times one weight per channel, then numpy's product, in float64."""
        weight = inputs["depthwise_weight"].astype(np.float64)
        middle = np.zeros((problem.batch, *problem.window.output, problem.channels))
        for row, column, seen in problem.window.shifted_maps(inputs["input"]):
            middle += seen * weight[:, 0, row, column]
        if problem.depthwise_bias:
            middle += inputs["depthwise_bias"]
        total = problem.depthwise_epilogue.apply(middle) @ inputs["weight"].astype(np.float64)
        if problem.bias:
            total += inputs["bias"]
        return problem.epilogue.apply_to(total, inputs).astype(problem.dtype)

    def work(self, problem: SeparableProblem) -> Work:
        middle = 2 * math.prod(problem.kernel) + problem.depthwise_bias + len(problem.depthwise_epilogue.steps)
        each = 2 * problem.channels + problem.bias + len(problem.epilogue.steps)
        return Work(
            problem.pixels * (problem.channels * middle + problem.out_channels * each), self.moved_bytes(problem)
        )

    def tolerance(self, problem: SeparableProblem) -> Tolerance:
        """Return the errors of both sums."""
        terms = math.sqrt(math.prod(problem.kernel)) + math.sqrt(problem.channels)
        return Tolerance.of(problem.dtype, relative=5e-6 + 2e-6 * terms, absolute=1e-5)


def _filters(problem: SeparableProblem) -> Packing:
    taps, channels = math.prod(problem.kernel), problem.channels
    return Packing(channels, 1, channels, output_stride=taps, input_stride=taps, taps=taps, dtype=problem.dtype)


FAMILY = SeparableFamily()
