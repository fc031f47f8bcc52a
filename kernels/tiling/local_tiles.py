"""Define tiles of a work-group whose factors lie in local memory: the tuning space, defaults, estimate and launches.

A work-item alone reads MR + NV * VW numbers for MR * NV * VW multiply-adds. A GPU issues four multiply-adds for each
read, and it has registers for tiles of 8 x 8 at most, so its arithmetic waits for memory. A work-group reads less: its
LM x LN work-items compute a tile of BM = MR * LM rows and BN = NV * VW * LN columns together. They bring BK steps of
both factors into local memory, each number once, and all of them read it there.

What is tuned on top of the tile itself:

* STAGES: with two blocks in local memory the next one is written while this one is read, and one barrier is enough.
* PAD keeps the transposed stores of the left factor from meeting in one bank.
* SA, SB: a factor may be read where it lies, which pays where caches are as fast, or local memory is none.
* SPLIT: work-groups share the reduction of a tile if there are too few tiles for the device. Their sums are added by a
  second launch, in a fixed order, so that bits stay.
* REGS: where a driver can be told, a bound for the registers of a work-item may make room for another work-group.
* BAND: that many rows of tiles take turns, so that work-groups which run at a time share more of what they read.

The parameters are those of CLBlast (Nugteren: CLBlast: A Tuned OpenCL BLAS Library, 2018), and SPLIT and BAND, which it
lacks. BM and BN are no parameters: MR, NV, VW, LM and LN mean what they mean for register tiles (tiles.py), and the
right side is packed in the same way. So what a search learns of one kind of tiles says something about the other.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from gputune.core.dtypes import ELEMENT_TYPES, FLOAT, SUMS
from gputune.core.launches import OUTPUT
from gputune.kernels.family import ALONE, REGISTERS, DeviceLimits, Estimate, Launch, Needs, Stage
from gputune.kernels.space import Configuration, Constraint, DeviceLimit, Parameter, TuningSpace
from gputune.kernels.template import build_options
from gputune.kernels.tiling.estimate import WIDEST, Card, Side, Tile, clocks, groups_at_once, turned
from gputune.kernels.tiling.packing import Packing, buffer_constraints, packed_constraints
from gputune.kernels.tiling.streaming import Declared, at_most, ceil_div, power_at_least, round_up
from gputune.kernels.tiling.workgroups import TiledKernel

ROWS = (1, 2, 4, 8, 16)
VECTORS = (1, 2, 4)
WIDTHS = (1, 2, 4)
DOWN, ACROSS = (4, 8, 16), (8, 16, 32)
DEPTHS = (8, 16, 32)
UNROLLED = 8
SPLITS = (1, 2, 4, 8, 16)
BANDS = (1, 4, 8)

LEAST_SIDE, MOST_SIDE = 16, 128
LEAST_ITEMS, MOST_ITEMS = 64, 512
LEAST_WIDTH = 2
LEAST_SUMS = 8
MOST_REGISTERS, OWN_REGISTERS = 200, 30
"""Registers of a work-item beyond which compilers for NVIDIA's and AMD's devices spill, and what it needs beside sums
and factors."""

MOST_WASTE = 4
"""Tiles may compute for so many times as many outputs as there are."""

SPLIT_GROUPS = 4
"""Shares of tiles give each compute unit so many work-groups at most."""

ROOM = 512
"""Work-items of a multiprocessor for which a default leaves room, so that some compute while others wait for a block.
On an H100 a tile that leaves so much was faster at all four sizes than one twice as large that leaves half."""

CAP, CAPPED_FROM = 128, 112
"""The bound for registers that leaves room for as many, and from how many on by `_registers` compilers need more."""

LONG_SHARE = 4
"""Blocks of a share: fewer cost more to add than what they save."""

PARAMETERS = ("MR", "NV", "VW", "KU", "LM", "LN", "BK", "STAGES", "PAD", "SA", "SB", "SPLIT", "BAND")

ADDING_ITEMS = 32
"""Work-items of a work-group that adds shares."""

TABLE_BYTES = 8
"""The bytes of the table entry in which a row of a map is looked up."""

DEFAULT = {"KU": UNROLLED, "BK": 16, "STAGES": 2, "PAD": 4, "SA": 1, "SB": 1, "SPLIT": 1, "BAND": 1}
TILES = (
    {"MR": 8, "NV": 2, "VW": 4, "LM": 8, "LN": 8},
    {"MR": 8, "NV": 1, "VW": 4, "LM": 16, "LN": 16},
    {"MR": 8, "NV": 2, "VW": 4, "LM": 16, "LN": 8},
    {"MR": 8, "NV": 2, "VW": 4, "LM": 16, "LN": 16},
    {"MR": 4, "NV": 2, "VW": 4, "LM": 8, "LN": 8},
    {"MR": 4, "NV": 1, "VW": 4, "LM": 8, "LN": 16},
    {"MR": 4, "NV": 1, "VW": 4, "LM": 8, "LN": 8},
    {"MR": 4, "NV": 1, "VW": 4, "LM": 4, "LN": 16},
    {"MR": 8, "NV": 1, "VW": 4, "LM": 8, "LN": 8},
)
"""Tiles from CLBlast's database of defaults for GPUs, and smaller tiles for few rows or columns."""

NARROW, NARROW_TILE = 16, {"MR": 16, "NV": 1, "VW": 2, "LM": 8, "LN": 8}
"""For so few columns, of which others hold twice as many."""


@dataclass(frozen=True)
class Shares:
    """The sums of `matrices` products [rows, columns] whose reduction is split among SPLIT work-groups."""

    rows: int
    columns: int
    matrices: int = 1
    dtype: str = FLOAT

    def constraints(
        self, limits: DeviceLimits, packing: Callable[[int, int, int], Packing] | None
    ) -> Iterator[Constraint]:
        """Return the rules for the buffer of all shares, for the launch that adds them, and for what is packed."""
        each = self.matrices * self.rows * self.columns
        yield from buffer_constraints(("SPLIT",), lambda split: split * each, "the sums of all shares", limits, SUMS)
        yield DeviceLimit(
            ("SPLIT", "VW"),
            lambda split, vw: split == 1 or self._can_add(vw, limits),
            f"the device does not allow the work-groups of {ADDING_ITEMS} work-items that add shares",
        )
        if packing is not None:
            # the other algorithms' rule for indices is no part of this space's identity, so that records stay valid
            yield packed_constraints(packing, limits)[1]

    def stored(self, split: int) -> dict[str, int]:
        """Return what so many shares take in `scratch` (name -> bytes)."""
        nbytes = self.matrices * self.rows * self.columns * ELEMENT_TYPES[self.dtype].sum_bytes
        return {"shares": split * nbytes} if split > 1 else {}

    def launch(
        self,
        kernel: TiledKernel,
        global_size: tuple[int, int, int],
        local_size: tuple[int, int, int],
        needs: Needs,
        macros: Mapping[str, int],
        added: tuple[str, ...] = ("packed",),
    ) -> Launch:
        """Return the launch of a kernel that computes the products. If macros split the reduction, the kernel is a
        stage that writes shares in the place of the output. The launch adds them then, and what is `added`."""
        main = Stage(kernel.entry, global_size, local_size, kernel.arguments, needs=needs, writes=(OUTPUT,))
        stages, adding = tuple[Stage, ...](), dict[str, int]()
        if macros["SPLIT"] > 1:
            stages = (replace(main, arguments=(*kernel.inputs, "shares"), writes=("shares",)),)
            x, y = self._adding(macros["VW"])
            main = Stage(
                "add_shares",
                (round_up(ceil_div(self.columns, macros["VW"]), x), round_up(self.rows, y), self.matrices),
                (x, y, 1),
                ("shares", *added, OUTPUT, *kernel.operands),
                needs=ALONE,
                writes=(OUTPUT,),
            )
            adding = {"ADD_X": x, "ADD_Y": y}
        options = build_options({**kernel.sizes, **macros, **adding})
        return Launch(**vars(main), source=kernel.source, options=options, stages=stages, aligned=kernel.aligned)

    def _adding(self, width: int) -> tuple[int, int]:
        """Return the work-group that adds shares in vectors of so many columns."""
        x = min(power_at_least(ceil_div(self.columns, width)), ADDING_ITEMS)
        return x, ADDING_ITEMS // x

    def _can_add(self, width: int, limits: DeviceLimits) -> bool:
        (x, y), (most_x, most_y, _) = self._adding(width), limits.max_work_item_sizes
        return x <= most_x and y <= most_y and x * y <= limits.max_work_group_size


@dataclass(frozen=True)
class LocalTiles:
    """A product as the local tiles see it: `matrices` products of [rows, reduction] by [reduction, columns].

    A work-item brings vectors into local memory. Of the left side they have `left_width` elements along the reduction,
    or along the rows if it is not `left_deep`. Of the right side they have `right_width` elements along the reduction
    if it is `right_deep`, else so many along the columns, and VW at most. `looked_up`: where a row's elements are is
    looked up once in a table in local memory, so the left side goes through local memory, too. `factors` is the type
    that they are multiplied in, and that local memory holds. `packing` gives the packed right side for NV, VW and LN,
    if it is packed.
    """

    rows: int
    columns: int
    reduction: int
    left_width: int = 1
    left_deep: bool = True
    right_width: int = WIDEST
    right_deep: bool = False
    matrices: int = 1
    looked_up: bool = False
    dtype: str = FLOAT
    factors: str = FLOAT
    packing: Callable[[int, int, int], Packing] | None = None

    def space(self, limits: DeviceLimits) -> TuningSpace:
        """Return every tile that a work-group can have, with what is shared out in it."""
        return TuningSpace(
            (
                Parameter("MR", ROWS, "rows of a work-item's tile"),
                Parameter("NV", VECTORS, "vectors of a tile's row"),
                Parameter("VW", WIDTHS, "columns of a vector"),
                Parameter("KU", (UNROLLED,), "unrolling of the reduction"),
                Parameter("LM", DOWN, "work-items of a work-group down the rows", of_group=True),
                Parameter("LN", ACROSS, "work-items of a work-group across the columns", of_group=True),
                Parameter("BK", DEPTHS, "steps of the reduction that are in local memory at once"),
                Parameter("STAGES", (1, 2), "blocks of so many steps that are in local memory"),
                Parameter("PAD", (0, 4), "elements behind each step of a transposed factor in local memory"),
                Parameter("SA", (0, 1), "1: the left side goes through local memory"),
                Parameter("SB", (0, 1), "1: the right side goes through local memory"),
                Parameter("SPLIT", SPLITS, "work-groups that share the reduction"),
                Parameter("BAND", BANDS, "rows of tiles that take turns along the columns"),
                *self._caps(limits),
            ),
            (
                *self._tile_rules(limits),
                *self._block_rules(),
                *self._cap_rules(limits),
                *self._grid_rules(limits),
                self.declared.limit(limits),
                *self.shares.constraints(limits, self.packing),
            ),
        )

    def default(self, limits: DeviceLimits) -> dict[str, int]:
        """Return the tile of TILES, and the number of shares, that the estimate likes best, of those with ROOM if there
        are any. What a bound for registers costs is not known before it is measured. ValueError if none is legal."""
        space, card = self.space(limits), Card.of(limits)
        known = [one for one in self._candidates(space) if not one.get(REGISTERS)]
        roomy = [one for one in known if groups_at_once(self.tile(one), card) * one["LM"] * one["LN"] >= ROOM]
        return min(roomy or known, key=self.estimate(limits), default=None) or space.first()

    def guesses(self, limits: DeviceLimits) -> list[dict[str, int]]:
        """Return the tiles of TILES, each with as many shares as the estimate likes best, the fastest first."""
        estimate, space = self.estimate(limits), self.space(limits)
        by_tile: dict[tuple[int, ...], list[dict[str, int]]] = {}
        for each in self._candidates(space):
            by_tile.setdefault(tuple(each[name] for name in TILES[0]), []).append(each)
        return sorted((min(each, key=estimate) for each in by_tile.values()), key=estimate)

    def estimate(self, limits: DeviceLimits) -> Estimate:
        """Return what estimates a configuration's clocks on a device."""
        card = Card.of(limits)

        def clocks_of(configuration: Configuration) -> float:
            return clocks(self.tile(configuration), self.columns, self.rows, self.reduction, card, self.matrices)

        return clocks_of

    def tile(self, configuration: Configuration) -> Tile:
        """Return a configuration as the estimate sees it. Neighbouring work-items lie along the columns."""
        mr, nv, vw, lm, ln = (configuration[name] for name in ("MR", "NV", "VW", "LM", "LN"))
        depth, pad, cap = configuration["BK"], configuration["PAD"], configuration.get(REGISTERS, 0)
        fill_rows = _fill(self.left_width if self.left_deep else 0, depth, mr * lm + pad)
        fill_columns = _fill(self.right_width if self.right_deep else 0, depth, nv * vw * ln + pad)
        columns = Side(nv * vw * ln, ln, vw, bool(configuration["SB"]), True, fill_columns)
        rows = Side(mr * lm, lm, min(mr, WIDEST), bool(configuration["SA"]), True, fill_rows)
        return Tile(columns, rows, depth, configuration["STAGES"], configuration["SPLIT"], cap)

    @property
    def shares(self) -> Shares:
        """The shares of the products."""
        return Shares(self.rows, self.columns, self.matrices, self.dtype)

    @property
    def declared(self) -> Declared:
        """Declare the needs of the kernel."""
        names = ("MR", "NV", "VW", "LM", "LN", "BK", "STAGES", "PAD", "SA", "SB")
        return Declared(names, self._needs, "a work-group's factors must fit local memory")

    def right_vector(self, vw: int) -> int:
        """Return how many elements of the right side are read at once by tiles with vectors of VW columns."""
        return self.right_width if self.right_deep else min(self.right_width, vw)

    def _candidates(self, space: TuningSpace) -> Iterator[dict[str, int]]:
        """Yield the legal configurations with one of the known tiles."""
        tiles = (*TILES, NARROW_TILE) if self.columns <= NARROW else TILES
        caps = [{REGISTERS: cap} for each in space.parameters if each.name == REGISTERS for cap in each.values] or [{}]
        for tile, depth, split, cap in itertools.product(tiles, DEPTHS[:2], SPLITS, caps):
            one = DEFAULT | tile | {"BK": depth, "SPLIT": split, "PAD": 4 * self._turned} | cap
            if not space.violations(one):
                yield one

    @property
    def _turned(self) -> bool:
        """Return whether a factor is turned over on its way into local memory."""
        return self.left_deep or self.right_deep

    def _tile_rules(self, limits: DeviceLimits) -> Iterator[Constraint]:
        most = min(limits.max_work_group_size, limits.max_work_item_sizes[0])
        yield at_most(("LM", "LN"), most, f"{most} work-items")
        yield Constraint(
            ("LM", "LN"),
            lambda lm, ln: LEAST_ITEMS <= lm * ln <= MOST_ITEMS,
            f"a work-group has {LEAST_ITEMS} to {MOST_ITEMS} work-items: fewer leave lanes idle",
        )
        yield Constraint(
            ("MR", "LM"),
            lambda mr, lm: LEAST_SIDE <= mr * lm <= MOST_SIDE,
            f"a tile has {LEAST_SIDE} to {MOST_SIDE} rows, MR*LM",
        )
        yield Constraint(
            ("NV", "VW", "LN"),
            lambda nv, vw, ln: LEAST_SIDE <= nv * vw * ln <= MOST_SIDE,
            f"a tile has {LEAST_SIDE} to {MOST_SIDE} columns, NV*VW*LN",
        )
        yield Constraint(
            ("MR", "NV", "VW"),
            lambda mr, nv, vw: mr * nv * vw >= LEAST_SUMS,
            f"fewer than {LEAST_SUMS} sums, MR*NV*VW, are not worth the work of bringing factors in",
        )
        widest = max(width for width in WIDTHS if width <= self.columns)
        least = min(LEAST_WIDTH, widest)
        yield Constraint(("VW",), lambda vw: vw >= least, f"VW is at least {least}: elements one by one take too long")
        yield Constraint(
            ("NV", "VW"),
            lambda nv, vw: nv == 1 or vw == widest,
            f"several vectors are as wide as they can be, VW {widest}",
        )
        yield Constraint(
            ("MR", "LM", "NV", "VW", "LN"),
            self._little_waste,
            f"tiles must not hold more than {MOST_WASTE} times as many outputs as there are",
        )

    def _block_rules(self) -> Iterator[Constraint]:
        side = ("MR", "LM", "LN")
        yield Constraint(
            ("SA",), lambda sa: sa or not self.looked_up, "a map's pixels are looked up in local memory, so SA is 1"
        )
        yield Constraint(
            ("SB", "VW"),
            lambda sb, vw: sb or (self.right_vector(vw) == vw and not self.right_deep),
            "columns that are not read in vectors of VW elements go through local memory, so SB is 1",
        )
        yield Constraint(
            ("BK", "SA", *side),
            lambda bk, sa, mr, lm, ln: not sa or bk * mr * lm % (self.left_width * lm * ln) == 0,
            "a block's rows must be shared out evenly among the work-items",
        )
        yield Constraint(
            ("BK", "SB", "NV", "VW", "LN", "LM"),
            lambda bk, sb, nv, vw, ln, lm: not sb or bk * nv * vw * ln % (self.right_vector(vw) * lm * ln) == 0,
            "a block's columns must be shared out evenly among the work-items",
        )
        yield Constraint(
            ("BK",), lambda bk: bk < 2 * max(self.reduction, DEPTHS[0]), f"blocks end with the {self.reduction} steps"
        )
        yield Constraint(
            ("STAGES", "SA", "SB"),
            lambda stages, sa, sb: stages == 1 or sa + sb > 0,
            "blocks take turns in local memory only if a side goes through it",
        )
        yield Constraint(
            ("PAD", "SA", "SB"),
            lambda pad, sa, sb: pad == 0 or (sa and self.left_deep) or (sb and self.right_deep),
            "PAD is for a side that is turned over in local memory",
        )
        yield Constraint(
            ("MR", "NV", "VW", "BK", "SA", "SB", "LM", "LN"),
            lambda *values: self._registers(*values) <= MOST_REGISTERS,
            f"a work-item would need more than {MOST_REGISTERS} registers, and they would be spilt",
        )

    def _caps(self, limits: DeviceLimits) -> Iterator[Parameter]:
        """Return the bound for registers as a parameter, where the driver can be told."""
        if limits.register_cap:
            yield Parameter(REGISTERS, (0, CAP), "registers that a work-item may have at most, 0: any number")

    def _cap_rules(self, limits: DeviceLimits) -> Iterator[Constraint]:
        if limits.register_cap:
            yield Constraint(
                (REGISTERS, "MR", "NV", "VW", "BK", "SA", "SB", "LM", "LN"),
                lambda cap, *values: not cap or self._registers(*values) >= CAPPED_FROM,
                f"a work-item that has no need of {CAP} registers needs no bound",
            )

    def _grid_rules(self, limits: DeviceLimits) -> Iterator[Constraint]:
        tile, most = ("MR", "LM", "NV", "VW", "LN"), SPLIT_GROUPS * limits.compute_units
        yield Constraint(
            ("SPLIT", "BK"),
            lambda split, bk: split == 1 or split * bk * LONG_SHARE <= self.reduction,
            f"a share of the {self.reduction} steps must have {LONG_SHARE} blocks",
        )
        yield Constraint(
            ("SPLIT", *tile),
            lambda split, *tile: split == 1 or split * math.prod(self._grid(*tile)) * self.matrices <= most,
            f"there are at most {SPLIT_GROUPS} shares of tiles for each compute unit, or adding them takes too long",
        )
        yield Constraint(
            ("BAND", *tile),
            lambda band, *tile: band == 1 or self._worth_bands(band, self._grid(*tile), limits.compute_units),
            "bands are for more tiles than run at a time, down and across",
        )
        yield Constraint(
            ("SA", "SB", "SPLIT", "BAND"),
            lambda sa, sb, split, band: sa + sb > 0 or split > 1 or band > 1,
            "without local memory, shares and bands it is ALG 0",
        )

    def _worth_bands(self, band: int, grid: tuple[int, int], units: int) -> bool:
        down, across = grid
        return band <= down and across > 1 and down * across * self.matrices > units

    def _grid(self, mr: int, lm: int, nv: int, vw: int, ln: int) -> tuple[int, int]:
        """Tiles down and across a product."""
        return ceil_div(self.rows, mr * lm), ceil_div(self.columns, nv * vw * ln)

    def _little_waste(self, mr: int, lm: int, nv: int, vw: int, ln: int) -> bool:
        computed = math.prod(self._grid(mr, lm, nv, vw, ln)) * mr * lm * nv * vw * ln
        return computed <= MOST_WASTE * self.rows * self.columns

    def _registers(self, mr: int, nv: int, vw: int, bk: int, sa: int, sb: int, lm: int, ln: int) -> int:
        """About how many registers a work-item needs: sums, a step's factors, and what is on its way."""
        brought = sa * mr * lm * bk // (self.left_width * lm * ln) if self.looked_up else 0  # with where they are
        held = (sa * mr * lm + sb * nv * vw * ln) * bk // (lm * ln)
        return mr * nv * vw + mr + nv * vw + held + 2 * brought + OWN_REGISTERS

    def _needs(
        self, mr: int, nv: int, vw: int, lm: int, ln: int, bk: int, stages: int, pad: int, sa: int, sb: int
    ) -> Needs:
        left = sa * (mr * lm + pad * self.left_deep)
        right = sb * (nv * vw * ln + pad * self.right_deep)
        looked_up = TABLE_BYTES * mr * lm if self.looked_up else 0
        nbytes = stages * bk * (left + right) * ELEMENT_TYPES[self.factors].nbytes + looked_up
        return Needs(local_bytes=nbytes, cooperates=nbytes > 0)

    def launch(self, configuration: Configuration, kernel: TiledKernel) -> Launch:
        """Return the launch of a kernel with these tiles; if the reduction is split, with the kernel as a stage in
        front of the sum of the shares."""
        tile = {name: configuration[name] for name in PARAMETERS}
        split, items = tile["SPLIT"], tile["LM"] * tile["LN"]
        tiles = math.prod(self._grid(*(tile[name] for name in ("MR", "LM", "NV", "VW", "LN"))))
        grid, needs = (tiles * items, split, self.matrices), self.declared.of(configuration)
        macros = {
            "M": self.rows,
            "K": self.reduction,
            "N": self.columns,
            "LEFT_WIDTH": self.left_width,
            "LEFT_DEEP": int(self.left_deep),
            "RIGHT_WIDTH": self.right_vector(tile["VW"]),
            "RIGHT_DEEP": int(self.right_deep),
        }
        added = ("packed",) if self.packing else ()
        return self.shares.launch(kernel, grid, (items, 1, 1), needs, macros | tile, added)

    def stored(self, configuration: Configuration) -> dict[str, int]:
        """Return what a configuration keeps in `scratch` (name -> bytes)."""
        return self.shares.stored(configuration["SPLIT"])


def _fill(turned_width: int, depth: int, pitch: int) -> float:
    """Return the wavefronts in which a line gets into local memory: of reading it, and of writing it."""
    return 1 + (turned(turned_width, depth, pitch) if turned_width else 1)
