"""Resize NHWC maps to nearest neighbours, with a fused chain. See resize_nearest.cl."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gputune.core.dtypes import FLOAT, FLOATS, check_float
from gputune.kernels.chain import EMPTY, Chain
from gputune.kernels.family import (
    ALONE,
    Array,
    DeviceLimits,
    Instance,
    Launch,
    TensorSpec,
    TiledFamily,
    Tolerance,
    Work,
    operand_specs,
)
from gputune.kernels.hard_values import MOVES
from gputune.kernels.indexing.pixel_strips import PixelStrips
from gputune.kernels.pointers import aligned
from gputune.kernels.space import Configuration
from gputune.kernels.template import build_options, moved, template
from gputune.kernels.tiling.streaming import (
    MOST_ELEMENTS,
    check_indices,
)
from gputune.kernels.tiling.window import Pair, check_layout
from gputune.kernels.tiling.workgroups import few_registers

STRIPS_UP_TO = 64
"""Channels of a pixel up to which a work-item of such a CPU has several of them."""


@dataclass(frozen=True)
class ResizeProblem:
    """output[n, y, x, c] = epilogue(input[n, row(y), column(x), c]).

    row(y) is (y * steps[0] + offsets[0]) / divisors[0], rounded down and cut to the map, and column(x) likewise: every
    way in which a place among output pixels becomes a place among input pixels, and is rounded, is such a line of
    integers. Pairs are (rows, columns); the epilogue's operands are output-shaped.
    """

    batch: int
    height: int
    width: int
    channels: int
    output: Pair
    steps: Pair
    divisors: Pair
    offsets: Pair = (0, 0)
    epilogue: Chain = EMPTY
    layout: str = "NHWC"
    dtype: str = FLOAT

    def __post_init__(self) -> None:
        check_layout("Resize", self.layout, "NHWC")
        check_float("Resize", self.dtype)
        if min(self.batch, *self.size, self.channels, *self.output, *self.divisors) < 1 or min(self.steps) < 0:
            raise ValueError("Resize needs positive sizes and divisors, and steps that are not negative")
        for output, step, divisor, offset in zip(self.output, self.steps, self.divisors, self.offsets, strict=True):
            if max(output * step + abs(offset), divisor) > MOST_ELEMENTS:
                raise ValueError(f"Resize indexes with 32 bits; steps of {step} / {divisor} need more")
        check_indices("Resize", self.input_shape, self.output_shape)

    @property
    def size(self) -> Pair:
        """Height and width of the input."""
        return self.height, self.width

    @property
    def input_shape(self) -> tuple[int, int, int, int]:
        return (self.batch, *self.size, self.channels)

    @property
    def output_shape(self) -> tuple[int, int, int, int]:
        return (self.batch, *self.output, self.channels)


class ResizeFamily(TiledFamily):
    """One template: a vector of channels of a few output pixels per work-item."""

    op = "Resize"
    floats = FLOATS
    survives = MOVES

    def inputs(self, problem: ResizeProblem) -> tuple[TensorSpec, ...]:
        return (
            TensorSpec("input", problem.input_shape, dtype=problem.dtype),
            *operand_specs(problem.epilogue, problem.output_shape, problem.dtype),
        )

    def output(self, problem: ResizeProblem) -> TensorSpec:
        return TensorSpec("output", problem.output_shape, dtype=problem.dtype)

    def tiling(self, problem: ResizeProblem) -> PixelStrips:
        return PixelStrips(problem.batch, problem.output, problem.channels)

    def default(self, problem: ResizeProblem, limits: DeviceLimits) -> dict[str, int]:
        """On a CPU with AVX2 pixel by pixel where they are long, so that memory is written in its order: 1.1 to 2.6
        times as fast as in strips of 8 for 96 to 512 channels, which are as fast for 64 and faster for fewer."""
        usual = super().default(problem, limits)
        return usual | {"WPT": 1} if few_registers(limits) and problem.channels > STRIPS_UP_TO else usual

    def guesses(self, problem: ResizeProblem, limits: DeviceLimits) -> list[dict[str, int]]:
        usual = super().default(problem, limits)
        *others, last = super().guesses(problem, limits)
        return [*others, usual | {"VW": 8, "DIMX": 1, "DIMY": 4}, last]

    def render(self, problem: ResizeProblem, configuration: Configuration) -> Instance:
        global_size, local_size = self.tiling(problem).launch_sizes(configuration)
        macros = {
            "MAPS": problem.batch,
            "HEIGHT": problem.height,
            "WIDTH": problem.width,
            "CHANNELS": problem.channels,
            **dict(zip(("OUT_HEIGHT", "OUT_WIDTH"), problem.output, strict=True)),
            **dict(zip(("STEP_Y", "STEP_X"), problem.steps, strict=True)),
            **dict(zip(("OFFSET_Y", "OFFSET_X"), problem.offsets, strict=True)),
            **dict(zip(("DIVISOR_Y", "DIVISOR_X"), problem.divisors, strict=True)),
        }
        dtype = problem.dtype if problem.epilogue.steps else moved(problem.dtype)
        main = Launch(
            source=problem.epilogue.prelude() + template("resize_nearest.cl", dtype=dtype),
            entry="resize_nearest",
            needs=ALONE,
            writes=("output",),
            aligned=aligned(configuration["VW"], problem.channels),
            options=build_options(macros | dict(configuration)),
            global_size=global_size,
            local_size=local_size,
            arguments=("input", "output", *problem.epilogue.operand_names),
        )
        return Instance(main)

    def reference(self, problem: ResizeProblem, inputs: Mapping[str, Array]) -> Array:
        rows, columns = (
            np.clip((np.arange(output) * step + offset) // divisor, 0, size - 1)
            for size, output, step, offset, divisor in zip(
                problem.size, problem.output, problem.steps, problem.offsets, problem.divisors, strict=True
            )
        )
        return problem.epilogue.apply_to(inputs["input"][:, rows][:, :, columns], inputs)

    def work(self, problem: ResizeProblem) -> Work:
        return Work(math.prod(problem.output_shape) * len(problem.epilogue.steps), self.moved_bytes(problem))

    def tolerance(self, problem: ResizeProblem) -> Tolerance:
        return (
            Tolerance.of(problem.dtype, relative=1e-5, absolute=1e-6) if problem.epilogue.steps else Tolerance(0.0, 0.0)
        )


FAMILY = ResizeFamily()
