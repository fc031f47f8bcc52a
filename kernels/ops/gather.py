"""Gather the parts of a tensor that indices point at, whichever axes they count along. See gather_rows.cl."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gputune.core.dtypes import ANY, ELEMENT_TYPES, FLOAT
from gputune.kernels.family import Array, Problem, TensorSpec, Work
from gputune.kernels.hard_values import MOVES
from gputune.kernels.indexing.broadcasting import LoopFamily, Loops
from gputune.kernels.tiling.streaming import check_indices

INDEX_TYPES = ("int32", "int64")


@dataclass(frozen=True)
class GatherProblem(Problem):
    """output[i, x] = input[i . steps + sum over k of found(indices[i . lookups + k], extents[k]) * spans[k] + x].

    i counts `sizes`, and x `inner` neighbouring elements. The input is seen as a line of `elements`, and so is the
    tensor of `indices`. found is the index, from the end where it is negative, and cut to 0 ... extent - 1.
    """

    op = "Gather"
    types = ANY

    elements: int
    indices: int
    sizes: tuple[int, ...]
    steps: tuple[int, ...]
    lookups: tuple[int, ...]
    extents: tuple[int, ...]
    spans: tuple[int, ...]
    inner: int
    index_dtype: str = "int64"
    dtype: str = FLOAT

    def check(self) -> None:
        if self.index_dtype not in INDEX_TYPES:
            raise ValueError(f"Gather knows indices of {' and '.join(INDEX_TYPES)}, not {self.index_dtype}")
        if not len(self.sizes) == len(self.steps) == len(self.lookups) or len(self.extents) != len(self.spans):
            raise ValueError("Gather needs two steps for each size, and a span for each extent")
        numbers = (self.elements, self.indices, self.inner, *self.sizes, *self.extents, *self.spans)
        if min(numbers) < 1 or min(*self.steps, *self.lookups, 0) < 0 or not self.extents:
            raise ValueError("Gather needs positive sizes, extents and spans, and steps that are not negative")
        check_indices("Gather", (self.elements,), (self.indices,), (*self.sizes, self.inner))
        pairs = [*zip(self.sizes, self.steps, strict=True), *zip(self.extents, self.spans, strict=True)]
        reach = sum((size - 1) * step for size, step in pairs) + self.inner
        looked = sum((size - 1) * step for size, step in zip(self.sizes, self.lookups, strict=True)) + len(self.extents)
        if reach > self.elements or looked > self.indices:
            raise ValueError(
                f"Gather reaches {reach} elements and {looked} indices of {self.elements} and {self.indices}"
            )

    @property
    def loops(self) -> Loops:
        """The output's loops; input 0 is what is gathered, input 1 are the indices."""
        return Loops((*self.sizes, self.inner), ((*self.steps, 1), (*self.lookups, 0)))


class GatherFamily(LoopFamily):
    """One template: vectors of what an index points at, every loop around it folded into rows."""

    op = GatherProblem.op
    template = "gather_rows.cl"
    moves = True
    survives = MOVES

    def inputs(self, problem: GatherProblem) -> tuple[TensorSpec, ...]:
        indices = TensorSpec("indices", (problem.indices,), dtype=problem.index_dtype)
        return problem.tensor("input", (problem.elements,)), indices

    def output(self, problem: GatherProblem) -> TensorSpec:
        return problem.tensor("output", (*problem.sizes, problem.inner))

    def sample_inputs(self, problem: GatherProblem, generator: np.random.Generator) -> dict[str, Array]:
        """Return indices in the range of the least extent, from either end."""
        least = min(problem.extents)
        indices = generator.integers(-least, least, problem.indices).astype(problem.index_dtype)
        return super().sample_inputs(problem, generator) | {"indices": indices}

    def distances(self, problem: GatherProblem) -> tuple[int, ...]:
        return (*problem.loops.distances, *problem.spans)

    def prelude(self, problem: GatherProblem) -> str:
        loops, found = problem.loops, enumerate(zip(problem.extents, problem.spans, strict=True))
        return (
            f"#define INDEX_TYPE {ELEMENT_TYPES[problem.index_dtype].storage}\n"
            f"#define PLACE(row) ({loops.row_offset(0) or 0})\n#define LOOK(row) ({loops.row_offset(1) or 0})\n"
            f"#define FIND {' '.join(f'AT({k}, {extent}, {stride})' for k, (extent, stride) in found)}\n"
        )

    def reference(self, problem: GatherProblem, inputs: Mapping[str, Array]) -> Array:
        rows = np.indices(problem.sizes).reshape(len(problem.sizes), -1)
        place, look = (np.asarray(steps, np.int64) @ rows for steps in (problem.steps, problem.lookups))
        for k, (extent, stride) in enumerate(zip(problem.extents, problem.spans, strict=True)):
            index = inputs["indices"].reshape(-1)[look + k].astype(np.int64)
            place = place + np.clip(np.where(index < 0, index + extent, index), 0, extent - 1) * stride
        gathered: Array = inputs["input"].reshape(-1)[place[:, None] + np.arange(problem.inner)]
        return gathered.reshape(self.output(problem).shape)

    def work(self, problem: GatherProblem) -> Work:
        return Work(0, 2 * self.output(problem).nbytes + self.inputs(problem)[1].nbytes)


def strides_of(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return how many elements lie between neighbours along each axis."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


FAMILY = GatherFamily()
