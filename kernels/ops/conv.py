"""Convolve NHWC maps, with groups.

conv_direct.cl computes register tiles of output pixels. conv_winograd.cl has Winograd's algorithm for 3x3 filters.
conv_planes.cl is for inputs of few planes (NCHW).

output[n, y, x, o] = epilogue(bias[o] + sum over ky, kx, c of
                     input[n, y * sh + ky * dh - top, x * sw + kx * dw - left, c] * weight[o, c, ky, kx])
"""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gputune.core.dtypes import FLOAT, check_float
from gputune.kernels.chain import EMPTY, Chain
from gputune.kernels.family import (
    ALONE,
    Array,
    DeviceLimits,
    Instance,
    KernelFamily,
    Launch,
    TensorSpec,
    Tolerance,
    Work,
    operand_specs,
)
from gputune.kernels.hard_values import PRODUCTS
from gputune.kernels.pointers import aligned
from gputune.kernels.space import Configuration, Parameter, TuningSpace, choice
from gputune.kernels.template import build_options, template
from gputune.kernels.tiling import winograd
from gputune.kernels.tiling.streaming import check_indices
from gputune.kernels.tiling.tiles import Tiling
from gputune.kernels.tiling.window import Pads, Pair, Window, check_layout
from gputune.kernels.tiling.winograd import Winograd
from gputune.kernels.tiling.workgroups import launch_sizes, least_tiles

MOST_PLANES = 8
"""Where there are more channels, their order costs less than reading each of them from a plane of its own."""


@dataclass(frozen=True)
class ConvProblem:
    """A convolution: input [N, H, W, C], weight [O, C/groups, kh, kw], output [N, Ho, Wo, O].

    Pads are (top, left, bottom, right); the epilogue's operands are output-shaped. `layout` is the input's: where it is
    NCHW, the input is [N, C, H, W] with one group of at most MOST_PLANES channels.
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
    epilogue: Chain = EMPTY
    layout: str = "NHWC"
    dtype: str = FLOAT

    def __post_init__(self) -> None:
        if min(self.batch, self.in_channels, self.out_channels, self.groups) < 1:
            raise ValueError("Conv needs a positive batch, channels and groups")
        if self.in_channels % self.groups or self.out_channels % self.groups:
            raise ValueError(
                f"Conv: {self.groups} groups do not divide {self.in_channels} input"
                f" and {self.out_channels} output channels"
            )
        check_layout("Conv", self.layout, "NHWC", "NCHW")
        check_float("Conv", self.dtype)
        if self.planes and (self.groups > 1 or self.in_channels > MOST_PLANES):
            raise ValueError(
                f"Conv reads NCHW in one group of at most {MOST_PLANES} channels, "
                f"not {self.in_channels} in {self.groups}"
            )
        check_indices(
            "Conv",
            (self.batch, self.height, self.width, self.in_channels),
            (self.batch, *self.output_size, self.out_channels),
        )

    @property
    def planes(self) -> bool:
        """Whether the input is NCHW."""
        return self.layout == "NCHW"

    @property
    def window(self) -> Window:
        """The sliding window."""
        return Window((self.height, self.width), self.kernel, self.strides, self.pads, self.dilations)

    @property
    def output_size(self) -> Pair:
        """(Ho, Wo)."""
        return self.window.output

    @property
    def pixels(self) -> int:
        """Output pixels of the whole batch."""
        return self.batch * math.prod(self.output_size)

    @property
    def group_inputs(self) -> int:
        """Input channels one output channel sees."""
        return self.in_channels // self.groups

    @property
    def group_outputs(self) -> int:
        """Output channels of one group."""
        return self.out_channels // self.groups


class ConvFamily(KernelFamily):
    """Register tiles of pixels and channels over packed filters; ALG chooses the algorithm where there is a choice."""

    op = "Conv"
    heavy = True
    survives = PRODUCTS

    def inputs(self, problem: ConvProblem) -> tuple[TensorSpec, ...]:
        weight = (problem.out_channels, problem.group_inputs, *problem.kernel)
        bias = (
            (TensorSpec("bias", (problem.out_channels,), constant=True, dtype=problem.dtype),) if problem.bias else ()
        )
        shape, size = self.output(problem).shape, (problem.height, problem.width)
        maps = (problem.in_channels, *size) if problem.planes else (*size, problem.in_channels)
        return (
            TensorSpec("input", (problem.batch, *maps), dtype=problem.dtype),
            TensorSpec("weight", weight, constant=True, dtype=problem.dtype),
            *bias,
            *operand_specs(problem.epilogue, shape, problem.dtype),
        )

    def output(self, problem: ConvProblem) -> TensorSpec:
        return TensorSpec("output", (problem.batch, *problem.output_size, problem.out_channels), dtype=problem.dtype)

    def space(self, problem: ConvProblem, limits: DeviceLimits) -> TuningSpace:
        direct = _tiling(problem).space(limits)
        others = _winograds(problem)
        if not others:
            return direct
        blocks = Parameter("RB", winograd.BLOCKS, "register tiles of a block, with Winograd")
        by_winograd = {
            outputs: TuningSpace((*direct.parameters, blocks), tuple(other.constraints(limits)))
            for outputs, other in others.items()
        }
        return choice("ALG", "algorithm: 0 direct, m Winograd in tiles of m x m outputs", {0: direct} | by_winograd)

    def default(self, problem: ConvProblem, limits: DeviceLimits) -> dict[str, int]:
        """By Winograd's algorithm on a CPU where that is expected to be clearly faster."""
        by_winograd = _by_winograd(problem, limits) if limits.device_type == "cpu" else None
        return by_winograd or _directly(problem, _tiling(problem).default(limits))

    def guesses(self, problem: ConvProblem, limits: DeviceLimits) -> list[dict[str, int]]:
        """The algorithms in turns."""
        direct = (_directly(problem, one) for one in _tiling(problem).guesses(limits))
        guesses = [*(other.guesses(limits) for other in reversed(_winograds(problem).values())), direct]
        return [one for turn in itertools.zip_longest(*guesses) for one in turn if one is not None]

    def render(self, problem: ConvProblem, configuration: Configuration) -> Instance:
        operands, prelude = problem.epilogue.operand_names, problem.epilogue.prelude()
        if chosen := configuration.get("ALG", 0):
            other = _winograds(problem)[chosen]
            main = other.main(configuration, prelude, problem.window.macros, operands)
            return Instance(main, (other.prepare(configuration, problem.bias),), *other.buffers(configuration))
        tiling = _tiling(problem)
        packing = tiling.packing(configuration["NV"], configuration["VW"], configuration["LN"])
        global_size, local_size = launch_sizes(tiling.launch_grid(configuration), configuration)
        sizes = {"INPUTS": problem.group_inputs, "OUTPUTS": problem.group_outputs, **problem.window.macros}
        sizes |= {"MAPS": problem.batch} if problem.planes else {"PIXELS": problem.pixels, "GROUPS": problem.groups}
        entry = "conv_planes" if problem.planes else "conv_direct"
        main = Launch(
            source=prelude + template(f"{entry}.cl", dtype=problem.dtype),
            entry=entry,
            needs=ALONE,
            writes=("output",),
            aligned=aligned(configuration["VW"], problem.group_outputs),
            options=build_options(sizes | dict(configuration)),
            global_size=global_size,
            local_size=local_size,
            arguments=("input", "packed", "output", *operands),
        )
        return Instance(main, (packing.launch("weight", problem.bias),), {"packed": packing.nbytes})

    def reference(self, problem: ConvProblem, inputs: Mapping[str, Array]) -> Array:
        """A matrix product per tap over the whole padded map, in float64."""
        groups, outputs = problem.groups, problem.group_outputs
        weight = inputs["weight"].astype(np.float64).reshape(groups, outputs, -1, *problem.kernel)
        total = np.zeros((groups, problem.pixels, outputs))
        maps = inputs["input"].transpose(0, 2, 3, 1) if problem.planes else inputs["input"]
        for row, column, seen in problem.window.shifted_maps(maps):
            pixels = seen.reshape(problem.pixels, groups, -1).transpose(1, 0, 2)
            total += pixels @ weight[..., row, column].transpose(0, 2, 1)
        result = total.transpose(1, 0, 2).reshape(self.output(problem).shape)
        if problem.bias:
            result = result + inputs["bias"]
        return problem.epilogue.apply_to(result, inputs).astype(problem.dtype)

    def work(self, problem: ConvProblem) -> Work:
        each = 2 * problem.group_inputs * math.prod(problem.kernel) + problem.bias + len(problem.epilogue.steps)
        return Work(problem.pixels * problem.out_channels * each, self.moved_bytes(problem))

    def tolerance(self, problem: ConvProblem) -> Tolerance:
        length = problem.group_inputs * math.prod(problem.kernel)
        return Tolerance.of(problem.dtype, relative=5e-6 + 2e-6 * math.sqrt(length), absolute=1e-5)


def _tiling(problem: ConvProblem) -> Tiling:
    taps = math.prod(problem.kernel)
    return Tiling(
        rows=problem.pixels,
        columns=problem.group_outputs,
        reduction=problem.group_inputs,
        output_stride=problem.group_inputs * taps,
        input_stride=taps,
        groups=problem.groups,
        taps=taps,
        zeros=0 if problem.planes else problem.group_inputs,
        prefetches=not problem.planes,
        strided=max(problem.strides) > 1 and not problem.planes,
        pitch=problem.strides[1] if problem.planes else problem.in_channels,
        lines=problem.batch * problem.output_size[0] if problem.planes else 1,
        dtype=problem.dtype,
    )


def _directly(problem: ConvProblem, tile: Configuration) -> dict[str, int]:
    """A configuration of the direct algorithm, as the problem's space wants it."""
    return {"ALG": 0, **tile, "RB": 1} if _winograds(problem) else dict(tile)


def _by_winograd(problem: ConvProblem, limits: DeviceLimits) -> dict[str, int] | None:
    """The first guess for the tiles that gain most, if it has a block for each core."""
    space = FAMILY.space(problem, limits)
    for other in sorted(_winograds(problem).values(), key=lambda one: one.gain, reverse=True):
        for guess in other.guesses(limits) if other.gain >= winograd.LEAST_GAIN else ():
            if other.blocks(guess) >= least_tiles(limits) and not space.violations(guess):
                return guess
    return None


def _winograds(problem: ConvProblem) -> dict[int, Winograd]:
    """By ALG, in how large tiles the problem can be computed by Winograd's algorithm; few channels gain nothing."""
    stride, channels = problem.strides[0], (problem.in_channels, problem.out_channels)
    plain = problem.kernel == (3, 3) and problem.dilations == (1, 1) and problem.groups == 1 and not problem.planes
    if not plain or problem.strides != (stride, stride) or min(channels) < winograd.LEAST_CHANNELS:
        return {}
    return {
        outputs: Winograd(problem.batch, problem.output_size, *channels, stride, outputs, problem.dtype)
        for outputs, known in winograd.PACKED_ROWS
        if known == stride and outputs <= min(problem.output_size)
    }


FAMILY = ConvFamily()
