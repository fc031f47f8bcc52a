"""Compute softmax and its logarithm over one axis of a tensor, seen as [outer, axis, inner]. See softmax_rows.cl."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gputune.core.dtypes import ELEMENT_TYPES, FLOAT, FLOATS, check_float
from gputune.kernels.family import (
    ALONE,
    Array,
    DeviceLimits,
    Instance,
    KernelFamily,
    Launch,
    Needs,
    TensorSpec,
    Tolerance,
    Work,
)
from gputune.kernels.hard_values import MOVES
from gputune.kernels.indexing.rows import SHARED, shared
from gputune.kernels.pointers import aligned
from gputune.kernels.space import Configuration, Constraint, Parameter, TuningSpace
from gputune.kernels.template import build_options, template
from gputune.kernels.tiling.streaming import (
    GROUP_SIZES,
    VECTOR_WIDTHS,
    Declared,
    busy,
    ceil_div,
    check_indices,
    default_width,
    fits,
    group_constraints,
    local_bytes,
    power_at_least,
    power_at_most,
    round_up,
)


@dataclass(frozen=True)
class SoftmaxProblem:
    """output[o, a, i] = exp(input[o, a, i] - m) / sum over a of exp(input[o, a, i] - m); m = max over a.

    With `log` the logarithm of that. With `masked` zeros where that is NaN: in rows of nothing but minus infinity.
    """

    outer: int
    axis: int
    inner: int
    dtype: str = FLOAT
    log: bool = False
    masked: bool = False

    def __post_init__(self) -> None:
        if min(self.outer, self.axis, self.inner) < 1:
            raise ValueError(f"Softmax needs positive sizes, not [{self.outer}, {self.axis}, {self.inner}]")
        check_float("Softmax", self.dtype)
        if self.log and self.masked:
            raise ValueError("Softmax has no masked logarithm")
        check_indices("Softmax", self.shape)

    @property
    def shape(self) -> tuple[int, int, int]:
        return (self.outer, self.axis, self.inner)


class SoftmaxFamily(KernelFamily):
    """One template: vectors along the axis where it is innermost, else across it; one or more work-items a row."""

    op = "Softmax"
    floats = FLOATS
    survives = MOVES

    def inputs(self, problem: SoftmaxProblem) -> tuple[TensorSpec, ...]:
        return (TensorSpec("input", problem.shape, dtype=problem.dtype),)

    def output(self, problem: SoftmaxProblem) -> TensorSpec:
        return TensorSpec("output", problem.shape, dtype=problem.dtype)

    def space(self, problem: SoftmaxProblem, limits: DeviceLimits) -> TuningSpace:
        vectored, name = _vectored(problem)
        along = problem.inner == 1
        return TuningSpace(
            (
                Parameter("VW", VECTOR_WIDTHS, "elements of a vector"),
                Parameter("LANES", GROUP_SIZES, "work-items that share a row"),
                Parameter("DIMY", GROUP_SIZES, "rows of a work-group"),
                Parameter("KEEP", (0, 1), "1: exponentials wait in the output, 0: they are computed twice"),
                Parameter("EXP", (0, 1), "1: exponentials by exponential.cl, 0: by OpenCL's function"),
            ),
            (
                fits(vectored, name),
                busy(("VW", "LANES") if along else ("LANES",), problem.axis, "the length of the axis"),
                Constraint(
                    ("VW", "DIMY"),
                    lambda width, rows: rows == 1 or rows < 2 * _rows(problem, width),
                    "DIMY must stay below twice the number of rows; more would have nothing to do",
                ),
                Constraint(
                    ("KEEP",),
                    lambda keep: not (keep and problem.log),
                    "KEEP must be 0 for a logarithm, which needs no exponentials in the end",
                ),
                *group_constraints(limits, "LANES", "DIMY"),
                _needs(problem).limit(limits),
            ),
        )

    def default(self, problem: SoftmaxProblem, limits: DeviceLimits) -> dict[str, int]:
        width = default_width(limits, _vectored(problem)[0])
        rows, lanes = _rows(problem, width), 1
        cpu = limits.device_type == "cpu"
        if cpu:
            most = min(16, limits.max_work_group_size, limits.max_work_item_sizes[1])
            down = power_at_most(min(most, power_at_least(rows)))
        else:
            along = problem.inner == 1
            steps = ceil_div(problem.axis, width) if along else problem.axis
            lanes, down = shared(rows, steps, along, _bytes_each(problem, width), limits)
        # A GPU has an instruction for exponentials.
        return {"VW": width, "LANES": lanes, "DIMY": down, "KEEP": int(not problem.log), "EXP": int(cpu)}

    def guesses(self, problem: SoftmaxProblem, limits: DeviceLimits) -> list[dict[str, int]]:
        default = self.default(problem, limits)
        wanted = [default | {"KEEP": 0}, default | {"DIMY": 4}]
        if limits.device_type != "cpu":  # a barrier costs a CPU more than the lanes give
            wanted += [default | {"VW": 4, "LANES": 32, "DIMY": 4}, default | {"VW": 4, "LANES": 128, "DIMY": 1}]
            wanted += [default | {"VW": 1, "LANES": 128, "DIMY": 1}, default | {"VW": 1, "LANES": 1, "DIMY": 64}]
        return wanted

    def render(self, problem: SoftmaxProblem, configuration: Configuration) -> Instance:
        lanes, down = configuration["LANES"], configuration["DIMY"]
        flags = {"LOG": int(problem.log), "MASKED": int(problem.masked)}
        sizes = {"OUTER": problem.outer, "AXIS": problem.axis, "INNER": problem.inner, **flags}
        main = Launch(
            source=template("softmax_rows.cl", dtype=problem.dtype),
            entry="softmax_rows",
            needs=_needs(problem).of(configuration),
            writes=("output",),
            aligned=aligned(configuration["VW"], problem.inner if problem.inner > 1 else problem.axis),
            options=build_options(sizes | dict(configuration)),
            global_size=(lanes, round_up(_rows(problem, configuration["VW"]), down)),
            local_size=(lanes, down),
            arguments=("input", "output"),
        )
        return Instance(main)

    def reference(self, problem: SoftmaxProblem, inputs: Mapping[str, Array]) -> Array:
        value = inputs["input"].astype(np.float64)
        with np.errstate(invalid="ignore"):
            shifted = value - value.max(axis=1, keepdims=True)
            exponentials = np.exp(shifted)
            sums = exponentials.sum(axis=1, keepdims=True)
            result = shifted - np.log(sums) if problem.log else exponentials / sums
        return np.asarray(np.where(np.isnan(result), 0, result) if problem.masked else result, problem.dtype)

    def work(self, problem: SoftmaxProblem) -> Work:
        return Work(5 * math.prod(problem.shape), self.moved_bytes(problem))

    def tolerance(self, problem: SoftmaxProblem) -> Tolerance:
        return Tolerance.of(problem.dtype, relative=1e-5, absolute=1e-7)


def _needs(problem: SoftmaxProblem) -> Declared:
    def needs(width: int, lanes: int, down: int) -> Needs:
        nbytes = local_bytes(lanes * down * _bytes_each(problem, width))
        return Needs(nbytes, cooperates=True) if lanes > 1 else ALONE

    return Declared(SHARED, needs, "partial results of a work-group")


def _bytes_each(problem: SoftmaxProblem, width: int) -> int:
    """Return the elements that a work-item hands over: a vector if vectors lie across rows."""
    return ELEMENT_TYPES[problem.dtype].sum_bytes * (1 if problem.inner == 1 else width)


def _vectored(problem: SoftmaxProblem) -> tuple[int, str]:
    """Return the length and the name of the axis that vectors lie on."""
    return (problem.axis, "the axis") if problem.inner == 1 else (problem.inner, "the inner axis")


def _rows(problem: SoftmaxProblem, width: int) -> int:
    return problem.outer * (1 if problem.inner == 1 else ceil_div(problem.inner, width))


FAMILY = SoftmaxFamily()
