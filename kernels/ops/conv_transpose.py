"""Compute transposed convolutions with groups over NHWC maps: sub-pixel form, register tiles in
conv_transpose_tiled.cl.

Output pixels whose positions agree modulo the strides form one phase: they see the same taps of the filter. A position
stands for one pixel of each phase. It is a row of a matrix product whose columns are the output channels of all phases.
If the kernel is as large as the strides, there is only one tap, and the whole computation is that product.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gputune.core.dtypes import FLOAT
from gputune.kernels.chain import EMPTY, Chain
from gputune.kernels.family import (
    ALONE,
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
from gputune.kernels.tiling.packing import PACK_RUN, Packing
from gputune.kernels.tiling.streaming import ceil_div, check_indices
from gputune.kernels.tiling.tiles import Tiling
from gputune.kernels.tiling.window import Pair, check_layout
from gputune.kernels.tiling.workgroups import TiledKernel, few_registers

PACK_TEMPLATE = "pack_transposed.cl"


@dataclass(frozen=True)
class ConvTransposeProblem(Problem):
    """A transposed convolution: input [N, H, W, C], weight [C, O/groups, kh, kw], output [N, Ho, Wo, O].

    Input pixel (i, j) adds its products to output pixels (i * sh + ky * dh - top, j * sw + kx * dw - left). `output` is
    (Ho, Wo), which says what is cut or added below and on the right; `pads` is (top, left). The epilogue's operands are
    output-shaped. `finite` says that no weight is infinite or NaN.
    """

    op = "ConvTranspose"

    batch: int
    height: int
    width: int
    in_channels: int
    out_channels: int
    kernel: Pair
    strides: Pair
    output: Pair
    pads: Pair = (0, 0)
    dilations: Pair = (1, 1)
    groups: int = 1
    bias: bool = False
    epilogue: Chain = EMPTY
    layout: str = "NHWC"
    dtype: str = FLOAT
    finite: bool = True

    def check(self) -> None:
        sizes = (self.batch, self.height, self.width, self.in_channels, self.out_channels, *self.output)
        if min(*sizes, *self.kernel, *self.strides, *self.dilations) < 1 or min(self.pads) < 0:
            raise ValueError("ConvTranspose needs positive sizes and pads that are not negative")
        if self.groups < 1 or self.in_channels % self.groups or self.out_channels % self.groups:
            raise ValueError(
                f"ConvTranspose: {self.groups} groups do not divide {self.in_channels} input"
                f" and {self.out_channels} output channels"
            )
        check_layout("ConvTranspose", self.layout, "NHWC")
        check_indices(
            "ConvTranspose",
            (self.batch, self.height, self.width, self.in_channels),
            (self.batch, *self.output, self.out_channels),
            (self.batch, *self.positions, self.columns * self.groups),
        )

    @property
    def positions(self) -> Pair:
        """Positions down and across; each stands for one output pixel of every phase, some of them cut off."""
        down, across = (
            (size - 1 + pad) // stride - pad // stride + 1
            for size, pad, stride in zip(self.output, self.pads, self.strides, strict=True)
        )
        return down, across

    @property
    def taps(self) -> Pair:
        """How many input rows and columns an output pixel sees at most."""
        down, across = (
            (size - 1) * dilation // stride + 1
            for size, dilation, stride in zip(self.kernel, self.dilations, self.strides, strict=True)
        )
        return down, across

    @property
    def columns(self) -> int:
        """Output channels of all phases of one group."""
        return math.prod(self.strides) * self.group_outputs

    @property
    def group_inputs(self) -> int:
        """Input channels that one output channel sees."""
        return self.in_channels // self.groups

    @property
    def group_outputs(self) -> int:
        """Output channels of one group."""
        return self.out_channels // self.groups


class ConvTransposeFamily(TiledFamily):
    """One template: register tiles of positions and of the channels of all phases over packed filters."""

    op = ConvTransposeProblem.op

    def inputs(self, problem: ConvTransposeProblem) -> tuple[TensorSpec, ...]:
        weight = (problem.in_channels, problem.group_outputs, *problem.kernel)
        bias = (problem.tensor("bias", (problem.out_channels,), constant=True),) if problem.bias else ()
        shape = self.output(problem).shape
        return (
            problem.tensor("input", (problem.batch, problem.height, problem.width, problem.in_channels)),
            problem.tensor("weight", weight, constant=True),
            *bias,
            *problem.operands(shape),
        )

    def output(self, problem: ConvTransposeProblem) -> TensorSpec:
        return problem.tensor("output", (problem.batch, *problem.output, problem.out_channels))

    def tiling(self, problem: ConvTransposeProblem) -> Tiling:
        """Only sizes: where the columns come from is for pack_transposed.cl to know."""
        return Tiling(
            rows=problem.batch * math.prod(problem.positions),
            columns=problem.columns,
            reduction=problem.group_inputs,
            output_stride=0,
            input_stride=0,
            groups=problem.groups,
            taps=math.prod(problem.taps),
            zeros=problem.group_inputs,
            pitch=problem.in_channels,
            dtype=problem.dtype,
        )

    def default(self, problem: ConvTransposeProblem, limits: DeviceLimits) -> dict[str, int]:
        """Return the default of the tiling. With 16 registers two vectors become one of twice the width. Beside where
        the positions lie, LLVM spills accumulators of two, so that it takes 1.1 to 1.7 times as long."""
        usual = super().default(problem, limits)
        if few_registers(limits) and usual["NV"] == 2:
            return usual | {"NV": 1, "VW": 2 * usual["VW"]}
        return usual

    def render(self, problem: ConvTransposeProblem, configuration: Configuration) -> Instance:
        tiling = self.tiling(problem)
        packing = tiling.packing(configuration["NV"], configuration["VW"], configuration["LN"])
        sizes = {
            "MAPS": problem.batch,
            "HEIGHT": problem.height,
            "WIDTH": problem.width,
            "GROUPS": problem.groups,
            "INPUTS": problem.group_inputs,
            "OUTPUTS": problem.group_outputs,
            "OPERANDS": problem.epilogue.operands,
            "FINITE": int(problem.finite),
            **dict(zip(("OUT_HEIGHT", "OUT_WIDTH"), problem.output, strict=True)),
            **dict(zip(("DOWN", "ACROSS"), problem.positions, strict=True)),
            **dict(zip(("TH", "TW"), problem.taps, strict=True)),
            **dict(zip(("SH", "SW"), problem.strides, strict=True)),
            **dict(zip(("PT", "PL"), problem.pads, strict=True)),
        }
        source = problem.epilogue.prelude() + template("conv_transpose_tiled.cl", dtype=problem.dtype)
        whole, operands = aligned(configuration["VW"], problem.group_outputs), problem.epilogue.operand_names
        kernel = TiledKernel(source, "conv_transpose_tiled", sizes, ("input", "packed"), operands, whole)
        main = tiling.launch(configuration, kernel)
        return Instance(main, (_pack(problem, packing),), {"packed": packing.nbytes})

    def sample_inputs(self, problem: ConvTransposeProblem, generator: np.random.Generator) -> dict[str, Array]:
        """As everywhere, but the terms of a sum are the first axis of the weights times the taps; and a weight that is
        not finite where there may be some."""
        inputs = super().sample_inputs(problem, generator)
        taken = problem.group_outputs * math.prod(problem.kernel)
        ratio = taken / (problem.group_inputs * math.prod(problem.taps))
        inputs["weight"] *= ratio if problem.epilogue.has_domain else math.sqrt(ratio)
        if not problem.finite:
            inputs["weight"].flat[generator.integers(inputs["weight"].size)] = np.inf
        return inputs

    def reference(self, problem: ConvTransposeProblem, inputs: Mapping[str, Array]) -> Array:
        """Scatter the products of each tap in float64 into an output without borders, and cut the padding from it."""
        (sh, sw), (dh, dw), (top, left) = problem.strides, problem.dilations, problem.pads
        rows, columns = problem.output
        full = [
            max((size - 1) * stride + (kernel - 1) * dilation + 1, pad + output)
            for size, stride, kernel, dilation, pad, output in zip(
                (problem.height, problem.width), problem.strides, problem.kernel, problem.dilations, problem.pads,
                problem.output, strict=True,
            )
        ]  # fmt: skip
        groups = problem.groups
        total = np.zeros((groups, problem.batch, *full, problem.group_outputs))
        size = (problem.batch, problem.height, problem.width, groups, problem.group_inputs)
        maps = inputs["input"].astype(np.float64).reshape(size).transpose(3, 0, 1, 2, 4)
        weight = inputs["weight"].astype(np.float64).reshape(groups, 1, 1, *size[4:], -1, *problem.kernel)
        for ky in range(problem.kernel[0]):
            for kx in range(problem.kernel[1]):
                below = slice(ky * dh, ky * dh + (problem.height - 1) * sh + 1, sh)
                beside = slice(kx * dw, kx * dw + (problem.width - 1) * sw + 1, sw)
                total[:, :, below, beside] += maps @ weight[..., ky, kx]
        kept = total[:, :, top : top + rows, left : left + columns]
        result = kept.transpose(1, 2, 3, 0, 4).reshape(self.output(problem).shape)
        if problem.bias:
            result = result + inputs["bias"]
        return problem.epilogue.apply_to(result, inputs).astype(problem.dtype)

    def work(self, problem: ConvTransposeProblem) -> Work:
        sums = 2 * problem.batch * problem.height * problem.width * problem.group_inputs * math.prod(problem.kernel)
        pixels = problem.batch * math.prod(problem.output)
        return Work(
            problem.out_channels * (sums + pixels * (problem.bias + len(problem.epilogue.steps))),
            self.moved_bytes(problem),
        )

    def tolerance(self, problem: ConvTransposeProblem) -> Tolerance:
        length = problem.group_inputs * math.prod(problem.taps)
        return Tolerance.of(problem.dtype, relative=5e-6 + 2e-6 * math.sqrt(length), absolute=1e-5)


def _pack(problem: ConvTransposeProblem, packing: Packing) -> Launch:
    return Launch(
        source=template(PACK_TEMPLATE, dtype=problem.dtype),
        entry="pack_transposed",
        needs=ALONE,
        writes=("packed",),
        options=build_options({"RUN": PACK_RUN}),
        global_size=(ceil_div(packing.size, PACK_RUN),),
        local_size=(1,),
        arguments=(
            "weight",
            "bias" if problem.bias else "weight",
            "packed",
            packing.size,
            packing.panel,
            problem.groups,
            problem.group_inputs,
            problem.group_outputs,
            *problem.kernel,
            *problem.strides,
            *problem.dilations,
            *problem.taps,
            int(problem.bias),
        ),
    )


FAMILY = ConvTransposeFamily()
