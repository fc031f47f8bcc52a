"""Find the positions of the largest or smallest elements along an axis, in order, for TopK. See top_ranks.cl."""

import math
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
from gputune.kernels.hard_values import ORDERS
from gputune.kernels.space import Configuration, DeviceLimit, Parameter, TuningSpace
from gputune.kernels.template import build_options, template
from gputune.kernels.tiling.streaming import GROUP_SIZES, busy, ceil_div, check_indices, default_group, round_up


@dataclass(frozen=True)
class TopProblem:
    """output[o, r, i] = the a of which input[o, a, i] is the r-th largest (or smallest) of them, for r < k, as int64.

    Of equal elements the one with the lower a comes first; NaN is larger than all else.
    """

    outer: int
    axis: int
    inner: int
    k: int
    largest: bool = True
    dtype: str = FLOAT

    def __post_init__(self) -> None:
        if min(self.shape) < 1 or not 1 <= self.k <= self.axis:
            raise ValueError(
                f"TopK needs positive sizes and at most as many as there are, not {self.k} of {self.shape}"
            )
        check_dtype("TopK", self.dtype)
        check_indices("TopK", self.shape)

    @property
    def shape(self) -> tuple[int, int, int]:
        return (self.outer, self.axis, self.inner)


class TopFamily(KernelFamily):
    """One template: every element counts those that come before it, which is its place in the order."""

    op = "TopK"
    floats = FLOATS
    survives = ORDERS

    def inputs(self, problem: TopProblem) -> tuple[TensorSpec, ...]:
        return (TensorSpec("input", problem.shape, dtype=problem.dtype),)

    def output(self, problem: TopProblem) -> TensorSpec:
        return TensorSpec("output", (problem.outer, problem.k, problem.inner), dtype="int64")

    def space(self, problem: TopProblem, limits: DeviceLimits) -> TuningSpace:
        most = min(limits.max_work_group_size, limits.max_work_item_sizes[0])
        return TuningSpace(
            (
                Parameter(
                    "EACH", (1, 2, 4, 8, 16, 32), "elements of a work-item, for which each other one is read once"
                ),
                Parameter("DIMX", GROUP_SIZES, "work-items of a work-group"),
            ),
            (
                busy(("EACH",), problem.axis, "the elements of the axis"),
                DeviceLimit(("DIMX",), lambda across: across <= most, f"DIMX must not exceed the device's {most}"),
            ),
        )

    def default(self, problem: TopProblem, limits: DeviceLimits) -> dict[str, int]:
        each = 8 if problem.axis >= 64 else 1
        return {"EACH": each, "DIMX": default_group(limits, _items(problem, each), 1)[0]}

    def guesses(self, problem: TopProblem, limits: DeviceLimits) -> list[dict[str, int]]:
        default = self.default(problem, limits)
        return [default | {"EACH": 16}, default | {"EACH": 1, "DIMX": 64}, default | {"DIMX": 1}]

    def render(self, problem: TopProblem, configuration: Configuration) -> Instance:
        macros: dict[str, int | str] = {
            "OUTER": problem.outer,
            "AXIS": problem.axis,
            "INNER": problem.inner,
            "K": problem.k,
            "LARGEST": int(problem.largest),
        }
        items = _items(problem, configuration["EACH"])
        main = Launch(
            source=template("top_ranks.cl", dtype=problem.dtype),
            entry="top_ranks",
            needs=ALONE,
            writes=("output",),
            options=build_options({**macros, **configuration}),
            global_size=(round_up(items, configuration["DIMX"]),),
            local_size=(configuration["DIMX"],),
            arguments=("input", "output"),
        )
        return Instance(main)

    def reference(self, problem: TopProblem, inputs: Mapping[str, Array]) -> Array:
        """numpy's stable sort, which puts NaN last; of what is turned round where the largest are wanted."""
        value = inputs["input"]
        if not problem.largest:
            return np.asarray(value.argsort(axis=1, kind="stable")[:, : problem.k], np.int64)
        order = value[:, ::-1].argsort(axis=1, kind="stable")[:, ::-1]
        return np.asarray(problem.axis - 1 - order[:, : problem.k], np.int64)

    def work(self, problem: TopProblem) -> Work:
        return Work(math.prod(problem.shape) * problem.axis, self.moved_bytes(problem))

    def tolerance(self, problem: TopProblem) -> Tolerance:
        return Tolerance(0.0, 0.0)


def _items(problem: TopProblem, each: int) -> int:
    """Work-items of a launch."""
    return problem.outer * ceil_div(problem.axis, each) * problem.inner


FAMILY = TopFamily()
