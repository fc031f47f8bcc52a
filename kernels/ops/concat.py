"""Concatenate tensors along an axis. See concat_parts.cl."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gputune.core.dtypes import FLOAT, FLOATS, check_dtype
from gputune.kernels.family import (
    ALONE,
    Array,
    DeviceLimits,
    Instance,
    KernelFamily,
    Launch,
    TensorSpec,
    Tolerance,
    Work,
)
from gputune.kernels.hard_values import MOVES
from gputune.kernels.indexing.moving import CPU_ROWS, copy_space
from gputune.kernels.pointers import aligned
from gputune.kernels.space import Configuration, TuningSpace
from gputune.kernels.template import build_options, moved, template
from gputune.kernels.tiling.streaming import (
    ceil_div,
    check_indices,
    default_group,
    round_up,
    whole_width,
)

MOST_PARTS = 64
"""Each part is an argument, and 1024 bytes of them are all that OpenCL promises."""


@dataclass(frozen=True)
class ConcatProblem:
    """output[row] = input0[row], input1[row], ... with parts[k] elements of input k.

    A row holds the axis that is joined and the axes behind it; `rows` counts the positions along the axes before it.
    """

    rows: int
    parts: tuple[int, ...]
    dtype: str = FLOAT

    def __post_init__(self) -> None:
        if min(self.rows, *self.parts, len(self.parts)) < 1:
            raise ValueError(f"Concat needs positive sizes, not {self.rows} rows of {self.parts}")
        if len(self.parts) > MOST_PARTS:
            raise ValueError(f"Concat joins up to {MOST_PARTS} tensors, not {len(self.parts)}")
        check_dtype("Concat", self.dtype)
        check_indices("Concat", (self.rows, self.length))

    @property
    def length(self) -> int:
        """Elements of a row of the output."""
        return sum(self.parts)

    def vectors(self, width: int) -> int:
        """Vectors of `width` elements that a row of the output is written in; each part has its own."""
        return sum(ceil_div(part, width) for part in self.parts)


class ConcatFamily(KernelFamily):
    """One template: a work-item copies the same vector of a few rows."""

    op = "Concat"
    floats = FLOATS
    survives = MOVES

    def inputs(self, problem: ConcatProblem) -> tuple[TensorSpec, ...]:
        parts = enumerate(problem.parts)
        return tuple(TensorSpec(f"input{k}", (problem.rows, part), dtype=problem.dtype) for k, part in parts)

    def output(self, problem: ConcatProblem) -> TensorSpec:
        return TensorSpec("output", (problem.rows, problem.length), dtype=problem.dtype)

    def space(self, problem: ConcatProblem, limits: DeviceLimits) -> TuningSpace:
        return copy_space(limits, max(problem.parts), "the longest part", problem.length, problem.rows)

    def default(self, problem: ConcatProblem, limits: DeviceLimits) -> dict[str, int]:
        width = whole_width(limits, max(problem.parts), *problem.parts)
        rows = CPU_ROWS if limits.device_type == "cpu" and problem.rows >= CPU_ROWS else 1
        across, down = default_group(limits, problem.vectors(width), ceil_div(problem.rows, rows))
        while across > 1 and width * across >= 2 * problem.length:  # short parts make many vectors
            across //= 2
        return {"VW": width, "WPT": rows, "DIMX": across, "DIMY": down}

    def guesses(self, problem: ConcatProblem, limits: DeviceLimits) -> list[dict[str, int]]:
        default = self.default(problem, limits)
        return [
            default | {"WPT": 16, "DIMY": 4},
            default | {"WPT": 32, "DIMX": 1, "DIMY": 1},
            default | {"VW": 16, "DIMX": 1, "DIMY": 16},
            default | {"VW": 8, "DIMX": 4, "DIMY": 4},
            default | {"VW": 4, "WPT": 1, "DIMX": 64, "DIMY": 1},
        ]

    def render(self, problem: ConcatProblem, configuration: Configuration) -> Instance:
        across, down = configuration["DIMX"], configuration["DIMY"]
        names = [spec.name for spec in self.inputs(problem)]
        main = Launch(
            source=_prelude(problem) + template("concat_parts.cl", dtype=moved(problem.dtype)),
            entry="concat_parts",
            needs=ALONE,
            writes=("output",),
            aligned=aligned(configuration["VW"], *problem.parts),
            options=build_options({"ROWS": problem.rows, "LENGTH": problem.length} | dict(configuration)),
            global_size=(
                round_up(problem.vectors(configuration["VW"]), across),
                round_up(ceil_div(problem.rows, configuration["WPT"]), down),
            ),
            local_size=(across, down),
            arguments=(*names, "output"),
        )
        return Instance(main)

    def reference(self, problem: ConcatProblem, inputs: Mapping[str, Array]) -> Array:
        return np.concatenate([inputs[spec.name] for spec in self.inputs(problem)], axis=1)

    def work(self, problem: ConcatProblem) -> Work:
        return Work(0, 2 * self.output(problem).nbytes)

    def tolerance(self, problem: ConcatProblem) -> Tolerance:
        return Tolerance(relative=0.0, absolute=0.0)


def _prelude(problem: ConcatProblem) -> str:
    """Return the macros that concat_parts.cl takes: the parameters, and PART(name, size, start) for each part."""
    parameters, parts, start = [], [], 0
    for k, size in enumerate(problem.parts):
        parameters.append(f"__global const TYPE *restrict input{k}, ")
        parts.append(f"PART(input{k}, {size}, {start})")
        start += size
    return f"#define INPUT_PARAMETERS {''.join(parameters)}\n#define PARTS {' '.join(parts)}\n"


FAMILY = ConcatFamily()
