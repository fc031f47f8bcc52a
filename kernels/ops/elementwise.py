"""Apply a fused chain of elementwise steps to broadcast inputs; an empty chain copies or expands.

See elementwise_chain.cl.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gputune.core.dtypes import FLOAT, FLOATS, check_float
from gputune.kernels.chain import Chain
from gputune.kernels.family import (
    ALONE,
    Array,
    DeviceLimits,
    Instance,
    Launch,
    TensorSpec,
    TiledFamily,
    Tolerance,
    Work,
)
from gputune.kernels.hard_values import MOVES
from gputune.kernels.indexing.broadcasting import Loops, check_broadcasts, collapse
from gputune.kernels.pointers import aligned
from gputune.kernels.space import Configuration
from gputune.kernels.template import build_options, template
from gputune.kernels.tiling.streaming import LINE_FLOATS, ceil_div, check_indices, power_at_least
from gputune.kernels.tiling.workgroups import few_registers

MOST_VECTORS, ROWS_TOGETHER = 8, 4
"""What a CPU's work-item takes of a row, and how many rows a work-group has."""
LEAST_INNER = 4 * LINE_FLOATS
"""Rows of 24 elements took longer so, those of 72 and more less."""


@dataclass(frozen=True)
class ElementwiseProblem:
    """output = chain(input, operands), everything broadcast to `shape` by numpy's rules.

    `constant_operands` holds the numbers of the operands that are known at generation time.
    """

    shape: tuple[int, ...]
    operand_shapes: tuple[tuple[int, ...], ...]
    input_shape: tuple[int, ...]
    chain: Chain
    constant_operands: tuple[int, ...] = ()
    dtype: str = FLOAT

    def __post_init__(self) -> None:
        check_float("Elementwise", self.dtype)
        if len(self.operand_shapes) != self.chain.operands:
            given = len(self.operand_shapes)
            raise ValueError(f"the chain reads {self.chain.operands} operands, {given} shapes are given")
        if not set(self.constant_operands) <= set(range(len(self.operand_shapes))):
            raise ValueError(f"constant_operands {self.constant_operands} names an operand that is not there")
        check_broadcasts("Elementwise", self.shape, (self.input_shape, *self.operand_shapes))
        check_indices("Elementwise", self.shape)


class ElementwiseFamily(TiledFamily):
    """One template: vectors along the innermost loop, every other loop folded into rows."""

    op = "Elementwise"
    floats = FLOATS
    survives = MOVES

    def inputs(self, problem: ElementwiseProblem) -> tuple[TensorSpec, ...]:
        operands = enumerate(problem.operand_shapes)
        return (
            TensorSpec("input", problem.input_shape, dtype=problem.dtype),
            *(
                TensorSpec(f"operand{k}", shape, k in problem.constant_operands, dtype=problem.dtype)
                for k, shape in operands
            ),
        )

    def output(self, problem: ElementwiseProblem) -> TensorSpec:
        return TensorSpec("output", problem.shape, dtype=problem.dtype)

    def tiling(self, problem: ElementwiseProblem) -> Loops:
        """Return the loops of a problem; input 0 is the value, input k + 1 is operand k."""
        return collapse(problem.shape, (problem.input_shape, *problem.operand_shapes))

    def default(self, problem: ElementwiseProblem, limits: DeviceLimits) -> dict[str, int]:
        """On a CPU with AVX2 a work-item has up to 128 elements of a row, as vectors of a cache's line: 1.1 to 1.4
        times as fast as one vector each, or 2 where rows come from memory."""
        loops, usual = self.tiling(problem), super().default(problem, limits)
        if not few_registers(limits) or loops.inner < LEAST_INNER:
            return usual
        vectors = power_at_least(ceil_div(loops.inner, LINE_FLOATS))
        run = {"VW": LINE_FLOATS, "WPTX": min(vectors, MOST_VECTORS)}
        wanted = usual | run | {"DIMX": 1, "DIMY": ROWS_TOGETHER}
        return usual if loops.space(limits).violations(wanted) else wanted

    def render(self, problem: ElementwiseProblem, configuration: Configuration) -> Instance:
        loops = self.tiling(problem)
        global_size, local_size = loops.grid(configuration)
        main = Launch(
            source=_prelude(problem.chain, loops) + template("elementwise_chain.cl", dtype=problem.dtype),
            entry="elementwise_chain",
            needs=ALONE,
            writes=("output",),
            aligned=aligned(configuration["VW"], *loops.distances),
            options=build_options(loops.macros(configuration)),
            global_size=global_size,
            local_size=local_size,
            arguments=("input", "output", *problem.chain.operand_names),
        )
        return Instance(main)

    def reference(self, problem: ElementwiseProblem, inputs: Mapping[str, Array]) -> Array:
        value = np.broadcast_to(inputs["input"], problem.shape)
        return problem.chain.apply_to(value, inputs)

    def work(self, problem: ElementwiseProblem) -> Work:
        return Work(math.prod(problem.shape) * len(problem.chain.steps), self.moved_bytes(problem))

    def tolerance(self, problem: ElementwiseProblem) -> Tolerance:
        return Tolerance.of(problem.dtype, relative=1e-5, absolute=1e-6)


def _prelude(chain: Chain, loops: Loops) -> str:
    """Return the macros that elementwise_chain.cl takes: what an element is, and what is done to it."""

    def read(name: str, which: int) -> str:
        offset = loops.row_offset(which)
        if loops.steps[which][-1]:
            return f"LOAD({name}, {offset} + (x))" if offset else f"LOAD({name}, x)"
        return f"SPLAT({name}, {offset or 0})"

    names = chain.operand_names
    parameters = "".join(f", __global const TYPE *restrict {name}" for name in names)
    statements = chain.source("(value)", [read(name, k + 1) for k, name in enumerate(names)], "vec")
    return (
        f"#define OPERAND_PARAMETERS {parameters}\n"
        f"#define VALUE(row, x) {read('input', 0)}\n"
        f"#define CHAIN(value, row, x) {{ {statements} }}\n"
    )


FAMILY = ElementwiseFamily()
