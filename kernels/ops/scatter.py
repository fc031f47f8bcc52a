"""A tensor with updates put where indices point at. See scatter_rows.cl."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gputune.core.dtypes import OPENCL_TYPES, check_dtype
from gputune.kernels.family import (
    Array,
    Instance,
    Launch,
    TensorSpec,
    TiledFamily,
    Tolerance,
    Work,
)
from gputune.kernels.hard_values import Survival
from gputune.kernels.indexing.broadcasting import Loops
from gputune.kernels.ops.gather import INDEX_TYPES
from gputune.kernels.space import Configuration
from gputune.kernels.template import build_options, template
from gputune.kernels.tiling.streaming import check_indices

REDUCTIONS: Mapping[str, tuple[str, np.ufunc | None]] = {
    "none": ("(update)", None),
    "add": ("(value) + (update)", np.add),
    "mul": ("(value) * (update)", np.multiply),
    "max": ("max(value, update)", np.maximum),
    "min": ("min(value, update)", np.minimum),
}
"""What becomes of a value and an update, in OpenCL C and numpy; without one the update takes its place."""


@dataclass(frozen=True)
class ScatterProblem:
    """output[i, x] = data[i, x] reduced with updates[i . lookups + c * update_step + x] for each c < count, in order,
    that points at i: sum over k of indices[i . lookups + c * index_step + k] * spans[k] is i . heres.

    i counts `sizes`, and x `inner` neighbouring elements. Nothing points at an i that is not below `reached`. Indices
    below zero count from their extents; what is out of range points nowhere.
    """

    sizes: tuple[int, ...]
    inner: int
    count: int
    lookups: tuple[int, ...]
    heres: tuple[int, ...]
    reached: tuple[int, ...]
    extents: tuple[int, ...]
    spans: tuple[int, ...]
    index_step: int
    update_step: int
    indices: int
    updates: int
    reduction: str = "none"
    index_dtype: str = "int64"
    dtype: str = "float32"

    def __post_init__(self) -> None:
        check_dtype("Scatter", self.dtype)
        if self.index_dtype not in INDEX_TYPES:
            raise ValueError(f"Scatter knows indices of {' and '.join(INDEX_TYPES)}, not {self.index_dtype}")
        if self.reduction not in REDUCTIONS:
            raise ValueError(f"Scatter knows the reductions {', '.join(REDUCTIONS)}, not {self.reduction!r}")
        loops = (self.lookups, self.heres, self.reached)
        if any(len(steps) != len(self.sizes) for steps in loops) or len(self.extents) != len(self.spans):
            raise ValueError("Scatter needs two steps and a bound for each size, and a span for each extent")
        counts = (self.inner, self.count, self.index_step, self.update_step, *self.sizes, *self.reached, *self.extents)
        if min(*counts, *self.spans) < 1 or min(*self.lookups, *self.heres, 0) < 0 or not self.extents:
            raise ValueError("Scatter needs positive sizes, bounds, extents and spans, and no negative step")
        check_indices("Scatter", (*self.sizes, self.inner), (self.indices,), (self.updates,))
        bounds = zip(self.sizes, self.reached, self.lookups, strict=True)
        look = sum((min(size, bound) - 1) * step for size, bound, step in bounds)
        looked = look + (self.count - 1) * self.index_step + len(self.extents)
        taken = look + (self.count - 1) * self.update_step + self.inner
        if looked > self.indices or taken > self.updates:
            raise ValueError(
                f"Scatter reaches {looked} indices and {taken} updates of {self.indices} and {self.updates}"
            )

    @property
    def loops(self) -> Loops:
        """The output's loops; input 0 are indices and updates, input 1 is what indices must add up to."""
        return Loops((*self.sizes, self.inner), ((*self.lookups, 1), (*self.heres, 0)))


class ScatterFamily(TiledFamily):
    """One template: each row of the output looks through the updates for its own."""

    op = "Scatter"
    survives = Survival(frozenset(), "several updates of one element are added in any order")

    def inputs(self, problem: ScatterProblem) -> tuple[TensorSpec, ...]:
        return (
            TensorSpec("data", (*problem.sizes, problem.inner), dtype=problem.dtype),
            TensorSpec("indices", (problem.indices,), dtype=problem.index_dtype),
            TensorSpec("updates", (problem.updates,), dtype=problem.dtype),
        )

    def output(self, problem: ScatterProblem) -> TensorSpec:
        return TensorSpec("output", (*problem.sizes, problem.inner), dtype=problem.dtype)

    def sample_inputs(self, problem: ScatterProblem, generator: np.random.Generator) -> dict[str, Array]:
        """Indices in the range of the least extent, from either end."""
        least = min(problem.extents)
        indices = generator.integers(-least, least, problem.indices).astype(problem.index_dtype)
        return super().sample_inputs(problem, generator) | {"indices": indices}

    def tiling(self, problem: ScatterProblem) -> Loops:
        return problem.loops

    def render(self, problem: ScatterProblem, configuration: Configuration) -> Instance:
        loops = problem.loops
        global_size, local_size = loops.grid(configuration)
        steps = {"COUNT": problem.count, "INDEX_STEP": problem.index_step, "UPDATE_STEP": problem.update_step}
        main = Launch(
            source=_prelude(problem) + template("scatter_rows.cl"),
            entry="scatter_rows",
            options=build_options(steps | dict(loops.macros(configuration))),
            global_size=global_size,
            local_size=local_size,
            arguments=("data", "indices", "updates", "output"),
        )
        return Instance(main)

    def reference(self, problem: ScatterProblem, inputs: Mapping[str, Array]) -> Array:
        rows = np.indices(problem.sizes).reshape(len(problem.sizes), -1)
        look, here = (np.asarray(steps, np.int64) @ rows for steps in (problem.lookups, problem.heres))
        reached = (rows < np.asarray(problem.reached)[:, None]).all(axis=0)
        output = inputs["data"].reshape(-1, problem.inner).copy()
        indices, updates = inputs["indices"].reshape(-1), inputs["updates"].reshape(-1)
        reduce = REDUCTIONS[problem.reduction][1]
        for c in range(problem.count):
            place, known = np.zeros(len(look), np.int64), reached
            for k, (extent, stride) in enumerate(zip(problem.extents, problem.spans, strict=True)):
                index = indices[np.where(reached, look, 0) + c * problem.index_step + k].astype(np.int64)
                index = np.where(index < 0, index + extent, index)
                known = known & (index >= 0) & (index < extent)
                place += index * stride
            hit = np.flatnonzero(known & (place == here))
            update = updates[(look[hit] + c * problem.update_step)[:, None] + np.arange(problem.inner)]
            output[hit] = update if reduce is None else reduce(output[hit], update)
        return output.reshape(self.output(problem).shape)

    def work(self, problem: ScatterProblem) -> Work:
        return Work(0 if problem.reduction == "none" else problem.updates, self.moved_bytes(problem))

    def tolerance(self, problem: ScatterProblem) -> Tolerance:
        exact = problem.reduction not in ("add", "mul")
        return Tolerance(0.0, 0.0) if exact else Tolerance(relative=1e-5, absolute=1e-6)


def _prelude(problem: ScatterProblem) -> str:
    """The macros that scatter_rows.cl takes: the types, where things lie, and what is done to a value."""
    loops = problem.loops
    found = zip(problem.extents, problem.spans, strict=True)
    conditions, below = [], 1
    for size, bound in zip(reversed(problem.sizes), reversed(problem.reached), strict=True):
        if bound < size:
            conditions.append(f"(row) / {below} % {size} < {bound}")
        below *= size
    return (
        f"#define TYPE {OPENCL_TYPES[problem.dtype]}\n#define INDEX_TYPE {OPENCL_TYPES[problem.index_dtype]}\n"
        f"#define LOOK(row) ({loops.row_offset(0) or 0})\n#define HERE(row) ({loops.row_offset(1) or 0})\n"
        f"#define REACHED(row) ({' && '.join(conditions) or 1})\n"
        f"#define FIND {' '.join(f'AT({k}, {extent}, {stride})' for k, (extent, stride) in enumerate(found))}\n"
        f"#define REDUCE(value, update) {REDUCTIONS[problem.reduction][0]}\n"
    )


FAMILY = ScatterFamily()
