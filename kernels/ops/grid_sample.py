"""Sample NHWC maps at the positions of a grid. See grid_sample_taps.cl."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gputune.core.dtypes import FLOAT
from gputune.kernels.family import Array, TensorSpec, Tolerance
from gputune.kernels.hard_values import WEIGHTED
from gputune.kernels.indexing.broadcasting import LoopFamily, Loops
from gputune.kernels.indexing.pixel_strips import PixelProblem
from gputune.kernels.tiling.streaming import check_indices

TAPS: Mapping[str, int] = {"nearest": 1, "linear": 2, "cubic": 4}
"""Elements along each axis that a result is made of."""

PADDINGS = ("zeros", "border", "reflection")
"""What lies beyond a map, in the order of grid_sample_taps.cl's PADDING."""


@dataclass(frozen=True)
class GridSampleProblem(PixelProblem):
    """output[n, y, x, c] = input[n, row, column, c], interpolated, where grid[n, y, x] = (column, row).

    The grid counts from -1 to 1: from centre to centre of the outer elements where it is `aligned`, else from border
    to border. `output` is (height, width).
    """

    op = "GridSample"

    kind: str = "linear"
    padding: str = "zeros"
    aligned: bool = False
    dtype: str = FLOAT

    def check(self) -> None:
        if self.kind not in TAPS or self.padding not in PADDINGS:
            raise ValueError(
                f"GridSample knows {', '.join(TAPS)} with {', '.join(PADDINGS)}, not {self.kind} with {self.padding}"
            )
        check_indices("GridSample", self.grid_shape)

    @property
    def grid_shape(self) -> tuple[int, int, int, int]:
        return (self.batch, *self.output, 2)

    @property
    def loops(self) -> Loops:
        """Pixels, and the channels of each."""
        return Loops((self.batch * math.prod(self.output), self.channels), ((self.channels, 1),))


class GridSampleFamily(LoopFamily):
    """One template: a vector of channels of an output pixel."""

    op = GridSampleProblem.op
    template = "grid_sample_taps.cl"
    accuracy = Tolerance(relative=1e-4, absolute=1e-5)  # a place is a float, and a weight what it lacks to the next
    survives = WEIGHTED

    def inputs(self, problem: GridSampleProblem) -> tuple[TensorSpec, ...]:
        return problem.tensor("input", problem.input_shape), problem.tensor("grid", problem.grid_shape)

    def output(self, problem: GridSampleProblem) -> TensorSpec:
        return problem.tensor("output", problem.output_shape)

    def sample_inputs(self, problem: GridSampleProblem, generator: np.random.Generator) -> dict[str, Array]:
        """Places on the map and beyond it, none of them halfway between two elements, where roundings decide."""
        inputs = super().sample_inputs(problem, generator)
        sizes = np.array([problem.width, problem.height])
        whole = generator.integers(-2, sizes + 2, problem.grid_shape)
        place = whole + generator.uniform(-0.3, 0.3, problem.grid_shape)
        scaled = 2 * place / np.maximum(sizes - 1, 1) - 1 if problem.aligned else (2 * place + 1) / sizes - 1
        return inputs | {"grid": scaled.astype(problem.dtype)}

    def sizes(self, problem: GridSampleProblem) -> Mapping[str, int]:
        sizes = {"PIXELS": math.prod(problem.output), "HEIGHT": problem.height, "WIDTH": problem.width}
        kind = {"TAPS": TAPS[problem.kind], "PADDING": PADDINGS.index(problem.padding), "ALIGNED": problem.aligned}
        return problem.loops.macros() | sizes | kind

    def reference(self, problem: GridSampleProblem, inputs: Mapping[str, Array]) -> Array:
        grid = inputs["grid"].astype(np.float64)
        columns, rows = (
            _weights(problem, grid[..., axis].reshape(problem.batch, -1), size)
            for axis, size in enumerate((problem.width, problem.height))
        )
        maps = inputs["input"].astype(np.float64)
        sampled: Array = np.einsum("nph,npw,nhwc->npc", rows, columns, maps, optimize=True)
        return sampled.reshape(self.output(problem).shape).astype(problem.dtype)

    def steps(self, problem: GridSampleProblem) -> int:
        return 2 * TAPS[problem.kind] ** 2


def _weights(problem: GridSampleProblem, grid: Array, size: int) -> Array:
    """For each number of the grid the weight of each of `size` elements of an axis."""
    low, high = (0.0, size - 1.0) if problem.aligned else (-0.5, size - 0.5)
    place = (grid + 1) / 2 * (size - 1) if problem.aligned else ((grid + 1) * size - 1) / 2
    place = np.rint(place) if problem.kind == "nearest" else place
    if problem.padding == "reflection":
        place = _mirrored(place, low, high)
    place = np.fmin(np.fmax(place, -4), size + 4)
    reach = {"nearest": range(1), "linear": range(2), "cubic": range(-1, 3)}[problem.kind]
    weights = np.zeros((*grid.shape, size))
    for offset in reach:
        element = np.floor(place) + offset
        distance = abs(place - element)
        weight = {"nearest": np.ones_like(place), "linear": 1 - distance}.get(problem.kind)
        if weight is None:
            near, far = (1.25 * distance - 2.25) * distance**2 + 1, -0.75 * (distance - 2) ** 2 * (distance - 1)
            weight = np.where(distance <= 1, near, far)
        if problem.padding == "reflection":
            element = np.trunc(_mirrored(element, low, high))
        elif problem.padding == "zeros":
            weight = np.where((element >= 0) & (element < size), weight, 0)
        index = np.clip(element, 0, size - 1).astype(np.int64)[..., None]
        np.put_along_axis(weights, index, np.take_along_axis(weights, index, -1) + weight[..., None], -1)
    return weights


def _mirrored(place: Array, low: float, high: float) -> Array:
    """Places mirrored at low and high until they lie between them."""
    if high <= low:
        return np.full_like(place, low)
    turned = np.mod(place - low, 2 * (high - low))
    return low + np.minimum(turned, 2 * (high - low) - turned)


FAMILY = GridSampleFamily()
