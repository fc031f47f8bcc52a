"""Express broadcasts of tensors in as few loops as possible, and define the tuning space of kernels that read them.

Such a kernel has one row of vectors along the innermost loop, and folds every other loop into rows.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from gputune.kernels.family import DeviceLimits
from gputune.kernels.space import Configuration, Parameter, TuningSpace
from gputune.kernels.tiling.streaming import (
    VECTOR_WIDTHS,
    busy,
    ceil_div,
    default_group,
    default_width,
    fits,
    group_constraints,
    group_parameters,
    round_up,
)

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Loops:
    """A broadcast as few loops as it takes: `sizes`, outermost first, and one step per loop for every input.

    The innermost step of an input is 1 (contiguous) or 0 (constant).
    """

    sizes: Shape
    steps: tuple[Shape, ...]

    @property
    def inner(self) -> int:
        return self.sizes[-1]

    @property
    def rows(self) -> int:
        return math.prod(self.sizes[:-1])

    @property
    def distances(self) -> Shape:
        """Elements between the rows of the output, and of each input that is contiguous along rows."""
        return (self.inner, *(step for steps in self.steps if steps[-1] for step in steps[:-1]))

    def row_offset(self, which: int) -> str:
        """Return where the row of an input begins, as an OpenCL C expression of `row`; empty when at 0."""
        terms = []
        below = 1
        for size, step in list(zip(self.sizes, self.steps[which], strict=True))[-2::-1]:
            if step:
                position = "(row)" if below == 1 else f"(row) / {below}"
                wrapped = position if below * size == self.rows else f"{position} % {size}"
                terms.append(wrapped if step == 1 else f"{wrapped} * {step}")
            below *= size
        return " + ".join(reversed(terms))

    def space(self, limits: DeviceLimits) -> TuningSpace:
        """Return how vectors and rows are shared among work-items."""
        return TuningSpace(
            (
                Parameter("VW", VECTOR_WIDTHS, "elements of a vector"),
                Parameter("WPTX", (1, 2, 4, 8), "vectors of a work-item along a row"),
                Parameter("WPTY", (1, 2, 4, 8), "rows of a work-item"),
                *group_parameters(),
            ),
            (
                fits(self.inner, "a row"),
                busy(("VW", "WPTX"), self.inner, "the elements of a row"),
                busy(("WPTY",), self.rows, "the number of rows"),
                busy(("VW", "WPTX", "DIMX"), self.inner, "the elements of a row"),
                busy(("WPTY", "DIMY"), self.rows, "the number of rows"),
                *group_constraints(limits),
            ),
        )

    def default(self, limits: DeviceLimits) -> dict[str, int]:
        """Choose a vector of the device's width per work-item."""
        width = default_width(limits, self.inner)
        across, down = default_group(limits, ceil_div(self.inner, width), self.rows)
        return {"VW": width, "WPTX": 1, "WPTY": 1, "DIMX": across, "DIMY": down}

    def guesses(self, limits: DeviceLimits) -> list[dict[str, int]]:
        """More work for a work-item, wider and narrower vectors.

        Of single elements PoCL makes vectors by itself, across a work-group. In groups of 32x32 they were 1.3 to 2.1
        times as fast as the default in nine of ten chains of real models, and 0.4 times in the tenth.
        """
        default = self.default(limits)
        return [
            default | {"WPTY": 4},
            default | {"WPTX": 4},
            default | {"WPTX": 2, "WPTY": 2},
            default | {"VW": 16, "WPTX": 8, "DIMX": 1},
            default | {"VW": 4, "DIMX": 64, "DIMY": 1},
            default | {"VW": 1, "DIMX": 128, "DIMY": 1},
            default | {"VW": 1, "DIMX": 32, "DIMY": 32},
        ]

    def macros(self, configuration: Configuration) -> Mapping[str, int]:
        """Return what a template is told: INNER, ROWS and the parameters."""
        return {"INNER": self.inner, "ROWS": self.rows} | dict(configuration)

    def grid(self, configuration: Configuration) -> tuple[tuple[int, int], tuple[int, int]]:
        """(global size, local size): dimension 0 runs over vectors, dimension 1 over rows."""
        across, down = configuration["DIMX"], configuration["DIMY"]
        vectors = ceil_div(self.inner, configuration["VW"] * configuration["WPTX"])
        rows = ceil_div(self.rows, configuration["WPTY"])
        return (round_up(vectors, across), round_up(rows, down)), (across, down)


def collapse(shape: Shape, shapes: tuple[Shape, ...]) -> Loops:
    """Merge neighbouring axes of `shape` wherever every input of `shapes` goes along them in one stride."""
    sizes: list[int] = []
    steps: list[list[int]] = [[] for _ in shapes]
    padded = [(1,) * (len(shape) - len(one)) + one for one in shapes]
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        here = [0 if one[axis] == 1 else math.prod(one[axis + 1 :]) for one in padded]
        if sizes and all(mine[-1] == step * size for mine, step in zip(steps, here, strict=True)):
            sizes[-1] *= size
            for mine, step in zip(steps, here, strict=True):
                mine[-1] = step
        else:
            sizes.append(size)
            for mine, step in zip(steps, here, strict=True):
                mine.append(step)
    if not sizes:
        return Loops((1,), tuple((1,) for _ in shapes))
    return Loops(tuple(sizes), tuple(map(tuple, steps)))


def check_broadcasts(op: str, shape: Shape, shapes: tuple[Shape, ...]) -> None:
    """ValueError where an input does not broadcast to exactly `shape` by numpy's rules, or a size is zero."""
    if min(shape, default=1) < 1:
        raise ValueError(f"{op} needs positive sizes, not the shape {shape}")
    for one in shapes:
        pairs = zip(reversed(one), reversed(shape), strict=False)
        if len(one) > len(shape) or not all(mine in (1, size) for mine, size in pairs):
            raise ValueError(f"an input of shape {one} does not broadcast to {shape}")
