"""Compute softmax and its logarithm over one axis of a tensor, seen as [outer, axis, inner]. See softmax_rows.cl."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gputune.core.dtypes import FLOAT
from gputune.kernels.family import Array, DeviceLimits, Tolerance
from gputune.kernels.hard_values import MOVES
from gputune.kernels.indexing.loops import AxisProblem
from gputune.kernels.indexing.rows import DIMY, LANES, RowFamily, cpu_rows
from gputune.kernels.space import Constraint, Parameter
from gputune.kernels.tiling.streaming import VW, busy, default_width, fits, idle_beyond

KEEP = Parameter("KEEP", (0, 1), "1: exponentials wait in the output, 0: they are computed twice")
EXP = Parameter("EXP", (0, 1), "1: exponentials by exponential.cl, 0: by OpenCL's function")


@dataclass(frozen=True)
class SoftmaxProblem(AxisProblem):
    """output[o, a, i] = exp(input[o, a, i] - m) / sum over a of exp(input[o, a, i] - m); m = max over a.

    With `log` the logarithm of that. With `masked` zeros where that is NaN: in rows of nothing but minus infinity.
    """

    op = "Softmax"

    dtype: str = FLOAT
    log: bool = False
    masked: bool = False

    def check(self) -> None:
        if self.log and self.masked:
            raise ValueError("Softmax has no masked logarithm")


class SoftmaxFamily(RowFamily):
    """One template: vectors along the axis where it is innermost, else across it; one or more work-items a row."""

    op = SoftmaxProblem.op
    template = "softmax_rows.cl"
    parameters = (VW, LANES, DIMY, KEEP, EXP)
    guessed = ({"KEEP": 0}, {"DIMY": 4})
    guessed_on_cpus = ()  # a barrier costs a CPU more than the lanes give
    guessed_beyond_cpus = (
        {"VW": 4, "LANES": 32, "DIMY": 4},
        {"VW": 4, "LANES": 128, "DIMY": 1},
        {"VW": 1, "LANES": 128, "DIMY": 1},
        {"VW": 1, "LANES": 1, "DIMY": 64},
    )
    accuracy = Tolerance(relative=1e-5, absolute=1e-7)
    survives = MOVES

    def rules(self, problem: SoftmaxProblem) -> tuple[Constraint, ...]:
        loops = problem.loops
        return (
            fits(loops.extent, "the axis" if loops.along else "the inner axis"),
            busy(("VW", "LANES") if loops.along else ("LANES",), problem.axis, "the length of the axis"),
            idle_beyond(("VW", "DIMY"), loops.rows, "rows"),
            Constraint(
                ("KEEP",),
                lambda keep: not (keep and problem.log),
                "KEEP must be 0 for a logarithm, which needs no exponentials in the end",
            ),
        )

    def default(self, problem: SoftmaxProblem, limits: DeviceLimits) -> dict[str, int]:
        """Have a GPU compute exponentials by its instruction."""
        width = default_width(limits, problem.loops.extent)
        lanes, down = self.sides(problem, width, limits)
        on_cpu = limits.device_type == "cpu"
        return {"VW": width, "LANES": lanes, "DIMY": down, "KEEP": int(not problem.log), "EXP": int(on_cpu)}

    def sides(self, problem: SoftmaxProblem, width: int, limits: DeviceLimits) -> tuple[int, int]:
        if limits.device_type == "cpu":
            return 1, cpu_rows(problem.loops.rows(width), limits)
        return super().sides(problem, width, limits)

    def sizes(self, problem: SoftmaxProblem) -> Mapping[str, int]:
        return problem.sizes | {"LOG": problem.log, "MASKED": problem.masked}

    def reference(self, problem: SoftmaxProblem, inputs: Mapping[str, Array]) -> Array:
        value = inputs["input"].astype(np.float64)
        with np.errstate(invalid="ignore"):
            shifted = value - value.max(axis=1, keepdims=True)
            exponentials = np.exp(shifted)
            sums = exponentials.sum(axis=1, keepdims=True)
            result = shifted - np.log(sums) if problem.log else exponentials / sums
        return np.asarray(np.where(np.isnan(result), 0, result) if problem.masked else result, problem.dtype)

    def steps(self, problem: SoftmaxProblem) -> int:
        return 5


FAMILY = SoftmaxFamily()
