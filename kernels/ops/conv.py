"""Convolve NHWC maps, with groups.

conv_direct.cl computes register tiles of output pixels. conv_local.cl is for GPUs: work-groups compute tiles in local
memory. conv_winograd.cl has Winograd's algorithm for 3x3 filters. conv_planes.cl is for inputs of few planes (NCHW).

output[n, y, x, o] = epilogue(bias[o] + sum over ky, kx, c of
                     input[n, y * sh + ky * dh - top, x * sw + kx * dw - left, c] * weight[o, c, ky, kx])
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from gputune.core.dtypes import ELEMENT_TYPES, FLOAT, HALF
from gputune.kernels.algorithms import ALG, Algorithms, ProductFamily, Way, check_factors, unknown
from gputune.kernels.chain import EMPTY, Chain
from gputune.kernels.family import (
    ADDED,
    Array,
    DeviceLimits,
    Estimate,
    Instance,
    Problem,
    TensorSpec,
    Tolerance,
    Work,
)
from gputune.kernels.pointers import aligned
from gputune.kernels.space import Configuration, Parameter, TuningSpace
from gputune.kernels.template import template
from gputune.kernels.tiling import winograd
from gputune.kernels.tiling.estimate import WIDEST
from gputune.kernels.tiling.local_tiles import LocalTiles
from gputune.kernels.tiling.packing import of_bytes
from gputune.kernels.tiling.streaming import check_indices
from gputune.kernels.tiling.tiles import Tiling
from gputune.kernels.tiling.window import Pads, Pair, Window, check_layout
from gputune.kernels.tiling.winograd import Winograd
from gputune.kernels.tiling.workgroups import TiledKernel, least_tiles

DIRECT, LOCAL = 0, 1
MEANING = "algorithm: 0 direct, 1 tiles in local memory, 2 and 4 Winograd in tiles of so many outputs down and across"

MOST_TAPS = 16
"""Along a side of the window, as many as the masks of conv_local.cl have bits."""

MOST_PLANES = 8
"""Where there are more channels, their order costs less than reading each of them from a plane of its own."""


@dataclass(frozen=True)
class ConvProblem(Problem):
    """A convolution: input [N, H, W, C], weight [O, C/groups, kh, kw], output [N, Ho, Wo, O].

    Pads are (top, left, bottom, right); the epilogue's operands are output-shaped. `layout` is the input's: where it is
    NCHW, the input is [N, C, H, W] with one group of at most MOST_PLANES channels. Then `planes_dtype` is its type if
    that is float32 and `dtype`, the type of all else, is float16: so a model's input is read as it is given. `factors`
    is the type in which products may be multiplied. `bytes`: weights are whole numbers, which are there as int8.
    """

    op = "Conv"

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
    planes_dtype: str = field(default="", metadata=ADDED)
    factors: str = field(default=FLOAT, metadata=ADDED)
    bytes: bool = field(default=False, metadata=ADDED)

    def check(self) -> None:
        if min(self.batch, self.in_channels, self.out_channels, self.groups) < 1:
            raise ValueError("Conv needs a positive batch, channels and groups")
        if self.in_channels % self.groups or self.out_channels % self.groups:
            raise ValueError(
                f"Conv: {self.groups} groups do not divide {self.in_channels} input"
                f" and {self.out_channels} output channels"
            )
        check_layout("Conv", self.layout, "NHWC", "NCHW")
        check_factors("Conv", self.dtype, self.factors)
        if self.bytes and (self.dtype, self.factors) != (FLOAT, FLOAT):
            raise ValueError(f"Conv reads weights of bytes for maps of {FLOAT}, not of {self.dtype}")
        if self.planes_dtype and (self.planes_dtype, self.planes, self.dtype) != (FLOAT, True, HALF):
            raise ValueError(f"Conv reads planes of {FLOAT} for maps of {HALF}, not of {self.planes_dtype!r}")
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


class ConvFamily(ProductFamily):
    """Register tiles of pixels and channels over packed filters; ALG chooses the algorithm where there is a choice."""

    op = ConvProblem.op

    def inputs(self, problem: ConvProblem) -> tuple[TensorSpec, ...]:
        weight = (problem.out_channels, problem.group_inputs, *problem.kernel)
        bias = (problem.tensor("bias", (problem.out_channels,), constant=True),) if problem.bias else ()
        shape, size = self.output(problem).shape, (problem.height, problem.width)
        maps = (problem.in_channels, *size) if problem.planes else (*size, problem.in_channels)
        return (
            TensorSpec("input", (problem.batch, *maps), dtype=problem.planes_dtype or problem.dtype),
            TensorSpec("weight", weight, True, "int8" if problem.bytes else problem.dtype),
            *bias,
            *problem.operands(shape),
        )

    def reading(self, problem: ConvProblem, types: Mapping[str, str]) -> ConvProblem:
        reads = problem.planes and (types["input"], problem.dtype) == (FLOAT, HALF)
        return replace(problem, planes_dtype=FLOAT) if reads else problem

    def output(self, problem: ConvProblem) -> TensorSpec:
        return problem.tensor("output", (problem.batch, *problem.output_size, problem.out_channels))

    def ways(self, problem: ConvProblem, factors: str) -> Algorithms:
        """In half no planes, which come first in a network, and nothing by Winograd, whose transforms lose too much."""
        ways: dict[int, Way] = {} if problem.planes and factors == HALF else {DIRECT: _tiles(problem)}
        if factors == FLOAT:
            ways |= {outputs: _ByWinograd(problem, winograd) for outputs, winograd in _winograds(problem).items()}
        if (local := _local_tiles(problem, factors)) is not None:
            ways[LOCAL] = local
        return Algorithms(ways, MEANING, frozenset({LOCAL}), frozenset({LOCAL}))

    def default(self, problem: ConvProblem, limits: DeviceLimits) -> dict[str, int]:
        """On a CPU by Winograd's algorithm where that is expected to be clearly faster."""
        if limits.device_type != "cpu" or problem.factors != FLOAT:
            return super().default(problem, limits)
        direct = self.tiling(problem).fill(limits)(DIRECT, _tiles(problem).default(limits))
        return _by_winograd(problem, limits) or direct

    def computing(self, problem: ConvProblem, dtype: str) -> ConvProblem:
        return problem if problem.bytes else replace(problem, factors=dtype)

    def multiplied(self, problem: ConvProblem, configuration: Configuration, factors: str) -> Instance:
        """Whole numbers are widened when they are packed."""
        instance = self._of_floats(problem, configuration, factors)
        return replace(instance, prepare=tuple(map(of_bytes, instance.prepare))) if problem.bytes else instance

    def _of_floats(self, problem: ConvProblem, configuration: Configuration, factors: str) -> Instance:
        operands, prelude = problem.epilogue.operand_names, problem.epilogue.prelude()
        chosen, window = configuration.get(ALG, DIRECT), problem.window.macros
        if chosen in (winograds := _winograds(problem)):
            main = winograds[chosen].main(configuration, prelude, window, operands)
            prepare = winograds[chosen].prepare(configuration, problem.bias)
            return Instance(main, (prepare,), *winograds[chosen].buffers(configuration))
        tiles = _tiles(problem)
        packing = tiles.packing(configuration["NV"], configuration["VW"], configuration["LN"])
        prepare, packed = packing.launch("weight", problem.bias), {"packed": packing.nbytes}
        way: Tiling | LocalTiles = tiles
        entry, sizes = "conv_direct", {"PIXELS": problem.pixels, "GROUPS": problem.groups}
        if problem.planes:
            entry, sizes = "conv_planes", {"MAPS": problem.batch}
        elif chosen == LOCAL:
            local = _local_tiles(problem, factors)
            assert local is not None, "such a configuration is not in the space"
            way, entry, sizes = local, "conv_local", {}
        if problem.planes_dtype:
            prelude += f"#define PLANE_TYPE {ELEMENT_TYPES[FLOAT].storage}\n#define PLANE_ELEMENT(p, i) ((p)[i])\n"
        source = prelude + template(f"{entry}.cl", dtype=problem.dtype, factors=factors)
        sizes |= {"INPUTS": problem.group_inputs, "OUTPUTS": problem.group_outputs, **window}
        whole_vectors = aligned(configuration["VW"], problem.group_outputs)
        kernel = TiledKernel(source, entry, sizes, ("input", "packed"), operands, whole_vectors)
        main = way.launch(configuration, kernel)
        return Instance(main, (prepare,), packed, way.stored(configuration))

    def reference(self, problem: ConvProblem, inputs: Mapping[str, Array]) -> Array:
        """Add up a matrix product per tap over the whole padded map, in float64."""
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


@dataclass(frozen=True)
class _ByWinograd:
    """Winograd's algorithm, with the parameters of the direct one and RB."""

    problem: ConvProblem
    winograd: Winograd

    def space(self, limits: DeviceLimits) -> TuningSpace:
        blocks = Parameter("RB", winograd.BLOCKS, "register tiles of a block, with Winograd")
        parameters = (*_tiles(self.problem).space(limits).parameters, blocks)
        return TuningSpace(parameters, tuple(self.winograd.constraints(limits)))

    def default(self, limits: DeviceLimits) -> dict[str, int]:
        """Return the best guess that is legal. ValueError if none is."""
        space = self.space(limits)
        for guess in self.guesses(limits):
            if not space.violations(guess):
                return guess
        raise ValueError("no guess is legal")

    def guesses(self, limits: DeviceLimits) -> list[dict[str, int]]:
        return list(self.winograd.guesses(limits))

    def estimate(self, limits: DeviceLimits) -> Estimate:
        return unknown


def _tiles(problem: ConvProblem) -> Tiling:
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


def _local_tiles(problem: ConvProblem, factors: str) -> LocalTiles | None:
    """Return the tiles in local memory; None if the kernel does not know the problem."""
    if problem.planes or problem.groups > 1 or max(problem.kernel) > MOST_TAPS:
        return None
    return LocalTiles(
        problem.pixels,
        problem.out_channels,
        problem.in_channels * math.prod(problem.kernel),
        left_width=math.gcd(WIDEST, problem.in_channels),
        looked_up=True,
        dtype=problem.dtype,
        factors=factors,
        packing=_tiles(problem).packing,
    )


def _by_winograd(problem: ConvProblem, limits: DeviceLimits) -> dict[str, int] | None:
    """Return the first guess for the tiles that gain most, if it has a block for each core."""
    space = FAMILY.space(problem, limits)
    for other in sorted(_winograds(problem).values(), key=lambda one: one.gain, reverse=True):
        for guess in other.guesses(limits) if other.gain >= winograd.LEAST_GAIN else ():
            if other.blocks(guess) >= least_tiles(limits) and not space.violations(guess):
                return guess
    return None


def _winograds(problem: ConvProblem) -> dict[int, Winograd]:
    """By ALG, in how large tiles the problem can be computed by Winograd's algorithm. Few channels gain nothing, and
    its sums of whole numbers would have fractions."""
    stride, channels = problem.strides[0], (problem.in_channels, problem.out_channels)
    plain = problem.kernel == (3, 3) and problem.dilations == (1, 1) and problem.groups == 1 and not problem.planes
    if not plain or problem.strides != (stride, stride) or min(channels) < winograd.LEAST_CHANNELS:
        return {}
    if problem.epilogue.of_whole:
        return {}
    return {
        outputs: Winograd(problem.batch, problem.output_size, *channels, stride, outputs, problem.dtype)
        for outputs, known in winograd.PACKED_ROWS
        if known == stride and outputs <= min(problem.output_size)
    }


FAMILY = ConvFamily()
