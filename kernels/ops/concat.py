"""Concatenate tensors along an axis. See concat_parts.cl."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gputune.core.dtypes import ANY, FLOAT
from gputune.kernels.family import Array, DeviceLimits, Problem, TensorSpec
from gputune.kernels.hard_values import MOVES
from gputune.kernels.indexing.maps import MapFamily
from gputune.kernels.indexing.moving import COPIED, CPU_ROWS, MOST_PARTS, copy_rules
from gputune.kernels.space import Configuration, Constraint
from gputune.kernels.template import defines
from gputune.kernels.tiling.streaming import ceil_div, check_indices, whole_width


@dataclass(frozen=True)
class ConcatProblem(Problem):
    """output[row] = input0[row], input1[row], ... with parts[k] elements of input k.

    A row holds the axis that is joined and the axes behind it; `rows` counts the positions along the axes before it.
    """

    op = "Concat"
    types = ANY

    rows: int
    parts: tuple[int, ...]
    dtype: str = FLOAT

    def check(self) -> None:
        if min(self.rows, *self.parts, len(self.parts)) < 1:
            raise ValueError(f"Concat needs positive sizes, not {self.rows} rows of {self.parts}")
        if len(self.parts) > MOST_PARTS:
            raise ValueError(f"Concat joins up to {MOST_PARTS} tensors, not {len(self.parts)}")
        check_indices("Concat", (self.rows, self.length))

    @property
    def length(self) -> int:
        """Elements of a row of the output."""
        return sum(self.parts)

    def vectors(self, width: int) -> int:
        """Vectors of `width` elements that a row of the output is written in; each part has its own."""
        return sum(ceil_div(part, width) for part in self.parts)


class ConcatFamily(MapFamily):
    """One template: a work-item copies the same vector of a few rows."""

    op = ConcatProblem.op
    template = "concat_parts.cl"
    parameters = COPIED
    guessed = (
        {"WPT": 16, "DIMY": 4},
        {"WPT": 32, "DIMX": 1, "DIMY": 1},
        {"VW": 16, "DIMX": 1, "DIMY": 16},
        {"VW": 8, "DIMX": 4, "DIMY": 4},
        {"VW": 4, "WPT": 1, "DIMX": 64, "DIMY": 1},
    )
    moves = True
    survives = MOVES

    def inputs(self, problem: ConcatProblem) -> tuple[TensorSpec, ...]:
        parts = enumerate(problem.parts)
        return tuple(problem.tensor(f"input{k}", (problem.rows, part)) for k, part in parts)

    def output(self, problem: ConcatProblem) -> TensorSpec:
        return problem.tensor("output", (problem.rows, problem.length))

    def rules(self, problem: ConcatProblem) -> tuple[Constraint, ...]:
        return copy_rules(max(problem.parts), "the longest part", problem.length, problem.rows)

    def widths(self, problem: ConcatProblem, limits: DeviceLimits) -> dict[str, int]:
        rows = CPU_ROWS if limits.device_type == "cpu" and problem.rows >= CPU_ROWS else 1
        return {"VW": whole_width(limits, max(problem.parts), *problem.parts), "WPT": rows}

    def default(self, problem: ConcatProblem, limits: DeviceLimits) -> dict[str, int]:
        default = super().default(problem, limits)
        while default["DIMX"] > 1 and default["VW"] * default["DIMX"] >= 2 * problem.length:
            default["DIMX"] //= 2  # short parts make many vectors
        return default

    def grid(self, problem: ConcatProblem, configuration: Configuration) -> tuple[int, int]:
        return problem.vectors(configuration["VW"]), ceil_div(problem.rows, configuration["WPT"])

    def sizes(self, problem: ConcatProblem) -> Mapping[str, int]:
        return {"ROWS": problem.rows, "LENGTH": problem.length}

    def prelude(self, problem: ConcatProblem) -> str:
        """Return the parameters, and PART(name, size, start) for each part."""
        names = [f"input{k}" for k in range(len(problem.parts))]
        parameters = "".join(f"__global const TYPE *restrict {name}, " for name in names)
        starts = itertools.accumulate(problem.parts, initial=0)
        parts = (f"PART({', '.join(map(str, part))})" for part in zip(names, problem.parts, starts, strict=False))
        return defines({"INPUT_PARAMETERS": parameters, "PARTS": " ".join(parts)})

    def distances(self, problem: ConcatProblem) -> tuple[int, ...]:
        return problem.parts

    def reference(self, problem: ConcatProblem, inputs: Mapping[str, Array]) -> Array:
        return np.concatenate([inputs[spec.name] for spec in self.inputs(problem)], axis=1)


FAMILY = ConcatFamily()
