"""Resize NHWC maps by weighted sums along both axes, with a fused chain. See resample_taps.cl."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gputune.core.dtypes import FLOAT, FLOATS, check_float
from gputune.kernels.chain import EMPTY, Chain, literal
from gputune.kernels.family import (
    ALONE,
    Array,
    Instance,
    Launch,
    TensorSpec,
    TiledFamily,
    Tolerance,
    Work,
    operand_specs,
)
from gputune.kernels.hard_values import WEIGHTED
from gputune.kernels.indexing.pixel_strips import PixelStrips
from gputune.kernels.pointers import aligned
from gputune.kernels.space import Configuration
from gputune.kernels.template import build_options, template
from gputune.kernels.tiling.streaming import (
    check_indices,
)
from gputune.kernels.tiling.window import Pair

TABLES = ("rows", "row_weights", "columns", "column_weights")
"""Inputs that are known at generation time: for each row of the output which rows it is made of, and their weights;
likewise for its columns."""


@dataclass(frozen=True)
class ResampleProblem:
    """output[n, y, x, c] = epilogue(sum over i, j of
    row_weights[y, i] * column_weights[x, j] * input[n, rows[y, i], columns[x, j], c]).

    `output` is (height, width) and `taps` how many rows and how many columns each output element is made of. What the
    weights of an element lack to one is `outside`. The epilogue's operands are output-shaped.
    """

    batch: int
    height: int
    width: int
    channels: int
    output: Pair
    taps: Pair
    outside: float = 0.0
    epilogue: Chain = EMPTY
    dtype: str = FLOAT

    def __post_init__(self) -> None:
        check_float("Resample", self.dtype)
        if min(*self.input_shape, *self.output, *self.taps) < 1:
            raise ValueError("Resample needs positive sizes, and one tap at least")
        if not math.isfinite(self.outside):
            raise ValueError(f"Resample needs a finite number outside of the map, not {self.outside}")
        check_indices("Resample", self.input_shape, self.output_shape)

    @property
    def input_shape(self) -> tuple[int, int, int, int]:
        return (self.batch, self.height, self.width, self.channels)

    @property
    def output_shape(self) -> tuple[int, int, int, int]:
        return (self.batch, *self.output, self.channels)


class ResampleFamily(TiledFamily):
    """One template: a vector of channels of a few output pixels per work-item, places and weights from tables."""

    op = "Resample"
    floats = FLOATS
    survives = WEIGHTED

    def inputs(self, problem: ResampleProblem) -> tuple[TensorSpec, ...]:
        shapes = [(size, taps) for size, taps in zip(problem.output, problem.taps, strict=True) for _ in range(2)]
        tables = zip(TABLES, shapes, ("int32", problem.dtype) * 2, strict=True)
        return (
            TensorSpec("input", problem.input_shape, dtype=problem.dtype),
            *(TensorSpec(name, shape, constant=True, dtype=dtype) for name, shape, dtype in tables),
            *operand_specs(problem.epilogue, problem.output_shape, problem.dtype),
        )

    def output(self, problem: ResampleProblem) -> TensorSpec:
        return TensorSpec("output", problem.output_shape, dtype=problem.dtype)

    def sample_inputs(self, problem: ResampleProblem, generator: np.random.Generator) -> dict[str, Array]:
        """Places all over the map, and weights that add up to one, as interpolation has them."""
        inputs = super().sample_inputs(problem, generator)
        for axis, (places, weights) in enumerate((TABLES[:2], TABLES[2:])):
            shape = (problem.output[axis], problem.taps[axis])
            spread = np.linspace(0, problem.input_shape[1 + axis] - 1, shape[0])[:, None] + np.arange(shape[1])
            inputs[places] = np.minimum(spread, problem.input_shape[1 + axis] - 1).astype(np.int32)
            drawn = generator.uniform(0.5, 1.5, shape)
            inputs[weights] = (drawn / drawn.sum(axis=1, keepdims=True)).astype(problem.dtype)
        return inputs

    def tiling(self, problem: ResampleProblem) -> PixelStrips:
        return PixelStrips(problem.batch, problem.output, problem.channels)

    def render(self, problem: ResampleProblem, configuration: Configuration) -> Instance:
        global_size, local_size = self.tiling(problem).launch_sizes(configuration)
        macros = {
            "MAPS": problem.batch,
            "HEIGHT": problem.height,
            "WIDTH": problem.width,
            "CHANNELS": problem.channels,
            **dict(zip(("OUT_HEIGHT", "OUT_WIDTH"), problem.output, strict=True)),
            **dict(zip(("TAPS_Y", "TAPS_X"), problem.taps, strict=True)),
        }
        outside = f"#define OUTSIDE {literal(problem.outside)}\n"
        main = Launch(
            source=outside + problem.epilogue.prelude() + template("resample_taps.cl", dtype=problem.dtype),
            entry="resample_taps",
            needs=ALONE,
            writes=("output",),
            aligned=aligned(configuration["VW"], problem.channels),
            options=build_options(macros | dict(configuration)),
            global_size=global_size,
            local_size=local_size,
            arguments=("input", *TABLES, "output", *problem.epilogue.operand_names),
        )
        return Instance(main)

    def reference(self, problem: ResampleProblem, inputs: Mapping[str, Array]) -> Array:
        value, whole = inputs["input"].astype(np.float64), np.ones(1)
        for axis, (places, weights) in enumerate((TABLES[:2], TABLES[2:]), start=1):
            matrix = np.zeros((problem.output[axis - 1], problem.input_shape[axis]))
            rows = np.arange(len(matrix))[:, None]
            np.add.at(matrix, (rows, np.clip(inputs[places], 0, matrix.shape[1] - 1)), inputs[weights])
            value = np.moveaxis(np.tensordot(matrix, value, (1, axis)), 0, axis)
            whole = np.multiply.outer(whole, inputs[weights].sum(axis=1, dtype=np.float64))
        value += (1 - whole.reshape(problem.output))[..., None] * problem.outside
        return problem.epilogue.apply_to(value, inputs).astype(problem.dtype)

    def work(self, problem: ResampleProblem) -> Work:
        steps = 2 * math.prod(problem.taps) + len(problem.epilogue.steps)
        return Work(math.prod(problem.output_shape) * steps, self.moved_bytes(problem))

    def tolerance(self, problem: ResampleProblem) -> Tolerance:
        return Tolerance.of(problem.dtype, relative=1e-5, absolute=1e-6)


FAMILY = ResampleFamily()
