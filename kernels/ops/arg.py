"""Find the position of each row's extreme: ArgMax, ArgMin, and Hardmax, which writes 1 there. See arg_rows.cl."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gputune.core.dtypes import ELEMENT_TYPES, FLOAT, FLOATS, check_dtype, check_float
from gputune.kernels.family import Array, Instance, Launch, TensorSpec, TiledFamily, Tolerance, Work
from gputune.kernels.hard_values import ORDERS
from gputune.kernels.indexing.loops import Loops, loops_of
from gputune.kernels.indexing.rows import Rows, extremes
from gputune.kernels.pointers import aligned
from gputune.kernels.space import Configuration
from gputune.kernels.template import build_options, template
from gputune.kernels.tiling.streaming import check_indices

PLACE_BYTES = 4
"""Of the int that is an element's place."""


@dataclass(frozen=True)
class ArgProblem:
    """output[o, i] = the a at which input[o, a, i] is `largest` or smallest, the `last` such a or the first, as int64.

    With `one_hot` output[o, a, i] is 1 at that a, else 0; for floats only.
    """

    outer: int
    axis: int
    inner: int
    largest: bool = True
    last: bool = False
    one_hot: bool = False
    dtype: str = FLOAT

    def __post_init__(self) -> None:
        if min(self.shape) < 1:
            raise ValueError(f"ArgMax needs positive sizes, not {list(self.shape)}")
        check_dtype("ArgMax", self.dtype)
        if self.one_hot:
            check_float("ArgMax with one_hot", self.dtype)
        check_indices("ArgMax", self.shape)

    @property
    def shape(self) -> tuple[int, int, int]:
        return (self.outer, self.axis, self.inner)

    @property
    def loops(self) -> Loops:
        return loops_of(self.shape, (1,))


class ArgFamily(TiledFamily):
    """One template: vectors along the axis where it is innermost, else across it."""

    op = "ArgMax"
    floats = FLOATS
    survives = ORDERS

    def inputs(self, problem: ArgProblem) -> tuple[TensorSpec, ...]:
        return (TensorSpec("input", problem.shape, dtype=problem.dtype),)

    def output(self, problem: ArgProblem) -> TensorSpec:
        if problem.one_hot:
            return TensorSpec("output", problem.shape, dtype=problem.dtype)
        return TensorSpec("output", (problem.outer, problem.inner), dtype="int64")

    def tiling(self, problem: ArgProblem) -> Rows:
        return Rows(problem.loops, (ELEMENT_TYPES[problem.dtype].sum_bytes, PLACE_BYTES), accumulators=(1,))

    def render(self, problem: ArgProblem, configuration: Configuration) -> Instance:
        loops = problem.loops
        global_size, local_size = self.tiling(problem).launch_sizes(configuration)
        macros: dict[str, int | str] = {
            "LARGEST": int(problem.largest),
            "LAST": int(problem.last),
            "ONE_HOT": int(problem.one_hot),
        }
        worst = extremes(problem.dtype)[0 if problem.largest else 1]
        main = Launch(
            source=f"#define WORST {worst}\n" + loops.prelude() + template("arg_rows.cl", dtype=problem.dtype),
            entry="arg_rows",
            needs=self.tiling(problem).needs.of(configuration),
            writes=("output",),
            aligned=aligned(configuration["VW"], loops.extent),
            options=build_options({**loops.macros(), **macros, **configuration}),
            global_size=global_size,
            local_size=local_size,
            arguments=("input", "output"),
        )
        return Instance(main)

    def reference(self, problem: ArgProblem, inputs: Mapping[str, Array]) -> Array:
        """numpy's first place of the extreme, NaN included; the last one is the first in the row turned round."""
        value = inputs["input"][:, ::-1] if problem.last else inputs["input"]
        place = value.argmax(axis=1) if problem.largest else value.argmin(axis=1)
        if problem.last:
            place = problem.axis - 1 - place
        if problem.one_hot:
            return np.asarray(np.arange(problem.axis)[:, np.newaxis] == place[:, np.newaxis], problem.dtype)
        return np.asarray(place, np.int64)

    def work(self, problem: ArgProblem) -> Work:
        return Work(math.prod(problem.shape), self.moved_bytes(problem))

    def tolerance(self, problem: ArgProblem) -> Tolerance:
        return Tolerance(0.0, 0.0)


FAMILY = ArgFamily()
