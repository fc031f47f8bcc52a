"""Define families that compute strips of neighbouring pixels of NHWC maps, a few output pixels per work-item."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from gputune.kernels.family import DeviceLimits, Problem, TensorSpec
from gputune.kernels.indexing.maps import Guesses, MapFamily, Parameters
from gputune.kernels.space import Configuration, Constraint, Parameter
from gputune.kernels.tiling.streaming import (
    DIMX,
    DIMY,
    VECTOR_WIDTHS,
    busy,
    ceil_div,
    check_indices,
    fits,
    idle_beyond,
    whole_width,
)
from gputune.kernels.tiling.window import Pair

CHANNELS = Parameter("VW", VECTOR_WIDTHS, "channels of a vector")


class NhwcProblem(Problem):
    """A problem that makes NHWC maps of `output` (height, width) out of NHWC maps."""

    batch: int
    height: int
    width: int
    channels: int
    output: Pair

    @property
    def input_shape(self) -> tuple[int, int, int, int]:
        return (self.batch, self.height, self.width, self.channels)

    @property
    def output_shape(self) -> tuple[int, int, int, int]:
        return (self.batch, *self.output, self.channels)

    def strips(self, pixels: int) -> int:
        """Return how many strips of so many pixels, or fewer at the end of a row, the output consists of."""
        return self.batch * self.output[0] * ceil_div(self.output[1], pixels)


@dataclass(frozen=True)
class PixelProblem(NhwcProblem):
    """The same as a dataclass: the fields that come first in its subclasses."""

    batch: int
    height: int
    width: int
    channels: int
    output: Pair

    def __post_init__(self) -> None:
        if min(*self.input_shape, *self.output) < 1:
            raise ValueError(f"{self.op} needs positive sizes, not {self.input_shape} and {self.output}")
        check_indices(self.op, self.input_shape, self.output_shape)
        super().__post_init__()


class PixelFamily(MapFamily):
    """A family of NhwcProblems: a vector of channels of WPT neighbours of a row per work-item."""

    parameters: ClassVar[Parameters] = (
        CHANNELS,
        Parameter("WPT", (1, 2, 4, 8, 16, 32), "neighbouring output pixels of a work-item"),
        DIMX,
        DIMY,
    )
    guessed: ClassVar[Guesses] = (
        {"WPT": 16, "DIMY": 4},
        {"WPT": 4, "DIMX": 1, "DIMY": 16},
        {"VW": 16, "WPT": 32, "DIMX": 1, "DIMY": 1},
        {"VW": 4, "WPT": 1, "DIMX": 16, "DIMY": 4},
    )

    def inputs(self, problem: Any) -> tuple[TensorSpec, ...]:
        return (problem.tensor("input", problem.input_shape), *problem.operands(problem.output_shape))

    def output(self, problem: Any) -> TensorSpec:
        output: TensorSpec = problem.tensor("output", problem.output_shape)
        return output

    def rules(self, problem: Any) -> tuple[Constraint, ...]:
        return (
            fits(problem.channels, "the channels"),
            busy(("WPT",), problem.output[1], "the output's width"),
            busy(("VW", "DIMX"), problem.channels, "the channels"),
            idle_beyond(("WPT", "DIMY"), problem.strips, "strips"),
        )

    def widths(self, problem: Any, limits: DeviceLimits) -> dict[str, int]:
        """Whole vectors of channels; on CPUs long strips."""
        strip = 8 if limits.device_type == "cpu" and problem.output[1] >= 8 else 1
        return {"VW": whole_width(limits, problem.channels), "WPT": strip}

    def grid(self, problem: Any, configuration: Configuration) -> tuple[int, int]:
        return ceil_div(problem.channels, configuration["VW"]), problem.strips(configuration["WPT"])

    def sizes(self, problem: Any) -> Mapping[str, int]:
        names = ("MAPS", "HEIGHT", "WIDTH", "CHANNELS", "OUT_HEIGHT", "OUT_WIDTH")
        return dict(zip(names, (*problem.input_shape, *problem.output), strict=True))

    def prelude(self, problem: Any) -> str:
        return str(problem.epilogue.prelude())

    def distances(self, problem: Any) -> tuple[int, ...]:
        return (problem.channels,)
