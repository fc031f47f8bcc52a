"""Multiply a matrix by a constant right side, with bias and a fused chain.

matmul_tiled.cl computes tiles in registers. matmul_local.cl is for GPUs: work-groups compute tiles in local memory.

output[m, n] = epilogue(sum over k of a[m, k] * b[k, n] + bias[n])

The columns of a may lie in several tensors, so that what a Concat would join is read in place.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from gputune.core.dtypes import FLOAT, check_float
from gputune.kernels.algorithms import ALG, Algorithms, ProductFamily, Way, check_factors
from gputune.kernels.chain import EMPTY, Chain
from gputune.kernels.family import (
    ADDED,
    ALONE,
    Array,
    Instance,
    Launch,
    TensorSpec,
    Tolerance,
    Work,
    operand_specs,
)
from gputune.kernels.pointers import aligned
from gputune.kernels.space import Configuration
from gputune.kernels.template import build_options, template
from gputune.kernels.tiling.estimate import WIDEST
from gputune.kernels.tiling.local_tiles import LocalTiles
from gputune.kernels.tiling.skinny import MOST_ROWS, Skinny
from gputune.kernels.tiling.streaming import check_indices
from gputune.kernels.tiling.tiles import Tiling
from gputune.kernels.tiling.workgroups import launch_sizes

MOST_PARTS = 4
"""Each part has loops of its own, which compilers unroll; with more they take too long."""


@dataclass(frozen=True)
class MatMulProblem:
    """a[m, k] x b[k, n] + bias[n]; b and bias are constant, the epilogue's operands are [m, n].

    With `parts`, a is there as the tensors a0[m, parts[0]], a1[m, parts[1]], ... which lie side by side in it.
    `factors` is the type in which products may be multiplied.
    """

    m: int
    k: int
    n: int
    bias: bool = False
    epilogue: Chain = EMPTY
    dtype: str = FLOAT
    parts: tuple[int, ...] = ()
    factors: str = field(default=FLOAT, metadata=ADDED)

    def __post_init__(self) -> None:
        if min(self.m, self.k, self.n) < 1:
            raise ValueError(f"MatMul needs positive sizes, not m={self.m} k={self.k} n={self.n}")
        check_float("MatMul", self.dtype)
        check_factors("MatMul", self.dtype, self.factors)
        if self.parts and not 2 <= len(self.parts) <= MOST_PARTS:
            raise ValueError(f"MatMul reads 2 to {MOST_PARTS} parts, not {len(self.parts)}")
        if self.parts and (min(self.parts) < 1 or sum(self.parts) != self.k):
            raise ValueError(f"MatMul needs parts of positive width that make k={self.k} together, not {self.parts}")
        check_indices("MatMul", (self.m, self.k), (self.k, self.n), (self.m, self.n))


TILED, LOCAL, SKINNY = 0, 1, 2
MEANING = "algorithm: 0 a work-item's tiles in registers, 1 a work-group's tiles in local memory, 2 few rows"


class MatMulFamily(ProductFamily):
    """Three algorithms over packed columns."""

    op = "MatMul"

    def inputs(self, problem: MatMulProblem) -> tuple[TensorSpec, ...]:
        bias = (TensorSpec("bias", (problem.n,), constant=True, dtype=problem.dtype),) if problem.bias else ()
        return (
            *(TensorSpec(name, (problem.m, width), dtype=problem.dtype) for name, width in _parts(problem).items()),
            TensorSpec("b", (problem.k, problem.n), constant=True, dtype=problem.dtype),
            *bias,
            *operand_specs(problem.epilogue, (problem.m, problem.n), problem.dtype),
        )

    def output(self, problem: MatMulProblem) -> TensorSpec:
        return TensorSpec("output", (problem.m, problem.n), dtype=problem.dtype)

    def ways(self, problem: MatMulProblem, factors: str) -> Algorithms:
        ways: dict[int, Way] = {TILED: _tiles(problem), LOCAL: _local_tiles(problem, factors)}
        if problem.m <= MOST_ROWS:
            ways[SKINNY] = _skinny(problem)
        return Algorithms(ways, MEANING, frozenset({LOCAL, SKINNY}))

    def multiplied(self, problem: MatMulProblem, configuration: Configuration, factors: str) -> Instance:
        tiles, parts, operands = _tiles(problem), tuple(_parts(problem)), problem.epilogue.operand_names
        packing = tiles.packing(configuration["NV"], configuration["VW"], configuration["LN"])
        prepare, packed = (packing.launch("b", problem.bias),), {"packed": packing.nbytes}
        prelude = _prelude(problem) + problem.epilogue.prelude()
        whole_vectors = aligned(configuration["VW"], problem.n)
        if configuration.get(ALG, TILED) == LOCAL:
            local = _local_tiles(problem, factors)
            source = prelude + template("matmul_local.cl", dtype=problem.dtype, factors=factors)
            inputs = (*parts, "packed")
            main = local.launch(configuration, source, "matmul_local", {}, inputs, operands, whole_vectors)
            return Instance(main, prepare, packed, local.stored(configuration))
        if configuration.get(ALG, TILED) == SKINNY:
            skinny = _skinny(problem)
            source = prelude + template("matmul_skinny.cl", dtype=problem.dtype, factors=factors)
            main = skinny.launch(configuration, source, (*parts, "packed"), operands, whole_vectors)
            return Instance(main, prepare, packed, skinny.shares.stored(configuration["SPLIT"]))
        global_size, local_size = launch_sizes(tiles.launch_grid(configuration), configuration)
        main = Launch(
            source=prelude + template("matmul_tiled.cl", dtype=problem.dtype, factors=factors),
            entry="matmul_tiled",
            needs=ALONE,
            writes=("output",),
            aligned=whole_vectors,
            options=build_options({"M": problem.m, "K": problem.k, "N": problem.n, **configuration}),
            global_size=global_size,
            local_size=local_size,
            arguments=(*parts, "packed", "output", *operands),
        )
        return Instance(main, prepare, packed)

    def reference(self, problem: MatMulProblem, inputs: Mapping[str, Array]) -> Array:
        """numpy's product in float64."""
        left = np.concatenate([inputs[name] for name in _parts(problem)], axis=1)
        total = left.astype(np.float64) @ inputs["b"].astype(np.float64)
        if problem.bias:
            total += inputs["bias"]
        return problem.epilogue.apply_to(total, inputs).astype(problem.dtype)

    def work(self, problem: MatMulProblem) -> Work:
        each = 2 * problem.k + problem.bias + len(problem.epilogue.steps)
        return Work(problem.m * problem.n * each, self.moved_bytes(problem))

    def tolerance(self, problem: MatMulProblem) -> Tolerance:
        return Tolerance.of(problem.dtype, relative=5e-6 + 2e-6 * math.sqrt(problem.k), absolute=1e-5)


def _tiles(problem: MatMulProblem) -> Tiling:
    return Tiling(
        rows=problem.m,
        columns=problem.n,
        reduction=problem.k,
        output_stride=1,
        input_stride=problem.n,
        splits=True,
        prefetches=True,
        pitch=0 if problem.parts else problem.k,
        dtype=problem.dtype,
    )


def _local_tiles(problem: MatMulProblem, factors: str) -> LocalTiles:
    return LocalTiles(
        problem.m,
        problem.n,
        problem.k,
        left_width=_left_width(problem),
        dtype=problem.dtype,
        factors=factors,
        packing=_tiles(problem).packing,
    )


def _skinny(problem: MatMulProblem) -> Skinny:
    return Skinny(problem.m, problem.n, problem.k, _left_width(problem), problem.dtype, _tiles(problem).packing)


def _left_width(problem: MatMulProblem) -> int:
    """Elements of a row that are read at once; they do not reach into another part."""
    return math.gcd(WIDEST, *_parts(problem).values())


def _parts(problem: MatMulProblem) -> dict[str, int]:
    """Return the tensors that a is there in, by name, and how many of its columns each has."""
    return {f"a{i}": width for i, width in enumerate(problem.parts)} or {"a": problem.k}


def _prelude(problem: MatMulProblem) -> str:
    """Return the macros that templates take where a is there in parts: their parameters, the first and the others, and
    the element k of a row."""
    if not problem.parts:
        return ""
    place, begins, parts = "", 0, _parts(problem)
    for name, width in parts.items():
        begins += width
        more = f"(k) < {begins} ? " if begins < problem.k else ""
        place += f"{more}LOAD({name}, (row) * {width} + (k) - {begins - width}){' : ' if more else ''}"
    parameters = "".join(f"__global const TYPE *restrict {name}, " for name in _parts(problem))
    (first, width), *others = _parts(problem).items()
    return (
        f"#define PART_PARAMETERS {parameters}\n#define FIRST_PART {first}\n#define FIRST_WIDTH {width}\n"
        f"#define PART_LOAD(row, k, LOAD) ({place})\n"
        f"#define OTHER_PARTS {' '.join(f'PART({name}, {width})' for name, width in others)}\n"
    )


FAMILY = MatMulFamily()
