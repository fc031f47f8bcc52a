"""Compute running sums and products along an axis: CumSum and CumProd. See scan_axis.cl."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gputune.core.dtypes import ANY, FLOAT
from gputune.kernels.family import Array, DeviceLimits, Tolerance
from gputune.kernels.hard_values import Survival
from gputune.kernels.indexing.loops import AxisProblem
from gputune.kernels.indexing.maps import EXACT, MapFamily
from gputune.kernels.space import Configuration, Constraint
from gputune.kernels.tiling.streaming import DIMX, VW, busy, ceil_div, default_width, fits


@dataclass(frozen=True)
class ScanProblem(AxisProblem):
    """output[o, a, i] = sum of input[o, b, i] over b <= a; with `reverse` b >= a, `exclusive` without a itself."""

    op = "Scan"
    types = ANY

    product: bool = False
    exclusive: bool = False
    reverse: bool = False
    dtype: str = FLOAT

    def check(self) -> None:
        if self.dtype == "bool":
            raise ValueError("Scan has no sums of bool")


class ScanFamily(MapFamily):
    """One template: a work-item per vector across the axis. Short axes are what models have."""

    op = ScanProblem.op
    template = "scan_axis.cl"
    parameters = (VW, DIMX)
    group = ("DIMX",)
    guessed = ({"DIMX": 1}, {"VW": 1, "DIMX": 64})
    survives = Survival(frozenset(), "an element is part of all sums behind it")

    def rules(self, problem: ScanProblem) -> tuple[Constraint, ...]:
        rows = problem.outer * problem.inner
        return (fits(problem.inner, "the inner axis"), busy(("VW", "DIMX"), rows, "the number of rows"))

    def widths(self, problem: ScanProblem, limits: DeviceLimits) -> dict[str, int]:
        return {"VW": default_width(limits, problem.inner)}

    def grid(self, problem: ScanProblem, configuration: Configuration) -> tuple[int, int]:
        return problem.outer * ceil_div(problem.inner, configuration["VW"]), 1

    def sizes(self, problem: ScanProblem) -> Mapping[str, int]:
        sizes = {"OUTER": problem.outer, "AXIS": problem.axis, "EXTENT": problem.inner}
        kind = {"PRODUCT": problem.product, "EXCLUSIVE": problem.exclusive, "REVERSE": problem.reverse}
        return sizes | kind

    def distances(self, problem: ScanProblem) -> tuple[int, ...]:
        return (problem.inner,)

    def reference(self, problem: ScanProblem, inputs: Mapping[str, Array]) -> Array:
        """numpy's running sums of what is turned round and shifted by one as wanted."""
        value = inputs["input"]
        value = value[:, ::-1] if problem.reverse else value
        if problem.exclusive:
            value = np.pad(value, ((0, 0), (1, 0), (0, 0)), constant_values=int(problem.product))[:, :-1]
        dtype = np.float64 if problem.element.is_float else problem.dtype
        result = (np.cumprod if problem.product else np.cumsum)(value, axis=1, dtype=dtype)
        return np.asarray(result[:, ::-1] if problem.reverse else result).astype(problem.dtype)

    def sample_inputs(self, problem: ScanProblem, generator: np.random.Generator) -> dict[str, Array]:
        """Numbers whose products are around one, where those are wanted."""
        inputs = super().sample_inputs(problem, generator)
        if problem.product and problem.element.is_float:
            spread = generator.standard_normal(problem.shape) / math.sqrt(problem.axis)
            inputs["input"] = np.exp(spread).astype(problem.dtype)
        return inputs

    def steps(self, problem: ScanProblem) -> int:
        return 1

    def tolerance(self, problem: ScanProblem) -> Tolerance:
        root = math.sqrt(problem.axis)
        return Tolerance.of(problem.dtype, 1e-5 + 1e-7 * root, 1e-6 * root) if problem.element.is_float else EXACT


FAMILY = ScanFamily()
