"""Normalise local responses across channels. See lrn_channels.cl."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gputune.core.dtypes import FLOAT, FLOATS, check_float
from gputune.kernels.chain import literal, rounded
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
from gputune.kernels.hard_values import SMALL, Survival
from gputune.kernels.pointers import aligned
from gputune.kernels.space import Configuration, Constraint, DeviceLimit, Parameter, TuningSpace
from gputune.kernels.template import build_options, template
from gputune.kernels.tiling.streaming import (
    GROUP_SIZES,
    VECTOR_WIDTHS,
    ceil_div,
    check_indices,
    default_group,
    default_width,
    fits,
    round_up,
)


@dataclass(frozen=True)
class LrnProblem:
    """output[o, a, i] = input[o, a, i] / (bias + alpha / size * s)^beta.

    s is the sum of input[o, b, i]^2 over the `size` places b around a that are inside the axis; (size - 1) // 2 of them
    are before it.
    """

    outer: int
    axis: int
    inner: int
    size: int
    alpha: float = 1e-4
    beta: float = 0.75
    bias: float = 1.0
    dtype: str = FLOAT

    def __post_init__(self) -> None:
        if min(*self.shape, self.size) < 1:
            raise ValueError(f"LRN needs positive sizes, not {list(self.shape)} and {self.size}")
        check_float("LRN", self.dtype)
        for name in ("alpha", "beta", "bias"):
            if not math.isfinite(value := rounded(getattr(self, name))):
                raise ValueError(f"LRN needs a number as its {name}, not {value}")
            object.__setattr__(self, name, value)
        check_indices("LRN", self.shape)

    @property
    def shape(self) -> tuple[int, int, int]:
        return (self.outer, self.axis, self.inner)


class LrnFamily(KernelFamily):
    """One template: vectors of channels where those are innermost, else across them."""

    op = "LRN"
    floats = FLOATS
    survives = Survival(SMALL, "the reference takes differences of running sums, in which NaN reaches all that follow")

    def inputs(self, problem: LrnProblem) -> tuple[TensorSpec, ...]:
        return (TensorSpec("input", problem.shape, dtype=problem.dtype),)

    def output(self, problem: LrnProblem) -> TensorSpec:
        return TensorSpec("output", problem.shape, dtype=problem.dtype)

    def space(self, problem: LrnProblem, limits: DeviceLimits) -> TuningSpace:
        most = min(limits.max_work_group_size, limits.max_work_item_sizes[0])
        return TuningSpace(
            (
                Parameter("VW", VECTOR_WIDTHS, "elements of a vector"),
                Parameter("DIMX", GROUP_SIZES, "work-items of a work-group"),
            ),
            (
                fits(_extent(problem), "the channels" if problem.inner == 1 else "the inner axis"),
                Constraint(
                    ("VW", "DIMX"),
                    lambda width, across: across == 1 or across < 2 * _vectors(problem, width),
                    "DIMX must stay below twice the number of vectors; more would have nothing to do",
                ),
                DeviceLimit(("DIMX",), lambda across: across <= most, f"DIMX must not exceed the device's {most}"),
            ),
        )

    def default(self, problem: LrnProblem, limits: DeviceLimits) -> dict[str, int]:
        width = default_width(limits, _extent(problem))
        return {"VW": width, "DIMX": default_group(limits, _vectors(problem, width), 1)[0]}

    def guesses(self, problem: LrnProblem, limits: DeviceLimits) -> list[dict[str, int]]:
        default = self.default(problem, limits)
        return [default | {"VW": 8}, default | {"DIMX": 16}, default | {"VW": 1, "DIMX": 128}]

    def render(self, problem: LrnProblem, configuration: Configuration) -> Instance:
        sizes = {"OUTER": problem.outer, "AXIS": problem.axis, "INNER": problem.inner, "SIZE": problem.size}
        numbers = {"BIAS": problem.bias, "FACTOR": problem.alpha / problem.size}
        prelude = "".join(f"#define {name} {literal(value)}\n" for name, value in numbers.items())
        prelude += f"#define POWER(x) {_power(problem.beta)}\n"
        main = Launch(
            source=prelude + template("lrn_channels.cl", dtype=problem.dtype),
            entry="lrn_channels",
            needs=ALONE,
            writes=("output",),
            aligned=problem.inner > 1 and aligned(configuration["VW"], problem.inner),
            options=build_options(sizes | dict(configuration)),
            global_size=(round_up(_vectors(problem, configuration["VW"]), configuration["DIMX"]), 1),
            local_size=(configuration["DIMX"], 1),
            arguments=("input", "output"),
        )
        return Instance(main)

    def reference(self, problem: LrnProblem, inputs: Mapping[str, Array]) -> Array:
        """Differences of running sums, by another way than tap by tap."""
        value = inputs["input"].astype(np.float64)
        before = (problem.size - 1) // 2
        around = np.pad(value * value, ((0, 0), (before + 1, problem.size - 1 - before), (0, 0)))
        running = around.cumsum(axis=1)
        total = running[:, problem.size :] - running[:, : -problem.size]
        return np.asarray(value / (problem.bias + problem.alpha / problem.size * total) ** problem.beta, problem.dtype)

    def work(self, problem: LrnProblem) -> Work:
        return Work((2 * problem.size + 5) * math.prod(problem.shape), self.moved_bytes(problem))

    def tolerance(self, problem: LrnProblem) -> Tolerance:
        return Tolerance.of(problem.dtype, relative=1e-5, absolute=1e-6)


def _power(beta: float) -> str:
    """OpenCL C of x to the power of beta: of roots where they give it, since pow costs ten times as much."""
    whole, quarters = divmod(beta * 4, 4)
    if not 0 < beta <= 4 or quarters % 1:
        return f"pow(x, (vec)({literal(beta)}))"
    factors = ["(x)"] * int(whole) + ["sqrt(x)"] * (quarters >= 2) + ["sqrt(sqrt(x))"] * (int(quarters) % 2)
    return " * ".join(factors)


def _extent(problem: LrnProblem) -> int:
    return problem.axis if problem.inner == 1 else problem.inner


def _vectors(problem: LrnProblem, width: int) -> int:
    extent = _extent(problem)
    return math.prod(problem.shape) // extent * ceil_div(extent, width)


FAMILY = LrnFamily()
