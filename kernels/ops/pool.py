"""Pool NHWC maps by maximum, average or Lp norm; global pooling has a window of the map's size. See pool_window.cl."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gputune.core.dtypes import FLOAT
from gputune.kernels.chain import EMPTY, Chain
from gputune.kernels.family import Array, DeviceLimits, Tolerance
from gputune.kernels.hard_values import MOVES, NAN, SMALL, SUMS, Survival
from gputune.kernels.indexing.pixel_strips import CHANNELS, NhwcProblem, PixelFamily
from gputune.kernels.space import Constraint, Parameter
from gputune.kernels.tiling.streaming import (
    DIMX,
    DIMY,
    LINE_FLOATS,
    VECTOR_WIDTHS,
    busy,
    check_indices,
    default_width,
    fits,
    power_at_most,
)
from gputune.kernels.tiling.window import Pads, Pair, check_layout
from gputune.kernels.tiling.workgroups import few_registers

KINDS = ("max", "average", "lp")
WHOLE_MAP_SUMS = 4
"""Accumulators for a map that is pooled as a whole: an addition takes as long as three or four loads."""


SURVIVAL: Mapping[str, Survival] = {
    "max": MOVES,
    "average": SUMS,
    "lp": Survival(SMALL | {NAN}, "a power of a large value overflows on a device, and not in the reference"),
}


@dataclass(frozen=True)
class PoolProblem(NhwcProblem):
    """output[n, y, x, c] = epilogue(max, average or lp norm of the window at y, x).

    `kernel`, `strides`, `output` and `dilations` are (height, width), `pads` (top, left, bottom, right). `output` is
    given and not computed, so that rounding up (ceil mode) is decided before; a window may then reach
    beyond the padding. An average divides by the positions inside the map, with `count_include_pad` by
    those inside map and padding; lp is (sum |x|^norm)^(1/norm). The epilogue's operands are output-shaped.
    """

    op = "Pool"

    kind: str
    batch: int
    height: int
    width: int
    channels: int
    kernel: Pair
    strides: Pair
    pads: Pads
    output: Pair
    count_include_pad: bool = False
    epilogue: Chain = EMPTY
    dilations: Pair = (1, 1)
    norm: int = 0
    layout: str = "NHWC"
    dtype: str = FLOAT

    def check(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"Pool knows the kinds {', '.join(KINDS)}, not {self.kind!r}")
        if (self.kind == "lp") != (self.norm > 0):
            raise ValueError(f"Pool needs a positive norm for lp, and none for others; it is {self.norm}")
        check_layout("Pool", self.layout, "NHWC")
        sizes = (self.batch, self.height, self.width, self.channels)
        if min(*sizes, *self.kernel, *self.strides, *self.output, *self.dilations) < 1 or min(self.pads) < 0:
            raise ValueError("Pool needs positive sizes and pads that are not negative")
        for axis, size in enumerate((self.height, self.width)):
            starts = np.arange(self.output[axis]) * self.strides[axis] - self.pads[axis]
            first = np.maximum(-(starts // self.dilations[axis]), 0)  # the first tap that is not before the map
            if np.any((first >= self.kernel[axis]) | (starts + first * self.dilations[axis] >= size)):
                raise ValueError(f"Pool has a window that sees nothing but padding along axis {axis + 1}")
        check_indices("Pool", self.input_shape, self.output_shape)

    @property
    def is_global(self) -> bool:
        """Whether the one window is exactly the map, so that its rows are one run of pixels."""
        plain = not any(self.pads) and self.dilations == (1, 1)
        return plain and self.kernel == (self.height, self.width) and self.output == (1, 1)

    @property
    def row_of_window(self) -> int:
        """How many positions are one after the other in a window."""
        return math.prod(self.kernel) if self.is_global else self.kernel[1]


class PoolFamily(PixelFamily):
    """One template: a vector of channels of a few output pixels per work-item."""

    op = PoolProblem.op
    template = "pool_window.cl"
    parameters = (
        CHANNELS,
        Parameter("WPT", (1, 2, 4, 8), "neighbouring output pixels of a work-item"),
        Parameter("ACC", (1, 2, 4, 8), "accumulators that a row of the window is reduced in"),
        DIMX,
        DIMY,
    )

    def rules(self, problem: PoolProblem) -> tuple[Constraint, ...]:
        columns = problem.row_of_window
        return (
            fits(problem.channels, "the channels"),
            busy(("WPT",), problem.output[1], "the output's width"),
            Constraint(
                ("ACC",),
                lambda count: count <= columns,
                f"ACC must not exceed the {columns} positions in a row of the window",
            ),
            busy(("VW", "DIMX"), problem.channels, "the channels"),
            busy(("WPT", "DIMY"), problem.strips(1), "the number of output pixels"),
        )

    def widths(self, problem: PoolProblem, limits: DeviceLimits) -> dict[str, int]:
        """Give each work-item a vector of one pixel. With 16 registers the vector is a line of the cache where none
        would reach beyond the channels. On eight maps that was 1.0 to 1.5 times as fast as half a line."""
        lines = few_registers(limits) and problem.channels % LINE_FLOATS == 0
        return {"VW": LINE_FLOATS if lines else default_width(limits, problem.channels), "WPT": 1, "ACC": 1}

    def default(self, problem: PoolProblem, limits: DeviceLimits) -> dict[str, int]:
        """On a CPU a whole map is read by lines of the cache and added up in several sums, and its vectors of channels
        are for all cores: 1.3 to 4 times as fast as in one sum, in a work-group of 64."""
        usual = super().default(problem, limits)
        if limits.device_type != "cpu" or not problem.is_global:
            return usual
        sums = min(WHOLE_MAP_SUMS, power_at_most(problem.row_of_window))
        width = power_at_most(min(problem.channels, VECTOR_WIDTHS[-1]))
        return usual | {"VW": width, "ACC": sums, "DIMX": 1, "DIMY": 1}

    def guesses(self, problem: PoolProblem, limits: DeviceLimits) -> list[dict[str, int]]:
        usual = super().default(problem, limits)
        return [
            usual | {"ACC": 4},
            usual | {"WPT": 2, "DIMY": max(usual["DIMY"] // 2, 1)},
            usual | {"VW": 16, "WPT": 8, "DIMX": 1, "DIMY": 1},
            usual | {"VW": 4, "DIMX": 16, "DIMY": 4},
            usual | {"VW": 1, "DIMX": 64, "DIMY": 1},
        ]

    def sizes(self, problem: PoolProblem) -> Mapping[str, int]:
        sizes, (kh, kw) = dict(super().sizes(problem)), problem.kernel
        if problem.is_global:
            sizes |= {"HEIGHT": 1, "WIDTH": kh * kw}
            kh, kw = 1, kh * kw
        names = ("KH", "KW", "SH", "SW", "PT", "PL", "PB", "PR", "DH", "DW")
        window = zip(names, (kh, kw, *problem.strides, *problem.pads, *problem.dilations), strict=True)
        kind = {"KIND": KINDS.index(problem.kind), "NORM": problem.norm}
        return {**sizes, **dict(window), **kind, "COUNT_INCLUDE_PAD": problem.count_include_pad}

    def reference(self, problem: PoolProblem, inputs: Mapping[str, Array]) -> Array:
        """Pad the map by what counts for nothing, and reduce the shifted copies of it one tap at a time."""
        top, left, bottom, right = problem.pads
        height, width = problem.height, problem.width
        (rows, columns), (step_y, step_x), (apart_y, apart_x) = problem.output, problem.strides, problem.dilations
        below = max((rows - 1) * step_y + (problem.kernel[0] - 1) * apart_y + 1 - top - height, 0)
        beside = max((columns - 1) * step_x + (problem.kernel[1] - 1) * apart_x + 1 - left - width, 0)
        around = ((0, 0), (top, below), (left, beside), (0, 0))
        nothing = -np.inf if problem.kind == "max" else 0.0
        maps = np.pad(inputs["input"].astype(np.float64), around, constant_values=nothing)
        if problem.kind == "lp":
            maps = np.abs(maps) ** problem.norm
        counted = np.pad(np.ones((1, height, width, 1)), around)
        if problem.count_include_pad:
            counted[:, : top + height + bottom, : left + width + right] = 1
        total = np.full(problem.output_shape, nothing)
        count = np.zeros((1, rows, columns, 1))
        for y in range(0, problem.kernel[0] * apart_y, apart_y):
            for x in range(0, problem.kernel[1] * apart_x, apart_x):
                taps_y = slice(y, y + (rows - 1) * step_y + 1, step_y)
                taps_x = slice(x, x + (columns - 1) * step_x + 1, step_x)
                tap = maps[:, taps_y, taps_x]
                total = np.maximum(total, tap) if problem.kind == "max" else total + tap
                count += counted[:, taps_y, taps_x]
        if problem.kind == "average":
            total = total / count
        elif problem.kind == "lp":
            total = total ** (1 / problem.norm)
        return problem.epilogue.apply_to(total, inputs).astype(problem.dtype)

    def survival(self, problem: PoolProblem) -> Survival:
        return SURVIVAL[problem.kind]

    def steps(self, problem: PoolProblem) -> int:
        return math.prod(problem.kernel)

    def tolerance(self, problem: PoolProblem) -> Tolerance:
        taps = 1 if problem.kind == "max" else math.prod(problem.kernel)
        return Tolerance.of(problem.dtype, relative=1e-5, absolute=1e-6 * math.sqrt(taps))


FAMILY = PoolFamily()
