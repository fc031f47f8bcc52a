"""Convolve NHWC maps by channel (one filter per channel) or in groups of few channels: strips of pixels in
depthwise_direct.cl.

output[n, y, x, c] = epilogue(bias[c] + sum over ky, kx, i of weight[c, i, ky, kx] *
                     input[n, y * sh + ky * dh - top, x * sw + kx * dw - left, c - c % group + i])
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from gputune.core.dtypes import ELEMENT_TYPES, FLOAT, FLOATS
from gputune.kernels.chain import EMPTY, Chain
from gputune.kernels.family import (
    ADDED,
    ALONE,
    Array,
    DeviceLimits,
    Instance,
    KernelFamily,
    Launch,
    Problem,
    TensorSpec,
    Tolerance,
    Work,
)
from gputune.kernels.hard_values import PRODUCTS
from gputune.kernels.pointers import aligned
from gputune.kernels.space import Configuration, Constraint, Parameter, TuningSpace
from gputune.kernels.template import build_options, template
from gputune.kernels.tiling.packing import PACK_RUN, Packing
from gputune.kernels.tiling.streaming import VECTOR_WIDTHS, ceil_div, check_indices, default_width, fits, power_at_most
from gputune.kernels.tiling.strips import MOST_LOADS, widest_even
from gputune.kernels.tiling.window import Pads, Pair, Window, check_layout
from gputune.kernels.tiling.workgroups import (
    Grid,
    TiledKernel,
    clip_group,
    few_registers,
    group_constraints,
    group_parameters,
    least_width,
    registers,
    registers_needed,
)

MOST_GROUP = 8
"""Channels of a group: where there are more, a vector holds so few groups that tiles of one group are as good."""

STRIPS = (1, 2, 3, 4, 6, 7, 8, 12, 14, 16)

CPU_DEFAULT = {"MR": 8, "VW": 16, "REUSE": 1, "LM": 4, "LN": 4, "ORDER": 0}
GROUPED_CPU_DEFAULT = CPU_DEFAULT | {"MR": 7}
STRIDED_GROUPED_CPU_DEFAULT = CPU_DEFAULT | {"MR": 4, "REUSE": 0}
"""Where each pixel is permuted as well: fewer of them at a time."""

NARROW_GROUPED_CPU_DEFAULT = CPU_DEFAULT | {"MR": 4}
"""With 16 registers: a whole line of a cache of each pixel, which is two of them."""

ALIASED_CHANNELS = 512
"""Pixels a multiple of so many channels apart share a few sets of the first cache, so that a line of one of them is
gone before its second half is read: a vector is as much of a line then as two registers hold."""

LONG_STRIP = 14
"""Pixels of a 3 x 3 filter that moves by one, where so many divide a row: what is loaded serves more of them, though
16 registers do not hold all. Measured with 16 registers only."""

GPU_DEFAULT = {"MR": 2, "VW": 4, "REUSE": 0, "LM": 8, "LN": 8, "ORDER": 0}
CPU_GUESSES = (
    {"MR": 14, "VW": 16, "REUSE": 1, "LM": 8, "LN": 1, "ORDER": 1},
    {"MR": 7, "VW": 16, "REUSE": 0, "LM": 16, "LN": 1, "ORDER": 1},
    {"MR": 8, "VW": 16, "REUSE": 1, "LM": 4, "LN": 8, "ORDER": 0},
    {"MR": 7, "VW": 16, "REUSE": 1, "LM": 2, "LN": 16, "ORDER": 0},
    {"MR": 4, "VW": 16, "REUSE": 0, "LM": 8, "LN": 1, "ORDER": 0},
)
GPU_GUESSES = (
    {"MR": 2, "VW": 4, "REUSE": 1, "LM": 8, "LN": 8, "ORDER": 0},
    {"MR": 4, "VW": 4, "REUSE": 1, "LM": 8, "LN": 8, "ORDER": 0},
    {"MR": 1, "VW": 4, "REUSE": 0, "LM": 8, "LN": 16, "ORDER": 0},
    {"MR": 4, "VW": 2, "REUSE": 1, "LM": 4, "LN": 32, "ORDER": 0},
    {"MR": 4, "VW": 1, "REUSE": 1, "LM": 4, "LN": 32, "ORDER": 0},
)


@dataclass(frozen=True)
class DepthwiseProblem(Problem):
    """A depthwise convolution: input [N, H, W, C], weight [C, group, kh, kw], output [N, Ho, Wo, C].

    Each `group` channels of the output see the same ones of the input; `group` is one of groups_of(channels). Pads are
    (top, left, bottom, right); the epilogue's operands are output-shaped.
    """

    op = "DepthwiseConv"

    batch: int
    height: int
    width: int
    channels: int
    kernel: Pair
    strides: Pair = (1, 1)
    pads: Pads = (0, 0, 0, 0)
    dilations: Pair = (1, 1)
    bias: bool = False
    epilogue: Chain = EMPTY
    group: int = field(default=1, metadata=ADDED)
    layout: str = "NHWC"
    dtype: str = FLOAT

    def check(self) -> None:
        if min(self.batch, self.channels) < 1:
            raise ValueError("DepthwiseConv needs a positive batch and channels")
        if self.group not in groups_of(self.channels):
            raise ValueError(f"DepthwiseConv has no groups of {self.group} of {self.channels} channels")
        check_layout("DepthwiseConv", self.layout, "NHWC")
        check_indices(
            "DepthwiseConv",
            (self.batch, self.height, self.width, self.channels),
            (self.batch, *self.output_size, self.channels),
        )

    @property
    def window(self) -> Window:
        """The sliding window."""
        return Window((self.height, self.width), self.kernel, self.strides, self.pads, self.dilations)

    @property
    def output_size(self) -> Pair:
        """(Ho, Wo)."""
        return self.window.output


class DepthwiseFamily(KernelFamily):
    """One template: strips of pixels, a vector of channels wide."""

    op = DepthwiseProblem.op
    floats = FLOATS
    heavy = True
    survives = PRODUCTS

    def inputs(self, problem: DepthwiseProblem) -> tuple[TensorSpec, ...]:
        bias = (problem.tensor("bias", (problem.channels,), constant=True),) if problem.bias else ()
        shape = self.output(problem).shape
        return (
            problem.tensor("input", (problem.batch, problem.height, problem.width, problem.channels)),
            problem.tensor("weight", (problem.channels, problem.group, *problem.kernel), constant=True),
            *bias,
            *problem.operands(shape),
        )

    def output(self, problem: DepthwiseProblem) -> TensorSpec:
        return problem.tensor("output", (problem.batch, *problem.output_size, problem.channels))

    def space(self, problem: DepthwiseProblem, limits: DeviceLimits) -> TuningSpace:
        width, channels = problem.output_size[1], problem.channels
        most, floats = registers(limits)
        rules = [
            Constraint(("MR",), lambda mr: mr <= width, f"MR must not exceed the output's width of {width}"),
            fits(channels, "the channels"),
            Constraint(
                ("MR", "VW"),
                lambda mr, vw: registers_needed(mr, vw, limits) <= most,
                f"MR*VW must not exceed {most * floats} floats, or accumulators spill",
            ),
            Constraint(
                ("MR", "REUSE"),
                lambda mr, reuse: not reuse or problem.window.span(mr) <= MOST_LOADS,
                f"REUSE must not load more than {MOST_LOADS} vectors at once",
            ),
            *group_constraints(("MR", "VW"), lambda mr, vw: _grid(problem, mr, vw), limits),
        ]
        if problem.group > 1:
            whole = f"VW must hold a group of {problem.group} channels"
            rules.append(Constraint(("VW",), lambda vw: vw >= problem.group, whole))
        if limits.device_type == "cpu" and channels > VECTOR_WIDTHS[-1]:
            least = min(least_width(limits), power_at_most(channels))
            rules.append(Constraint(("VW",), lambda vw: vw >= least, f"a CPU's vectors need VW of at least {least}"))
        return TuningSpace(
            (
                Parameter("MR", STRIPS, "neighbouring pixels of a work-item"),
                Parameter("VW", VECTOR_WIDTHS, "channels of a vector"),
                Parameter("REUSE", (0, 1), "1: a row of the input is loaded once and shared by the taps"),
                *group_parameters(),
            ),
            tuple(rules),
        )

    def default(self, problem: DepthwiseProblem, limits: DeviceLimits) -> dict[str, int]:
        guess = dict(GPU_DEFAULT)
        if limits.device_type == "cpu":
            guess = _cpu_default(problem, limits)
        wanted, space = _cut(problem, guess, limits), self.space(problem, limits)
        return space.first() if space.violations(wanted) else wanted

    def guesses(self, problem: DepthwiseProblem, limits: DeviceLimits) -> list[dict[str, int]]:
        guesses = CPU_GUESSES if limits.device_type == "cpu" else GPU_GUESSES
        return [_cut(problem, guess, limits) for guess in guesses]

    def render(self, problem: DepthwiseProblem, configuration: Configuration) -> Instance:
        channels, group = problem.channels, problem.group
        packed, pack = _pack(problem)
        grid = _grid(problem, configuration["MR"], configuration["VW"])
        text = template("depthwise_direct.cl", dtype=problem.dtype)
        kernel = TiledKernel(
            problem.epilogue.prelude() + (template("swapped_lanes.cl") if group > 1 else "") + text,
            "depthwise_direct",
            {"MAPS": problem.batch, "CHANNELS": channels, "GROUP": group} | problem.window.macros,
            ("input", "packed"),
            problem.epilogue.operand_names,
            aligned(configuration["VW"], channels),
        )
        main = kernel.launch(grid, configuration)
        return Instance(main, (pack,), {"packed": packed})

    def reference(self, problem: DepthwiseProblem, inputs: Mapping[str, Array]) -> Array:
        """Whole shifted maps times one weight per channel, in float64, for each channel of the groups in turn."""
        weight = inputs["weight"].astype(np.float64)
        total = np.zeros(self.output(problem).shape)
        firsts = np.arange(problem.channels) // problem.group * problem.group
        for row, column, seen in problem.window.shifted_maps(inputs["input"]):
            for each in range(problem.group):
                total += seen[..., firsts + each] * weight[:, each, row, column]
        if problem.bias:
            total += inputs["bias"]
        return problem.epilogue.apply_to(total, inputs).astype(problem.dtype)

    def work(self, problem: DepthwiseProblem) -> Work:
        outputs = problem.batch * math.prod(problem.output_size) * problem.channels
        each = 2 * problem.group * math.prod(problem.kernel) + problem.bias + len(problem.epilogue.steps)
        return Work(outputs * each, self.moved_bytes(problem))

    def tolerance(self, problem: DepthwiseProblem) -> Tolerance:
        return Tolerance.of(
            problem.dtype, relative=5e-6 + 2e-6 * math.sqrt(problem.group * math.prod(problem.kernel)), absolute=1e-5
        )


def _pack(problem: DepthwiseProblem) -> tuple[int, Launch]:
    """Return how many bytes the packed filters take, and what fills them. That is pack_filter.cl where it can, so that
    one build of it serves depthwise filters as it does all others."""
    taps, channels, group = math.prod(problem.kernel), problem.channels, problem.group
    if group == 1:
        packing = Packing(channels, 1, channels, output_stride=taps, input_stride=taps, taps=taps, dtype=problem.dtype)
        return packing.nbytes, packing.launch("weight", problem.bias)
    size = (taps * group + 1) * channels
    bias = "bias" if problem.bias else "weight"
    launch = Launch(
        source=template("pack_groups.cl", dtype=problem.dtype),
        entry="pack_groups",
        needs=ALONE,
        writes=("packed",),
        options=build_options({"RUN": PACK_RUN}),
        global_size=(ceil_div(size, PACK_RUN),),
        local_size=(1,),
        arguments=("weight", bias, "packed", size, channels, group, taps, int(problem.bias)),
    )
    return size * ELEMENT_TYPES[problem.dtype].nbytes, launch


def groups_of(channels: int) -> tuple[int, ...]:
    """Return how many of these channels a group may have here."""
    return tuple(1 << k for k in range(MOST_GROUP.bit_length()) if channels % (1 << k) == 0)


def _cpu_default(problem: DepthwiseProblem, limits: DeviceLimits) -> dict[str, int]:
    """Before it is cut: pixels for which there are registers, a vector of each, or a line of a cache."""
    width = {"VW": default_width(limits, problem.channels)}
    if problem.group == 1:
        if problem.channels % ALIASED_CHANNELS == 0:
            return CPU_DEFAULT | {"VW": min(2 * width["VW"], CPU_DEFAULT["VW"])}
        long = few_registers(limits) and problem.strides[1] == 1 and problem.kernel == (3, 3)
        even = problem.output_size[1] % LONG_STRIP == 0
        return CPU_DEFAULT | width | ({"MR": LONG_STRIP} if long and even else {})
    if few_registers(limits):
        return NARROW_GROUPED_CPU_DEFAULT
    return (STRIDED_GROUPED_CPU_DEFAULT if problem.strides[1] > 1 else GROUPED_CPU_DEFAULT) | width


def _grid(problem: DepthwiseProblem, strip: int, width: int) -> Grid:
    """Return the grid: strips down all rows of the batch, and vectors across the channels."""
    rows, columns = problem.output_size
    return problem.batch * rows * ceil_div(columns, strip), ceil_div(problem.channels, width)


def _cut(problem: DepthwiseProblem, guess: Configuration, limits: DeviceLimits) -> dict[str, int]:
    """Return a guess made to fit: no longer a strip than it takes to cover a row in as few, a vector within the
    channels. What a strip sees is not loaded at once where that is too much for any, as with wide dilations."""
    columns, reuse = problem.output_size[1], guess["REUSE"]
    strips = [pixels for pixels in STRIPS if pixels <= min(columns, guess["MR"])]
    loaded = [pixels for pixels in strips if problem.window.span(pixels) <= MOST_LOADS]
    if reuse and not loaded:
        reuse = 0
    strip = widest_even(loaded if reuse else strips, columns)
    width = max(problem.group, min(guess["VW"], power_at_most(problem.channels)))
    cut = {"MR": strip, "VW": width, "REUSE": reuse}
    return cut | clip_group(_grid(problem, strip, width), guess, limits)


FAMILY = DepthwiseFamily()
