"""Define register tiles: the tuning space, guesses and packing that matrix product and convolution share.

How a product is cut, from the inside out:

* A work-item computes a tile of MR rows x NV vectors of VW columns, every accumulator in a register. For each element
  of the reduction it reads MR numbers and NV vectors and does MR * NV multiply-adds, so a larger tile reads less for as
  much arithmetic. What bounds it is the number of registers: one accumulator too many is spilt to memory in the
  innermost loop, which costs more than the tile gains (`accumulators_fit`).
* An FMA has a latency of a few cycles, so a tile needs several independent accumulators. Where there are too few rows
  for that, the reduction is split among KA sets of accumulators, which are added at the end. KU unrolls it on top.
* LM x LN tiles form a work-group (workgroups.py). On GPUs they share what they read; on CPUs, where a work-group runs
  on one core, it is a matter of how much is handed out at once, and every core should get some.
* The right side was packed into panels of as many columns as a work-group's tiles have, in the order in which the
  reduction reads them, so that packing depends on NV, VW and LN alone. Columns are padded with zeros up to whole tiles.

Where tiles do not divide the rows, the last one computes its last row several times and does not store that. So a
tile's height is cut as the problem has it (`_cut`): 49 rows in tiles of at most 14 take four, and four tiles of 13 do
that, too, with less computed for nothing. For the same reason the last vector of a tile must hold a column that exists.

A guess is a tile that won on another device. `_cut` makes it legal step by step: within the problem, then within the
registers (as many accumulators as fit), then evenly tall, then the reduction, and at last
the work-group for the grid that follows.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from gputune.core.dtypes import ELEMENT_TYPES, FLOAT
from gputune.kernels.family import DeviceLimits, Estimate, Launch
from gputune.kernels.space import Configuration, Constraint, Parameter, TuningSpace
from gputune.kernels.tiling.estimate import Card, Side, Tile, clocks
from gputune.kernels.tiling.packing import Packing, packed_constraints
from gputune.kernels.tiling.prefetching import PREFETCH, prefetch_constraint, steps_ahead
from gputune.kernels.tiling.streaming import VECTOR_WIDTHS, ceil_div, default_width, power_at_most
from gputune.kernels.tiling.workgroups import (
    GROUP_SIDES,
    WORTH_ANOTHER,
    Grid,
    TiledKernel,
    accumulators_fit,
    cheapest_tile,
    clip_group,
    cut_tile,
    few_registers,
    few_unrolling,
    group_constraints,
    group_parameters,
    has_avx512,
    last_vector_holds,
    least_tiles,
    least_width,
    tile_fits,
    unrolled_fits,
)

ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 13, 14, 16)
VECTORS = (1, 2, 3, 4)
GPU_ROWS, GPU_VECTORS, GPU_WIDTHS = (1, 2, 4, 8, 16), (1, 2, 4), (1, 2, 4, 8)
"""On GPUs many work-items are as good as a tile that fits, and there are other algorithms to be tried."""

FEW_ROWS = 4
"""Up to here a tile is too small to hide the latency of an FMA, and the reduction is split instead."""

FEW_COLUMNS = 64
"""Few rows of so few columns are done in no time by any vector width."""

MOST_UNROLLED = 64
MOST_SETS = 16

LEAST_ROWS = 2
"""The default is made this low, and no lower, so that every core gets a tile. On a GPU it may have one row."""

GROUP_PRODUCTS = 1 << 14
"""Multiply-adds of a work-group beside which a CPU starts the next in no time."""

CPU_DEFAULT = {"MR": 8, "NV": 2, "VW": 16, "KU": 1, "KA": 4, "LM": 1, "LN": 1, "ORDER": 0}
TALL_CPU_DEFAULT = CPU_DEFAULT | {"MR": 14, "KU": 2}
"""For a long reduction on a CPU with AVX-512, as the next two."""

PAGE_BYTES = 4096
"""Rows that lie a multiple of this apart have their elements in the same few places of a first cache."""

PAGES_CPU_DEFAULT = CPU_DEFAULT | {"KU": 2}
"""For such rows: no more of them than these places hold, 8 in many CPUs. With 14 it takes 1.3 to 1.8 times as long."""

WIDE_CPU_DEFAULT = CPU_DEFAULT | {"MR": 6, "NV": 4, "KU": 2}
"""For rows that lie apart, as pixels of a convolution with strides do: they share few places of the first cache."""

LINES_CPU_DEFAULT = CPU_DEFAULT | {"LM": 4}
"""For rows in lines: tiles of a work-group read much of the same planes."""

LONG_REDUCTION = 64
"""From here on the tall tile wins; below it what a tile stores counts, and a low one stores fewer rows at once."""

WORTH_UNROLLED = 0.9
"""As WORTH_ANOTHER, where the reduction is unrolled: a lower tile reads the right side more often, which costs more."""

GPU_DEFAULT = {"MR": 4, "NV": 1, "VW": 4, "KU": 8, "KA": 1, "LM": 8, "LN": 8, "ORDER": 0}
CPU_GUESSES = (
    {"MR": 8, "NV": 2, "VW": 16, "KU": 1, "KA": 4, "LM": 1, "LN": 1, "ORDER": 0},
    {"MR": 4, "NV": 4, "VW": 16, "KU": 2, "KA": 4, "LM": 1, "LN": 1, "ORDER": 1},
    {"MR": 14, "NV": 1, "VW": 16, "KU": 2, "KA": 8, "LM": 1, "LN": 1, "ORDER": 0},
    {"MR": 6, "NV": 4, "VW": 16, "KU": 1, "KA": 2, "LM": 1, "LN": 1, "ORDER": 0},
    {"MR": 7, "NV": 2, "VW": 16, "KU": 4, "KA": 2, "LM": 1, "LN": 1, "ORDER": 1},
    {"MR": 8, "NV": 2, "VW": 16, "KU": 2, "KA": 2, "LM": 8, "LN": 1, "ORDER": 0},
)
GPU_GUESSES = (
    {"MR": 8, "NV": 1, "VW": 4, "KU": 4, "KA": 1, "LM": 8, "LN": 8, "ORDER": 0},
    {"MR": 4, "NV": 1, "VW": 4, "KU": 4, "KA": 1, "LM": 8, "LN": 16, "ORDER": 0},
    {"MR": 4, "NV": 2, "VW": 4, "KU": 2, "KA": 1, "LM": 8, "LN": 16, "ORDER": 0},
    {"MR": 8, "NV": 2, "VW": 4, "KU": 2, "KA": 1, "LM": 8, "LN": 8, "ORDER": 0},
    {"MR": 2, "NV": 1, "VW": 4, "KU": 4, "KA": 4, "LM": 4, "LN": 16, "ORDER": 0},
    {"MR": 1, "NV": 1, "VW": 2, "KU": 8, "KA": 4, "LM": 4, "LN": 32, "ORDER": 0},
)


@dataclass(frozen=True)
class Tiling:
    """A problem as the tiled kernels see it: `groups` products of [rows, taps * reduction] by a packed matrix.

    `columns` and `reduction` are those of one group and, for the reduction, of one tap; `zeros` are wanted behind the
    packed bias. `splits` says whether the kernel knows KA, several sets of accumulators along the reduction, and
    `prefetches` whether it knows PF. The rows are those of so many `lines`, one after the other, and a tile never
    reaches into the next. `matrices` counts the different right sides if several groups share one. `strided` says that
    memory between the rows is not read, and `pitch` how many elements of the left side lie between the beginnings of
    neighbouring rows, 0 where that is not known.
    """

    rows: int
    columns: int
    reduction: int
    output_stride: int
    input_stride: int
    groups: int = 1
    taps: int = 1
    zeros: int = 0
    splits: bool = False
    prefetches: bool = False
    strided: bool = False
    pitch: int = 0
    lines: int = 1
    matrices: int = 0
    dtype: str = FLOAT

    @property
    def line(self) -> int:
        """Rows of a line."""
        return self.rows // self.lines

    @property
    def weight_bytes(self) -> int:
        """What the packed matrix takes at least."""
        return self.packing(1, 1, 1).nbytes

    @property
    def _left_bytes(self) -> int:
        """What the rows take."""
        return self.rows * self.reduction * self.groups * ELEMENT_TYPES[self.dtype].nbytes

    def grid(self, rows: int, vectors: int, width: int) -> Grid:
        """Tiles down and across the output of a group, for a tile of `rows` x `vectors` vectors."""
        return self.lines * ceil_div(self.line, rows), ceil_div(self.columns, vectors * width)

    def packing(self, vectors: int, width: int, group_columns: int) -> Packing:
        """Return the packed matrix for NV, VW and LN."""
        return Packing(
            outputs=self.columns,
            inputs=self.reduction,
            panel=vectors * width * group_columns,
            output_stride=self.output_stride,
            input_stride=self.input_stride,
            groups=self.matrices or self.groups,
            taps=self.taps,
            zeros=self.zeros,
            dtype=self.dtype,
        )

    def launch_grid(self, configuration: Configuration) -> Grid:
        """Tiles down and across the whole output, each group's rounded up to whole work-groups."""
        down, across = self.grid(configuration["MR"], configuration["NV"], configuration["VW"])
        return down, self.groups * ceil_div(across, configuration["LN"]) * configuration["LN"]

    def launch(self, configuration: Configuration, kernel: TiledKernel) -> Launch:
        """Return the launch of a kernel with these tiles."""
        return kernel.launch(self.launch_grid(configuration), configuration)

    def stored(self, configuration: Configuration) -> dict[str, int]:
        """Return what a configuration keeps in `scratch`: nothing."""
        return {}

    def space(self, limits: DeviceLimits) -> TuningSpace:
        """Return every tile that fits the registers, with its unrolling and its work-group."""
        cpu, few = limits.device_type == "cpu", self.splits and self.rows <= FEW_ROWS
        unrolls = (1, 2, 3, 4, 6, 8, 12, 16) if few else (1, 2, 4, 8)
        sets = Parameter("KA", (1, 2, 3, 4, 6, 8) if few else (1,), "sets of accumulators along the reduction")
        return TuningSpace(
            (
                Parameter("MR", rows_of(limits), "rows of a work-item's tile"),
                Parameter("NV", VECTORS if cpu else GPU_VECTORS, "vectors of a tile's row"),
                Parameter("VW", VECTOR_WIDTHS if cpu else GPU_WIDTHS, "columns of a vector"),
                *((sets,) if self.splits else ()),
                *((PREFETCH,) if self.prefetches else ()),
                Parameter("KU", unrolls, "unrolling of the reduction"),
                *group_parameters(),
            ),
            (
                *self._tile_constraints(limits),
                *self._reduction_constraints(limits),
                *group_constraints(("MR", "NV", "VW"), self.grid, limits),
                *packed_constraints(self.packing, limits),
            ),
        )

    def default(self, limits: DeviceLimits) -> dict[str, int]:
        """Return a tile as wide as the device's vectors, cut to the problem and to the device's cores."""
        if limits.device_type == "cpu":
            guess = self._usual_tile(limits) | {"VW": default_width(limits, VECTOR_WIDTHS[-1])}
        else:
            guess = dict(GPU_DEFAULT)
        space = self.space(limits)
        wanted = self._cut(guess, limits)
        if limits.device_type == "cpu" and not (self.splits and self.rows <= FEW_ROWS):
            guess |= self._fitting_tile(wanted, limits)
            wanted = self._cut(guess, limits)
        least = LEAST_ROWS if limits.device_type == "cpu" else 1
        while wanted["MR"] > least and math.prod(self._tiles(wanted)) < least_tiles(limits):
            guess["MR"] = wanted["MR"] - 1
            wanted = self._cut(guess, limits)
        return space.first() if space.violations(wanted) else wanted

    def guesses(self, limits: DeviceLimits) -> list[dict[str, int]]:
        """Tiles that won on other devices of the kind, cut to the problem."""
        guesses = CPU_GUESSES if limits.device_type == "cpu" else GPU_GUESSES
        return [self._cut(guess, limits) for guess in guesses]

    def estimate(self, limits: DeviceLimits) -> Estimate:
        """Return what estimates the clocks of a configuration on a GPU."""
        card = Card.of(limits)

        def clocks_of(configuration: Configuration) -> float:
            mr, nv, vw, lm, ln = (configuration[name] for name in ("MR", "NV", "VW", "LM", "LN"))
            rows = Side(mr * lm, lm, 1, staged=False, scattered=True)
            columns = Side(nv * vw * ln, ln, vw, staged=False)
            sides = (rows, columns) if configuration["ORDER"] else (columns, rows)
            sizes = (self.rows, self.columns) if configuration["ORDER"] else (self.columns, self.rows)
            tile = Tile(*sides, configuration["KU"])
            return clocks(tile, *sizes, self.taps * self.reduction, card, self.groups)

        return clocks_of

    def _tiles(self, configuration: Configuration) -> Grid:
        """Tiles down and across all groups."""
        down, across = self.grid(configuration["MR"], configuration["NV"], configuration["VW"])
        return down, self.groups * across

    def _usual_tile(self, limits: DeviceLimits) -> dict[str, int]:
        """Return a CPU's default before it is cut. Where the right side is larger than the left one, cores share out
        columns: each reads weights of its own, which come from beyond its caches. With AVX-512 it is tall for a long
        reduction, but for rows in lines: those lie in planes, where neighbours along a line are read one by one."""
        order = int(self.weight_bytes > self._left_bytes)
        if not has_avx512(limits):
            return CPU_DEFAULT | {"ORDER": order}
        if self.lines > 1:
            unrolling = 2 if self.columns > default_width(limits, VECTOR_WIDTHS[-1]) else 1
            return LINES_CPU_DEFAULT | {"KU": unrolling, "ORDER": order}
        if self.taps * self.reduction < LONG_REDUCTION:
            return CPU_DEFAULT | {"ORDER": order}
        if self.strided:
            return WIDE_CPU_DEFAULT | {"ORDER": order}
        pages = self.pitch > 0 and self.pitch * ELEMENT_TYPES[self.dtype].nbytes % PAGE_BYTES == 0
        return (PAGES_CPU_DEFAULT if pages else TALL_CPU_DEFAULT) | {"ORDER": order}

    def _fitting_tile(self, usual: Configuration, limits: DeviceLimits) -> dict[str, int]:
        """MR and NV that take clearly less time than the usual ones, which compute for rows and columns that are not
        there, if there are such; KU and LM for a CPU's loops."""
        width, unrolled = usual["VW"], usual["KU"] > 1
        tiles = (
            (rows, vectors)
            for rows in ROWS
            for vectors in VECTORS
            if rows <= self.line
            and (vectors - 1) * width < self.columns
            and (not unrolled or unrolled_fits(rows, vectors, width, limits))
        )
        worth = WORTH_UNROLLED if unrolled else WORTH_ANOTHER
        chosen = cheapest_tile(
            (usual["MR"], usual["NV"]), tiles, width, lambda mr, nv: math.prod(self.grid(mr, nv, width)), limits, worth
        )
        products = math.prod(chosen) * width * self.taps * self.reduction
        return {
            "MR": chosen[0],
            "NV": chosen[1],
            "KU": self._few_unrolling(*chosen, width, limits) if few_registers(limits) else usual["KU"],
            "LM": min(max(power_at_most(ceil_div(GROUP_PRODUCTS, products)), usual["LM"]), GROUP_SIDES[-1]),
        }

    def _few_unrolling(self, rows: int, vectors: int, width: int, limits: DeviceLimits) -> int:
        """KU with 16 registers. Rows that begin side by side are read as vectors when it is unrolled, which takes more
        registers than there are: from planes, without strides, 1.5 to 2.1 times as long."""
        return 1 if self.pitch == 1 else few_unrolling(rows, vectors, width, limits)

    def _tile_constraints(self, limits: DeviceLimits) -> Iterator[Constraint]:
        yield Constraint(("MR",), lambda mr: mr <= self.line, f"MR must not exceed the {self.line} rows")
        yield last_vector_holds(self.columns, "columns")
        yield accumulators_fit(limits)
        least = min(least_width(limits), self.columns)
        if limits.device_type == "cpu" and (self.rows > FEW_ROWS or self.columns > FEW_COLUMNS):
            yield Constraint(("VW",), lambda vw: vw >= least, f"a CPU's vectors need VW of at least {least}")

    def _reduction_constraints(self, limits: DeviceLimits) -> Iterator[Constraint]:
        split = ("KA",) if self.splits else ()

        def product(values: tuple[int, ...]) -> int:
            return values[0] * (values[1] if self.splits else 1)

        yield Constraint(
            ("KU", *split),
            lambda *v: product(v) <= self.reduction,
            f"{'*'.join(('KU', *split))} must not exceed the {self.reduction} elements of the reduction",
        )
        yield Constraint(
            ("KU", *split, "MR", "NV"),
            lambda *v: product(v) * v[-2] * v[-1] <= MOST_UNROLLED,
            f"{'*'.join(('MR', 'NV', 'KU', *split))} must not exceed {MOST_UNROLLED}, or compiling takes too long",
        )
        if self.prefetches:
            yield prefetch_constraint(self.weight_bytes, limits)
        if self.splits:
            yield Constraint(
                ("KA", "MR", "NV"),
                lambda ka, mr, nv: ka == 1 or ka * mr * nv <= MOST_SETS,
                f"several sets of accumulators are for small tiles: MR*NV*KA of at most {MOST_SETS}",
            )

    def _cut(self, guess: Configuration, limits: DeviceLimits) -> dict[str, int]:
        """Return a guess made to fit: no taller, wider or longer than the problem, no more than the registers, and no
        taller than so many tiles must be to cover a line."""
        cut = dict(guess)
        if limits.device_type == "cpu" and limits.preferred_float_width >= 8:
            cut["VW"] = min(cut["VW"], limits.preferred_float_width)  # narrower registers make up for it by more
        cut["MR"] = max(rows for rows in rows_of(limits) if rows <= min(self.line, guess["MR"]))
        while cut["VW"] > 1 and cut["VW"] // 2 >= self.columns:
            cut["VW"] //= 2
        while (cut["NV"] - 1) * cut["VW"] >= self.columns:
            cut["NV"] -= 1
        while not tile_fits(1, 1, cut["VW"], limits):
            cut["VW"] //= 2
        heights = [rows for rows in rows_of(limits) if rows <= cut["MR"]]
        cut["MR"], cut["NV"] = cut_tile(heights, cut["NV"], cut["VW"], limits)
        tiles = ceil_div(self.line, cut["MR"])
        cut["MR"] = next(rows for rows in rows_of(limits) if ceil_div(self.line, rows) == tiles)
        if self.prefetches:
            cut["PF"] = steps_ahead(self.weight_bytes, limits)
        if not self.splits:
            del cut["KA"]
        elif self.rows > FEW_ROWS:
            cut["KA"] = 1
        else:
            cut["KU"] = 4
            cut["KA"] = max(min(cut["KA"], MOST_SETS // (cut["MR"] * cut["NV"])), 1)
        while cut["KU"] > 1 and cut["KU"] * cut.get("KA", 1) > self.reduction:
            cut["KU"] //= 2
        while cut.get("KA", 1) > self.reduction:
            cut["KA"] //= 2
        return cut | clip_group(self.grid(cut["MR"], cut["NV"], cut["VW"]), cut, limits, self.groups)


def rows_of(limits: DeviceLimits) -> tuple[int, ...]:
    """Return the heights of tiles on a device."""
    return ROWS if limits.device_type == "cpu" else GPU_ROWS
