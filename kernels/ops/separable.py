"""Depthwise separable convolution over NHWC maps in one kernel: a depthwise convolution, then a 1x1 convolution.

middle[n, y, x, c] = depthwise_epilogue(depthwise_bias[c] + sum over ky, kx of
                     input[n, y * sh + ky * dh - top, x * sw + kx * dw - left, c] * depthwise_weight[c, 0, ky, kx])
output[n, y, x, o] = epilogue(bias[o] + sum over c of middle[n, y, x, c] * weight[c, o])

It is the fused form of a DepthwiseConv and a MatMul task: the middle is never a tensor in memory.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from gputune.kernels.chain import EMPTY, Chain
from gputune.kernels.family import (
    Array,
    DeviceLimits,
    Instance,
    KernelFamily,
    Launch,
    TensorSpec,
    Tolerance,
    Work,
)
from gputune.kernels.packing import FLOAT_BYTES, PACK_TEMPLATE, Packing
from gputune.kernels.space import Configuration, Constraint, Parameter, TuningSpace
from gputune.kernels.streaming import MOST_ELEMENTS, VECTOR_WIDTHS, ceil_div, check_indices, fits, power_at_most
from gputune.kernels.template import build_options, template
from gputune.kernels.window import Pads, Pair, Window
from gputune.kernels.workgroups import least_width, registers, registers_needed

PIXELS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16)
MOST_LOADS = 48
MOST_UNROLLED = 64
CPU_MIDDLE_BYTES = 128 << 10
"""A strip beyond a few times the first cache is read from the second one as often as the middle's tensor would be."""

GPU_MIDDLE_BYTES = 4 << 10
"""What a GPU keeps of a work-item's arrays lies in its main memory, for each of thousands of work-items."""

CPU_GUESSES = (
    {"MR": 7, "RT": 2, "NV": 2, "VW": 16, "KU": 2, "LN": 1, "SPLIT": 1},
    {"MR": 14, "RT": 1, "NV": 2, "VW": 16, "KU": 1, "LN": 1, "SPLIT": 1},
    {"MR": 7, "RT": 1, "NV": 2, "VW": 16, "KU": 4, "LN": 1, "SPLIT": 2},
    {"MR": 14, "RT": 4, "NV": 1, "VW": 16, "KU": 4, "LN": 1, "SPLIT": 1},
    {"MR": 10, "RT": 1, "NV": 2, "VW": 16, "KU": 2, "LN": 1, "SPLIT": 1},
    {"MR": 8, "RT": 4, "NV": 3, "VW": 8, "KU": 1, "LN": 1, "SPLIT": 1},
)
GPU_GUESSES = (
    {"MR": 4, "RT": 2, "NV": 1, "VW": 4, "KU": 4, "LN": 32, "SPLIT": 1},
    {"MR": 4, "RT": 1, "NV": 1, "VW": 4, "KU": 4, "LN": 16, "SPLIT": 1},
    {"MR": 8, "RT": 1, "NV": 1, "VW": 4, "KU": 2, "LN": 32, "SPLIT": 2},
    {"MR": 4, "RT": 1, "NV": 1, "VW": 2, "KU": 4, "LN": 64, "SPLIT": 1},
    {"MR": 2, "RT": 4, "NV": 1, "VW": 1, "KU": 4, "LN": 64, "SPLIT": 1},
)


@dataclass(frozen=True)
class SeparableProblem:
    """A depthwise separable convolution.

    input [N, H, W, C], depthwise_weight [C, 1, kh, kw], weight [C, O], output [N, Ho, Wo, O]. Pads are (top, left,
    bottom, right). The epilogue's operands are output-shaped; the depthwise epilogue has none.
    """

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
    dtype: str = "float32"

    def __post_init__(self) -> None:
        if min(self.batch, self.channels, self.out_channels) < 1:
            raise ValueError("SeparableConv needs a positive batch and channels")
        if (self.layout, self.dtype) != ("NHWC", "float32"):
            raise ValueError(f"SeparableConv knows NHWC float32, not {self.layout} {self.dtype}")
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

    def tiles(self, pixels: int) -> int:
        """Tiles of `pixels` neighbours in a row that cover the output."""
        rows, columns = self.window.output
        return self.batch * rows * ceil_div(columns, pixels)

    def span(self, pixels: int) -> int:
        """Input pixels that a tile's row of the window reaches over."""
        return (pixels - 1) * self.strides[1] + (self.kernel[1] - 1) * self.dilations[1] + 1

    def middle_bytes(self, pixels: int) -> int:
        """What so many pixels of the middle take, with the template's padding."""
        return pixels * (self.channels if self.channels % 256 else self.channels + 16) * FLOAT_BYTES


class SeparableFamily(KernelFamily):
    """One template: a strip of the middle, then register tiles of pixels and channels."""

    op = "SeparableConv"
    templates = ("separable_strips.cl", PACK_TEMPLATE)

    def inputs(self, problem: SeparableProblem) -> tuple[TensorSpec, ...]:
        channels, outputs = problem.channels, problem.out_channels
        first = (TensorSpec("depthwise_bias", (channels,), constant=True),) if problem.depthwise_bias else ()
        second = (TensorSpec("bias", (outputs,), constant=True),) if problem.bias else ()
        shape = self.output(problem).shape
        return (
            TensorSpec("input", (problem.batch, problem.height, problem.width, channels)),
            TensorSpec("depthwise_weight", (channels, 1, *problem.kernel), constant=True),
            *first,
            TensorSpec("weight", (channels, outputs), constant=True),
            *second,
            *(TensorSpec(f"operand{i}", shape) for i in range(problem.epilogue.operands)),
        )

    def output(self, problem: SeparableProblem) -> TensorSpec:
        return TensorSpec("output", (problem.batch, *problem.window.output, problem.out_channels))

    def space(self, problem: SeparableProblem, limits: DeviceLimits) -> TuningSpace:
        return TuningSpace(
            (
                Parameter("MR", PIXELS, "neighbouring pixels of a tile"),
                Parameter("RT", (1, 2, 3, 4, 7, 8), "tiles of a strip, for which the middle is kept at once"),
                Parameter("NV", (1, 2, 3, 4), "vectors of a tile's row"),
                Parameter("VW", VECTOR_WIDTHS, "channels of a vector"),
                Parameter("KU", (1, 2, 4, 8), "unrolling of the reduction"),
                Parameter("LN", (1, 2, 4, 8, 16, 32, 64), "work-items of a work-group, which share a strip"),
                Parameter("SPLIT", (1, 2, 4), "work-groups that divide a strip's columns"),
            ),
            (
                *_tile_constraints(problem, limits),
                *_strip_constraints(problem, limits),
                *_group_constraints(problem, limits),
            ),
        )

    def default(self, problem: SeparableProblem, limits: DeviceLimits) -> dict[str, int]:
        guesses = CPU_GUESSES if limits.device_type == "cpu" else GPU_GUESSES
        wanted, space = _cut(problem, guesses[0], limits), self.space(problem, limits)
        return space.first() if space.violations(wanted) else wanted

    def starters(self, problem: SeparableProblem, limits: DeviceLimits) -> list[dict[str, int]]:
        space, default = self.space(problem, limits), self.default(problem, limits)
        found: list[dict[str, int]] = []
        for guess in CPU_GUESSES if limits.device_type == "cpu" else GPU_GUESSES:
            wanted = _cut(problem, guess, limits)
            if wanted != default and wanted not in found and not space.violations(wanted):
                found.append(wanted)
        return found

    def render(self, problem: SeparableProblem, configuration: Configuration) -> Instance:
        filters, packed = _filters(problem, configuration["VW"]), _packed(problem, configuration)
        strips = ceil_div(problem.tiles(configuration["MR"]), configuration["RT"])
        sizes = {
            "MAPS": problem.batch,
            "CHANNELS": problem.channels,
            "OUTPUTS": problem.out_channels,
            **problem.window.macros,
        }
        operands = (f"operand{i}" for i in range(problem.epilogue.operands))
        middle = problem.depthwise_epilogue.source("(value)", vector="T")
        main = Launch(
            source=f"#define DEPTHWISE_EPILOGUE(value, T) {{ {middle} }}\n"
            + problem.epilogue.prelude()
            + template("separable_strips.cl"),
            entry="separable_strips",
            options=build_options(sizes | dict(configuration)),
            global_size=(configuration["LN"] * configuration["SPLIT"], strips),
            local_size=(configuration["LN"], 1),
            arguments=("input", "filters", "packed", "output", *operands),
        )
        first = filters.launch("depthwise_weight", problem.depthwise_bias)
        names = {"packed": "filters", "bias": "depthwise_bias"}
        first = replace(first, arguments=tuple(names.get(str(each), each) for each in first.arguments))
        prepare = (first, packed.launch("weight", problem.bias))
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
        operands = [inputs[f"operand{i}"] for i in range(problem.epilogue.operands)]
        return problem.epilogue.apply(total, operands).astype(np.float32)

    def work(self, problem: SeparableProblem) -> Work:
        middle = 2 * math.prod(problem.kernel) + problem.depthwise_bias + len(problem.depthwise_epilogue.steps)
        each = 2 * problem.channels + problem.bias + len(problem.epilogue.steps)
        moved = sum(spec.nbytes for spec in (*self.inputs(problem), self.output(problem)))
        return Work(problem.pixels * (problem.channels * middle + problem.out_channels * each), moved)

    def tolerance(self, problem: SeparableProblem) -> Tolerance:
        """The errors of both sums."""
        terms = math.sqrt(math.prod(problem.kernel)) + math.sqrt(problem.channels)
        return Tolerance(relative=5e-6 + 2e-6 * terms, absolute=1e-5)


def _filters(problem: SeparableProblem, zeros: int) -> Packing:
    taps, channels = math.prod(problem.kernel), problem.channels
    return Packing(channels, 1, channels, output_stride=taps, input_stride=taps, taps=taps, zeros=zeros)


def _packed(problem: SeparableProblem, configuration: Configuration) -> Packing:
    panel = configuration["NV"] * configuration["VW"] * configuration["LN"]
    return Packing(problem.out_channels, problem.channels, panel, output_stride=1, input_stride=problem.out_channels)


def _tile_constraints(problem: SeparableProblem, limits: DeviceLimits) -> Iterator[Constraint]:
    """What fits the registers and the problem."""
    most, floats = registers(limits)
    columns, channels, outputs = problem.window.output[1], problem.channels, problem.out_channels
    yield Constraint(("MR",), lambda mr: mr <= columns, f"MR must not exceed the output's width of {columns}")
    yield Constraint(
        ("MR",),
        lambda mr: mr == 1 or problem.span(mr) <= MOST_LOADS,
        f"MR pixels must not need more than {MOST_LOADS} vectors of the input at once",
    )
    yield fits(channels, "the channels")
    yield Constraint(
        ("NV", "VW"),
        lambda nv, vw: (nv - 1) * vw < outputs,
        f"the last of NV vectors must hold one of the {outputs} columns",
    )
    yield Constraint(
        ("MR", "NV", "VW"),
        lambda mr, nv, vw: registers_needed(mr * nv, vw, limits) <= most,
        f"MR*NV*VW must not exceed {most * floats} floats, or accumulators spill",
    )
    yield Constraint(("KU",), lambda ku: ku <= channels, f"KU must not exceed the {channels} channels")
    yield Constraint(
        ("KU", "MR", "NV"),
        lambda ku, mr, nv: ku * mr * nv <= MOST_UNROLLED,
        f"MR*NV*KU must not exceed {MOST_UNROLLED}, or compiling takes too long",
    )
    least = min(least_width(limits), power_at_most(min(channels, outputs)))
    if limits.device_type == "cpu":
        yield Constraint(("VW",), lambda vw: vw >= least, f"a CPU's vectors need VW of at least {least}")
    needed = max(_filters(problem, VECTOR_WIDTHS[-1]).nbytes, 0)
    yield Constraint(
        ("NV", "VW", "LN"),
        lambda nv, vw, ln: _fit(problem, {"NV": nv, "VW": vw, "LN": ln}, limits),
        f"the packed weights, {needed} bytes or more, must fit 32-bit indices and the device's largest"
        f" allocation of {limits.max_allocation_bytes} bytes",
    )


def _strip_constraints(problem: SeparableProblem, limits: DeviceLimits) -> Iterator[Constraint]:
    """Where a strip of the middle fits."""
    own = CPU_MIDDLE_BYTES if limits.device_type == "cpu" else GPU_MIDDLE_BYTES
    yield Constraint(
        ("MR", "RT"),
        lambda mr, rt: rt == 1 or rt < 2 * problem.tiles(mr),
        "RT must stay below twice the tiles; more would have nothing to do",
    )
    yield Constraint(
        ("MR", "RT", "LN"),
        lambda mr, rt, ln: ln > 1 or mr * rt == 1 or problem.middle_bytes(mr * rt) <= own,
        f"a work-item's own strip of the middle, MR*RT*{problem.middle_bytes(1)} bytes, must not exceed {own} bytes",
    )
    yield Constraint(
        ("MR", "RT", "LN"),
        lambda mr, rt, ln: ln == 1 or problem.middle_bytes(mr * rt) <= limits.local_memory_bytes,
        f"a work-group's strip of the middle, MR*RT*{problem.middle_bytes(1)} bytes, must fit the device's"
        f" {limits.local_memory_bytes} bytes of local memory",
    )


def _group_constraints(problem: SeparableProblem, limits: DeviceLimits) -> Iterator[Constraint]:
    """Which work-groups the device allows and can use."""
    most = min(limits.max_work_group_size, limits.max_work_item_sizes[0])
    if limits.device_type == "cpu":
        most = 1
        yield Constraint(("LN",), lambda ln: ln == 1, "on a CPU, LN must be 1: barriers cost more than they bring")
    yield Constraint(("LN",), lambda ln: ln <= most, f"LN must not exceed {most} work-items of a work-group")
    yield Constraint(
        ("NV", "VW", "LN"),
        lambda nv, vw, ln: ln == 1 or (ln - 1) * vw < max(problem.channels, ceil_div(problem.out_channels, nv)),
        "the last of LN work-items must find a vector to compute",
    )
    yield Constraint(
        ("NV", "VW", "LN", "SPLIT"),
        lambda nv, vw, ln, split: (split - 1) * ln * nv * vw < problem.out_channels,
        "the last of SPLIT work-groups must find a column to compute",
    )


def _fit(problem: SeparableProblem, configuration: Configuration, limits: DeviceLimits) -> bool:
    both = (_filters(problem, configuration["VW"]), _packed(problem, configuration))
    return all(each.nbytes <= limits.max_allocation_bytes and each.size <= MOST_ELEMENTS for each in both)


def _cut(problem: SeparableProblem, guess: Configuration, limits: DeviceLimits) -> dict[str, int]:
    """A guess made to fit: within a row, the channels, the registers and the memory for the middle."""
    cut, cpu = dict(guess), limits.device_type == "cpu"
    most = registers(limits)[0]
    if cpu:
        cut["VW"] = min(cut["VW"], power_at_most(max(limits.preferred_float_width, 4)))
    cut["VW"] = min(cut["VW"], power_at_most(problem.channels))
    while cut["VW"] > 1 and cut["VW"] // 2 >= problem.out_channels:
        cut["VW"] //= 2
    while (cut["NV"] - 1) * cut["VW"] >= problem.out_channels:
        cut["NV"] -= 1
    widest = max(problem.channels, ceil_div(problem.out_channels, cut["NV"]))
    cut["LN"] = min(cut["LN"], power_at_most(min(limits.max_work_group_size, limits.max_work_item_sizes[0])))
    while cut["LN"] > 1 and (cut["LN"] - 1) * cut["VW"] >= widest:
        cut["LN"] //= 2
    while cut["SPLIT"] > 1 and (cut["SPLIT"] - 1) * cut["LN"] * cut["NV"] * cut["VW"] >= problem.out_channels:
        cut["SPLIT"] //= 2
    room = limits.local_memory_bytes if cut["LN"] > 1 else CPU_MIDDLE_BYTES if cpu else GPU_MIDDLE_BYTES
    width = problem.window.output[1]
    fitting = [
        pixels
        for pixels in PIXELS
        if pixels <= min(width, guess["MR"])
        and registers_needed(pixels * cut["NV"], cut["VW"], limits) <= most
        and problem.middle_bytes(pixels) <= room
        and problem.span(pixels) <= MOST_LOADS
    ]
    cut["MR"] = max(fitting, key=lambda pixels: (-ceil_div(width, pixels), -pixels), default=1)
    while cut["RT"] > 1 and (
        problem.middle_bytes(cut["MR"] * cut["RT"]) > room or cut["RT"] > problem.tiles(cut["MR"])
    ):
        cut["RT"] //= 2
    while (cut["KU"] > 1 and cut["KU"] * cut["MR"] * cut["NV"] > MOST_UNROLLED) or cut["KU"] > problem.channels:
        cut["KU"] //= 2
    return cut


FAMILY = SeparableFamily()
