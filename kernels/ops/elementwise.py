"""Apply a fused chain of elementwise steps to broadcast inputs; an empty chain copies or expands.

See elementwise_chain.cl.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gputune.core.dtypes import FLOAT
from gputune.kernels.chain import Chain
from gputune.kernels.family import Array, DeviceLimits, Problem, TensorSpec, Tolerance
from gputune.kernels.hard_values import MOVES
from gputune.kernels.indexing.broadcasting import LoopFamily, Loops, check_broadcasts, collapse
from gputune.kernels.tiling.streaming import LINE_FLOATS, ceil_div, check_indices, power_at_least
from gputune.kernels.tiling.workgroups import few_registers

MOST_VECTORS, ROWS_TOGETHER = 8, 4
"""What a CPU's work-item takes of a row, and how many rows a work-group has."""
LEAST_INNER = 4 * LINE_FLOATS
"""Rows of 24 elements took longer so, those of 72 and more less."""


@dataclass(frozen=True)
class ElementwiseProblem(Problem):
    """output = chain(input, operands), everything broadcast to `shape` by numpy's rules.

    `constant_operands` holds the numbers of the operands that are known at generation time.
    """

    op = "Elementwise"

    shape: tuple[int, ...]
    operand_shapes: tuple[tuple[int, ...], ...]
    input_shape: tuple[int, ...]
    chain: Chain
    constant_operands: tuple[int, ...] = ()
    dtype: str = FLOAT

    def check(self) -> None:
        if len(self.operand_shapes) != self.chain.operands:
            given = len(self.operand_shapes)
            raise ValueError(f"the chain reads {self.chain.operands} operands, {given} shapes are given")
        if not set(self.constant_operands) <= set(range(len(self.operand_shapes))):
            raise ValueError(f"constant_operands {self.constant_operands} names an operand that is not there")
        check_broadcasts("Elementwise", self.shape, (self.input_shape, *self.operand_shapes))
        check_indices("Elementwise", self.shape)

    @property
    def loops(self) -> Loops:
        """The loops of the output; input 0 is the value, input k + 1 is operand k."""
        return collapse(self.shape, (self.input_shape, *self.operand_shapes))


class ElementwiseFamily(LoopFamily):
    """One template: vectors along the innermost loop, every other loop folded into rows."""

    op = ElementwiseProblem.op
    template = "elementwise_chain.cl"
    accuracy = Tolerance(relative=1e-5, absolute=1e-6)
    survives = MOVES

    def inputs(self, problem: ElementwiseProblem) -> tuple[TensorSpec, ...]:
        given = enumerate(problem.operand_shapes)
        operands = (problem.tensor(f"operand{k}", shape, k in problem.constant_operands) for k, shape in given)
        return (problem.tensor("input", problem.input_shape), *operands)

    def default(self, problem: ElementwiseProblem, limits: DeviceLimits) -> dict[str, int]:
        """On a CPU with AVX2 a work-item has up to 128 elements of a row, as vectors of a cache's line: 1.1 to 1.4
        times as fast as one vector each, or 2 where rows come from memory."""
        loops, usual = problem.loops, super().default(problem, limits)
        if not few_registers(limits) or loops.inner < LEAST_INNER:
            return usual
        vectors = power_at_least(ceil_div(loops.inner, LINE_FLOATS))
        run = {"VW": LINE_FLOATS, "WPTX": min(vectors, MOST_VECTORS)}
        wanted = usual | run | {"DIMX": 1, "DIMY": ROWS_TOGETHER}
        return usual if self.space(problem, limits).violations(wanted) else wanted

    def prelude(self, problem: ElementwiseProblem) -> str:
        chain, loops = problem.chain, problem.loops

        def read(name: str, which: int) -> str:
            offset = loops.row_offset(which)
            if loops.steps[which][-1]:
                return f"LOAD({name}, {offset} + (x))" if offset else f"LOAD({name}, x)"
            return f"SPLAT({name}, {offset or 0})"

        parameters = "".join(f", __global const TYPE *restrict {name}" for name in chain.operand_names)
        statements = chain.source("(value)", [read(name, k + 1) for k, name in enumerate(chain.operand_names)], "vec")
        return (
            f"#define OPERAND_PARAMETERS {parameters}\n"
            f"#define VALUE(row, x) {read('input', 0)}\n"
            f"#define CHAIN(value, row, x) {{ {statements} }}\n"
        )

    def reference(self, problem: ElementwiseProblem, inputs: Mapping[str, Array]) -> Array:
        value = np.broadcast_to(inputs["input"], problem.shape)
        return problem.chain.apply_to(value, inputs)

    def steps(self, problem: ElementwiseProblem) -> int:
        return len(problem.chain.steps)


FAMILY = ElementwiseFamily()
