"""Resize NHWC maps to nearest neighbours, with a fused chain. See resize_nearest.cl."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gputune.core.dtypes import ANY, FLOAT
from gputune.kernels.chain import EMPTY, Chain
from gputune.kernels.family import Array, DeviceLimits, Tolerance
from gputune.kernels.hard_values import MOVES
from gputune.kernels.indexing.pixel_strips import PixelFamily, PixelProblem
from gputune.kernels.tiling.streaming import MOST_ELEMENTS
from gputune.kernels.tiling.window import Pair, check_layout
from gputune.kernels.tiling.workgroups import few_registers

STRIPS_UP_TO = 64
"""Channels of a pixel up to which a work-item of such a CPU has several of them."""


@dataclass(frozen=True)
class ResizeProblem(PixelProblem):
    """output[n, y, x, c] = epilogue(input[n, row(y), column(x), c]).

    row(y) is (y * steps[0] + offsets[0]) / divisors[0], rounded down and cut to the map, and column(x) likewise: every
    way in which a place among output pixels becomes a place among input pixels, and is rounded, is such a line of
    integers. Pairs are (rows, columns); the epilogue's operands are output-shaped.
    """

    op = "Resize"
    types = ANY

    steps: Pair
    divisors: Pair
    offsets: Pair = (0, 0)
    epilogue: Chain = EMPTY
    layout: str = "NHWC"
    dtype: str = FLOAT

    def check(self) -> None:
        check_layout("Resize", self.layout, "NHWC")
        if min(self.divisors) < 1 or min(self.steps) < 0:
            raise ValueError("Resize needs positive sizes and divisors, and steps that are not negative")
        for output, step, divisor, offset in zip(self.output, self.steps, self.divisors, self.offsets, strict=True):
            if max(output * step + abs(offset), divisor) > MOST_ELEMENTS:
                raise ValueError(f"Resize indexes with 32 bits; steps of {step} / {divisor} need more")


class ResizeFamily(PixelFamily):
    """One template: a vector of channels of a few output pixels per work-item."""

    op = ResizeProblem.op
    template = "resize_nearest.cl"
    moves = True
    accuracy = Tolerance(relative=1e-5, absolute=1e-6)
    survives = MOVES

    def default(self, problem: ResizeProblem, limits: DeviceLimits) -> dict[str, int]:
        """On a CPU with AVX2 pixel by pixel where they are long, so that memory is written in its order: 1.1 to 2.6
        times as fast as in strips of 8 for 96 to 512 channels, which are as fast for 64 and faster for fewer."""
        usual = super().default(problem, limits)
        return usual | {"WPT": 1} if few_registers(limits) and problem.channels > STRIPS_UP_TO else usual

    def guesses(self, problem: ResizeProblem, limits: DeviceLimits) -> list[dict[str, int]]:
        usual = super().default(problem, limits)
        *others, last = super().guesses(problem, limits)
        return [*others, usual | {"VW": 8, "DIMX": 1, "DIMY": 4}, last]

    def sizes(self, problem: ResizeProblem) -> Mapping[str, int]:
        names = (f"{name}_{axis}" for name in ("STEP", "OFFSET", "DIVISOR") for axis in "YX")
        places = zip(names, (*problem.steps, *problem.offsets, *problem.divisors), strict=True)
        return {**super().sizes(problem), **dict(places)}

    def reference(self, problem: ResizeProblem, inputs: Mapping[str, Array]) -> Array:
        rows, columns = (
            np.clip((np.arange(output) * step + offset) // divisor, 0, size - 1)
            for size, output, step, offset, divisor in zip(
                problem.input_shape[1:3], problem.output, problem.steps, problem.offsets, problem.divisors, strict=True
            )
        )
        return problem.epilogue.apply_to(inputs["input"][:, rows][:, :, columns], inputs)


FAMILY = ResizeFamily()
