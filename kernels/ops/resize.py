"""Nearest-neighbour resizing of NHWC maps, with a fused chain. See resize_nearest.cl."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

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
from gputune.kernels.hard_values import MOVES
from gputune.kernels.space import Configuration, Constraint, Parameter, TuningSpace
from gputune.kernels.template import build_options, template
from gputune.kernels.tiling.streaming import (
    MOST_ELEMENTS,
    VECTOR_WIDTHS,
    busy,
    ceil_div,
    check_indices,
    default_group,
    default_width,
    fits,
    group_constraints,
    group_parameters,
    round_up,
)
from gputune.kernels.tiling.window import Pair


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
    dtype: str = "float32"

    def __post_init__(self) -> None:
        if self.layout != "NHWC" or self.dtype != "float32":
            raise ValueError(f"Resize knows NHWC in float32, not {self.layout} in {self.dtype}")
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

    def strips(self, pixels: int) -> int:
        """Strips of so many pixels, or fewer at the end of a row, that the output consists of."""
        return self.batch * self.output[0] * ceil_div(self.output[1], pixels)


class ResizeFamily(KernelFamily):
    """One template: a vector of channels of a few output pixels per work-item."""

    op = "Resize"
    survives = MOVES

    def inputs(self, problem: ResizeProblem) -> tuple[TensorSpec, ...]:
        operands = range(problem.epilogue.operands)
        return (
            TensorSpec("input", problem.input_shape),
            *(TensorSpec(f"operand{k}", problem.output_shape) for k in operands),
        )

    def output(self, problem: ResizeProblem) -> TensorSpec:
        return TensorSpec("output", problem.output_shape)

    def space(self, problem: ResizeProblem, limits: DeviceLimits) -> TuningSpace:
        return TuningSpace(
            (
                Parameter("VW", VECTOR_WIDTHS, "channels of a vector"),
                Parameter("WPT", (1, 2, 4, 8, 16, 32), "neighbouring output pixels of a work-item"),
                *group_parameters(),
            ),
            (
                fits(problem.channels, "the channels"),
                busy(("WPT",), problem.output[1], "the output's width"),
                busy(("VW", "DIMX"), problem.channels, "the channels"),
                Constraint(
                    ("WPT", "DIMY"),
                    lambda strip, down: down == 1 or down < 2 * problem.strips(strip),
                    "DIMY must stay below twice the number of strips; more would have nothing to do",
                ),
                *group_constraints(limits),
            ),
        )

    def default(self, problem: ResizeProblem, limits: DeviceLimits) -> dict[str, int]:
        width = default_width(limits, problem.channels)
        divides = math.gcd(width, problem.channels)
        width = divides if divides >= 4 else width
        strip = 8 if limits.device_type == "cpu" and problem.output[1] >= 8 else 1
        across, down = default_group(limits, ceil_div(problem.channels, width), problem.strips(strip))
        return {"VW": width, "WPT": strip, "DIMX": across, "DIMY": down}

    def guesses(self, problem: ResizeProblem, limits: DeviceLimits) -> list[dict[str, int]]:
        default = self.default(problem, limits)
        return [
            default | {"WPT": 16, "DIMY": 4},
            default | {"WPT": 4, "DIMX": 1, "DIMY": 16},
            default | {"VW": 16, "WPT": 32, "DIMX": 1, "DIMY": 1},
            default | {"VW": 8, "DIMX": 1, "DIMY": 4},
            default | {"VW": 4, "WPT": 1, "DIMX": 16, "DIMY": 4},
        ]

    def render(self, problem: ResizeProblem, configuration: Configuration) -> Instance:
        across, down = configuration["DIMX"], configuration["DIMY"]
        vectors, strips = ceil_div(problem.channels, configuration["VW"]), problem.strips(configuration["WPT"])
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
        main = Launch(
            source=problem.epilogue.prelude() + template("resize_nearest.cl"),
            entry="resize_nearest",
            options=build_options(macros | dict(configuration)),
            global_size=(round_up(vectors, across), round_up(strips, down)),
            local_size=(across, down),
            arguments=("input", "output", *(f"operand{k}" for k in range(problem.epilogue.operands))),
        )
        return Instance(main)

    def reference(self, problem: ResizeProblem, inputs: Mapping[str, Array]) -> Array:
        rows, columns = (
            np.clip((np.arange(output) * step + offset) // divisor, 0, size - 1)
            for size, output, step, offset, divisor in zip(
                problem.size, problem.output, problem.steps, problem.offsets, problem.divisors, strict=True
            )
        )
        operands = [inputs[f"operand{k}"] for k in range(problem.epilogue.operands)]
        return problem.epilogue.apply(inputs["input"][:, rows][:, :, columns], operands)

    def work(self, problem: ResizeProblem) -> Work:
        moved = sum(spec.nbytes for spec in (*self.inputs(problem), self.output(problem)))
        return Work(math.prod(problem.output_shape) * len(problem.epilogue.steps), moved)

    def tolerance(self, problem: ResizeProblem) -> Tolerance:
        return Tolerance(relative=1e-5, absolute=1e-6) if problem.epilogue.steps else Tolerance(0.0, 0.0)


FAMILY = ResizeFamily()
