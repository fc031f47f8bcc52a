"""Resize NHWC maps by weighted sums along both axes, with a fused chain. See resample_taps.cl."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gputune.core.dtypes import FLOAT
from gputune.kernels.chain import EMPTY, Chain, literal
from gputune.kernels.family import Array, TensorSpec, Tolerance
from gputune.kernels.hard_values import WEIGHTED
from gputune.kernels.indexing.pixel_strips import PixelFamily, PixelProblem
from gputune.kernels.tiling.window import Pair

TABLES = ("rows", "row_weights", "columns", "column_weights")
"""Inputs that are known at generation time: for each row of the output which rows it is made of, and their weights;
likewise for its columns."""


@dataclass(frozen=True)
class ResampleProblem(PixelProblem):
    """output[n, y, x, c] = epilogue(sum over i, j of
    row_weights[y, i] * column_weights[x, j] * input[n, rows[y, i], columns[x, j], c]).

    `output` is (height, width) and `taps` how many rows and how many columns each output element is made of. What the
    weights of an element lack to one is `outside`. The epilogue's operands are output-shaped.
    """

    op = "Resample"

    taps: Pair
    outside: float = 0.0
    epilogue: Chain = EMPTY
    dtype: str = FLOAT

    def check(self) -> None:
        if min(self.taps) < 1:
            raise ValueError(f"Resample needs one tap at least, not {self.taps}")
        if not math.isfinite(self.outside):
            raise ValueError(f"Resample needs a finite number outside of the map, not {self.outside}")


class ResampleFamily(PixelFamily):
    """One template: a vector of channels of a few output pixels per work-item, places and weights from tables."""

    op = ResampleProblem.op
    template = "resample_taps.cl"
    accuracy = Tolerance(relative=1e-5, absolute=1e-6)
    survives = WEIGHTED

    def inputs(self, problem: ResampleProblem) -> tuple[TensorSpec, ...]:
        value, *operands = super().inputs(problem)
        shapes = [(size, taps) for size, taps in zip(problem.output, problem.taps, strict=True) for _ in range(2)]
        tables = zip(TABLES, shapes, ("int32", problem.dtype) * 2, strict=True)
        return (value, *(TensorSpec(name, shape, True, dtype) for name, shape, dtype in tables), *operands)

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

    def sizes(self, problem: ResampleProblem) -> Mapping[str, int]:
        taps = zip(("TAPS_Y", "TAPS_X"), problem.taps, strict=True)
        return {**super().sizes(problem), **dict(taps)}

    def prelude(self, problem: ResampleProblem) -> str:
        return f"#define OUTSIDE {literal(problem.outside)}\n{super().prelude(problem)}"

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

    def steps(self, problem: ResampleProblem) -> int:
        return 2 * math.prod(problem.taps)


FAMILY = ResampleFamily()
