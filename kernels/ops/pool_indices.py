"""Find the positions of the maxima of windows over NHWC maps: the second output of MaxPool. See pool_indices.cl."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gputune.core.dtypes import FLOAT
from gputune.kernels.family import Array, TensorSpec
from gputune.kernels.hard_values import ORDERS
from gputune.kernels.indexing.maps import MapFamily
from gputune.kernels.indexing.pixel_strips import NhwcProblem
from gputune.kernels.ops.pool import PoolProblem
from gputune.kernels.space import Configuration, Constraint
from gputune.kernels.tiling.streaming import DIMX, DIMY, busy
from gputune.kernels.tiling.window import Pads, Pair


@dataclass(frozen=True)
class PoolIndicesProblem(NhwcProblem):
    """output[n, c, y, x] = the index of the first maximum of the window at y, x, counted over [N, C, H, W].

    Fields as PoolProblem has them. With `by_columns` the elements of a map are counted column by column.
    """

    op = "PoolIndices"

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

    def check(self) -> None:
        _ = self.pool  # which refuses what has no meaning

    @property
    def pool(self) -> PoolProblem:
        """The pooling of which these are the places."""
        windows = (self.kernel, self.strides, self.pads, self.output)
        return PoolProblem("max", *self.input_shape, *windows, dilations=self.dilations, dtype=self.dtype)

    @property
    def output_shape(self) -> tuple[int, int, int, int]:
        return (self.batch, self.channels, *self.output)


class PoolIndicesFamily(MapFamily):
    """One template: an output element per work-item."""

    op = PoolIndicesProblem.op
    template = "pool_indices.cl"
    parameters = (DIMX, DIMY)
    guessed = ({"DIMX": 1, "DIMY": 64}, {"DIMX": 8, "DIMY": 8}, {"DIMX": 16, "DIMY": 4})
    survives = ORDERS

    def inputs(self, problem: PoolIndicesProblem) -> tuple[TensorSpec, ...]:
        return (problem.tensor("input", problem.input_shape),)

    def output(self, problem: PoolIndicesProblem) -> TensorSpec:
        return TensorSpec("output", problem.output_shape, dtype="int64")

    def rules(self, problem: PoolIndicesProblem) -> tuple[Constraint, ...]:
        pixels = busy(("DIMY",), problem.strips(1), "the number of output pixels")
        return (busy(("DIMX",), problem.channels, "the channels"), pixels)

    def grid(self, problem: PoolIndicesProblem, configuration: Configuration) -> tuple[int, int]:
        return problem.channels, problem.strips(1)

    def sizes(self, problem: PoolIndicesProblem) -> Mapping[str, int]:
        names = ("MAPS", "HEIGHT", "WIDTH", "CHANNELS", "OUT_HEIGHT", "OUT_WIDTH", "KH", "KW", "SH", "SW", "PT", "PL")
        pairs = (*problem.output, *problem.kernel, *problem.strides, *problem.pads[:2], *problem.dilations)
        sizes = zip((*names, "DH", "DW"), (*problem.input_shape, *pairs), strict=True)
        return {**dict(sizes), "BY_COLUMNS": problem.by_columns}

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

    def steps(self, problem: PoolIndicesProblem) -> int:
        return math.prod(problem.kernel)


def _seen(problem: PoolIndicesProblem, axis: int) -> Array:
    """[output, tap]: the rows or columns that a window sees, which may be outside of the map."""
    starts = np.arange(problem.output[axis]) * problem.strides[axis] - problem.pads[axis]
    return starts[:, None] + np.arange(problem.kernel[axis]) * problem.dilations[axis]


FAMILY = PoolIndicesFamily()
