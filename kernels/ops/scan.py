"""Compute running sums and products along an axis: CumSum and CumProd. See scan_axis.cl."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gputune.core.dtypes import ELEMENT_TYPES, FLOAT, FLOATS, check_dtype
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
from gputune.kernels.hard_values import Survival
from gputune.kernels.pointers import aligned
from gputune.kernels.space import Configuration, DeviceLimit, Parameter, TuningSpace
from gputune.kernels.template import build_options, template
from gputune.kernels.tiling.streaming import (
    GROUP_SIZES,
    VECTOR_WIDTHS,
    busy,
    ceil_div,
    check_indices,
    default_group,
    default_width,
    fits,
    round_up,
)


@dataclass(frozen=True)
class ScanProblem:
    """output[o, a, i] = sum of input[o, b, i] over b <= a; with `reverse` b >= a, `exclusive` without a itself."""

    outer: int
    axis: int
    inner: int
    product: bool = False
    exclusive: bool = False
    reverse: bool = False
    dtype: str = FLOAT

    def __post_init__(self) -> None:
        if min(self.shape) < 1:
            raise ValueError(f"Scan needs positive sizes, not {list(self.shape)}")
        check_dtype("Scan", self.dtype)
        if self.dtype == "bool":
            raise ValueError("Scan has no sums of bool")
        check_indices("Scan", self.shape)

    @property
    def shape(self) -> tuple[int, int, int]:
        return (self.outer, self.axis, self.inner)


class ScanFamily(KernelFamily):
    """One template: a work-item per vector across the axis. Short axes are what models have."""

    op = "Scan"
    floats = FLOATS
    survives = Survival(frozenset(), "an element is part of all sums behind it")

    def inputs(self, problem: ScanProblem) -> tuple[TensorSpec, ...]:
        return (TensorSpec("input", problem.shape, dtype=problem.dtype),)

    def output(self, problem: ScanProblem) -> TensorSpec:
        return TensorSpec("output", problem.shape, dtype=problem.dtype)

    def space(self, problem: ScanProblem, limits: DeviceLimits) -> TuningSpace:
        most = min(limits.max_work_group_size, limits.max_work_item_sizes[0])
        return TuningSpace(
            (
                Parameter("VW", VECTOR_WIDTHS, "elements of a vector"),
                Parameter("DIMX", GROUP_SIZES, "work-items of a work-group"),
            ),
            (
                fits(problem.inner, "the inner axis"),
                busy(("VW", "DIMX"), problem.outer * problem.inner, "the number of rows"),
                DeviceLimit(("DIMX",), lambda across: across <= most, f"DIMX must not exceed the device's {most}"),
            ),
        )

    def default(self, problem: ScanProblem, limits: DeviceLimits) -> dict[str, int]:
        width = default_width(limits, problem.inner)
        rows = ceil_div(problem.outer * problem.inner, width)
        return {"VW": width, "DIMX": default_group(limits, rows, 1)[0]}

    def guesses(self, problem: ScanProblem, limits: DeviceLimits) -> list[dict[str, int]]:
        default = self.default(problem, limits)
        return [default | {"DIMX": 1}, default | {"VW": 1, "DIMX": 64}]

    def render(self, problem: ScanProblem, configuration: Configuration) -> Instance:
        macros: dict[str, int | str] = {
            "OUTER": problem.outer,
            "AXIS": problem.axis,
            "EXTENT": problem.inner,
            "PRODUCT": int(problem.product),
            "EXCLUSIVE": int(problem.exclusive),
            "REVERSE": int(problem.reverse),
        }
        rows = problem.outer * ceil_div(problem.inner, configuration["VW"])
        main = Launch(
            source=template("scan_axis.cl", dtype=problem.dtype),
            entry="scan_axis",
            needs=ALONE,
            writes=("output",),
            aligned=aligned(configuration["VW"], problem.inner),
            options=build_options({**macros, **configuration}),
            global_size=(round_up(rows, configuration["DIMX"]), 1),
            local_size=(configuration["DIMX"], 1),
            arguments=("input", "output"),
        )
        return Instance(main)

    def reference(self, problem: ScanProblem, inputs: Mapping[str, Array]) -> Array:
        """numpy's running sums of what is turned round and shifted by one as wanted."""
        value = inputs["input"]
        value = value[:, ::-1] if problem.reverse else value
        if problem.exclusive:
            value = np.pad(value, ((0, 0), (1, 0), (0, 0)), constant_values=int(problem.product))[:, :-1]
        dtype = np.float64 if ELEMENT_TYPES[problem.dtype].is_float else problem.dtype
        result = (np.cumprod if problem.product else np.cumsum)(value, axis=1, dtype=dtype)
        return np.asarray(result[:, ::-1] if problem.reverse else result).astype(problem.dtype)

    def sample_inputs(self, problem: ScanProblem, generator: np.random.Generator) -> dict[str, Array]:
        """Numbers whose products are around one, where those are wanted."""
        inputs = super().sample_inputs(problem, generator)
        if problem.product and ELEMENT_TYPES[problem.dtype].is_float:
            spread = generator.standard_normal(problem.shape) / math.sqrt(problem.axis)
            inputs["input"] = np.exp(spread).astype(problem.dtype)
        return inputs

    def work(self, problem: ScanProblem) -> Work:
        moved = 2 * self.output(problem).nbytes
        return Work(math.prod(problem.shape), moved)

    def tolerance(self, problem: ScanProblem) -> Tolerance:
        if not ELEMENT_TYPES[problem.dtype].is_float:
            return Tolerance(0.0, 0.0)
        root = math.sqrt(problem.axis)
        return Tolerance.of(problem.dtype, 1e-5 + 1e-7 * root, 1e-6 * root)


FAMILY = ScanFamily()
