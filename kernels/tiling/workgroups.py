"""Define work-groups of LM x LN work-items over a grid of tiles, for the kernels that keep a tile in registers.

LM runs down the output's rows or pixels, LN across its columns or channels. ORDER says which of the two is dimension 0
of the grid.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from gputune.core.launches import OUTPUT
from gputune.kernels.family import ALONE, DeviceLimits, Launch, Stage
from gputune.kernels.space import Configuration, Constraint, Parameter
from gputune.kernels.template import build_options
from gputune.kernels.tiling.streaming import at_most, ceil_div, power_at_most, round_up

GROUP_SIDES = (1, 2, 4, 8, 16, 32)
CPU_GROUPS_PER_UNIT = 4
CPU_SMALL_GRID = 64
"""Up to so many tiles a CPU may as well run everything in one work-group, without waking its other cores."""

GPU_LEAST_GROUP = 32
GPU_ACCUMULATORS = 128
FEW_REGISTERS, FEW_ACCUMULATORS = 16, 14
MANY_ACCUMULATORS = 28
AVX512_FLOATS = 16
LEAST_ACCUMULATORS = 8
"""As many FMAs are under way in a core at once; fewer leave it waiting."""

FEW_LEAST_ACCUMULATORS, FEW_LOAD_STEPS = 10, 4 / 3
"""Measured with 16 registers, where each number of the left side is spread out by a load of its own: tiles of 4 x 2
vectors take 1.2 times as long for as many multiply-adds as those of 6 x 2, and those of 8 to 12 x 1 1.4 to 1.6 times.
A load takes as long as 4 / 3 multiply-adds then."""

FEW_UNROLLING, FULL_UNROLLING = 4, 2
"""Unrolling of the reduction for the small tiles that 16 registers allow: by 4 it is 2 to 6 % faster than by 2, but in
a tile that takes all of them, as 4 x 3 vectors do, LLVM may read ahead then and spill accumulators, by the work-group's
size: 1.7 times as long for 40 rows of 120 by 360."""

MOST_UNROLLED_REGISTERS = 30
"""Of 32 for accumulators and a row of the right side, where the reduction is unrolled: a tile of 7 x 4 vectors takes
twice as long in steps of two, as the next row is read ahead into registers that there are not."""

WORTH_ANOTHER = 0.95
"""A tile is another one than what won most often where the cost of that is so much less."""

GPU_ITEMS_PER_UNIT, GPU_MOST_ITEMS = 256, 1 << 15
"""A GPU hides the latency of what it reads behind so many work-items of a compute unit, two warps for each scheduler of
an NVIDIA multiprocessor. Units of other GPUs are smaller, and there are more of them, so that this many are enough for
all. On an H100, 56 x 56 pixels of 64 channels take 103 us in 12 544 tiles, and 42 us in tiles of an eighth."""

Grid = tuple[int, int]
"""Tiles down and tiles across."""


def group_parameters() -> tuple[Parameter, Parameter, Parameter]:
    """LM, LN and ORDER."""
    return (
        Parameter("LM", GROUP_SIDES, "work-items of a work-group down the rows", of_group=True),
        Parameter("LN", GROUP_SIDES, "work-items of a work-group across the columns", of_group=True),
        Parameter("ORDER", (0, 1), "dimension 0 of the grid runs across the columns (0) or down the rows (1)"),
    )


def group_constraints(
    names: tuple[str, ...], grid_of: Callable[..., Grid], limits: DeviceLimits
) -> tuple[Constraint, ...]:
    """Return what LM, LN and ORDER must keep; `grid_of` gives the grid for values of the parameters `names`."""
    most, side = limits.max_work_group_size, min(limits.max_work_item_sizes[:2])
    rules: list[Constraint] = [
        at_most(("LM",), side, f"{side} work-items in a dimension"),
        at_most(("LN",), side, f"{side} work-items in a dimension"),
        at_most(("LM", "LN"), most, f"{most} work-items per work-group"),
        Constraint(
            (*names, "LM"), lambda *v: v[-1] <= grid_of(*v[:-1])[0], "LM must not exceed the tiles down the rows"
        ),
        Constraint(
            (*names, "LN"), lambda *v: v[-1] <= grid_of(*v[:-1])[1], "LN must not exceed the tiles across the columns"
        ),
        Constraint(
            (*names, "LM", "LN", "ORDER"),
            lambda *v: v[-1] == 0 or min(_groups(grid_of(*v[:-3]), *v[-3:-1])) > 1,
            "ORDER 1 differs from 0 only where there are several work-groups in both dimensions",
        ),
    ]

    def busy(*values: int) -> bool:
        (down, across), lm, ln = grid_of(*values[:-2]), *values[-2:]
        if limits.device_type == "cpu":
            return lm * ln == 1 or _spreads((down, across), lm, ln, limits)
        return lm * ln >= min(GPU_LEAST_GROUP, power_at_most(most), power_at_most(down) * power_at_most(across))

    reason = (
        f"beyond {CPU_SMALL_GRID} tiles, LM*LN must leave {CPU_GROUPS_PER_UNIT} work-groups to a compute unit"
        if limits.device_type == "cpu"
        else f"LM*LN must reach {GPU_LEAST_GROUP} where there are as many tiles, or lanes stay idle"
    )
    return (*rules, Constraint((*names, "LM", "LN"), busy, reason))


def _groups(grid: Grid, lm: int, ln: int) -> Grid:
    return ceil_div(grid[0], lm), ceil_div(grid[1], ln)


def _spreads(grid: Grid, lm: int, ln: int, limits: DeviceLimits) -> bool:
    """Return whether a CPU's cores all find work, or there is too little to share."""
    groups = math.prod(_groups(grid, lm, ln))
    return math.prod(grid) <= CPU_SMALL_GRID or groups >= CPU_GROUPS_PER_UNIT * limits.compute_units


def registers(limits: DeviceLimits) -> tuple[int, int]:
    """Return how many accumulators a work-item can hold, and how many floats each of them holds.

    On CPUs an accumulator is a vector register: 8-wide vectors come with 16 of them, other widths with 32, and a few
    must stay free for operands. On GPUs it is a scalar register.
    """
    if limits.device_type != "cpu":
        return GPU_ACCUMULATORS, 1
    width = max(limits.preferred_float_width, 4)
    return (FEW_ACCUMULATORS if width == 8 else MANY_ACCUMULATORS), width


def few_registers(limits: DeviceLimits) -> bool:
    """Return whether it is a CPU with 16 vector registers."""
    return limits.device_type == "cpu" and registers(limits)[0] == FEW_ACCUMULATORS


def has_avx512(limits: DeviceLimits) -> bool:
    """Return whether it is a CPU with 32 vector registers of 16 floats, for which some defaults were chosen."""
    return limits.device_type == "cpu" and registers(limits) == (MANY_ACCUMULATORS, AVX512_FLOATS)


def least_width(limits: DeviceLimits) -> int:
    """Return the narrowest vector that is worth trying on a CPU where there are enough elements for it."""
    return max(limits.preferred_float_width // 2, 4)


def least_tiles(limits: DeviceLimits) -> int:
    """So many tiles a default makes where the problem allows it: work for every core, and for a GPU's lanes."""
    if limits.device_type == "cpu":
        return limits.compute_units
    return min(limits.compute_units * GPU_ITEMS_PER_UNIT, GPU_MOST_ITEMS)


def registers_needed(vectors: int, width: int, limits: DeviceLimits) -> int:
    """Accumulators that `vectors` vectors of `width` floats take on the device."""
    return vectors * ceil_div(width, registers(limits)[1])


def tile_fits(rows: int, vectors: int, width: int, limits: DeviceLimits) -> bool:
    """Return whether the accumulators of `rows` rows of `vectors` vectors of `width` floats stay in registers.

    Each step of the reduction holds a row of the right side beside them, and where there is no FMA that spreads a
    number out of memory, one more register for that. Of 32 registers those that are not accumulators always do; of
    16 they do not: a tile of 7 x 2 vectors takes three times as long there as one of 6 x 2.
    """
    needed = registers_needed(rows * vectors, width, limits)
    if few_registers(limits):
        return needed + registers_needed(vectors, width, limits) + 1 <= FEW_REGISTERS
    return needed <= registers(limits)[0]


def accumulators_fit(limits: DeviceLimits) -> Constraint:
    """MR rows of NV vectors of VW floats stay in registers."""
    most, floats = registers(limits)
    beside = f", of {FEW_REGISTERS} registers with NV*VW floats and one number" if few_registers(limits) else ""
    return Constraint(
        ("MR", "NV", "VW"),
        lambda mr, nv, vw: tile_fits(mr, nv, vw, limits),
        f"MR*NV*VW must not exceed {most * floats} floats{beside}, or accumulators spill",
    )


def cut_tile(rows: Sequence[int], vectors: int, width: int, limits: DeviceLimits) -> tuple[int, int]:
    """(MR, NV): the most accumulators that stay in registers, of so many rows at most and up to NV vectors; for as many
    accumulators the fewest vectors. rows: the heights that there are, of which 1 is one. One row of one vector where
    nothing fits."""
    fitting = [(mr, nv) for mr in rows for nv in range(1, vectors + 1) if tile_fits(mr, nv, width, limits)]
    return max(fitting, key=lambda tile: (tile[0] * tile[1], -tile[1]), default=(1, 1))


def unrolled_fits(rows: int, vectors: int, width: int, limits: DeviceLimits) -> bool:
    """Return whether a tile's reduction can be unrolled: registers for a row of the right side, and some for the
    next."""
    return registers_needed((rows + 1) * vectors, width, limits) <= MOST_UNROLLED_REGISTERS


def few_unrolling(rows: int, vectors: int, width: int, limits: DeviceLimits) -> int:
    """KU for a tile of a product where there are 16 registers."""
    taken = registers_needed((rows + 1) * vectors, width, limits) + 1
    return FEW_UNROLLING if taken < FEW_REGISTERS else FULL_UNROLLING


def step_cost(rows: int, vectors: int, width: int, limits: DeviceLimits) -> float:
    """Return what a step of the reduction takes in a tile of a CPU, in multiply-adds of registers: those that it has,
    or its loads where they take longer."""
    across = registers_needed(vectors, width, limits)
    if few_registers(limits):
        return max(rows * across, FEW_LOAD_STEPS * (rows + across), FEW_LEAST_ACCUMULATORS)
    return max(rows * across, rows + across, LEAST_ACCUMULATORS)


def cheapest_tile(
    usual: tuple[int, int],
    tiles: Iterable[tuple[int, int]],
    width: int,
    steps: Callable[[int, int], int],
    limits: DeviceLimits,
    worth: float = WORTH_ANOTHER,
    beside: Callable[[int], int] = lambda rows: 0,
) -> tuple[int, int]:
    """Of tiles (MR, NV) of vectors of `width` floats the one that takes the least time on a CPU.

    steps: of the reduction in all tiles of a size, or their number where all have as many; tiles that reach beyond the
    last row or column compute and load for nothing. beside: what else takes longer with one MR than with another, in
    multiply-adds beside those of `steps`. The usual one is kept unless another costs less than `worth` times as much.
    """

    def cost(tile: tuple[int, int]) -> float:
        return steps(*tile) * step_cost(*tile, width, limits) + beside(tile[0])

    fitting = [tile for tile in tiles if tile_fits(*tile, width, limits)]
    best = min(fitting, key=lambda tile: (cost(tile), -tile[0] * tile[1]), default=usual)
    return best if cost(best) < worth * cost(usual) else usual


def last_vector_holds(elements: int, what: str) -> Constraint:
    """NV vectors of VW elements are not one more than it takes to hold so many."""
    return Constraint(
        ("NV", "VW"),
        lambda nv, vw: (nv - 1) * vw < elements,
        f"the last of NV vectors must hold one of the {elements} {what}",
    )


def launch_sizes(grid: Grid, configuration: Configuration) -> tuple[tuple[int, int], tuple[int, int]]:
    """(global size, local size) for a grid of tiles, rounded up to whole work-groups."""
    lm, ln = configuration["LM"], configuration["LN"]
    down, across = round_up(grid[0], lm), round_up(grid[1], ln)
    if configuration["ORDER"]:
        return (down, across), (lm, ln)
    return (across, down), (ln, lm)


@dataclass(frozen=True)
class TiledKernel:
    """A kernel that computes the output in tiles: its text and the sizes there, what it reads, and whether all vectors
    are aligned."""

    source: str
    entry: str
    sizes: Mapping[str, int]
    inputs: tuple[str, ...]
    operands: tuple[str, ...]
    aligned: bool

    @property
    def arguments(self) -> tuple[str, ...]:
        """The buffers in the order of the kernel's parameters."""
        return (*self.inputs, OUTPUT, *self.operands)

    def launch(self, grid: Grid, configuration: Configuration, stages: tuple[Stage, ...] = ()) -> Launch:
        """Return the launch over a grid of tiles of work-items that share nothing."""
        global_size, local_size = launch_sizes(grid, configuration)
        return Launch(
            source=self.source,
            entry=self.entry,
            needs=ALONE,
            writes=(OUTPUT,),
            aligned=self.aligned,
            options=build_options({**self.sizes, **configuration}),
            global_size=global_size,
            local_size=local_size,
            arguments=self.arguments,
            stages=stages,
        )


def clip_group(grid: Grid, configuration: Configuration, limits: DeviceLimits, grids: int = 1) -> dict[str, int]:
    """LM, LN and ORDER of a guess, made legal for a grid: sides within it, and busy cores or lanes. On a GPU a group is
    smaller where there would be fewer groups than compute units. grids: how many of them a launch has."""
    side = power_at_most(min(limits.max_work_item_sizes[:2]))
    most_down, most_across = min(power_at_most(grid[0]), side), min(power_at_most(grid[1]), side)
    lm, ln = min(configuration["LM"], most_down), min(configuration["LN"], most_across)
    while lm * ln > limits.max_work_group_size:
        lm, ln = (lm // 2, ln) if lm > ln else (lm, ln // 2)
    if limits.device_type == "cpu" and not _spreads(grid, lm, ln, limits):
        lm = ln = 1
    least = min(GPU_LEAST_GROUP, power_at_most(limits.max_work_group_size))
    while limits.device_type != "cpu" and lm * ln < least and (lm, ln) != (most_down, most_across):
        lm, ln = (lm, 2 * ln) if ln < most_across else (2 * lm, ln)
    units = 0 if limits.device_type == "cpu" else limits.compute_units
    while lm * ln > least and grids * math.prod(_groups(grid, lm, ln)) < units:
        lm, ln = (lm // 2, ln) if lm > 1 else (lm, ln // 2)
    order = configuration["ORDER"] if min(_groups(grid, lm, ln)) > 1 else 0
    return {"LM": lm, "LN": ln, "ORDER": order}
