"""Normalise local responses across channels. See lrn_channels.cl."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gputune.core.dtypes import FLOAT
from gputune.kernels.chain import literal, rounded
from gputune.kernels.family import Array, DeviceLimits, Tolerance
from gputune.kernels.hard_values import SMALL, Survival
from gputune.kernels.indexing.loops import AxisProblem
from gputune.kernels.indexing.maps import MapFamily
from gputune.kernels.space import Configuration, Constraint
from gputune.kernels.template import defines
from gputune.kernels.tiling.streaming import DIMX, VW, default_width, fits, idle_beyond


@dataclass(frozen=True)
class LrnProblem(AxisProblem):
    """output[o, a, i] = input[o, a, i] / (bias + alpha / size * s)^beta.

    s is the sum of input[o, b, i]^2 over the `size` places b around a that are inside the axis; (size - 1) // 2 of them
    are before it.
    """

    op = "LRN"

    size: int
    alpha: float = 1e-4
    beta: float = 0.75
    bias: float = 1.0
    dtype: str = FLOAT

    def check(self) -> None:
        if self.size < 1:
            raise ValueError(f"LRN needs a positive size, not {self.size}")
        for name in ("alpha", "beta", "bias"):
            if not math.isfinite(value := rounded(getattr(self, name))):
                raise ValueError(f"LRN needs a number as its {name}, not {value}")
            object.__setattr__(self, name, value)

    def vectors(self, width: int) -> int:
        """Return how many vectors of `width` elements the lines of the innermost axis have together."""
        return self.loops.rows(width) * self.loops.steps(width)


class LrnFamily(MapFamily):
    """One template: vectors of channels where those are innermost, else across them."""

    op = LrnProblem.op
    template = "lrn_channels.cl"
    parameters = (VW, DIMX)
    group = ("DIMX",)
    guessed = ({"VW": 8}, {"DIMX": 16}, {"VW": 1, "DIMX": 128})
    accuracy = Tolerance(relative=1e-5, absolute=1e-6)
    survives = Survival(SMALL, "the reference takes differences of running sums, in which NaN reaches all that follow")

    def rules(self, problem: LrnProblem) -> tuple[Constraint, ...]:
        axis = "the channels" if problem.inner == 1 else "the inner axis"
        return (fits(problem.loops.extent, axis), idle_beyond(("VW", "DIMX"), problem.vectors, "vectors"))

    def widths(self, problem: LrnProblem, limits: DeviceLimits) -> dict[str, int]:
        return {"VW": default_width(limits, problem.loops.extent)}

    def grid(self, problem: LrnProblem, configuration: Configuration) -> tuple[int, int]:
        return problem.vectors(configuration["VW"]), 1

    def sizes(self, problem: LrnProblem) -> Mapping[str, int]:
        return problem.sizes | {"SIZE": problem.size}

    def prelude(self, problem: LrnProblem) -> str:
        numbers = {"BIAS": literal(problem.bias), "FACTOR": literal(problem.alpha / problem.size)}
        return defines(numbers | {"POWER(x)": _power(problem.beta)})

    def distances(self, problem: LrnProblem) -> tuple[int, ...] | None:
        return (problem.inner,) if problem.inner > 1 else None

    def reference(self, problem: LrnProblem, inputs: Mapping[str, Array]) -> Array:
        """Differences of running sums, by another way than tap by tap."""
        value = inputs["input"].astype(np.float64)
        before = (problem.size - 1) // 2
        around = np.pad(value * value, ((0, 0), (before + 1, problem.size - 1 - before), (0, 0)))
        running = around.cumsum(axis=1)
        total = running[:, problem.size :] - running[:, : -problem.size]
        return np.asarray(value / (problem.bias + problem.alpha / problem.size * total) ** problem.beta, problem.dtype)

    def steps(self, problem: LrnProblem) -> int:
        return 2 * problem.size + 5


def _power(beta: float) -> str:
    """OpenCL C of x to the power of beta: of roots where they give it, since pow costs ten times as much."""
    whole, quarters = divmod(beta * 4, 4)
    if not 0 < beta <= 4 or quarters % 1:
        return f"pow(x, (vec)({literal(beta)}))"
    factors = ["(x)"] * int(whole) + ["sqrt(x)"] * (quarters >= 2) + ["sqrt(sqrt(x))"] * (int(quarters) % 2)
    return " * ".join(factors)


FAMILY = LrnFamily()
