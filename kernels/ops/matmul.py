"""Multiply matrices: by constant weights, with bias and a fused chain, or batches of computed ones, each read in place.

matmul_tiled.cl computes tiles in registers. Two templates are for GPUs: in matmul_local.cl work-groups compute tiles in
local memory, and matmul_skinny.cl multiplies few rows by weights.

output[g, m, n] = epilogue(sum over k of a[g, m, k] * b[g, k, n] + bias[n])

Weights are packed once. The columns of their a may lie in several tensors, so that what a Concat would join is read in
place. Transposed and broadcast computed operands only have other steps, so they are not copied; a step of 0 repeats
elements.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from gputune.core.dtypes import FLOAT
from gputune.kernels.algorithms import ALG, Algorithms, ProductFamily, check_factors
from gputune.kernels.chain import EMPTY, Chain
from gputune.kernels.family import (
    ADDED,
    ALONE,
    Array,
    DeviceLimits,
    Estimate,
    Instance,
    Launch,
    Problem,
    Stage,
    TensorSpec,
    Tolerance,
    Work,
)
from gputune.kernels.indexing.steps import (
    Places,
    Side,
    Steps,
    as_it_lies,
    different,
    lies_along,
    outer_steps,
    place,
    reach,
    reach_each_once,
    vector,
    view,
    whole_shape,
)
from gputune.kernels.pointers import aligned
from gputune.kernels.space import Configuration, Constraint, Parameter, TuningSpace
from gputune.kernels.template import defines, template
from gputune.kernels.tiling.estimate import WIDEST, Card, handing_over
from gputune.kernels.tiling.local_tiles import LocalTiles
from gputune.kernels.tiling.packing import Packing, Quantised, QuantisedPacking
from gputune.kernels.tiling.skinny import MOST_ROWS, Skinny
from gputune.kernels.tiling.streaming import ceil_div, check_indices, round_up
from gputune.kernels.tiling.tiles import FEW_ROWS, Tiling
from gputune.kernels.tiling.workgroups import TiledKernel

MOST_PARTS = 4
"""Each part has loops of its own, which compilers unroll; with more they take too long."""

TILED, LOCAL, SKINNY = 0, 1, 2
MEANING = "algorithm: 0 a work-item's tiles in registers, 1 a work-group's tiles in local memory, 2 few rows"
KEPT, KEPT_MEANING = "KEPT", "quantised weights: 1 read as they are, 0 widened once, when they are packed"
KEPT_ROWS = 32
"""Up to so many rows a default reads quantised weights as they are: then more is gained than converting them costs."""
ENTRIES = {TILED: "matmul_tiled", LOCAL: "matmul_local", SKINNY: "matmul_skinny"}

PACKED_ROWS = 16
"""Rows of a computed b that a work-item packs where work-groups are of one work-item."""


@dataclass(frozen=True)
class MatMulProblem(Problem):
    """a[m, k] x b[k, n] + bias[n]; b and bias are constant, the epilogue's operands are [m, n].

    With `parts`, a is there as the tensors a0[m, parts[0]], a1[m, parts[1]], ... which lie side by side in it. With
    `places`, b is computed, and there is such a product for all of a batch. `factors` is the type in which products may
    be multiplied. `quantised` says how a constant b is stored that is no float.
    """

    op = "MatMul"

    m: int
    k: int
    n: int
    bias: bool = False
    epilogue: Chain = EMPTY
    dtype: str = FLOAT
    parts: tuple[int, ...] = ()
    factors: str = field(default=FLOAT, metadata=ADDED)
    places: Places | None = field(default=None, metadata=ADDED)
    quantised: Quantised | None = field(default=None, metadata=ADDED)

    def check(self) -> None:
        batch, rank = self.lies.batch, len(self.lies.batch) + 2
        if min(self.m, self.k, self.n, *batch) < 1:
            of = f"{batch} of " if self.places else ""
            raise ValueError(f"MatMul needs positive sizes, not {of}m={self.m} k={self.k} n={self.n}")
        check_factors("MatMul", self.dtype, self.factors)
        if self.quantised and (self.places or self.parts or self.factors != FLOAT):
            raise ValueError("MatMul has quantised weights only if they are constant, a is whole and factors float")
        if self.places and (self.parts or self.bias):
            raise ValueError("MatMul has parts and a bias only if its right side is constant")
        if self.parts and not 2 <= len(self.parts) <= MOST_PARTS:
            raise ValueError(f"MatMul reads 2 to {MOST_PARTS} parts, not {len(self.parts)}")
        if self.parts and (min(self.parts) < 1 or sum(self.parts) != self.k):
            raise ValueError(f"MatMul needs parts of positive width that make k={self.k} together, not {self.parts}")
        if self.places is None and not {*self.epilogue.operand_channels.values()} <= {1, self.n}:
            raise ValueError(f"MatMul has operands of its n={self.n} columns, not {self.epilogue.operand_channels}")
        every = (self.lies.a_steps, self.lies.b_steps, self.lies.output_steps, *self.lies.operand_steps)
        if any(len(steps) != rank or min(steps) < 0 for steps in every):
            raise ValueError(f"MatMul needs {rank} steps per tensor, none negative, not {every}")
        if len(self.lies.operand_steps) != self.epilogue.operands:
            raise ValueError(f"MatMul needs steps for {self.epilogue.operands} operands")
        if self.lies.output_steps[-1] == 1 and any(steps[-1] > 1 for steps in self.lies.operand_steps):
            raise ValueError("MatMul reads its operands along rows, as it writes its output")
        for name, (sizes, steps, start), elements in zip("ab", self.sides, self.lies.elements, strict=True):
            if start < 0 or start + reach(sizes, steps) > elements:
                raise ValueError(f"MatMul would read beyond the {elements} elements of {name}")
        if not reach_each_once(self.shape, self.lies.output_steps):
            raise ValueError(f"MatMul's output steps {self.lies.output_steps} do not reach each element once")
        check_indices("MatMul", self.shape, *((elements,) for elements in self.lies.elements))

    @property
    def weights(self) -> bool:
        """Whether b is constant."""
        return self.places is None

    @property
    def lies(self) -> Places:
        """Where all elements lie: row by row, if the right side is constant. An operand of the epilogue may have one
        number for each column, or one for all."""
        m, k, n = self.m, self.k, self.n
        rows, channels = (n, 1), self.epilogue.operand_channels
        repeated = [
            (0, int(channels[each] > 1)) if each in channels else rows for each in range(self.epilogue.operands)
        ]
        return self.places or Places((), (k, 1), rows, rows, (m * k, k * n), tuple(repeated))

    @property
    def shape(self) -> tuple[int, ...]:
        """Batch, rows and columns of the products."""
        return (*self.lies.batch, self.m, self.n)

    @property
    def sides(self) -> tuple[Side, Side]:
        """How a and b lie."""
        batch, (a_start, b_start) = self.lies.batch, self.lies.starts
        a, b = (*batch, self.m, self.k), (*batch, self.k, self.n)
        return (a, self.lies.a_steps, a_start), (b, self.lies.b_steps, b_start)

    @property
    def products(self) -> int:
        """How many matrices the output holds."""
        return math.prod(self.lies.batch)

    @property
    def matrices(self) -> int:
        """How many different matrices b holds."""
        return different(self.lies.batch, self.lies.b_steps[:-2])

    @property
    def lefts(self) -> dict[str, int]:
        """The tensors that a is there in, by name, and how many of its columns each has."""
        return {f"a{i}": width for i, width in enumerate(self.parts)} or {"a": self.k}


class MatMulFamily(ProductFamily):
    """Three algorithms. Weights are packed. Of a computed b, the first algorithm reads columns that a stage packs, or
    rows where they lie."""

    op = MatMulProblem.op

    def inputs(self, problem: MatMulProblem) -> tuple[TensorSpec, ...]:
        m, k, n, lies = problem.m, problem.k, problem.n, problem.lies
        shapes: dict[str, tuple[int, ...]] = {}
        if problem.weights:
            shapes.update({name: (m, width) for name, width in problem.lefts.items()})
            shapes.update({"b": (k, n)} | ({"bias": (n,)} if problem.bias else {}))
        else:
            sides = zip("ab", lies.elements, problem.sides, strict=True)
            shapes.update({name: whole_shape(elements, sizes, steps) for name, elements, (sizes, steps, _) in sides})
        for name, steps in zip(problem.epilogue.operand_names, lies.operand_steps, strict=True):
            whole = problem.weights and all(steps)
            shapes[name] = (m, n) if whole else (reach(problem.shape, steps),)
        constants = ("b", "bias") if problem.weights else ()
        specs = tuple(problem.tensor(name, shape, name in constants) for name, shape in shapes.items())
        kept = problem.quantised.inputs(k, n, problem.dtype) if problem.quantised else ()
        return tuple(each for spec in specs for each in (kept if kept and spec.name == "b" else (spec,)))

    def output(self, problem: MatMulProblem) -> TensorSpec:
        return problem.tensor("output", as_it_lies(problem.shape, problem.lies.output_steps))

    def ways(self, problem: MatMulProblem, factors: str) -> Algorithms:
        ways = _ways(problem, factors)
        widened = Algorithms(ways, MEANING, frozenset({LOCAL, SKINNY}), frozenset({LOCAL}))
        if problem.quantised is None:
            return widened
        kept = replace(widened, ways={number: way for number, way in ways.items() if number != LOCAL})
        if problem.m <= MOST_ROWS:
            return kept
        both = {1: kept, 0: widened} if problem.m <= KEPT_ROWS else {0: widened, 1: kept}
        return Algorithms(both, KEPT_MEANING, parameter=KEPT)

    def multiplied(self, problem: MatMulProblem, configuration: Configuration, factors: str) -> Instance:
        algorithm, operands = configuration.get(ALG, TILED), problem.epilogue.operand_names
        way, entry = _ways(problem, factors)[algorithm], ENTRIES[algorithm]
        packs = problem.weights or (algorithm == TILED and bool(configuration["PACK"]))
        inputs = (*problem.lefts, "packed" if packs else "b")
        kept = problem.quantised if configuration.get(KEPT, 1) else None
        text = template(f"{entry}.cl", dtype=problem.dtype, factors=factors, quantised=kept is not None)
        # Computed factors come into local memory in vectors that are aligned; then outputs that are not are stored one
        # by one.
        whole = aligned(configuration["VW"], *_distances(problem, algorithm, packs))
        apart = algorithm == LOCAL and not problem.weights
        vectors = problem.lies.output_steps[-1] == 1 and (whole or not apart)
        sizes = _sizes(problem) | {"OUT_VECTORS": int(vectors)}
        if kept:
            ahead = configuration.get("PF", 0) if kept.bits == 8 and problem.m <= FEW_ROWS else 0
            sizes |= kept.macros | {"Q_AHEAD": ahead}
            configuration = {**configuration, "PF": 0}
        kernel = TiledKernel(_prelude(problem) + text, entry, sizes, inputs, operands, whole or apart)
        main = way.launch(configuration, kernel)
        if not problem.weights:
            return Instance(main, scratch=way.stored(configuration))
        packing: Packing | QuantisedPacking
        packing = plain = _tiling(problem).packing(*(configuration[name] for name in ("NV", "VW", "LN")))
        if problem.quantised:
            packing = QuantisedPacking(problem.quantised, plain, configuration["VW"], widened=kept is None)
        prepare = packing.launch("b", problem.bias)
        return Instance(main, (prepare,), {"packed": packing.nbytes}, way.stored(configuration))

    def computing(self, problem: MatMulProblem, dtype: str) -> MatMulProblem:
        return problem if problem.quantised else replace(problem, factors=dtype)

    def sample_inputs(self, problem: MatMulProblem, generator: np.random.Generator) -> dict[str, Array]:
        """As everywhere, with a computed b in the place of weights, so that sums are around one."""
        inputs = super().sample_inputs(problem, generator)
        if problem.quantised:
            whole = problem.epilogue.of_whole
            inputs |= problem.quantised.sample(problem.k, problem.n, problem.dtype, generator, whole)
        if not problem.weights:
            inputs["b"] *= 1 / problem.k if problem.epilogue.has_domain else problem.k**-0.5
        return inputs

    def reference(self, problem: MatMulProblem, inputs: Mapping[str, Array]) -> Array:
        """numpy's product in float64 of views with these steps."""
        left = np.concatenate([inputs[name] for name in problem.lefts], axis=-1)
        right = problem.quantised.weights(inputs, problem.k, problem.n) if problem.quantised else inputs["b"]
        a, b = (
            view(each.astype(np.float64).reshape(-1)[start:], sizes, steps)
            for each, (sizes, steps, start) in zip((left, right), problem.sides, strict=True)
        )
        total = a @ b + (inputs["bias"] if problem.bias else 0)
        operands = [
            view(inputs[name], problem.shape, steps)
            for name, steps in zip(problem.epilogue.operand_names, problem.lies.operand_steps, strict=True)
        ]
        result = np.empty(self.output(problem).shape, problem.dtype)
        view(result, problem.shape, problem.lies.output_steps)[...] = problem.epilogue.apply(total, operands)
        return result

    def work(self, problem: MatMulProblem) -> Work:
        each = 2 * problem.k + problem.bias + len(problem.epilogue.steps)
        outputs = math.prod(problem.shape)
        moved = outputs + problem.bias * problem.n
        moved += sum(different(sizes, steps) for sizes, steps, _ in problem.sides)
        moved += sum(different(problem.shape, steps) for steps in problem.lies.operand_steps)
        nbytes = moved * problem.element.nbytes
        if problem.quantised:
            nbytes += problem.quantised.nbytes(problem.k, problem.n, problem.dtype)
            nbytes -= problem.k * problem.n * problem.element.nbytes
        return Work(outputs * each, nbytes)

    def tolerance(self, problem: MatMulProblem) -> Tolerance:
        return Tolerance.of(problem.dtype, relative=5e-6 + 2e-6 * math.sqrt(problem.k), absolute=1e-5)


@dataclass(frozen=True)
class _Computed:
    """A work-item's tiles in registers, over columns of a computed b that are packed, or its rows where they lie."""

    problem: MatMulProblem

    def space(self, limits: DeviceLimits) -> TuningSpace:
        problem, tiled = self.problem, _tiling(self.problem).space(limits)
        pack = Parameter("PACK", (1, 0), "1: the right side is packed first, 0: it is read where it lies")
        return TuningSpace(
            (*tiled.parameters, pack),
            (
                *tiled.constraints,
                Constraint(
                    ("PACK", "VW"),
                    lambda packs, width: bool(packs) or self._can_read(width),
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
        nbytes = problem.matrices * problem.k * problem.n * problem.element.nbytes
        packing = handing_over(nbytes, Card.of(limits))
        return lambda configuration: product(configuration) + configuration["PACK"] * packing

    def launch(self, configuration: Configuration, kernel: TiledKernel) -> Launch:
        """Return the launch of the tiles, with the stage that packs if there is one."""
        (lm, ln), depth, matrices = (
            (configuration[name] for name in ("LM", "LN")),
            self.problem.k,
            self.problem.matrices,
        )
        run = PACKED_ROWS if lm * ln == 1 else 1
        main = _tiling(self.problem).launch({**configuration, "RUN": run, "MATRICES": matrices}, kernel)
        size = round_up(ceil_div(depth, run), ln), round_up(matrices * self._columns(configuration)[1] * ln, lm)
        stage = Stage("pack_right", size, (ln, lm), ("b", "packed"), needs=ALONE, writes=("packed",))
        return replace(main, stages=(stage,)) if configuration["PACK"] else main

    def stored(self, configuration: Configuration) -> dict[str, int]:
        """Return what a configuration keeps in `scratch`: columns that a stage packs."""
        problem, (panel, panels) = self.problem, self._columns(configuration)
        elements = problem.matrices * panels * panel * problem.k
        return {"packed": elements * problem.element.nbytes} if configuration["PACK"] else {}

    def _columns(self, configuration: Configuration) -> tuple[int, int]:
        """Return how many columns a panel has, and how many panels there are of a matrix."""
        panel = math.prod(configuration[name] for name in ("NV", "VW", "LN"))
        return panel, ceil_div(self.problem.n, panel)

    def _can_read(self, width: int) -> bool:
        """Return whether vectors of `width` columns can be read from b as it lies."""
        return self.problem.lies.b_steps[-1] == 1 and width <= self.problem.n

    def _packs_for_reasons(self) -> Constraint:
        """Beyond CPUs. Packing is another launch, and all that it gives there is that vectors are aligned."""

        def is_aligned(width: int, packs: bool) -> bool:
            return aligned(width, *_distances(self.problem, TILED, packs))

        return Constraint(
            ("PACK", "VW"),
            lambda packs, width: (
                not packs or not self._can_read(width) or (is_aligned(width, True) and not is_aligned(width, False))
            ),
            "PACK 1 is for columns that cannot be read in place, or not in aligned vectors",
        )

    def _in_place(self, tile: dict[str, int]) -> dict[str, int]:
        """Return the tile, with b read in place if it can be."""
        return tile | {"PACK": int(not self._can_read(tile["VW"]))}


def _tiling(problem: MatMulProblem) -> Tiling:
    """Only sizes of a computed b: where its elements come from is for the stage to know."""
    down, along = problem.lies.a_steps[-2:]
    return Tiling(
        rows=problem.m,
        columns=problem.n,
        reduction=problem.k,
        output_stride=1,
        input_stride=problem.n,
        groups=problem.products,
        matrices=problem.matrices,
        splits=problem.weights,
        prefetches=problem.weights,
        pitch=down if along == 1 and not problem.parts else 0,
        dtype=problem.dtype,
    )


def _ways(problem: MatMulProblem, factors: str) -> dict[int, "Tiling | _Computed | LocalTiles | Skinny"]:
    """Return the algorithms that multiply in a type."""
    registers = _tiling(problem) if problem.weights else _Computed(problem)
    ways: dict[int, Tiling | _Computed | LocalTiles | Skinny] = {
        TILED: registers,
        LOCAL: _local_tiles(problem, factors),
    }
    if problem.weights and problem.m <= MOST_ROWS:
        sizes = problem.m, problem.n, problem.k
        ways[SKINNY] = Skinny(*sizes, _left_width(problem), problem.dtype, _tiling(problem).packing)
    return ways


def _local_tiles(problem: MatMulProblem, factors: str) -> LocalTiles:
    """Vectors along the axes on which a and b lie side by side, as wide as they begin at multiples of their width."""
    left, right = problem.sides
    left_deep = problem.weights or lies_along(left, -1, -2)
    right_deep = not problem.weights and lies_along(right, -2, -1)
    return LocalTiles(
        problem.m,
        problem.n,
        problem.k,
        left_width=_left_width(problem) if left_deep else vector(left, -2, WIDEST),
        left_deep=left_deep,
        right_width=WIDEST if problem.weights else vector(right, -2 if right_deep else -1, WIDEST),
        right_deep=right_deep,
        matrices=problem.products,
        dtype=problem.dtype,
        factors=factors,
        packing=_tiling(problem).packing if problem.weights else None,
    )


def _left_width(problem: MatMulProblem) -> int:
    """Elements of a row of a that are read at once; they do not reach into another part."""
    return math.gcd(WIDEST, *problem.parts) if problem.parts else vector(problem.sides[0], -1, WIDEST)


def _distances(problem: MatMulProblem, algorithm: int, packs: bool) -> Iterator[int]:
    """Elements between what a kernel accesses in vectors: columns, and rows and matrices as they lie. Tiles in local
    memory read computed factors in vectors that are aligned."""
    if problem.weights or algorithm == TILED:
        yield problem.n
    if problem.lies.output_steps[-1] == 1:
        for steps in (problem.lies.output_steps, *problem.lies.operand_steps):
            if steps[-1]:
                yield from outer_steps(problem.shape, steps)
    if not packs and algorithm == TILED:
        sizes, steps, start = problem.sides[1]
        yield from (*outer_steps(sizes, steps), start)


def _sizes(problem: MatMulProblem) -> dict[str, int]:
    """Sizes, and the steps inside of matrices."""
    names = ("A_M", "A_K", "B_K", "B_N", "OUT_M", "OUT_N")
    lies = problem.lies
    steps = (*lies.a_steps[-2:], *lies.b_steps[-2:], *lies.output_steps[-2:])
    sizes = {"M": problem.m, "K": problem.k, "N": problem.n, "BATCH": problem.products}
    return sizes | {"WEIGHTS": int(problem.weights)} | dict(zip(names, steps, strict=True))


def _prelude(problem: MatMulProblem) -> str:
    """Return where each product's matrices lie, the chain with its operands at their own steps, and the parts of a, as
    macros."""
    lies = problem.lies
    batch, b_steps = lies.batch, lies.b_steps[:-2]
    own = [size if step else 1 for size, step in zip(batch, b_steps, strict=True)]
    numbers = [math.prod(own[axis + 1 :]) if step else 0 for axis, step in enumerate(b_steps)]
    names = problem.epilogue.operand_names
    operands = [_operand(problem, name, steps) for name, steps in zip(names, lies.operand_steps, strict=True)]
    macros = {
        "A_AT(g)": f"({lies.starts[0]} + {place('g', batch, lies.a_steps[:-2])})",
        "B_AT(g)": f"({lies.starts[1]} + {place('g', batch, b_steps)})",
        "OUT_AT(g)": place("g", batch, lies.output_steps[:-2]),
        "PACKED_AT(g)": place("g", batch, numbers),
        "PACKED_FROM(p)": f"({lies.starts[1]} + {place('p', own, b_steps)})",
        "OPERAND_PARAMETERS": "".join(f", __global const TYPE *restrict {name}" for name in names),
        "EPILOGUE(value, T, LOAD, g, m, n)": f"{{ {problem.epilogue.source('(value)', operands)} }}",
    }
    if problem.parts:
        macros |= _parts(problem)
    return defines(macros)


def _operand(problem: MatMulProblem, name: str, steps: Steps) -> str:
    """Return how the epilogue reads an operand: in vectors, or one element for all columns."""
    *outer, down, across = steps
    at = f"{place('g', problem.lies.batch, outer)} + (m) * {down} + (n) * {across}"
    if steps == problem.lies.output_steps:
        at = "OUT_AT(g) + (m) * OUT_M + (n) * OUT_N"  # the same text for all sizes
    return f"LOAD({name}, {at})" if across else f"(T)ELEMENT({name}, {at})"


def _parts(problem: MatMulProblem) -> dict[str, str]:
    """Return the parts' parameters, the first and the others, and the element k of a row."""
    element, begins, parts = "", 0, problem.lefts
    for name, width in parts.items():
        begins += width
        more = f"(k) < {begins} ? " if begins < problem.k else ""
        element += f"{more}LOAD({name}, (row) * {width} + (k) - {begins - width}){' : ' if more else ''}"
    (first, first_width), *others = parts.items()
    return {
        "PART_PARAMETERS": "".join(f"__global const TYPE *restrict {name}, " for name in parts),
        "FIRST_PART": first,
        "FIRST_WIDTH": str(first_width),
        "FIRST_PITCH": "FIRST_WIDTH",
        "PART_LOAD(row, k, LOAD)": f"({element})",
        "OTHER_PARTS": " ".join(f"PART({name}, {width})" for name, width in others),
    }


FAMILY = MatMulFamily()
