"""Multiply a batch of computed matrices, each read in place.

batched_matmul_tiled.cl computes tiles in registers. batched_local.cl is for GPUs: work-groups compute tiles in local
memory.

output[g, m, n] = epilogue(sum over k of a[g, m, k] * b[g, k, n])

Transposed and broadcast operands only have other steps, so they are not copied; a step of 0 repeats elements.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from gputune.core.dtypes import ELEMENT_TYPES, FLOAT, check_float
from gputune.kernels.algorithms import ALG, Algorithms, ProductFamily, Way, check_factors
from gputune.kernels.chain import EMPTY, Chain
from gputune.kernels.family import (
    ADDED,
    ALONE,
    Array,
    DeviceLimits,
    Estimate,
    Instance,
    Launch,
    Stage,
    TensorSpec,
    Tolerance,
    Work,
)
from gputune.kernels.indexing.steps import (
    Steps,
    as_it_lies,
    different,
    place,
    reach,
    reach_each_once,
    view,
    whole_shape,
)
from gputune.kernels.pointers import aligned
from gputune.kernels.space import Configuration, Constraint, Parameter, TuningSpace
from gputune.kernels.template import build_options, template
from gputune.kernels.tiling.estimate import WIDEST, Card, handing_over
from gputune.kernels.tiling.local_tiles import LocalTiles
from gputune.kernels.tiling.packing import Packing
from gputune.kernels.tiling.streaming import ceil_div, check_indices, round_up
from gputune.kernels.tiling.tiles import Tiling
from gputune.kernels.tiling.workgroups import launch_sizes

TILED, LOCAL = 0, 1
MEANING = "algorithm: 0 a work-item's tiles in registers, 1 a work-group's tiles in local memory"

PACKED_ROWS = 16
"""Rows of b that a work-item packs where work-groups are of one work-item."""


@dataclass(frozen=True)
class BatchedMatMulProblem:
    """For all of `batch`, [m, k] x [k, n]; a, b, output and each operand of the epilogue have steps for (*batch, row,
    column).

    `elements` counts those of a and b, which begin at their elements `starts`; all else begins at its element 0. The
    output's steps reach each of its elements once. `factors` is the type in which products may be multiplied.
    """

    batch: tuple[int, ...]
    m: int
    k: int
    n: int
    a_steps: Steps
    b_steps: Steps
    output_steps: Steps
    elements: tuple[int, int]
    epilogue: Chain = EMPTY
    operand_steps: tuple[Steps, ...] = ()
    starts: tuple[int, int] = (0, 0)
    dtype: str = FLOAT
    factors: str = field(default=FLOAT, metadata=ADDED)

    def __post_init__(self) -> None:
        if min(self.m, self.k, self.n, *self.batch) < 1:
            raise ValueError(
                f"BatchedMatMul needs positive sizes, not {self.batch} of m={self.m} k={self.k} n={self.n}"
            )
        check_float("BatchedMatMul", self.dtype)
        check_factors("BatchedMatMul", self.dtype, self.factors)
        rank = len(self.batch) + 2
        every = (self.a_steps, self.b_steps, self.output_steps, *self.operand_steps)
        if any(len(steps) != rank or min(steps) < 0 for steps in every):
            raise ValueError(f"BatchedMatMul needs {rank} steps per tensor, none negative, not {every}")
        if len(self.operand_steps) != self.epilogue.operands:
            raise ValueError(f"BatchedMatMul needs steps for {self.epilogue.operands} operands")
        if self.output_steps[-1] == 1 and any(steps[-1] > 1 for steps in self.operand_steps):
            raise ValueError("BatchedMatMul reads its operands along rows, as it writes its output")
        sides = zip("ab", self.sides, (self.a_steps, self.b_steps), self.starts, self.elements, strict=True)
        for name, sizes, steps, start, elements in sides:
            if start < 0 or start + reach(sizes, steps) > elements:
                raise ValueError(f"BatchedMatMul would read beyond the {elements} elements of {name}")
        if not reach_each_once(self.shape, self.output_steps):
            raise ValueError(f"BatchedMatMul's output steps {self.output_steps} do not reach each element once")
        check_indices("BatchedMatMul", self.shape, (self.elements[0],), (self.elements[1],))

    @property
    def shape(self) -> tuple[int, ...]:
        """Batch, rows and columns of the products."""
        return (*self.batch, self.m, self.n)

    @property
    def sides(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Batch, rows and columns of a and of b."""
        return (*self.batch, self.m, self.k), (*self.batch, self.k, self.n)

    @property
    def products(self) -> int:
        """How many matrices the output holds."""
        return math.prod(self.batch)


class BatchedMatMulFamily(ProductFamily):
    """Two algorithms; the first is over columns that a stage packs, or over rows of b where they lie."""

    op = "BatchedMatMul"

    def inputs(self, problem: BatchedMatMulProblem) -> tuple[TensorSpec, ...]:
        operands = (
            TensorSpec(f"operand{i}", (reach(problem.shape, steps),), dtype=problem.dtype)
            for i, steps in enumerate(problem.operand_steps)
        )
        a, b = map(whole_shape, problem.elements, problem.sides, (problem.a_steps, problem.b_steps))
        return (TensorSpec("a", a, dtype=problem.dtype), TensorSpec("b", b, dtype=problem.dtype), *operands)

    def output(self, problem: BatchedMatMulProblem) -> TensorSpec:
        return TensorSpec("output", as_it_lies(problem.shape, problem.output_steps), dtype=problem.dtype)

    def ways(self, problem: BatchedMatMulProblem, factors: str) -> Algorithms:
        ways: dict[int, Way] = {TILED: _RegisterTiles(problem), LOCAL: _local_tiles(problem, factors)}
        return Algorithms(ways, MEANING, frozenset({LOCAL}))

    def multiplied(self, problem: BatchedMatMulProblem, configuration: Configuration, factors: str) -> Instance:
        if configuration.get(ALG, TILED) == LOCAL:
            return _in_local_memory(problem, configuration, factors)
        tiling = _tiling(problem)
        global_size, local_size = launch_sizes(tiling.launch_grid(configuration), configuration)
        lm, ln, packs = configuration["LM"], configuration["LN"], configuration["PACK"]
        panel = configuration["NV"] * configuration["VW"] * ln
        panels = _matrices(problem) * ceil_div(problem.n, panel)
        run = PACKED_ROWS if lm * ln == 1 else 1
        stage = Stage(
            entry="pack_right",
            needs=ALONE,
            writes=("packed",),
            global_size=(round_up(ceil_div(problem.k, run), ln), round_up(panels * ln, lm)),
            local_size=(ln, lm),
            arguments=("b", "packed"),
        )
        sizes = {"RUN": run, "MATRICES": _matrices(problem), **_sizes(problem)}
        main = Launch(
            source=_prelude(problem) + template("batched_matmul_tiled.cl", dtype=problem.dtype, factors=factors),
            entry="batched_matmul_tiled",
            needs=ALONE,
            writes=("output",),
            aligned=aligned(configuration["VW"], *_distances(problem, bool(packs))),
            options=build_options(sizes | dict(configuration)),
            global_size=global_size,
            local_size=local_size,
            arguments=(
                "a",
                "packed" if packs else "b",
                "output",
                *problem.epilogue.operand_names,
            ),
            stages=(stage,) if packs else (),
        )
        return Instance(
            main, scratch={"packed": panels * panel * problem.k * ELEMENT_TYPES[problem.dtype].nbytes} if packs else {}
        )

    def sample_inputs(self, problem: BatchedMatMulProblem, generator: np.random.Generator) -> dict[str, Array]:
        """As everywhere, with b in the place of weights, so that sums are around one."""
        inputs = super().sample_inputs(problem, generator)
        inputs["b"] = inputs["b"] * (1 / problem.k if problem.epilogue.has_domain else problem.k**-0.5)
        return inputs

    def reference(self, problem: BatchedMatMulProblem, inputs: Mapping[str, Array]) -> Array:
        """numpy's product in float64 of views with these steps."""
        a, b = (
            view(inputs[name].astype(np.float64).reshape(-1)[start:], sizes, steps)
            for name, start, sizes, steps in zip(
                "ab", problem.starts, problem.sides, (problem.a_steps, problem.b_steps), strict=True
            )
        )
        operands = [view(inputs[f"operand{i}"], problem.shape, steps) for i, steps in enumerate(problem.operand_steps)]
        result = np.empty(self.output(problem).shape, problem.dtype)
        view(result, problem.shape, problem.output_steps)[...] = problem.epilogue.apply(a @ b, operands)
        return result

    def work(self, problem: BatchedMatMulProblem) -> Work:
        each = 2 * problem.k + len(problem.epilogue.steps)
        read = zip(
            (*problem.sides, *[problem.shape] * len(problem.operand_steps)),
            (problem.a_steps, problem.b_steps, *problem.operand_steps),
            strict=True,
        )
        moved = math.prod(problem.shape) + sum(different(sizes, steps) for sizes, steps in read)
        return Work(math.prod(problem.shape) * each, moved * ELEMENT_TYPES[problem.dtype].nbytes)

    def tolerance(self, problem: BatchedMatMulProblem) -> Tolerance:
        return Tolerance.of(problem.dtype, relative=5e-6 + 2e-6 * math.sqrt(problem.k), absolute=1e-5)


@dataclass(frozen=True)
class _RegisterTiles:
    """A work-item's tiles in registers, over columns that are packed or rows of b where they lie."""

    problem: BatchedMatMulProblem

    def space(self, limits: DeviceLimits) -> TuningSpace:
        problem, tiled = self.problem, _tiling(self.problem).space(limits)
        pack = Parameter("PACK", (1, 0), "1: the right side is packed first, 0: it is read where it lies")
        return TuningSpace(
            (*tiled.parameters, pack),
            (
                *tiled.constraints,
                Constraint(
                    ("PACK", "VW"),
                    lambda packs, width: bool(packs) or _reads_in_place(problem, width),
                    f"PACK 0 needs rows of the right side in one piece, and VW of at most its {problem.n} columns",
                ),
                *(() if limits.device_type == "cpu" else (self._packs_for_reasons(),)),
            ),
        )

    def default(self, limits: DeviceLimits) -> dict[str, int]:
        return self._in_place(_tiling(self.problem).default(limits))

    def guesses(self, limits: DeviceLimits) -> list[dict[str, int]]:
        return [self.default(limits) | {"PACK": 1}, *map(self._in_place, _tiling(self.problem).guesses(limits))]

    def estimate(self, limits: DeviceLimits) -> Estimate:
        problem, product = self.problem, _tiling(self.problem).estimate(limits)
        nbytes = _matrices(problem) * problem.k * problem.n * ELEMENT_TYPES[problem.dtype].nbytes
        packing = handing_over(nbytes, Card.of(limits))
        return lambda configuration: product(configuration) + configuration["PACK"] * packing

    def _packs_for_reasons(self) -> Constraint:
        """Beyond CPUs. Packing is another launch, and all that it gives there is that vectors are aligned."""
        problem = self.problem

        def holds(packs: int, width: int) -> bool:
            if not packs or not _reads_in_place(problem, width):
                return True
            return aligned(width, *_distances(problem, True)) and not aligned(width, *_distances(problem, False))

        return Constraint(
            ("PACK", "VW"), holds, "PACK 1 is for columns that cannot be read in place, or not in aligned vectors"
        )

    def _in_place(self, tile: dict[str, int]) -> dict[str, int]:
        """Return the tile, with b read in place if it can be."""
        return tile | {"PACK": int(not _reads_in_place(self.problem, tile["VW"]))}


@dataclass(frozen=True)
class _Tiling(Tiling):
    """Products, of which several may have one right side: it is packed once."""

    matrices: int = 1

    def packing(self, vectors: int, width: int, group_columns: int) -> Packing:
        return replace(super().packing(vectors, width, group_columns), groups=self.matrices)


def _tiling(problem: BatchedMatMulProblem) -> _Tiling:
    """Only sizes: where b's elements come from is for the stage to know."""
    return _Tiling(
        rows=problem.m,
        columns=problem.n,
        reduction=problem.k,
        output_stride=0,
        input_stride=0,
        groups=problem.products,
        pitch=problem.a_steps[-2] if problem.a_steps[-1] == 1 else 0,
        dtype=problem.dtype,
        matrices=_matrices(problem),
    )


def _local_tiles(problem: BatchedMatMulProblem, factors: str) -> LocalTiles:
    """Vectors along the axes on which a and b lie side by side, as wide as they begin at multiples of their width."""
    (left, right), (a_start, b_start) = problem.sides, problem.starts
    left_deep = _along(left, problem.a_steps, -1, -2)
    right_deep = _along(right, problem.b_steps, -2, -1)
    return LocalTiles(
        problem.m,
        problem.n,
        problem.k,
        left_width=_vector(left, problem.a_steps, a_start, -1 if left_deep else -2),
        left_deep=left_deep,
        right_width=_vector(right, problem.b_steps, b_start, -2 if right_deep else -1),
        right_deep=right_deep,
        matrices=problem.products,
        dtype=problem.dtype,
        factors=factors,
    )


def _along(sizes: Sequence[int], steps: Steps, axis: int, other: int) -> bool:
    """Return whether elements along an axis lie closer together than along the other. An axis of one element has no
    step."""
    mine, others = (steps[each] if sizes[each] > 1 else 0 for each in (axis, other))
    return mine == 1 or (others != 1 and mine < others)


def _vector(sizes: Sequence[int], steps: Steps, start: int, along: int) -> int:
    """Return how many elements an aligned vector along an axis has: 1 if neighbours do not lie side by side."""
    if steps[along] != 1:
        return 1
    axes = range(-len(sizes), 0)
    return math.gcd(WIDEST, start, sizes[along], *(steps[each] for each in axes if each != along and sizes[each] > 1))


def _in_local_memory(problem: BatchedMatMulProblem, configuration: Configuration, factors: str) -> Instance:
    """Return the launches of tiles in local memory. All that they read in vectors is aligned; outputs that are not
    aligned are stored one by one."""
    tiles = _local_tiles(problem, factors)
    whole = problem.output_steps[-1] == 1 and aligned(configuration["VW"], *_output_distances(problem))
    sizes = _sizes(problem) | {
        "LEFT_DEEP": int(tiles.left_deep),
        "RIGHT_DEEP": int(tiles.right_deep),
        "RIGHT_WIDTH": tiles.right_vector(configuration["VW"]),
        "OUT_VECTORS": int(whole),
    }
    source = _prelude(problem) + template("batched_local.cl", dtype=problem.dtype, factors=factors)
    operands = problem.epilogue.operand_names
    main = tiles.launch(configuration, source, "batched_local", sizes, ("a", "b"), operands, aligned=True, added=())
    return Instance(main, scratch=tiles.stored(configuration))


def _reads_in_place(problem: BatchedMatMulProblem, width: int) -> bool:
    """Return whether vectors of `width` columns can be read from b as it lies."""
    return problem.b_steps[-1] == 1 and width <= problem.n


def _matrices(problem: BatchedMatMulProblem) -> int:
    """Return how many different matrices b holds."""
    return different(problem.batch, problem.b_steps[:-2])


def _distances(problem: BatchedMatMulProblem, packs: bool) -> Iterator[int]:
    """Elements between what the register tiles access in vectors: columns, and rows and matrices as they lie."""
    yield problem.n
    if problem.output_steps[-1] == 1:
        yield from _output_distances(problem)
    if not packs:
        yield from _outer_steps(problem.sides[1], problem.b_steps)
        yield problem.starts[1]


def _output_distances(problem: BatchedMatMulProblem) -> Iterator[int]:
    """Elements between rows and matrices of the output, and of the operands that are read along rows."""
    for steps in (problem.output_steps, *problem.operand_steps):
        if steps[-1]:
            yield from _outer_steps(problem.shape, steps)


def _outer_steps(sizes: Sequence[int], steps: Steps) -> Iterator[int]:
    """Return the steps of all axes but the last that have more than one element."""
    return (step for size, step in zip(sizes[:-1], steps[:-1], strict=True) if size > 1)


def _sizes(problem: BatchedMatMulProblem) -> dict[str, int]:
    """Sizes, and the steps inside of matrices."""
    (am, ak), (bk, bn), (om, on) = problem.a_steps[-2:], problem.b_steps[-2:], problem.output_steps[-2:]
    sizes = {"M": problem.m, "K": problem.k, "N": problem.n, "BATCH": problem.products}
    return sizes | {"A_M": am, "A_K": ak, "B_K": bk, "B_N": bn, "OUT_M": om, "OUT_N": on}


def _prelude(problem: BatchedMatMulProblem) -> str:
    """Return where each product's matrices lie, and the chain with its operands at their own steps, as macros."""
    batch, b_steps = problem.batch, problem.b_steps[:-2]
    own = [size if step else 1 for size, step in zip(batch, b_steps, strict=True)]
    numbers = [math.prod(own[axis + 1 :]) if step else 0 for axis, step in enumerate(b_steps)]
    parameters, operands = [], []
    for i, (*steps, down, across) in enumerate(problem.operand_steps):
        parameters.append(f", __global const TYPE *restrict operand{i}")
        at = f"{place('g', batch, steps)} + (m) * {down} + (n) * {across}"
        operands.append(f"LOAD(operand{i}, {at})" if across else f"(T)ELEMENT(operand{i}, {at})")
    macros = {
        "A_AT(g)": f"({problem.starts[0]} + {place('g', batch, problem.a_steps[:-2])})",
        "B_AT(g)": f"({problem.starts[1]} + {place('g', batch, b_steps)})",
        "OUT_AT(g)": place("g", batch, problem.output_steps[:-2]),
        "PACKED_AT(g)": place("g", batch, numbers),
        "PACKED_FROM(p)": f"({problem.starts[1]} + {place('p', own, b_steps)})",
        "OPERAND_PARAMETERS": "".join(parameters),
        "EPILOGUE(value, T, LOAD, g, m, n)": f"{{ {problem.epilogue.source('(value)', operands)} }}",
    }
    return "".join(f"#define {name} {text}\n" for name, text in macros.items())


FAMILY = BatchedMatMulFamily()
