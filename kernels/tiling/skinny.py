"""Define products of few rows: the tuning space, default, estimate and launches of matmul_skinny.cl.

Up to MOST_ROWS rows a product takes as long as its weights take to be read, once. So everything serves the memory:

* Every work-item reads KU * NV vectors at a time that do not wait for each other, and there are many of them. A
  work-group has LN work-items across a panel of columns and LM along the reduction, whose sums are added in local
  memory. So few columns make many work-items, too.
* SPLIT work-groups share the reduction if there are too few panels for the device. Shares are as those of other tiles
  (local_tiles.py).
* MR covers all rows, or half of them: then all weights are read twice, the second time out of a cache.

LM lies along the reduction here, because there are no rows for it. All other parameters mean what they mean for other
tiles, and packed weights are the same for all of them.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gputune.core.dtypes import ELEMENT_TYPES, FLOAT
from gputune.kernels.family import ALONE, DeviceLimits, Estimate, Launch, Needs
from gputune.kernels.space import Configuration, Constraint, Parameter, TuningSpace
from gputune.kernels.tiling.estimate import (
    BARRIER,
    FLOAT_BYTES,
    LINE_BYTES,
    LOOP,
    MOST_GROUPS,
    OWN_REGISTERS,
    START,
    UNIT_BYTES,
    WIDEST,
    Card,
    handing_over,
)
from gputune.kernels.tiling.local_tiles import Shares
from gputune.kernels.tiling.packing import Packing
from gputune.kernels.tiling.streaming import Declared, at_most, ceil_div, local_bytes, power_at_least, power_at_most
from gputune.kernels.tiling.workgroups import TiledKernel

MOST_ROWS = 16
ROWS = (1, 2, 4, 8, 16)
VECTORS = (1, 2)
WIDTHS = (1, 2, 4)
UNROLLS = (1, 2, 4, 8)
ALONG = (1, 2, 4, 8, 16, 32, 64)
ACROSS = (1, 2, 4, 8, 16, 32, 64)
SPLITS = (1, 2, 4, 8, 16, 32)

LEAST_ITEMS, MOST_ITEMS = 64, 512
MOST_REGISTERS = 160
"""Registers of a work-item: with more of them, too few work-items read at the same time."""

MOST_TURNS = 16
"""Shares give each compute unit so many work-groups at most; with more, there is more to add than to gain."""

MANY_ROWS = 4
"""From here on, elements of the left side that are read one by one take longer than lines of the right side that are
read in parts."""

SUMMED_BYTES = 16 << 10
"""The local memory for the sums of a work-group. The sums of more rows are added one after the other."""

WANTED_GROUPS, WORTH_GROUPS = 2, 1.1
"""Work-groups of each compute unit that a default has if it takes no longer than so many times as long: one reads while
another adds its sums."""

CACHE_BYTES = 2 * UNIT_BYTES
"""Bytes that a multiprocessor reads out of the second cache in a clock."""

LATENCY = 800
"""Clocks until what is read from memory is there."""

PARAMETERS = ("MR", "NV", "VW", "KU", "LM", "LN", "SPLIT")
TILE = ("MR", "NV", "VW", "LM", "LN")
DEFAULT_ITEMS = (256, 128, 64)
LEAST_UNROLLED = 4
GUESSES = 5


@dataclass(frozen=True)
class Skinny:
    """A product of few rows: [rows, reduction] by [reduction, columns]. `left_width` elements of a row are read at
    once, if as many rows of the right side are. `packing` gives the packed right side for NV, VW and LN."""

    rows: int
    columns: int
    reduction: int
    left_width: int = 1
    dtype: str = FLOAT
    packing: Callable[[int, int, int], Packing] | None = None

    def space(self, limits: DeviceLimits) -> TuningSpace:
        """Return every work-group that reads enough at a time."""
        return TuningSpace(
            (
                Parameter("MR", ROWS, "rows of a work-item's tile"),
                Parameter("NV", VECTORS, "vectors of a tile's row"),
                Parameter("VW", WIDTHS, "columns of a vector"),
                Parameter("KU", UNROLLS, "unrolling of the reduction"),
                Parameter("LM", ALONG, "work-items of a work-group along the reduction", of_group=True),
                Parameter("LN", ACROSS, "work-items of a work-group across the columns", of_group=True),
                Parameter("SPLIT", SPLITS, "work-groups that share the reduction"),
            ),
            (
                *self._tile_rules(),
                *self._group_rules(limits),
                *self._share_rules(limits),
                self.declared.limit(limits),
                *self.shares.constraints(limits, self.packing),
            ),
        )

    def default(self, limits: DeviceLimits) -> dict[str, int]:
        """Return the usual work-group with the least estimate; if there are few of them, another one may take a
        little longer. ValueError if nothing is legal."""
        space, estimate = self.space(limits), self.estimate(limits)
        wanted = WANTED_GROUPS * limits.compute_units

        def cost(one: Configuration) -> float:
            return estimate(one) * (WORTH_GROUPS if self._groups(one) < wanted else 1)

        usual = [one for one in self._usual() if not space.violations(one)]
        return min(usual, key=cost, default=None) or space.first()

    def guesses(self, limits: DeviceLimits) -> list[dict[str, int]]:
        """Usual work-groups of several sizes, each with the unrolling and the shares that the estimate likes best."""
        space, estimate = self.space(limits), self.estimate(limits)
        by_size: dict[tuple[int, int], list[dict[str, int]]] = {}
        for one in self._usual():
            if not space.violations(one):
                by_size.setdefault((one["LM"], one["LN"]), []).append(one)
        return sorted((min(each, key=estimate) for each in by_size.values()), key=estimate)[:GUESSES]

    def estimate(self, limits: DeviceLimits) -> Estimate:
        """Return what estimates a configuration's clocks on a device."""
        card = Card.of(limits)

        def clocks_of(configuration: Configuration) -> float:
            mr, nv, vw, ku, lm, ln, split = (configuration[name] for name in PARAMETERS)
            down, items = ceil_div(self.rows, mr), lm * ln
            own = ceil_div(self._groups(configuration), card.units)  # of the unit with the most
            at_once = min(own, self._groups_at_once(configuration, card))
            blocks = ceil_div(self.reduction, lm * ku * split)
            vectors = ku * nv * vw
            # Memory: as much as is under way, and at most what a unit gets. Weights come from memory for the first row
            # tile only; what is left comes out of a cache, as each work-group reads its rows of the left side again.
            moved = own * blocks * lm * ku * FLOAT_BYTES
            under_way = at_once * items * vectors * FLOAT_BYTES / LATENCY
            from_memory = moved * nv * vw * ln / down / min(UNIT_BYTES, under_way)
            from_cache = moved * (nv * vw * ln + mr) / min(CACHE_BYTES, under_way)
            # Work: the instructions and the lines of a warp.
            run = self._run(configuration)
            lefts = mr * ku // run
            issued = mr * vectors + vectors / min(vw, WIDEST) + lefts + LOOP
            rows = max(1, card.lanes // ln)  # of the right side that a warp reads at once
            read, apart = min(ln, card.lanes) * vw * FLOAT_BYTES, run * nv * ln * vw * FLOAT_BYTES
            lines = ku * nv * rows * max(read, min(apart, LINE_BYTES)) / LINE_BYTES
            lines += lefts * max(1, rows * run * FLOAT_BYTES / LINE_BYTES)
            work = own * blocks * items / card.lanes * max(issued / card.issued, lines)
            sums = ceil_div(mr, self._summed(configuration)) * 2 * BARRIER + mr * nv * lm if lm > 1 else 0
            total = max(from_memory, from_cache, work) + ceil_div(own, at_once) * (START + sums)
            if split > 1:
                total += handing_over(split * self.rows * self.columns * FLOAT_BYTES, card)
            return total

        return clocks_of

    @property
    def shares(self) -> Shares:
        """The shares of the product."""
        return Shares(self.rows, self.columns, dtype=self.dtype)

    @property
    def declared(self) -> Declared:
        """Declare the needs of the kernel."""
        return Declared(TILE, self._needs, "the sums of a work-group's work-items along the reduction")

    def launch(self, configuration: Configuration, kernel: TiledKernel) -> Launch:
        """Return the launch of the kernel; if the reduction is split, with the kernel as a stage in front of the sum of
        the shares."""
        own = {name: configuration[name] for name in PARAMETERS}
        lm, ln, split = own["LM"], own["LN"], own["SPLIT"]
        down, across = self._grid(own)
        macros = {"LEFT_WIDTH": self._run(own), "SUMMED": self._summed(own)} | own
        grid, needs = (across * ln, down * lm, split), self.declared.of(own)
        return self.shares.launch(kernel, grid, (ln, lm, 1), needs, macros)

    def stored(self, configuration: Configuration) -> dict[str, int]:
        """Return what a configuration keeps in `scratch` (name -> bytes)."""
        return self.shares.stored(configuration["SPLIT"])

    def _usual(self) -> Iterator[dict[str, int]]:
        """Work-groups of usual sizes for all rows."""
        width = self._widest
        least = min(LEAST_UNROLLED, power_at_most(self.reduction))
        for unroll in (each for each in reversed(UNROLLS) if each >= least):
            for items in DEFAULT_ITEMS:
                for across in ACROSS:
                    for split in SPLITS:
                        yield {
                            "MR": power_at_least(self.rows),
                            "NV": 1,
                            "VW": width,
                            "KU": unroll,
                            "LM": max(items // across, 1),
                            "LN": across,
                            "SPLIT": split,
                        }

    def _tile_rules(self) -> Iterator[Constraint]:
        yield Constraint(
            ("MR",),
            lambda mr: self.rows <= 2 * mr and mr < 2 * self.rows,
            f"MR covers the {self.rows} rows, or half of them: weights are read for each tile",
        )
        widest = self._widest
        least = min(2, widest)
        yield Constraint(
            ("VW",), lambda vw: vw >= least, f"VW is at least {least}: elements one by one are read too slowly"
        )
        yield Constraint(
            ("NV", "VW"),
            lambda nv, vw: nv == 1 or vw == widest,
            f"several vectors are as wide as they can be, VW {widest}",
        )
        yield Constraint(
            ("NV", "VW", "LN"),
            lambda nv, vw, ln: nv * vw * ln < 2 * self.columns,
            f"NV*VW*LN must stay below twice the {self.columns} columns; more would have nothing to do",
        )
        yield Constraint(
            ("MR", "NV", "VW", "KU"),
            lambda *tile: self._registers(*tile) <= MOST_REGISTERS,
            f"a work-item would need more than {MOST_REGISTERS} registers, so that too few read at the same time",
        )

    def _group_rules(self, limits: DeviceLimits) -> Iterator[Constraint]:
        most, (most_x, most_y, _) = limits.max_work_group_size, limits.max_work_item_sizes
        yield at_most(("LM", "LN"), most, f"{most} work-items")
        yield at_most(("LN",), most_x, f"limit of {most_x}")
        yield at_most(("LM",), most_y, f"limit of {most_y}")
        yield Constraint(
            ("LM", "LN"), lambda lm, ln: lm * ln <= MOST_ITEMS, f"a work-group has at most {MOST_ITEMS} work-items"
        )
        yield Constraint(
            ("LM", "LN", "KU"),
            lambda lm, ln, ku: lm * ln >= LEAST_ITEMS or lm == ALONG[-1] or 2 * lm * ku > self.reduction,
            f"LM*LN must reach {LEAST_ITEMS} if the reduction is long enough, or lanes stay idle",
        )

    def _share_rules(self, limits: DeviceLimits) -> Iterator[Constraint]:
        yield Constraint(
            ("KU", "LM", "SPLIT"),
            lambda ku, lm, split: ku * lm * split <= max(self.reduction, 1),
            f"KU*LM*SPLIT must not exceed the {self.reduction} steps of the reduction",
        )
        most = MOST_TURNS * limits.compute_units
        yield Constraint(
            (*TILE, "SPLIT"),
            lambda mr, nv, vw, lm, ln, split: split == 1 or split * self._tiles(mr, nv, vw, ln) <= most,
            f"shares give each compute unit {MOST_TURNS} work-groups at most, or adding them takes too long",
        )

    @property
    def _widest(self) -> int:
        """The widest vector that fits the columns."""
        return min(WIDTHS[-1], power_at_most(self.columns))

    def _grid(self, configuration: Configuration) -> tuple[int, int]:
        """Row tiles and panels."""
        panel = math.prod(configuration[name] for name in ("NV", "VW", "LN"))
        return ceil_div(self.rows, configuration["MR"]), ceil_div(self.columns, panel)

    def _tiles(self, mr: int, nv: int, vw: int, ln: int) -> int:
        return math.prod(self._grid({"MR": mr, "NV": nv, "VW": vw, "LN": ln}))

    def _groups(self, configuration: Configuration) -> int:
        return math.prod(self._grid(configuration)) * configuration["SPLIT"]

    def _registers(self, mr: int, nv: int, vw: int, ku: int) -> int:
        """About how many registers a work-item needs: sums, rows of the right side, and elements of a left row."""
        return (mr + ku) * nv * vw + ku + OWN_REGISTERS

    def _run(self, configuration: Configuration) -> int:
        """Neighbouring steps of the reduction that a work-item has. Of many rows it reads vectors."""
        return min(self.left_width, configuration["KU"]) if configuration["MR"] >= MANY_ROWS else 1

    def _summed(self, configuration: Configuration) -> int:
        """Rows whose sums are in local memory at once."""
        nbytes = math.prod(configuration[name] for name in ("NV", "VW", "LM", "LN"))
        nbytes *= ELEMENT_TYPES[self.dtype].sum_bytes
        return min(configuration["MR"], power_at_most(max(SUMMED_BYTES // nbytes, 1)))

    def _needs(self, mr: int, nv: int, vw: int, lm: int, ln: int) -> Needs:
        summed = self._summed({"MR": mr, "NV": nv, "VW": vw, "LM": lm, "LN": ln})
        nbytes = local_bytes(lm * summed * nv * vw * ln * ELEMENT_TYPES[self.dtype].sum_bytes)
        return Needs(nbytes, cooperates=True) if lm > 1 else ALONE

    def _groups_at_once(self, configuration: Configuration, card: Card) -> int:
        """Work-groups of a compute unit for which there are registers and places."""
        items = configuration["LM"] * configuration["LN"]
        needed = self._registers(*(configuration[name] for name in ("MR", "NV", "VW", "KU"))) * items
        return max(1, min(card.registers // needed, card.work_items // items, MOST_GROUPS))
