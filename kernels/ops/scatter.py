"""Write updates into a tensor at the positions that indices give. See scatter_rows.cl."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gputune.core.dtypes import ANY, ELEMENT_TYPES, FLOAT
from gputune.kernels.family import Array, DeviceLimits, Problem, TensorSpec, Work
from gputune.kernels.hard_values import EVERY, MOVES, SUBNORMAL, Survival
from gputune.kernels.indexing.broadcasting import Loops
from gputune.kernels.indexing.maps import MapFamily
from gputune.kernels.indexing.steps import reach
from gputune.kernels.ops.gather import INDEX_TYPES, strides_of
from gputune.kernels.space import Configuration, Constraint, Parameter
from gputune.kernels.template import moved
from gputune.kernels.tiling.streaming import (
    DIMX,
    DIMY,
    VW,
    busy,
    ceil_div,
    check_indices,
    default_group,
    default_width,
    fits,
    power_at_most,
)

REDUCTIONS: Mapping[str, tuple[str, np.ufunc | None]] = {
    "none": ("(update)", None),
    "add": ("(value) + (update)", np.add),
    "mul": ("(value) * (update)", np.multiply),
    "max": ("(value) < (update) ? (update) : (value)", np.maximum),
    "min": ("(update) < (value) ? (update) : (value)", np.minimum),
}
"""What becomes of a value and an update, in OpenCL C and numpy; without a function the update takes its place. An
update that is NaN is no maximum and no minimum, as in onnxruntime."""

REDUCED = Survival(EVERY - {SUBNORMAL}, "a device may take a subnormal number for zero before it is reduced")
SURVIVAL: Mapping[str, Survival] = {name: REDUCED if reduce else MOVES for name, (_, reduce) in REDUCTIONS.items()}

PARTS = tuple(4**power for power in range(9))


@dataclass(frozen=True)
class ScatterProblem(Problem):
    """output = data reduced with updates, one after the other, at the places that indices point at.

    The tensors are seen as lines, whose places are `step` elements apart, and nothing reaches from one line into
    another. Line i, which counts `sizes`, begins at i . steps in data, i . lookups in indices and i . takes in updates;
    the last size counts neighbouring elements of the data. A line has `count` updates, and none if i is not below
    `reached`. The indices of an update are neighbours, one for each of `extents`, and together they are the number of
    a place. Indices below zero count from their extents; what is out of range points nowhere.
    """

    op = "Scatter"
    types = ANY

    sizes: tuple[int, ...]
    steps: tuple[int, ...]
    lookups: tuple[int, ...]
    takes: tuple[int, ...]
    reached: tuple[int, ...]
    extents: tuple[int, ...]
    step: int
    count: int
    index_step: int
    update_step: int
    indices: int
    updates: int
    reduction: str = "none"
    index_dtype: str = "int64"
    dtype: str = FLOAT

    def check(self) -> None:
        if self.index_dtype not in INDEX_TYPES:
            raise ValueError(f"Scatter knows indices of {' and '.join(INDEX_TYPES)}, not {self.index_dtype}")
        if self.reduction not in REDUCTIONS:
            raise ValueError(f"Scatter knows the reductions {', '.join(REDUCTIONS)}, not {self.reduction!r}")
        given = (self.steps, self.lookups, self.takes)
        if any(len(steps) != len(self.sizes) for steps in (*given, self.reached)) or not self.sizes:
            raise ValueError("Scatter needs three steps and a bound for each size")
        counts = (self.step, self.count, self.index_step, self.update_step, *self.sizes, *self.reached, *self.extents)
        if min(counts) < 1 or min(map(min, given)) < 0 or not self.extents:
            raise ValueError("Scatter needs positive sizes, bounds and extents, and no negative step")
        inner = self.sizes[-1]
        if inner > 1 and (self.steps[-1], self.takes[-1], self.lookups[-1] > 1) != (1, 1, False):
            raise ValueError("Scatter needs neighbouring elements and updates along the last size")
        check_indices("Scatter", (*self.sizes, self.places), (self.indices,), (self.updates,))
        ends = (
            ("elements", reach((*self.sizes, self.places), (*self.steps, self.step)), self.elements),
            (
                "indices",
                reach((*self.met, self.count, len(self.extents)), (*self.lookups, self.index_step, 1)),
                self.indices,
            ),
            ("updates", reach((*self.met, self.count), (*self.takes, self.update_step)), self.updates),
        )
        for what, reached, most in ends:
            if reached > most:
                raise ValueError(f"Scatter reaches {reached} {what} of {most}")

    @property
    def places(self) -> int:
        """Places of a line."""
        return math.prod(self.extents)

    @property
    def elements(self) -> int:
        """Elements of the data."""
        return math.prod(self.sizes) * self.places

    @property
    def met(self) -> tuple[int, ...]:
        """Lines that have updates, for each size."""
        return tuple(min(size, bound) for size, bound in zip(self.sizes, self.reached, strict=True))

    @property
    def loops(self) -> Loops:
        """The loops over lines; input 0 is the data, input 1 are the indices, input 2 the updates."""
        return Loops(self.sizes, (self.steps, self.lookups, self.takes))


def along(shape: tuple[int, ...], updates: tuple[int, ...], axis: int, **kind: Any) -> ScatterProblem:
    """Return the problem of updates of a shape, each with an index of its own, put along an axis of data. It has as few
    loops as it takes."""
    strides, looks = strides_of(shape), strides_of(updates)
    loops: list[tuple[int, int, int, int]] = []  # size, step, steps in indices and updates, bound
    for other, (size, step, look, bound) in enumerate(zip(shape, strides, looks, updates, strict=True)):
        if other == axis or size == 1:
            continue
        outer = loops[-1] if loops else None
        goes_on = outer is not None and outer[1:3] == (step * size, look * bound) and bound == size
        if outer is not None and goes_on:
            loops[-1] = (outer[0] * size, step, look, outer[3] * size)
        else:
            loops.append((size, step, look, bound))
    if not loops or loops[-1][1] != 1:
        loops.append((1, 1, 0, 1))  # the places of a line are neighbours
    sizes, steps, lookups, reached = zip(*loops, strict=True)
    return ScatterProblem(
        sizes=sizes,
        steps=steps,
        lookups=lookups,
        takes=lookups,
        reached=reached,
        extents=(shape[axis],),
        step=strides[axis],
        count=updates[axis],
        index_step=looks[axis],
        update_step=looks[axis],
        indices=math.prod(updates),
        updates=math.prod(updates),
        **kind,
    )


def at_points(shape: tuple[int, ...], indices: tuple[int, ...], **kind: Any) -> ScatterProblem:
    """Return the problem of updates put at points of data, each of which as many indices give as the last axis of their
    shape has."""
    depth, count = indices[-1], math.prod(indices[:-1])
    inner = math.prod(shape[depth:])
    return ScatterProblem(
        sizes=(inner,),
        steps=(1,),
        lookups=(0,),
        takes=(1,),
        reached=(inner,),
        extents=shape[:depth],
        step=inner,
        count=count,
        index_step=depth,
        update_step=inner,
        indices=count * depth,
        updates=count * inner,
        **kind,
    )


class ScatterFamily(MapFamily):
    """One template: a work-item owns places of a few lines, and goes through the updates of these."""

    op = ScatterProblem.op
    template = "scatter_rows.cl"
    parameters = (
        VW,
        Parameter("WPTX", (1, 2, 4, 8), "vectors of a work-item"),
        Parameter("PARTS", PARTS, "work-items that share the places of a line, each of which sees all updates"),
        DIMX,
        DIMY,
    )

    def inputs(self, problem: ScatterProblem) -> tuple[TensorSpec, ...]:
        indices = TensorSpec("indices", (problem.indices,), dtype=problem.index_dtype)
        return problem.tensor("data", (problem.elements,)), indices, problem.tensor("updates", (problem.updates,))

    def output(self, problem: ScatterProblem) -> TensorSpec:
        return problem.tensor("output", (problem.elements,))

    def sample_inputs(self, problem: ScatterProblem, generator: np.random.Generator) -> dict[str, Array]:
        """Return indices in the range of the least extent, from either end."""
        least = min(problem.extents)
        indices = generator.integers(-least, least, problem.indices).astype(problem.index_dtype)
        return super().sample_inputs(problem, generator) | {"indices": indices}

    def survival(self, problem: ScatterProblem) -> Survival:
        return SURVIVAL[problem.reduction]

    def seen(self, problem: ScatterProblem) -> str:
        return moved(problem.dtype) if problem.reduction == "none" else problem.dtype

    def rules(self, problem: ScatterProblem) -> tuple[Constraint, ...]:
        loops = problem.loops
        return (
            fits(loops.inner, "a row of lines"),
            busy(("VW", "WPTX"), loops.inner, "the elements of a row of lines"),
            busy(("PARTS",), problem.places, "the places of a line"),
            busy(("VW", "WPTX", "DIMX"), loops.inner, "the elements of a row of lines"),
            Constraint(
                ("PARTS", "DIMY"),
                lambda parts, down: down == 1 or down < 2 * loops.rows * parts,
                "DIMY must stay below twice the parts of all rows; more would have nothing to do",
            ),
        )

    def default(self, problem: ScatterProblem, limits: DeviceLimits) -> dict[str, int]:
        """On CPUs only as many parts of a line as look at no more updates than they copy places, and as fill the
        device; elsewhere as many as it takes for either."""
        width = default_width(limits, problem.loops.inner)
        vectors, rows = ceil_div(problem.loops.inner, width), problem.loops.rows
        cpu = limits.device_type == "cpu"
        worth, lacking = problem.places // problem.count, 64 * limits.compute_units // (vectors * rows)
        enough = next((each for each in PARTS if each >= lacking), PARTS[-1])
        wanted = min(worth, lacking) if cpu else max(worth, enough)
        parts = max(each for each in PARTS if each <= max(min(wanted, problem.places), 1))
        across, down = default_group(limits, vectors, rows * parts)
        if cpu:  # a work-item has much to do, and there may be few
            groups = max(vectors * rows * parts // (4 * limits.compute_units), 1)
            across = min(across, power_at_most(groups))
            down = min(down, power_at_most(max(groups // across, 1)))
        return {"VW": width, "WPTX": 1, "PARTS": parts, "DIMX": across, "DIMY": down}

    def guesses(self, problem: ScatterProblem, limits: DeviceLimits) -> list[dict[str, int]]:
        default = self.default(problem, limits)
        more = 4 * default["PARTS"]
        return [
            default | {"WPTX": 4, "DIMX": 1},
            default | {"PARTS": more},
            default | {"PARTS": 4 * more},
            default | {"VW": 1, "DIMX": 64, "DIMY": 1},
            default | {"VW": 1, "PARTS": more, "DIMX": 1, "DIMY": 1},
        ]

    def grid(self, problem: ScatterProblem, configuration: Configuration) -> tuple[int, int]:
        loops, run = problem.loops, configuration["VW"] * configuration["WPTX"]
        return ceil_div(loops.inner, run), loops.rows * configuration["PARTS"]

    def sizes(self, problem: ScatterProblem) -> Mapping[str, int]:
        updates = {"COUNT": problem.count, "INDEX_STEP": problem.index_step, "UPDATE_STEP": problem.update_step}
        places = {"PLACES": problem.places, "PLACE_STEP": problem.step, "REACH": problem.met[-1]}
        return problem.loops.macros() | updates | places

    def distances(self, problem: ScatterProblem) -> tuple[int, ...]:
        return (*problem.loops.distances, problem.step, problem.update_step)

    def prelude(self, problem: ScatterProblem) -> str:
        """Return the indices' type, where lines begin, and what is done to a value."""
        loops = problem.loops
        conditions, below = [], 1
        for size, bound in list(zip(problem.sizes, problem.reached, strict=True))[-2::-1]:
            if bound < size:
                conditions.append(f"(row) / {below} % {size} < {bound}")
            below *= size
        return (
            f"#define INDEX_TYPE {ELEMENT_TYPES[problem.index_dtype].storage}\n"
            f"#define LINE(row) ({loops.row_offset(0) or 0})\n#define LOOK(row) ({loops.row_offset(1) or 0})\n"
            f"#define TAKE(row) ({loops.row_offset(2) or 0})\n#define OWN {int(problem.lookups[-1])}\n"
            f"#define REACHED(row) ({' && '.join(conditions) or 1})\n"
            f"#define FIND {' '.join(f'AT({k}, {extent})' for k, extent in enumerate(problem.extents))}\n"
            f"#define REDUCE(value, update) {REDUCTIONS[problem.reduction][0]}\n"
        )

    def reference(self, problem: ScatterProblem, inputs: Mapping[str, Array]) -> Array:
        """numpy's unbuffered reductions of all updates at once, each line's in their order."""
        lines = np.indices(problem.met).reshape(len(problem.sizes), -1)
        at, look, take = (
            np.asarray(steps, np.int64) @ lines for steps in (problem.steps, problem.lookups, problem.takes)
        )
        numbers = np.arange(problem.count)[:, None]
        place, known = np.zeros((problem.count, len(at)), np.int64), np.bool_(True)
        for k, extent in enumerate(problem.extents):
            index = inputs["indices"].reshape(-1)[look + numbers * problem.index_step + k].astype(np.int64)
            index = np.where(index < 0, index + extent, index)
            known = known & (index >= 0) & (index < extent)
            place = place * extent + np.where(known, index, 0)
        update = inputs["updates"].reshape(-1)[take + numbers * problem.update_step]
        if problem.reduction in ("max", "min"):
            known = known & (update == update)
        output: Array = inputs["data"].reshape(-1).copy()
        where, update = (at + place * problem.step)[known], update[known]
        reduce = REDUCTIONS[problem.reduction][1]
        if reduce is None:
            output[where] = update
        else:
            with np.errstate(all="ignore"):
                reduce.at(output, where, update)
        return output

    def work(self, problem: ScatterProblem) -> Work:
        return Work(0 if problem.reduction == "none" else problem.updates, self.moved_bytes(problem))


FAMILY = ScatterFamily()
