"""Estimate how long a GPU takes for a product that is cut into tiles, before anything is measured.

The wavefront model. A multiprocessor of NVIDIA issues four instructions a clock, each for a warp of 32 work-items
(Card has other makers). Its memory pipe takes one wavefront a clock: the part of a warp's access that touches each
bank of local memory once, or one line of a cache. For a step along the reduction a warp needs

    instructions    for the rows x columns of a work-item's tile and for its reads: a quarter of a clock each
    wavefronts      of its reads of both factors, and of its share in filling local memory: a clock each

and the larger of the two bounds it. What is left of latency depends on how many warps there are to hide it, which
registers and local memory decide. A work-group waits for each block that comes into local memory. The multiprocessor
with the most work-groups is the last to end: its groups run in turns, as many at a time as there is room for. If the
reduction is split, the sums of the shares are written and read by another launch.

One number is fitted to measurements, BLOCK. The model orders configurations; the numbers themselves mean little. Its
rank correlation with the times of 11 tiles on an H100 is 0.79 for 512 rows, 0.81 for 1024, 0.41 for 2048 and 0.85 for
4096. On the recorded spaces of CLBlast's xgemm (4096 x 4096 x 4096, 17 956 configurations) it is 0.84 and 0.87, and
occupancy alone has -0.35. The idea of counting wavefronts is that of NVIDIA's profilers; see also Hong, Kim: An
Analytical Model for a GPU Architecture (2009).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

from gputune.core.dtypes import ELEMENT_TYPES, FLOAT
from gputune.kernels.family import DeviceLimits

WARP = 32
BANKS = 32

LAUNCH_NS = 5500
"""What another launch costs where that was not measured: an H100's driver takes so long."""

FLOAT_BYTES = ELEMENT_TYPES[FLOAT].nbytes
LINE_BYTES = 128
LOOP = 3
"""Instructions of a step that only count and branch."""

WIDEST = 4
"""Elements of a vector that one instruction reads; a wider vector takes several."""

OWN_REGISTERS = 34
"""A work-item has so many for addresses and counters."""

SPARED_REGISTERS = 10
"""A compiler that is told to does with so many less."""

MOST_GROUPS = 16
"""Work-groups of a multiprocessor at a time."""

RESERVED_BYTES = 1024
"""Each work-group takes so much local memory for itself."""

CACHE_WAVEFRONTS = 2.0
"""A line that comes from a cache takes the pipe as long as so many wavefronts of local memory."""

FILL_WAVEFRONTS = 2.5
"""To bring a line into local memory: it is read, and written, in part with conflicts, unless those are known."""

BARRIER = 20
"""Clocks for which a work-group waits at a barrier that no loads stand before."""

BLOCK = 700
"""Clocks for which a work-group waits at a barrier for a block to come into local memory: the part of the loads'
latency that its arithmetic does not hide. 600 to 2000 order the tiles that an H100 measured well at all sizes."""

START = 500
"""Clocks until a work-group has its first numbers, and between its last and the next one's begin."""

UNIT_BYTES = 10
"""Bytes that a multiprocessor writes or reads in a clock, of memory: 7 on an RTX 3090, 14 on an H100."""

LOCAL_LATENCY, CACHE_LATENCY = 8.0, 20.0
"""Clocks of a step that a single warp would wait, in units of the time that a step takes."""


@dataclass(frozen=True)
class Card:
    """Describe a GPU: its multiprocessors, and what each of them has.

    local_bytes, work_items: of all its work-groups at a time. lanes: the work-items of a warp; issued: instructions of
    a clock, each for a warp. banks: words of local memory that are read in a clock. registers: those of four bytes,
    for all work-items, of which one has `most_registers`. mhz: about how many clocks there are in a microsecond.
    `local_pays` says whether tiles in local memory may be a default.
    """

    units: int
    local_bytes: int
    work_items: int
    lanes: int = WARP
    issued: float = 4
    banks: int = BANKS
    registers: int = 65536
    most_registers: int = 255
    mhz: int = 1755
    launch_ns: float = LAUNCH_NS
    local_pays: bool = True

    @classmethod
    def of(cls, limits: DeviceLimits) -> Card:
        """Return what is known of a device."""
        facts = next((card for family, card in _FAMILIES.items() if limits.family.startswith(family)), _NVIDIA)
        return replace(
            facts,
            units=max(limits.compute_units // facts.units, 1),
            local_bytes=facts.local_bytes or 2 * limits.local_memory_bytes,
            launch_ns=limits.launch_ns or LAUNCH_NS,
        )

    @property
    def launch(self) -> float:
        """The clocks of another launch."""
        return self.launch_ns * self.mhz / 1000


# A driver says little of this, so the table has what makers publish, and for phones what Mesa's compilers know. Of a
# family that is not here, NVIDIA's facts are assumed, of which most is known. Here `units` are a driver's compute units
# in one multiprocessor. Without local_bytes it has more local memory than a work-group may have, and OpenCL does not
# say how much.
_NVIDIA = Card(1, 0, 2048)
_FAMILIES: Mapping[str, Card] = {
    "amd-rdna": Card(1, 64 << 10, 1024, issued=2, most_registers=256, mhz=2200),
    "amd": Card(1, 64 << 10, 2048, lanes=64, issued=1, most_registers=256, mhz=1700),
    "intel": Card(16, 128 << 10, 2048, lanes=16, issued=8, banks=16, registers=131072, most_registers=128, mhz=2100),
    # Local memory is a loss on Adreno by public reports, and on Mali it is memory (CL_DEVICE_LOCAL_MEM_TYPE).
    "adreno": Card(
        1, 32 << 10, 2048, lanes=64, issued=2, registers=49152, most_registers=192, mhz=680, local_pays=False
    ),
    "mali": Card(1, 32 << 10, 1024, lanes=16, issued=2, registers=32768, most_registers=64, mhz=850, local_pays=False),
}


@dataclass(frozen=True)
class Side:
    """Describe how a work-group reads a factor: `tile` rows or columns, which `items` work-items share out in
    vectors of `width` elements, from local memory where it is `staged`, into which a line comes in `fill` wavefronts.
    A work-item's vectors lie side by side, or `spread` so that neighbouring work-items have neighbouring vectors. In
    memory the elements of a side lie next to each other, or `scattered`, each in a line of its own."""

    tile: int
    items: int
    width: int
    staged: bool
    spread: bool = False
    fill: float = FILL_WAVEFRONTS
    scattered: bool = False

    @property
    def own(self) -> int:
        """The rows or columns of a work-item."""
        return self.tile // self.items


@dataclass(frozen=True)
class Tile:
    """Describe how a work-group cuts a product. Neighbouring work-items lie along the rows. depth: steps of the
    reduction that a block in local memory has; stages: blocks that are there; shares: work-groups among which the
    reduction of a tile is split; cap: the registers that a work-item may have at most, 0 for as many as there are."""

    rows: Side
    columns: Side
    depth: int
    stages: int = 1
    shares: int = 1
    cap: int = 0

    @property
    def work_items(self) -> int:
        """The work-items of a work-group."""
        return self.rows.items * self.columns.items

    @property
    def registers(self) -> int:
        """The registers of a work-item, about: for sums and factors, and for elements of the next block and where they
        come from. ptxas takes 8 less to 12 more for the tiles that are defaults."""
        held = 2 * self._block // self.work_items if self.stages > 1 else 0
        return self.rows.own * self.columns.own + self.rows.own + self.columns.own + held + OWN_REGISTERS

    @property
    def local_bytes(self) -> int:
        """The local memory of a work-group."""
        return FLOAT_BYTES * self.stages * self._block

    @property
    def _block(self) -> int:
        """The elements of a block in local memory."""
        return self.depth * sum(side.tile for side in (self.rows, self.columns) if side.staged)


def clocks(tile: Tile, rows: int, columns: int, depth: int, card: Card, products: int = 1) -> float:
    """Return about how many clocks a card takes for so many products of [rows, depth] by [depth, columns]."""
    whole = math.ceil(rows / tile.rows.tile) * math.ceil(columns / tile.columns.tile) * products * tile.shares
    groups = groups_at_once(tile, card)
    turns, last = divmod(math.ceil(whole / card.units), groups)
    steps = math.ceil(depth / tile.shares)
    total = turns * _turn(tile, groups, steps, card) + (_turn(tile, last, steps, card) if last else 0)
    if tile.shares > 1:
        total += handing_over(tile.shares * products * rows * columns * FLOAT_BYTES, card)
    return total


def handing_over(nbytes: int, card: Card) -> float:
    """Return about how many clocks it takes that another launch reads so many bytes, which a launch has written."""
    return card.launch + 2 * nbytes / (card.units * UNIT_BYTES)


def _turn(tile: Tile, groups: int, steps: int, card: Card) -> float:
    """Return the clocks in which a multiprocessor does so many steps of so many work-groups at a time."""
    warps = tile.work_items / card.lanes
    step = _step(tile, card) * _latency(tile, groups * warps)
    spilt = max(0, tile.registers - _most_registers(tile, card))  # each goes to memory and comes back
    barriers = (1 if tile.stages > 1 else 2) * steps / tile.depth if tile.local_bytes else 0
    return START + BLOCK * barriers + groups * steps * warps * step * (1 + spilt / 8)


def _most_registers(tile: Tile, card: Card) -> int:
    """Return how many registers a work-item can need and none is spilt."""
    return min(tile.cap + SPARED_REGISTERS, card.most_registers) if tile.cap else card.most_registers


def _step(tile: Tile, card: Card) -> float:
    """Return the clocks in which a warp does one step of the reduction, if it never waits."""
    rows, columns = tile.rows, tile.columns
    products = rows.own * columns.own
    reads = sum(side.own / min(side.width, WIDEST) for side in (rows, columns))
    filled = sum(side.tile * side.fill for side in (rows, columns) if side.staged) * FLOAT_BYTES / LINE_BYTES
    fill = filled * card.lanes / tile.work_items
    pipe = _wavefronts(rows, 1, card) + _wavefronts(columns, rows.items, card) + fill
    return max(pipe, (products + reads + LOOP) / card.issued)


def _latency(tile: Tile, warps: float) -> float:
    """Return the factor by which waiting makes a step longer if so many warps take turns."""
    waits = LOCAL_LATENCY if tile.rows.staged and tile.columns.staged else CACHE_LATENCY
    independent = min(tile.rows.own * tile.columns.own, 16) / 8
    return 1 + waits / warps / max(1.0, independent)


def groups_at_once(tile: Tile, card: Card) -> int:
    """Return the work-groups of a multiprocessor: as many as registers, local memory and work-items allow, and one if
    none fits, because its registers are spilt then."""
    registers = math.ceil(min(tile.registers, tile.cap or card.most_registers) / 8) * 8 * tile.work_items
    local = card.local_bytes // (tile.local_bytes + RESERVED_BYTES) if tile.local_bytes else MOST_GROUPS
    return max(1, min(card.registers // registers, local, card.work_items // tile.work_items, MOST_GROUPS))


def _wavefronts(side: Side, apart: int, card: Card) -> float:
    """Return the pipe's clocks for a warp's reads of a factor in a step. apart: how many neighbouring work-items read
    the same, because they differ along the other factor only."""
    if side.staged:
        return conflicts(side.items, side.own, side.width, apart, side.spread, card.lanes, card.banks)
    elements = 1 if side.scattered else LINE_BYTES // FLOAT_BYTES
    return CACHE_WAVEFRONTS * _lines(side.items, side.own, side.width, apart, side.spread, elements, card.lanes)


@cache
def conflicts(
    items: int, own: int, width: int, apart: int, spread: bool = False, warp: int = WARP, banks: int = BANKS
) -> int:
    """Return the wavefronts of local memory in which the work-items of a warp read `own` elements each, in vectors.

    A wide access is served in parts of the warp: 8 work-items that read 16 bytes each fill 32 banks. In each part the
    bank that is asked for most different words decides; work-items that ask for the same word share it."""
    read, per = min(width, WIDEST), banks // min(width, WIDEST)
    total = 0
    for first, lanes in _reads(items, own, width, apart, spread, warp):
        for begin in range(0, warp, per):
            asked: dict[int, set[int]] = {}
            for place in lanes[begin : begin + per]:
                for word in range(place + first, place + first + read):
                    asked.setdefault(word % banks, set()).add(word)
            total += max(map(len, asked.values()))
    return total


@cache
def turned(width: int, depth: int, pitch: int) -> int:
    """Return the wavefronts in which a warp writes vectors of `width` elements along the reduction into a block whose
    steps lie `pitch` elements apart, for each element of a vector: neighbours have the vectors of a row."""
    across = depth // width
    banks = [(lane % across * width * pitch + lane // across) % BANKS for lane in range(WARP)]
    return max(map(banks.count, banks))


@cache
def _lines(items: int, own: int, width: int, apart: int, spread: bool, elements: int, warp: int) -> int:
    """Return the lines of so many elements that a warp touches, and at least a clock for each element of a vector."""
    return sum(
        max(len({(place + first) // elements for place in lanes}), min(width, WIDEST))
        for first, lanes in _reads(items, own, width, apart, spread, warp)
    )


def _reads(items: int, own: int, width: int, apart: int, spread: bool, warp: int) -> list[tuple[int, list[int]]]:
    """Return the accesses of a warp: for each, an offset and where each work-item's elements begin."""
    read = min(width, WIDEST)
    numbers = (lane // apart % items for lane in range(warp))
    lanes = [number * (read if spread else own) for number in numbers]
    return [(first * (items if spread else 1), lanes) for first in range(0, own, read)]
