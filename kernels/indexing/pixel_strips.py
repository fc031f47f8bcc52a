"""Define strips of neighbouring pixels of an NHWC map, for families that compute a few output pixels per work-item."""

from dataclasses import dataclass

from gputune.kernels.family import DeviceLimits
from gputune.kernels.space import Configuration, Constraint, Parameter, TuningSpace
from gputune.kernels.tiling.streaming import (
    VECTOR_WIDTHS,
    busy,
    ceil_div,
    default_group,
    fits,
    group_constraints,
    group_parameters,
    round_up,
    whole_width,
)
from gputune.kernels.tiling.window import Pair


@dataclass(frozen=True)
class PixelStrips:
    """Maps of `output` (height, width) pixels, a vector of channels of WPT neighbours of a row per work-item."""

    batch: int
    output: Pair
    channels: int

    def strips(self, pixels: int) -> int:
        """Return how many strips of so many pixels, or fewer at the end of a row, the output consists of."""
        return self.batch * self.output[0] * ceil_div(self.output[1], pixels)

    def space(self, limits: DeviceLimits) -> TuningSpace:
        """Vectors, strips and work-groups."""
        return TuningSpace(
            (
                Parameter("VW", VECTOR_WIDTHS, "channels of a vector"),
                Parameter("WPT", (1, 2, 4, 8, 16, 32), "neighbouring output pixels of a work-item"),
                *group_parameters(),
            ),
            (
                fits(self.channels, "the channels"),
                busy(("WPT",), self.output[1], "the output's width"),
                busy(("VW", "DIMX"), self.channels, "the channels"),
                Constraint(
                    ("WPT", "DIMY"),
                    lambda strip, down: down == 1 or down < 2 * self.strips(strip),
                    "DIMY must stay below twice the number of strips; more would have nothing to do",
                ),
                *group_constraints(limits),
            ),
        )

    def default(self, limits: DeviceLimits) -> dict[str, int]:
        """Whole vectors of channels; on CPUs long strips."""
        width = whole_width(limits, self.channels)
        strip = 8 if limits.device_type == "cpu" and self.output[1] >= 8 else 1
        across, down = default_group(limits, ceil_div(self.channels, width), self.strips(strip))
        return {"VW": width, "WPT": strip, "DIMX": across, "DIMY": down}

    def guesses(self, limits: DeviceLimits) -> list[dict[str, int]]:
        """Return what won elsewhere."""
        default = self.default(limits)
        return [
            default | {"WPT": 16, "DIMY": 4},
            default | {"WPT": 4, "DIMX": 1, "DIMY": 16},
            default | {"VW": 16, "WPT": 32, "DIMX": 1, "DIMY": 1},
            default | {"VW": 4, "WPT": 1, "DIMX": 16, "DIMY": 4},
        ]

    def launch_sizes(self, configuration: Configuration) -> tuple[tuple[int, int], tuple[int, int]]:
        """(global size, local size)."""
        across, down = configuration["DIMX"], configuration["DIMY"]
        vectors, strips = ceil_div(self.channels, configuration["VW"]), self.strips(configuration["WPT"])
        return (round_up(vectors, across), round_up(strips, down)), (across, down)
