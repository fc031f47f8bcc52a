"""Compute attention in one kernel: scores of queries and keys, their softmax, and the values that it weighs.

score[g, m, n]  = scores(sum over k of query[g, m, k] * key[g, n, k])
output[g, m, c] = sum over n of softmax(score)[g, m, n] * value[g, n, c]

The kernel is the fused form of a MatMul, a Softmax and another MatMul task: no matrix of scores lies in memory. Keys
come a block at a time, and the softmax is corrected where a later block has a larger maximum. Sources: Milakov,
Gimelshein: Online normalizer calculation for softmax (2018); Dao, Fu, Ermon, Rudra, Re: FlashAttention (2022).

In attention_rows.cl a work-item has rows of its own, as CPUs want it. In attention_local.cl, which is for GPUs, those
of a work-group lie in local memory.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from gputune.core.dtypes import FLOAT
from gputune.kernels.algorithms import ALG, Algorithms, Way
from gputune.kernels.chain import EMPTY, Chain
from gputune.kernels.family import (
    ALONE,
    Array,
    DeviceLimits,
    Estimate,
    Instance,
    Launch,
    Problem,
    Stage,
    TensorSpec,
    TiledFamily,
    Tolerance,
    Work,
)
from gputune.kernels.indexing.attending import OWN_TILE, SHARED_TILE, Attended, OwnRows, SharedRows
from gputune.kernels.indexing.steps import (
    Steps,
    as_it_lies,
    different,
    outer_steps,
    place,
    reach,
    reach_each_once,
    view,
    whole_shape,
)
from gputune.kernels.pointers import aligned
from gputune.kernels.space import Configuration
from gputune.kernels.template import build_options, defines, template
from gputune.kernels.tiling.estimate import WIDEST
from gputune.kernels.tiling.streaming import ceil_div, check_indices

READ = ("query", "key", "value")
BOOLS = ("hidden", "zeroed")
OWN, SHARED = 0, 1
MEANING = "algorithm: 0 rows of a work-item, 1 rows of a work-group in local memory"


@dataclass(frozen=True)
class AttentionPlaces:
    """Where the elements of a batch lie: each tensor has steps for (*batch, row, number).

    Rows are those of queries in the query and the output, and keys in the key and the value. An operand of the scores
    has steps for (*batch, query, key). `elements` counts those of query, key and value, which begin at `starts`. If
    there are bools that say which rows of the output are zero, they have steps for (*batch, row). If there are bools
    that hide scores, they have steps for (*batch, query, key).
    """

    batch: tuple[int, ...]
    query_steps: Steps
    key_steps: Steps
    value_steps: Steps
    output_steps: Steps
    elements: tuple[int, int, int]
    operand_steps: tuple[Steps, ...] = ()
    starts: tuple[int, int, int] = (0, 0, 0)
    zeroed_steps: Steps | None = None
    hidden_steps: Steps | None = None


@dataclass(frozen=True)
class AttentionProblem(Problem):
    """`rows` queries and `keys` keys of `depth` numbers each, and values of `columns`, for all of a batch.

    `scores` is what becomes of a product before the softmax: a scale, masks to add. Behind that, bools may hide scores,
    and show them where they are `shown`: the number "hidden_score" is in the place of the others. With `masked`, a row
    of nothing but minus infinity has zeros, and not NaN, as its shares.
    """

    op = "Attention"

    rows: int
    keys: int
    depth: int
    columns: int
    places: AttentionPlaces
    scores: Chain = EMPTY
    masked: bool = False
    shown: bool = False
    dtype: str = FLOAT

    def check(self) -> None:
        places, rank = self.places, len(self.places.batch) + 2
        if min(self.rows, self.keys, self.depth, self.columns, *places.batch) < 1:
            raise ValueError(
                f"Attention needs positive sizes, not {places.batch} of rows={self.rows} keys={self.keys} "
                f"depth={self.depth} columns={self.columns}"
            )
        across = (*places.operand_steps, *([] if places.hidden_steps is None else [places.hidden_steps]))
        every = (*self.steps.values(), places.output_steps, *across)
        if any(len(steps) != rank or min(steps) < 0 for steps in every):
            raise ValueError(f"Attention needs {rank} steps per tensor, none negative, not {every}")
        if places.zeroed_steps is not None and len(places.zeroed_steps) != rank - 1:
            raise ValueError(f"Attention needs {rank - 1} steps to know which rows are zero")
        if len(places.operand_steps) != self.scores.operands:
            raise ValueError(f"Attention needs steps for {self.scores.operands} operands")
        beside = (places.value_steps, places.output_steps)
        if self.columns > 1 and any(steps[-1] != 1 for steps in beside):
            raise ValueError("Attention needs columns of values and of the output that lie side by side")
        if any(steps[-1] > 1 for steps in across):
            raise ValueError("Attention reads its operands along keys")
        for name, elements, start in zip(READ, places.elements, places.starts, strict=True):
            if start < 0 or start + reach(self.sizes[name], self.steps[name]) > elements:
                raise ValueError(f"Attention would read beyond the {elements} elements of {name}")
        if not reach_each_once(self.shape, places.output_steps):
            raise ValueError(f"Attention's output steps {places.output_steps} do not reach each element once")
        check_indices("Attention", self.shape, *((elements,) for elements in places.elements))

    @property
    def shape(self) -> tuple[int, ...]:
        """Batch, rows and columns of the output."""
        return (*self.places.batch, self.rows, self.columns)

    @property
    def square(self) -> tuple[int, ...]:
        """Batch, queries and keys of the scores."""
        return (*self.places.batch, self.rows, self.keys)

    @property
    def sizes(self) -> Mapping[str, tuple[int, ...]]:
        """Batch, rows and numbers of what is read."""
        shapes = ((self.rows, self.depth), (self.keys, self.depth), (self.keys, self.columns))
        return {name: (*self.places.batch, *shape) for name, shape in zip(READ, shapes, strict=True)}

    @property
    def steps(self) -> Mapping[str, Steps]:
        """The steps of what is read."""
        places = self.places
        return dict(zip(READ, (places.query_steps, places.key_steps, places.value_steps), strict=True))

    @property
    def products(self) -> int:
        """How many matrices the output holds."""
        return math.prod(self.places.batch)

    @property
    def matrices(self) -> int:
        """How many different matrices the key holds."""
        return different(self.places.batch, self.places.key_steps[:-2])


class AttentionFamily(TiledFamily):
    """Two templates, of which CPUs have the first. Others have it where nothing fits local memory."""

    op = AttentionProblem.op

    def inputs(self, problem: AttentionProblem) -> tuple[TensorSpec, ...]:
        places = problem.places
        shapes = {
            name: whole_shape(elements, problem.sizes[name], problem.steps[name])
            for name, elements in zip(READ, places.elements, strict=True)
        }
        for name, steps in zip(problem.scores.operand_names, places.operand_steps, strict=True):
            shapes[name] = (reach(problem.square, steps),)
        specs = [problem.tensor(name, shape) for name, shape in shapes.items()]
        if places.hidden_steps is not None:
            specs.append(TensorSpec("hidden", (reach(problem.square, places.hidden_steps),), dtype="bool"))
            specs.append(problem.tensor("hidden_score", (1,)))
        if places.zeroed_steps is not None:
            specs.append(TensorSpec("zeroed", (reach(problem.shape[:-1], places.zeroed_steps),), dtype="bool"))
        return tuple(specs)

    def output(self, problem: AttentionProblem) -> TensorSpec:
        return problem.tensor("output", as_it_lies(problem.shape, problem.places.output_steps))

    def tiling(self, problem: AttentionProblem) -> Algorithms:
        sizes = _attended(problem)
        ways: dict[int, Way] = {OWN: OwnRows(sizes), SHARED: SharedRows(sizes)}
        return Algorithms(ways, MEANING, frozenset({SHARED}), frozenset({SHARED}))

    def estimate(self, problem: AttentionProblem, limits: DeviceLimits) -> Estimate | None:
        return None if limits.device_type == "cpu" else self.tiling(problem).estimate(limits)

    def render(self, problem: AttentionProblem, configuration: Configuration) -> Instance:
        shared = configuration.get(ALG, OWN) == SHARED
        return _shared_rows(problem, configuration) if shared else _own_rows(problem, configuration)

    def pays(self, problem: AttentionProblem, limits: DeviceLimits) -> bool:
        """On CPUs, where each core has rows: attention alone takes 0.5 to 0.8 times as long as its parts."""
        own = OwnRows(_attended(problem))
        return limits.device_type == "cpu" and own.tiles(own.default(limits)["MR"]) >= limits.compute_units

    def sample_inputs(self, problem: AttentionProblem, generator: np.random.Generator) -> dict[str, Array]:
        """As everywhere, with keys by which scores are around one."""
        inputs = super().sample_inputs(problem, generator)
        inputs["key"] *= 1 / problem.depth if problem.scores.has_domain else problem.depth**-0.5
        return inputs

    def reference(self, problem: AttentionProblem, inputs: Mapping[str, Array]) -> Array:
        """numpy's products in float64 of views with these steps, with the whole matrix of scores."""
        query, key, value = (
            view(inputs[name].astype(np.float64).reshape(-1)[start:], problem.sizes[name], problem.steps[name])
            for name, start in zip(READ, problem.places.starts, strict=True)
        )
        operands = [
            view(inputs[name], problem.square, steps)
            for name, steps in zip(problem.scores.operand_names, problem.places.operand_steps, strict=True)
        ]
        with np.errstate(invalid="ignore", over="ignore"):
            products = (query @ np.swapaxes(key, -1, -2)).astype(np.float32)
            scores = problem.scores.apply(products, operands).astype(np.float64)
            if problem.places.hidden_steps is not None:
                hidden = view(inputs["hidden"], problem.square, problem.places.hidden_steps) != problem.shown
                scores = np.where(hidden, inputs["hidden_score"].astype(np.float64), scores)
            exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
            shares = exponentials / exponentials.sum(axis=-1, keepdims=True)
            shares = np.where(np.isnan(shares), 0, shares) if problem.masked else shares
            result = np.empty(self.output(problem).shape, problem.dtype)
            sums = shares @ value
            if problem.places.zeroed_steps is not None:
                zeroed = view(inputs["zeroed"], problem.shape[:-1], problem.places.zeroed_steps)
                sums = np.where(zeroed[..., np.newaxis], 0, sums)
            view(result, problem.shape, problem.places.output_steps)[...] = sums
        return result

    def work(self, problem: AttentionProblem) -> Work:
        scores, outputs = math.prod(problem.square), math.prod(problem.shape)
        each = 2 * problem.depth + len(problem.scores.steps) + 5
        moved = outputs + sum(different(problem.sizes[name], problem.steps[name]) for name in READ)
        moved += sum(different(problem.square, steps) for steps in problem.places.operand_steps)
        return Work(scores * each + outputs * 2 * problem.keys, moved * problem.element.nbytes)

    def tolerance(self, problem: AttentionProblem) -> Tolerance:
        longest = max(problem.keys, problem.depth)
        return Tolerance.of(problem.dtype, relative=2e-5 + 2e-6 * math.sqrt(longest), absolute=1e-5)


def _attended(problem: AttentionProblem) -> Attended:
    return Attended(
        problem.rows,
        problem.keys,
        problem.depth,
        problem.columns,
        problem.products,
        problem.matrices,
        deep=problem.keys == 1 or problem.places.key_steps[-2] == 1,
        wide=_in_vectors(problem)["KEY"],
        dtype=problem.dtype,
    )


def _own_rows(problem: AttentionProblem, configuration: Configuration) -> Instance:
    """Return the launch of rows of work-items, with the stage that packs keys if there is one."""
    way, packs = OwnRows(_attended(problem)), configuration["PACK"]
    across = ceil_div(problem.keys, configuration["NV"] * configuration["VW"])
    stage = Stage("pack_keys", (across, problem.matrices), (1, 1), ("key", "packed"), needs=ALONE, writes=("packed",))
    main = Launch(
        source=_prelude(problem) + template("attention_rows.cl", dtype=problem.dtype),
        entry="attention_rows",
        needs=ALONE,
        writes=("output",),
        aligned=aligned(configuration["VW"], *_distances(problem, packs)),
        options=build_options(_sizes(problem) | {name: configuration[name] for name in OWN_TILE}),
        global_size=(ceil_div(problem.rows, configuration["MR"]), problem.products),
        local_size=(1, 1),
        arguments=("query", "packed" if packs else "key", "value", "output", *_beside(problem)),
        stages=(stage,) if packs else (),
    )
    return Instance(main, scratch=way.stored(configuration))


def _shared_rows(problem: AttentionProblem, configuration: Configuration) -> Instance:
    """Return the launch of rows of work-groups."""
    items = configuration["LM"] * configuration["LN"]
    wide = {f"WIDE_{name}": int(is_wide) for name, is_wide in _in_vectors(problem).items()}
    main = Launch(
        source=_prelude(problem) + template("attention_local.cl", dtype=problem.dtype),
        entry="attention_local",
        needs=SharedRows(_attended(problem)).declared.of(configuration),
        writes=("output",),
        aligned=True,
        options=build_options(_sizes(problem) | wide | {name: configuration[name] for name in SHARED_TILE}),
        global_size=(items * ceil_div(problem.rows, configuration["MR"] * configuration["LM"]), problem.products),
        local_size=(items, 1),
        arguments=(*READ, "output", *_beside(problem)),
    )
    return Instance(main)


def _distances(problem: AttentionProblem, packs: int) -> Iterator[int]:
    """Elements between vectors of rows of work-items: those of values, of the output and of operands along keys, and
    those of keys that are not packed."""
    places = problem.places
    tensors = [
        (problem.sizes["value"], places.value_steps, places.starts[2]),
        (problem.shape, places.output_steps, 0),
        *((problem.square, steps, 0) for steps in places.operand_steps if steps[-1]),
    ]
    if not packs:
        *outer, along, across = places.key_steps
        tensors.append(((*places.batch, problem.depth, problem.keys), (*outer, across, along), places.starts[1]))
    for sizes, steps, start in tensors:
        yield from (start, sizes[-1])
        yield from outer_steps(sizes, steps)


def _in_vectors(problem: AttentionProblem) -> Mapping[str, bool]:
    """Say of each tensor whether its rows are vectors that begin at multiples of their size."""
    sides = [(name.upper(), problem.sizes[name], problem.steps[name]) for name in READ]
    sides.append(("OUT", problem.shape, problem.places.output_steps))
    found = {}
    for (name, sizes, steps), start in zip(sides, (*problem.places.starts, 0), strict=True):
        found[name] = steps[-1] == 1 and aligned(WIDEST, start, sizes[-1], *outer_steps(sizes, steps))
    return found


def _sizes(problem: AttentionProblem) -> dict[str, int]:
    """Sizes, and the steps inside of matrices."""
    places = problem.places
    return {
        "ROWS": problem.rows,
        "KEYS": problem.keys,
        "DEPTH": problem.depth,
        "COLUMNS": problem.columns,
        "QUERY_M": places.query_steps[-2],
        "QUERY_K": places.query_steps[-1],
        "KEY_N": places.key_steps[-2],
        "KEY_K": places.key_steps[-1],
        "VALUE_N": places.value_steps[-2],
        "OUT_M": places.output_steps[-2],
        "MASKED": int(problem.masked),
        "HIDES": int(problem.places.hidden_steps is not None),
    }


def _prelude(problem: AttentionProblem) -> str:
    """Return where each product's matrices lie, and the chain of scores with its operands at their own steps."""
    places = problem.places
    batch, key_steps = places.batch, places.key_steps[:-2]
    own = [size if step else 1 for size, step in zip(batch, key_steps, strict=True)]
    numbers = [math.prod(own[axis + 1 :]) if step else 0 for axis, step in enumerate(key_steps)]
    names = problem.scores.operand_names
    operands = [_operand(problem, name, steps) for name, steps in zip(names, places.operand_steps, strict=True)]
    macros = {
        f"{name.upper()}_AT(g)": f"({start} + {place('g', batch, problem.steps[name][:-2])})"
        for name, start in zip(READ, places.starts, strict=True)
    } | {
        "OUT_AT(g)": place("g", batch, places.output_steps[:-2]),
        "PACKED_AT(g)": place("g", batch, numbers),
        "PACKED_FROM(p)": f"({places.starts[1]} + {place('p', own, key_steps)})",
        "OPERAND_PARAMETERS": "".join(
            f", __global const {'uchar' if name in BOOLS else 'TYPE'} *restrict {name}" for name in _beside(problem)
        ),
        "ZEROED(g, m)": _zeroed(problem),
        "HIDDEN(g, m, n)": _hidden(problem),
        "HIDDEN_SCORE": "0.0f" if problem.places.hidden_steps is None else "ELEMENT(hidden_score, 0)",
        "EPILOGUE(value, T, LOAD, g, m, n)": f"{{ {problem.scores.source('(value)', operands)} }}",
    }
    return defines(macros)


def _beside(problem: AttentionProblem) -> tuple[str, ...]:
    """Return the names of all that is read beside query, key and value."""
    hides = () if problem.places.hidden_steps is None else ("hidden", "hidden_score")
    zeroes = () if problem.places.zeroed_steps is None else ("zeroed",)
    return (*problem.scores.operand_names, *hides, *zeroes)


def _zeroed(problem: AttentionProblem) -> str:
    """Return the condition under which row m of product g is zero."""
    if problem.places.zeroed_steps is None:
        return "0"
    *outer, down = problem.places.zeroed_steps
    return f"zeroed[{place('g', problem.places.batch, outer)} + (m) * {down}]"


def _hidden(problem: AttentionProblem) -> str:
    """Return the condition under which the score of row m and key n is hidden."""
    if problem.places.hidden_steps is None:
        return "0"
    *outer, down, across = problem.places.hidden_steps
    at = f"{place('g', problem.places.batch, outer)} + (m) * {down} + (n) * {across}"
    return f"(hidden[{at}] != {int(problem.shown)})"


def _operand(problem: AttentionProblem, name: str, steps: Steps) -> str:
    """Return how the scores read an operand: in vectors along keys, or one element for all of them."""
    *outer, down, across = steps
    at = f"{place('g', problem.places.batch, outer)} + (m) * {down} + (n) * {across}"
    return f"LOAD({name}, {at})" if across else f"(T)ELEMENT({name}, {at})"


FAMILY = AttentionFamily()
