"""Cut attentions into work-items: rows of a work-item's own, and rows of a work-group in local memory.

A row of scores is never in memory as a whole. Keys come in blocks, and what was summed for earlier blocks is made
smaller where a block has a larger maximum.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gputune.core.dtypes import ELEMENT_TYPES, FLOAT
from gputune.kernels.family import DeviceLimits, Estimate, Needs
from gputune.kernels.space import Configuration, Constraint, Parameter, TuningSpace
from gputune.kernels.tiling.estimate import (
    BARRIER,
    BLOCK,
    LOCAL_LATENCY,
    LOOP,
    MOST_GROUPS,
    RESERVED_BYTES,
    START,
    WIDEST,
    Card,
)
from gputune.kernels.tiling.packing import buffer_constraints
from gputune.kernels.tiling.streaming import (
    VECTOR_WIDTHS,
    Declared,
    at_most,
    busy,
    ceil_div,
    local_bytes,
    power_at_least,
    power_at_most,
    round_up,
)
from gputune.kernels.tiling.tiles import VECTORS, Tiling, rows_of
from gputune.kernels.tiling.workgroups import GROUP_SIDES, accumulators_fit, cut_tile

OWN_TILE = ("MR", "NV", "VW", "KU", "BLOCK", "PACK")
SHARED_TILE = ("MR", "NR", "LM", "LN")
"""The parameters of both ways."""

BLOCKS = (16, 32, 64, 128, 256, 512, 1024)
MOST_ROWS = 8
"""Rows of a default. With 14, those of ViT-S and their shares take 1.3 times as long on a CPU with AVX-512."""

CPU_SCORES, GPU_SCORES = 16 << 10, 1 << 10
"""The scores that a work-item keeps at most: those of a CPU fit its second cache and any stack, and other devices have
such memory for each work-item that runs."""

USUAL_BLOCK = 512
"""Scores of so many keys fit a first cache, a dozen rows of them."""

SIDES = (1, 2, 4, 8)
LEAST_ITEMS = 32
LEAST_RATIO, FAIR_RATIO = 8, 6
"""Multiply-adds for each read of local memory: of defaults, and of what else is worth trying."""

READ = 8
"""Instructions of arithmetic in whose time local memory serves a warp's read of four numbers each."""

BESIDE_SUMS = 40
"""The registers of a work-item for addresses, counters and what it has read."""

USUAL_SUMS, MOST_SUMS = 48, 96
"""Scores and sums of a work-item. With more than the first it has more than 128 registers of an H100."""

SHARE = 16
"""Instructions for a share: its exponential, and its way through local memory."""

BARRIERS, FILLS = 4, 2
"""Those of a block of keys, of which some wait for what comes into local memory."""


@dataclass(frozen=True)
class Attended:
    """Sizes of an attention: `products` with their own rows, and `matrices` of keys that differ. With `deep` keys lie
    number by number, and with `wide` a key is a row of vectors."""

    rows: int
    keys: int
    depth: int
    columns: int
    products: int = 1
    matrices: int = 1
    deep: bool = False
    wide: bool = False
    dtype: str = FLOAT


@dataclass(frozen=True)
class OwnRows:
    """A work-item has rows of its own, and a block of their scores in private memory."""

    of: Attended

    def space(self, limits: DeviceLimits) -> TuningSpace:
        most, longest = min(self.of.keys, self.of.columns), min(self.of.depth, self.of.keys)
        return TuningSpace(
            (
                Parameter("MR", rows_of(limits), "rows of a work-item's tile"),
                Parameter("NV", VECTORS, "vectors of a tile"),
                Parameter("VW", VECTOR_WIDTHS, "elements of a vector"),
                Parameter("KU", (1, 2, 4, 8), "unrolling of sums"),
                Parameter("BLOCK", BLOCKS, "keys at a time"),
                Parameter("PACK", (1, 0), "1: keys are packed first, 0: they are read where they lie"),
            ),
            (
                Constraint(("MR",), lambda mr: mr <= self.of.rows, f"MR must not exceed the {self.of.rows} rows"),
                Constraint(
                    ("NV", "VW"),
                    lambda nv, vw: nv * vw <= most,
                    f"NV*VW must not exceed the {most} keys or columns of values",
                ),
                accumulators_fit(limits),
                Constraint(("KU",), lambda ku: ku <= longest, f"KU must not exceed the {longest} numbers of a sum"),
                Constraint(
                    ("BLOCK", "NV", "VW"), lambda block, nv, vw: block % (nv * vw) == 0, "NV*VW must divide BLOCK"
                ),
                Constraint(
                    ("BLOCK",),
                    lambda block: block == BLOCKS[0] or block < 2 * self.of.keys,
                    f"BLOCK must stay below twice the {self.of.keys} keys",
                ),
                Constraint(
                    ("MR", "BLOCK"),
                    lambda mr, block: mr * block <= self._most_scores(limits),
                    f"MR*BLOCK must not exceed {self._most_scores(limits)} scores, which a work-item keeps",
                ),
                Constraint(
                    ("PACK",),
                    lambda packs: bool(packs) or self.of.deep,
                    "PACK 0 needs keys whose first numbers lie side by side",
                ),
                *buffer_constraints(("PACK", "NV", "VW"), self._packed, "packed keys", limits, self.of.dtype),
            ),
        )

    def default(self, limits: DeviceLimits) -> dict[str, int]:
        """Return the tile of a product as large as the scores, cut to the keys and columns, and to the device's
        cores."""
        space, most = self.space(limits), min(self.of.keys, self.of.columns)
        tile = self._product.default(limits)
        width = tile["VW"]
        while width > most:
            width //= 2
        vectors = max(number for number in (1, 2, 4) if number <= tile["NV"] and number * width <= most)
        heights = [each for each in rows_of(limits) if each <= min(tile["MR"], MOST_ROWS)]
        spread = [each for each in heights if each == 1 or self.tiles(each) >= limits.compute_units]
        mr, nv = cut_tile(spread, vectors, width, limits)
        mr = next(each for each in heights if self.tiles(each) == self.tiles(mr))
        usual = min(USUAL_BLOCK, power_at_least(self.of.keys), power_at_most(self._most_scores(limits) // mr))
        block = max(usual, BLOCKS[0])
        steps = power_at_most(min(tile["KU"], self.of.depth, self.of.keys))
        wanted = {"MR": mr, "NV": nv, "VW": width, "KU": steps, "BLOCK": block, "PACK": int(not self.of.deep)}
        return space.first() if space.violations(wanted) else wanted

    def guesses(self, limits: DeviceLimits) -> list[dict[str, int]]:
        """Return other tiles for a CPU. Other devices have no private memory that is as fast."""
        if limits.device_type != "cpu":
            return []
        default = self.default(limits)
        tiles = ((4, 4), (6, 2), (8, 2), (12, 1), (14, 1))
        return [
            *(default | {"BLOCK": block} for block in (1024, 256, 128, 64)),
            *(default | {"MR": mr, "NV": nv} for mr, nv in tiles),
        ]

    def estimate(self, limits: DeviceLimits) -> Estimate:
        return lambda configuration: math.inf

    def tiles(self, mr: int) -> int:
        """Return how many tiles of so many rows there are."""
        return self.of.products * ceil_div(self.of.rows, mr)

    def stored(self, configuration: Configuration) -> dict[str, int]:
        """Return what a configuration keeps in `scratch`: keys that a stage packs."""
        elements = self._packed(*(configuration[name] for name in ("PACK", "NV", "VW")))
        return {"packed": elements * ELEMENT_TYPES[self.of.dtype].nbytes} if elements else {}

    def _most_scores(self, limits: DeviceLimits) -> int:
        return CPU_SCORES if limits.device_type == "cpu" else GPU_SCORES

    def _packed(self, packs: int, nv: int, vw: int) -> int:
        """Return how many elements the packed keys have."""
        return packs * round_up(self.of.keys, nv * vw) * self.of.matrices * self.of.depth

    @property
    def _product(self) -> Tiling:
        """The product of queries and keys alone."""
        return Tiling(
            rows=self.of.rows,
            columns=self.of.keys,
            reduction=self.of.depth,
            output_stride=1,
            input_stride=self.of.keys,
            groups=self.of.products,
            matrices=self.of.matrices,
            dtype=self.of.dtype,
        )


@dataclass(frozen=True)
class SharedRows:
    """A work-group has rows, and blocks of keys and values, in local memory."""

    of: Attended

    def space(self, limits: DeviceLimits) -> TuningSpace:
        return TuningSpace(
            (
                Parameter("MR", SIDES, "rows of a work-item's tile"),
                Parameter("NR", SIDES, "keys of a work-item's tile"),
                Parameter("LM", GROUP_SIDES, "work-items of a work-group down the rows", of_group=True),
                Parameter("LN", GROUP_SIDES, "work-items of a work-group across keys and columns", of_group=True),
            ),
            (*self._tile_rules(), *self._limits(limits)),
        )

    def default(self, limits: DeviceLimits) -> dict[str, int]:
        """Return the fastest by the estimate of those with enough arithmetic, and with a work-group for each compute
        unit. ValueError if none fits the device."""
        if not (every := list(self.space(limits).configurations())):
            raise ValueError("no rows and keys fit local memory")
        dense = self._dense(every, LEAST_RATIO)
        lean = [one for one in dense if self._sums(one["MR"], one["NR"], one["LN"]) <= USUAL_SUMS] or dense
        spread = [one for one in lean if self._groups(one["MR"], one["LM"]) >= limits.compute_units] or lean
        return min(spread, key=self.estimate(limits))

    def guesses(self, limits: DeviceLimits) -> list[dict[str, int]]:
        """Return the fastest by the estimate for each tile of a work-item."""
        by_tile: dict[tuple[int, int], dict[str, int]] = {}
        every = self._dense(self.space(limits).configurations(), FAIR_RATIO)
        for one in sorted(every, key=self.estimate(limits)):
            by_tile.setdefault((one["MR"], one["NR"]), one)
        return list(by_tile.values())

    def estimate(self, limits: DeviceLimits) -> Estimate:
        """Return what estimates the clocks of a configuration: instructions of its warps, and waiting for blocks."""
        card = Card.of(limits)

        def clocks_of(configuration: Configuration) -> float:
            mr, nr, lm, ln = (configuration[name] for name in SHARED_TILE)
            items, blocks = lm * ln, ceil_div(self.of.keys, nr * ln)
            warps = ceil_div(items, card.lanes)
            local = card.local_bytes // (self.local_bytes(mr, nr, lm, ln) + RESERVED_BYTES)
            registers = card.registers // ((self._sums(mr, nr, ln) + BESIDE_SUMS) * items)
            at_once = max(1, min(local, registers, card.work_items // items, MOST_GROUPS))
            groups = ceil_div(self._groups(mr, lm), card.units)
            waits = START + blocks * (FILLS * BLOCK + BARRIERS * BARRIER)
            latency = 1 + LOCAL_LATENCY / (min(groups, at_once) * warps)
            work = groups * blocks * warps * self._instructions(mr, nr, lm, ln) / card.issued
            return ceil_div(groups, at_once) * waits + work * latency

        return clocks_of

    def local_bytes(self, mr: int, nr: int, lm: int, ln: int) -> int:
        """Return what a work-group has in local memory."""
        rows, keys, across = mr * lm, nr * ln, self._vectors(ln) * WIDEST * ln
        pitch = round_up(self.of.depth, WIDEST) + WIDEST
        arrays = (rows * pitch, keys * max(pitch, across), rows * (keys + WIDEST), rows * ln)
        return local_bytes(*(ELEMENT_TYPES[self.of.dtype].sum_bytes * elements for elements in arrays))

    @property
    def declared(self) -> Declared:
        """Declare the needs of the kernel."""

        def needs(mr: int, nr: int, lm: int, ln: int) -> Needs:
            return Needs(self.local_bytes(mr, nr, lm, ln), cooperates=lm * ln > 1)

        return Declared(SHARED_TILE, needs, "a work-group's rows, keys and shares")

    def _tile_rules(self) -> Iterator[Constraint]:
        keys = self.of.keys
        yield busy(("MR", "LM"), self.of.rows, "the rows")
        yield busy(("LN",), max(ceil_div(self.of.columns, WIDEST), WIDEST), "the vectors of a value")
        yield Constraint(
            ("NR", "LN"),
            lambda nr, ln: nr * ln % WIDEST == 0,
            f"NR*LN keys must be a multiple of the {WIDEST} that are read at once",
        )
        yield Constraint(
            ("NR", "LN"),
            lambda nr, ln: nr == 1 or nr * ln <= WIDEST or nr * ln < 2 * keys,
            f"NR*LN must stay below twice the {keys} keys",
        )
        yield Constraint(
            ("MR", "NR", "LN"),
            lambda *tile: self._sums(*tile) <= MOST_SUMS,
            f"the scores and sums of a work-item must not exceed {MOST_SUMS} registers",
        )

    def _limits(self, limits: DeviceLimits) -> Iterator[Constraint]:
        most = min(limits.max_work_group_size, limits.max_work_item_sizes[0])
        yield at_most(("LM", "LN"), most, f"{most} work-items")
        yield self.declared.limit(limits)

    def _dense(self, every: Iterable[dict[str, int]], ratio: float) -> list[dict[str, int]]:
        """Return those that fill a warp and have so many multiply-adds for each read of local memory; where no other is
        possible, such as for few rows, those that come nearest."""

        def arithmetic(one: Configuration) -> float:
            mr, nr, vectors = one["MR"], one["NR"], self._vectors(one["LN"])
            loops = ((mr * nr, mr + nr), (WIDEST * mr * vectors, mr + WIDEST * vectors))
            return min(ratio, *(WIDEST * products / reads for products, reads in loops))

        kept = list(every)
        kept = [one for one in kept if one["LM"] * one["LN"] >= LEAST_ITEMS] or kept
        most = max(map(arithmetic, kept), default=0.0)
        return [one for one in kept if arithmetic(one) == most]

    def _instructions(self, mr: int, nr: int, lm: int, ln: int) -> float:
        """Return the instructions of a work-item for a block of keys, where a read takes as long as several."""
        vectors, keys, items = self._vectors(ln), nr * ln, lm * ln
        deep, across = ceil_div(self.of.depth, WIDEST), keys // WIDEST
        scores = deep * max(WIDEST * mr * nr + mr + nr + LOOP, READ * (mr + nr))
        values = across * max(WIDEST**2 * mr * vectors + mr + WIDEST * vectors + LOOP, READ * (mr + WIDEST * vectors))
        brought = (self.of.depth + vectors * WIDEST * ln) * keys / items
        return scores + values + mr * (nr * SHARE + ln) + brought * (READ / WIDEST if self.of.wide else READ)

    def _groups(self, mr: int, lm: int) -> int:
        return self.of.products * ceil_div(self.of.rows, mr * lm)

    def _vectors(self, items: int) -> int:
        """Return how many vectors of a row of the output a work-item has."""
        return ceil_div(self.of.columns, WIDEST * items)

    def _sums(self, mr: int, nr: int, ln: int) -> int:
        return mr * (nr + WIDEST * self._vectors(ln))
