"""Find the positions of the maxima of windows over NHWC maps: the second output of MaxPool. See pool_indices.cl."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gputune.core.dtypes import FLOAT, FLOATS
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
from gputune.kernels.ops.pool import PoolProblem
from gputune.kernels.space import Configuration, TuningSpace
from gputune.kernels.template import build_options, template
from gputune.kernels.tiling.streaming import busy, default_group, group_constraints, group_parameters, round_up
from gputune.kernels.tiling.window import Pads, Pair


@dataclass(frozen=True)
class PoolIndicesProblem:
    """output[n, c, y, x] = the index of the first maximum of the window at y, x, counted over [N, C, H, W].

    Fields as PoolProblem has them. With `by_columns` the elements of a map are counted column by column.
    """

    batch: int
    height: int
    width: int
    channels: int
    kernel: Pair
    strides: Pair
    pads: Pads
    output: Pair
    dilations: Pair = (1, 1)
    by_columns: bool = False
    dtype: str = FLOAT

    def __post_init__(self) -> None:
        _ = self.pool  # which refuses what has no meaning

    @property
    def pool(self) -> PoolProblem:
        """The pooling of which these are the places."""
        size = (self.batch, self.height, self.width, self.channels)
        windows = (self.kernel, self.strides, self.pads, self.output)
        return PoolProblem("max", *size, *windows, dilations=self.dilations, dtype=self.dtype)

    @property
    def output_shape(self) -> tuple[int, int, int, int]:
        return (self.batch, self.channels, *self.output)


class PoolIndicesFamily(KernelFamily):
    """One template: an output element per work-item."""

    op = "PoolIndices"
    floats = FLOATS
    survives = ORDERS

    def inputs(self, problem: PoolIndicesProblem) -> tuple[TensorSpec, ...]:
        return (TensorSpec("input", problem.pool.input_shape, dtype=problem.dtype),)

    def output(self, problem: PoolIndicesProblem) -> TensorSpec:
        return TensorSpec("output", problem.output_shape, dtype="int64")

    def space(self, problem: PoolIndicesProblem, limits: DeviceLimits) -> TuningSpace:
        return TuningSpace(
            group_parameters(),
            (
                busy(("DIMX",), problem.channels, "the channels"),
                busy(("DIMY",), problem.batch * math.prod(problem.output), "the number of output pixels"),
                *group_constraints(limits),
            ),
        )

    def default(self, problem: PoolIndicesProblem, limits: DeviceLimits) -> dict[str, int]:
        across, down = default_group(limits, problem.channels, problem.batch * math.prod(problem.output))
        space, wanted = self.space(problem, limits), {"DIMX": across, "DIMY": down}
        return space.first() if space.violations(wanted) else wanted

    def guesses(self, problem: PoolIndicesProblem, limits: DeviceLimits) -> list[dict[str, int]]:
        return [{"DIMX": across, "DIMY": down} for across, down in ((1, 64), (8, 8), (16, 4))]

    def render(self, problem: PoolIndicesProblem, configuration: Configuration) -> Instance:
        sizes = {
            "MAPS": problem.batch,
            "HEIGHT": problem.height,
            "WIDTH": problem.width,
            "CHANNELS": problem.channels,
            **dict(zip(("OUT_HEIGHT", "OUT_WIDTH"), problem.output, strict=True)),
            **dict(zip(("KH", "KW"), problem.kernel, strict=True)),
            **dict(zip(("SH", "SW"), problem.strides, strict=True)),
            **dict(zip(("PT", "PL"), problem.pads[:2], strict=True)),
            **dict(zip(("DH", "DW"), problem.dilations, strict=True)),
            "BY_COLUMNS": int(problem.by_columns),
        }
        across, down = configuration["DIMX"], configuration["DIMY"]
        pixels = problem.batch * math.prod(problem.output)
        main = Launch(
            source=template("pool_indices.cl", dtype=problem.dtype),
            entry="pool_indices",
            needs=ALONE,
            writes=("output",),
            options=build_options(sizes | dict(configuration)),
            global_size=(round_up(problem.channels, across), round_up(pixels, down)),
            local_size=(across, down),
            arguments=("input", "output"),
        )
        return Instance(main)

    def reference(self, problem: PoolIndicesProblem, inputs: Mapping[str, Array]) -> Array:
        """Find the largest of all that a window sees side by side, and return its place; what is outside of the map is
        never largest."""
        maps = inputs["input"].astype(np.float64).transpose(0, 3, 1, 2)
        seen_rows, seen_columns = (_seen(problem, axis) for axis in (0, 1))
        rows, columns = seen_rows[:, None, :, None], seen_columns[None, :, None, :]
        inside = (rows >= 0) & (rows < problem.height) & (columns >= 0) & (columns < problem.width)
        rows, columns = np.clip(rows, 0, problem.height - 1), np.clip(columns, 0, problem.width - 1)
        values = np.where(inside, maps[:, :, rows, columns], -np.inf).reshape(*problem.output_shape, -1)
        largest = values.max(-1, keepdims=True)  # NaN where there is one
        best = inside.reshape(*problem.output, -1) & ((values == largest) | np.isnan(values))
        place = columns * problem.height + rows if problem.by_columns else rows * problem.width + columns
        places = np.broadcast_to(place, inside.shape).reshape(*problem.output, -1)
        chosen = np.take_along_axis(np.broadcast_to(places, best.shape), best.argmax(-1)[..., None], -1)[..., 0]
        plane = np.arange(problem.batch * problem.channels).reshape(problem.batch, problem.channels, 1, 1)
        return np.asarray(plane * (problem.height * problem.width) + chosen, np.int64)

    def work(self, problem: PoolIndicesProblem) -> Work:
        return Work(math.prod(problem.output_shape) * math.prod(problem.kernel), self.moved_bytes(problem))

    def tolerance(self, problem: PoolIndicesProblem) -> Tolerance:
        return Tolerance(0.0, 0.0)


def _seen(problem: PoolIndicesProblem, axis: int) -> Array:
    """[output, tap]: the rows or columns that a window sees, which may be outside of the map."""
    starts = np.arange(problem.output[axis]) * problem.strides[axis] - problem.pads[axis]
    return starts[:, None] + np.arange(problem.kernel[axis]) * problem.dilations[axis]


FAMILY = PoolIndicesFamily()
