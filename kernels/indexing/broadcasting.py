"""Express broadcasts of tensors in as few loops as possible, and define the tuning space of kernels that read them.

Such a kernel has one row of vectors along the innermost loop, and folds every other loop into rows.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gputune.kernels.family import DeviceLimits
from gputune.kernels.indexing.maps import MapFamily
from gputune.kernels.space import Configuration, Constraint, Parameter
from gputune.kernels.tiling.streaming import DIMX, DIMY, VW, busy, ceil_div, default_width, fits

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

    def macros(self) -> dict[str, int]:
        """Return the sizes under the names that templates use."""
        return {"INNER": self.inner, "ROWS": self.rows}


class LoopFamily(MapFamily):
    """A family that writes an output along the `loops` of its problem, the vectors of each row and the rows shared
    among work-items.

    Of single elements PoCL makes vectors by itself, across a work-group. In groups of 32x32 they were 1.3 to 2.1 times
    as fast as the default in nine of ten chains of real models, and 0.4 times in the tenth.
    """

    parameters = (
        VW,
        Parameter("WPTX", (1, 2, 4, 8), "vectors of a work-item along a row"),
        Parameter("WPTY", (1, 2, 4, 8), "rows of a work-item"),
        DIMX,
        DIMY,
    )
    guessed = (
        {"WPTY": 4},
        {"WPTX": 4},
        {"WPTX": 2, "WPTY": 2},
        {"VW": 16, "WPTX": 8, "DIMX": 1},
        {"VW": 4, "DIMX": 64, "DIMY": 1},
        {"VW": 1, "DIMX": 128, "DIMY": 1},
        {"VW": 1, "DIMX": 32, "DIMY": 32},
    )

    def rules(self, problem: Any) -> tuple[Constraint, ...]:
        loops = problem.loops
        return (
            fits(loops.inner, "a row"),
            busy(("VW", "WPTX"), loops.inner, "the elements of a row"),
            busy(("WPTY",), loops.rows, "the number of rows"),
            busy(("VW", "WPTX", "DIMX"), loops.inner, "the elements of a row"),
            busy(("WPTY", "DIMY"), loops.rows, "the number of rows"),
        )

    def widths(self, problem: Any, limits: DeviceLimits) -> dict[str, int]:
        return {"VW": default_width(limits, problem.loops.inner), "WPTX": 1, "WPTY": 1}

    def grid(self, problem: Any, configuration: Configuration) -> tuple[int, int]:
        loops, run = problem.loops, configuration["VW"] * configuration["WPTX"]
        return ceil_div(loops.inner, run), ceil_div(loops.rows, configuration["WPTY"])

    def sizes(self, problem: Any) -> Mapping[str, int]:
        return dict(problem.loops.macros())

    def distances(self, problem: Any) -> Shape:
        return tuple(problem.loops.distances)


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
