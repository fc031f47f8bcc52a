"""Find the positions of the largest or smallest elements along an axis, in order, for TopK. See top_ranks.cl."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gputune.core.dtypes import ANY, FLOAT
from gputune.kernels.family import Array, DeviceLimits, TensorSpec, Work
from gputune.kernels.hard_values import ORDERS
from gputune.kernels.indexing.loops import AxisProblem
from gputune.kernels.indexing.maps import MapFamily
from gputune.kernels.space import Configuration, Constraint, Parameter
from gputune.kernels.tiling.streaming import DIMX, busy, ceil_div

EACH = Parameter("EACH", (1, 2, 4, 8, 16, 32), "elements of a work-item, for which each other one is read once")


@dataclass(frozen=True)
class TopProblem(AxisProblem):
    """output[o, r, i] = the a of which input[o, a, i] is the r-th largest (or smallest) of them, for r < k, as int64.

    Of equal elements the one with the lower a comes first; NaN is larger than all else.
    """

    op = "TopK"
    types = ANY

    k: int
    largest: bool = True
    dtype: str = FLOAT

    def check(self) -> None:
        if not 1 <= self.k <= self.axis:
            raise ValueError(f"TopK gives at least one and at most as many as there are, not {self.k} of {self.shape}")


class TopFamily(MapFamily):
    """One template: every element counts those that come before it, which is its place in the order."""

    op = TopProblem.op
    template = "top_ranks.cl"
    parameters = (EACH, DIMX)
    group = ("DIMX",)
    guessed = ({"EACH": 16}, {"EACH": 1, "DIMX": 64}, {"DIMX": 1})
    survives = ORDERS

    def output(self, problem: TopProblem) -> TensorSpec:
        return TensorSpec("output", (problem.outer, problem.k, problem.inner), dtype="int64")

    def rules(self, problem: TopProblem) -> tuple[Constraint, ...]:
        return (busy(("EACH",), problem.axis, "the elements of the axis"),)

    def widths(self, problem: TopProblem, limits: DeviceLimits) -> dict[str, int]:
        return {"EACH": 8 if problem.axis >= 64 else 1}

    def grid(self, problem: TopProblem, configuration: Configuration) -> tuple[int]:
        return (problem.outer * ceil_div(problem.axis, configuration["EACH"]) * problem.inner,)

    def sizes(self, problem: TopProblem) -> Mapping[str, int]:
        return problem.sizes | {"K": problem.k, "LARGEST": problem.largest}

    def reference(self, problem: TopProblem, inputs: Mapping[str, Array]) -> Array:
        """numpy's stable sort, which puts NaN last; of what is turned round where the largest are wanted."""
        value = inputs["input"]
        if not problem.largest:
            return np.asarray(value.argsort(axis=1, kind="stable")[:, : problem.k], np.int64)
        order = value[:, ::-1].argsort(axis=1, kind="stable")[:, ::-1]
        return np.asarray(problem.axis - 1 - order[:, : problem.k], np.int64)

    def work(self, problem: TopProblem) -> Work:
        return Work(math.prod(problem.shape) * problem.axis, self.moved_bytes(problem))


FAMILY = TopFamily()
