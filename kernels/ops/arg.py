"""Find the position of each row's extreme: ArgMax, ArgMin, and Hardmax, which writes 1 there. See arg_rows.cl."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gputune.core.dtypes import ANY, FLOAT, FLOATS, check_types
from gputune.kernels.family import Array, DeviceLimits, TensorSpec, Work
from gputune.kernels.hard_values import ORDERS
from gputune.kernels.indexing.loops import AxisProblem, Loops, loops_of
from gputune.kernels.indexing.rows import DIMY, LANES, RowFamily, extremes
from gputune.kernels.space import Parameter
from gputune.kernels.tiling.streaming import VW

ACC = Parameter("ACC", (1,), "accumulators of a work-item")
PLACE_BYTES = 4
"""Of the int that is an element's place."""


@dataclass(frozen=True)
class ArgProblem(AxisProblem):
    """output[o, i] = the a at which input[o, a, i] is `largest` or smallest, the `last` such a or the first, as int64.

    With `one_hot` output[o, a, i] is 1 at that a, else 0; for floats only.
    """

    op = "ArgMax"
    types = ANY

    largest: bool = True
    last: bool = False
    one_hot: bool = False
    dtype: str = FLOAT

    def check(self) -> None:
        if self.one_hot:
            check_types("ArgMax with one_hot", (self.dtype,), FLOATS)

    @property
    def loops(self) -> Loops:
        return loops_of(self.shape, (1,))


class ArgFamily(RowFamily):
    """One template: vectors along the axis where it is innermost, else across it."""

    op = ArgProblem.op
    template = "arg_rows.cl"
    parameters = (VW, ACC, LANES, DIMY)
    survives = ORDERS

    def output(self, problem: ArgProblem) -> TensorSpec:
        if problem.one_hot:
            return problem.tensor("output", problem.shape)
        return TensorSpec("output", (problem.outer, problem.inner), dtype="int64")

    def handed(self, problem: ArgProblem) -> tuple[int, ...]:
        return (problem.element.sum_bytes, PLACE_BYTES)

    def default(self, problem: ArgProblem, limits: DeviceLimits) -> dict[str, int]:
        return super().default(problem, limits) | {"ACC": 1}

    def sizes(self, problem: ArgProblem) -> Mapping[str, int]:
        kind = {"LARGEST": problem.largest, "LAST": problem.last, "ONE_HOT": problem.one_hot}
        return problem.loops.macros() | kind

    def prelude(self, problem: ArgProblem) -> str:
        lowest, highest = extremes(problem.dtype)
        return f"#define WORST {lowest if problem.largest else highest}\n{problem.loops.prelude()}"

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


FAMILY = ArgFamily()
