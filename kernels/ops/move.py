"""Move elements: permute, cut out, repeat, add borders; anything that is affine in an element's position.

See move_rows.cl.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from gputune.core.dtypes import ANY, ELEMENT_TYPES, FLOAT
from gputune.kernels.chain import EMPTY, Chain, literal
from gputune.kernels.family import Array, DeviceLimits, Problem, TensorSpec, Tolerance, Work
from gputune.kernels.hard_values import MOVES
from gputune.kernels.indexing.maps import MapFamily
from gputune.kernels.indexing.moving import COPIED, CPU_ROWS, Loop, copy_rules, merged
from gputune.kernels.space import Configuration, Constraint
from gputune.kernels.tiling.streaming import MOST_ELEMENTS, ceil_div, check_indices, whole_width

BORDERS = ("constant", "edge", "reflect", "wrap")
"""What a border holds, in the order of move_rows.cl's BORDER."""

GATHERED_ROWS = 4
"""Neighbouring rows of a work-item where elements are read one by one: they share the lines that they are read from."""


@dataclass(frozen=True)
class MoveProblem(Problem):
    """output[i0, i1, ...] = epilogue(input[start + (i0 - before0) * step0 + (i1 - before1) * step1 + ...]).

    The input is seen as a line of `elements`. Where a position lies outside of its extent the output holds `fill`
    (border constant), or the position is another one: the nearest (edge), mirrored at the ends (reflect), or from the
    other end (wrap). The epilogue's operands are output-shaped, and there is one for floats only.
    """

    op = "Move"
    types = ANY

    elements: int
    start: int
    sizes: tuple[int, ...]
    steps: tuple[int, ...]
    before: tuple[int, ...]
    extents: tuple[int, ...]
    border: str = "constant"
    fill: float = 0
    epilogue: Chain = EMPTY
    dtype: str = FLOAT

    def check(self) -> None:
        if self.border not in BORDERS:
            raise ValueError(f"a border is one of {', '.join(BORDERS)}, not {self.border!r}")
        if math.isnan(self.fill):
            raise ValueError("a border cannot be filled with NaN")
        if not len(self.sizes) == len(self.steps) == len(self.before) == len(self.extents) > 0:
            raise ValueError("Move needs a size, a step, a border and an extent for every loop, and one loop at least")
        if min(self.elements, *self.sizes, *self.extents) < 1 or min(self.before) < 0:
            raise ValueError("Move needs positive sizes and extents, and borders that are not negative")
        check_indices("Move", (self.elements,), self.sizes)
        low = high = self.start
        for loop in self.loops:
            last = loop.inside - 1
            if self.border == "constant":
                last = max(min(last, loop.size - loop.before - 1), 0)
            low += min(0, last * loop.step)
            high += max(0, last * loop.step)
        if low < 0 or high >= self.elements or max(map(abs, self.steps)) > MOST_ELEMENTS:
            raise ValueError(f"Move reads elements {low} to {high} of {self.elements}")

    @property
    def loops(self) -> tuple[Loop, ...]:
        return tuple(map(Loop, self.sizes, self.steps, self.before, self.extents))

    @property
    def distances(self) -> tuple[int, ...]:
        """Elements between rows of the output, and of the input if it is read in vectors."""
        inner = self.loops[-1]
        return (inner.size, *((self.start, inner.before, *self.steps[:-1]) if inner.step == 1 else ()))

    @property
    def rows(self) -> int:
        return math.prod(self.sizes[:-1])

    @property
    def is_copy(self) -> bool:
        """Whether every element stays in its place, whatever the epilogue makes of it."""
        loop = self.loops[0]
        return self.sizes == (self.elements,) and loop.is_whole and (loop.step == 1 or self.elements == 1)

    def arrays(self) -> tuple[Array, Array]:
        """For each element of the output: where it lies in the input, and whether it is no border."""
        place, inside = np.full((), self.start, np.int64), np.full((), True)
        for loop in self.loops:
            position = np.arange(loop.size) - loop.before
            known = (position >= 0) & (position < loop.inside)
            match self.border:
                case "reflect":
                    position = abs(position) % max(2 * (loop.inside - 1), 1)
                    position = np.minimum(position, max(2 * (loop.inside - 1), 1) - position)
                case "wrap":
                    position = position % loop.inside
            position = np.clip(position, 0, loop.inside - 1)
            place = np.add.outer(place, position * loop.step)
            inside = np.logical_and.outer(inside, known if self.border == "constant" else np.full(loop.size, True))
        return place, inside


def move(
    elements: int,
    start: int,
    loops: Iterable[Loop],
    border: str = "constant",
    fill: float = 0,
    epilogue: Chain = EMPTY,
    dtype: str = FLOAT,
) -> MoveProblem:
    """Return the problem of these loops, outermost first; neighbours that go on in one stride become one."""
    kept = merged(loops, border)
    return MoveProblem(
        elements=elements,
        start=start,
        sizes=tuple(loop.size for loop in kept),
        steps=tuple(loop.step for loop in kept),
        before=tuple(loop.before for loop in kept),
        extents=tuple(loop.inside for loop in kept),
        border=border,
        fill=fill,
        epilogue=epilogue,
        dtype=dtype,
    )


class MoveFamily(MapFamily):
    """One template: vectors along the innermost loop of the output, all other loops folded into rows."""

    op = MoveProblem.op
    template = "move_rows.cl"
    parameters = COPIED
    guessed = (
        {"WPT": 16, "DIMY": 4},
        {"WPT": 32, "DIMX": 1, "DIMY": 1},
        {"VW": 16, "DIMX": 1, "DIMY": 16},
        {"VW": 4, "DIMX": 16, "DIMY": 4},
        {"VW": 4, "WPT": 1, "DIMX": 64, "DIMY": 1},
        {"VW": 1, "WPT": 1, "DIMX": 64, "DIMY": 1},
    )
    moves = True
    accuracy = Tolerance(relative=1e-5, absolute=1e-6)
    survives = MOVES

    def inputs(self, problem: MoveProblem) -> tuple[TensorSpec, ...]:
        return (problem.tensor("input", (problem.elements,)), *problem.operands(problem.sizes))

    def output(self, problem: MoveProblem) -> TensorSpec:
        return problem.tensor("output", problem.sizes)

    def rules(self, problem: MoveProblem) -> tuple[Constraint, ...]:
        return copy_rules(problem.sizes[-1], "a row", problem.sizes[-1], problem.rows)

    def widths(self, problem: MoveProblem, limits: DeviceLimits) -> dict[str, int]:
        width, rows = whole_width(limits, problem.sizes[-1]), 1
        if limits.device_type == "cpu":
            rows = next(few for few in (CPU_ROWS, GATHERED_ROWS, 2, 1) if few <= problem.rows)
        elif problem.steps[-1] not in (0, 1) and problem.rows >= GATHERED_ROWS:
            width = 1  # neighbouring work-items then read and write side by side
        return {"VW": width, "WPT": rows}

    def grid(self, problem: MoveProblem, configuration: Configuration) -> tuple[int, int]:
        return ceil_div(problem.sizes[-1], configuration["VW"]), ceil_div(problem.rows, configuration["WPT"])

    def sizes(self, problem: MoveProblem) -> Mapping[str, int]:
        inner = problem.loops[-1]
        loop = {"INNER": inner.size, "STEP": inner.step, "BEFORE": inner.before, "EXTENT": inner.inside}
        return loop | {"ROWS": problem.rows, "BORDER": BORDERS.index(problem.border)}

    def distances(self, problem: MoveProblem) -> tuple[int, ...]:
        return problem.distances

    def prelude(self, problem: MoveProblem) -> str:
        """Return what a border holds, and where a row begins."""
        statements = [f"base = {problem.start};"]
        below = 1
        for loop in problem.loops[-2::-1]:
            position = "(row)" if below == 1 else f"(row) / {below}"
            position = position if below * loop.size == problem.rows else f"{position} % {loop.size}"
            if not loop.is_whole:
                statements.append(f"{{ const int i = {position} - {loop.before};")
                if problem.border == "constant":
                    statements.append(f"inside &= i >= 0 && i < {loop.inside}; base += i * ({loop.step}); }}")
                else:
                    statements.append(f"base += PLACE(i, {loop.inside}) * ({loop.step}); }}")
            elif loop.step:
                statements.append(f"base += {position} * ({loop.step});")
            below *= loop.size
        return (
            f"#define FILL {element(problem.fill, problem.dtype, self.seen(problem))}\n"
            f"#define PLACE_ROW(row) {' '.join(statements)}\n{problem.epilogue.prelude()}"
        )

    def reference(self, problem: MoveProblem, inputs: Mapping[str, Array]) -> Array:
        place, inside = problem.arrays()
        fill = stored(problem.fill, problem.dtype)
        return problem.epilogue.apply_to(
            np.where(inside, inputs["input"].reshape(-1)[np.where(inside, place, 0)], fill), inputs
        )

    def work(self, problem: MoveProblem) -> Work:
        operands = sum(spec.nbytes for spec in self.inputs(problem)[1:])
        written = self.output(problem).nbytes
        read = min(written, self.inputs(problem)[0].nbytes)
        return Work(math.prod(problem.sizes) * len(problem.epilogue.steps), written + read + operands)


def stored(value: float, dtype: str) -> Array:
    """Return an element as tensors hold it; what is too large is infinite."""
    with np.errstate(over="ignore"):
        return np.asarray(value).astype(dtype)


def element(value: float, dtype: str, seen: str) -> str:
    """Return an OpenCL C expression of exactly this element, as the type by which a kernel sees it. Whole numbers have
    suffixes, and the least of int64 is no literal."""
    if ELEMENT_TYPES[seen].is_float:
        return literal(value)
    number = int(value if seen == dtype else stored(value, dtype).view(seen))
    suffix = {"int64": "L", "uint64": "UL", "uint32": "U"}.get(dtype, "")
    return f"({number + 1}{suffix} - 1)" if number < 0 else f"{number}{suffix}"


FAMILY = MoveFamily()
