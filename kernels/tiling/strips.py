"""Define the tuning space of kernels that compute a strip of an intermediate result and multiply it at once.

A work-group computes MR x RT pixels of the middle with all their channels, and keeps them in a CPU's first cache or in
local memory. From those it makes tiles of MR pixels x NV vectors of VW columns, every accumulator in a register.

Three aims conflict. A longer strip reads each packed weight fewer times, but must fit in its memory (`middle_bytes`). A
wider tile of pixels shares what neighbouring windows see, but must stay in registers, and is wasted if it does not
divide a line. It is therefore no wider than needed to cover a line in as few tiles (`widest_even`). SPLIT work-groups
that share a strip's columns give work to more cores, but each computes the middle for itself.

`_cut` goes by this order: vectors within the channels; work-items and splits that all have work; the widest tile that
fits all that; then the strip; then the unrolling. A CPU's default is then cut once more with another tile, if that tile
clearly wastes less computation (`fitting_tile`).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from gputune.core.dtypes import ELEMENT_TYPES, FLOAT
from gputune.kernels.family import ALONE, DeviceLimits, Needs
from gputune.kernels.space import Configuration, Constraint, DeviceLimit, Parameter, TuningSpace
from gputune.kernels.tiling.packing import Packing, packed_constraints
from gputune.kernels.tiling.prefetching import PREFETCH, prefetch_constraint, steps_ahead
from gputune.kernels.tiling.streaming import VECTOR_WIDTHS, Declared, ceil_div, fits, local_bytes, power_at_most
from gputune.kernels.tiling.window import Window
from gputune.kernels.tiling.workgroups import (
    FEW_UNROLLING,
    accumulators_fit,
    cheapest_tile,
    few_registers,
    last_vector_holds,
    least_width,
    tile_fits,
    unrolled_fits,
)

VECTORS = (1, 2, 3, 4)
PIXELS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16)
MOST_LOADS = 48
MOST_UNROLLED = 64
CPU_MIDDLE_BYTES = 128 << 10
"""A longer strip would leave the caches of a core on its way, as the tensor does that it stands for."""

GPU_MIDDLE_BYTES = 4 << 10
"""A work-item's own arrays lie in a GPU's main memory, and there are thousands of work-items."""

CPU_GUESSES = (
    {"MR": 7, "RT": 1, "NV": 2, "VW": 16, "KU": 2, "LN": 1, "SPLIT": 1},
    {"MR": 14, "RT": 1, "NV": 2, "VW": 16, "KU": 1, "LN": 1, "SPLIT": 1},
    {"MR": 14, "RT": 4, "NV": 1, "VW": 16, "KU": 4, "LN": 1, "SPLIT": 1},
    {"MR": 10, "RT": 1, "NV": 2, "VW": 16, "KU": 2, "LN": 1, "SPLIT": 1},
    {"MR": 7, "RT": 1, "NV": 2, "VW": 16, "KU": 4, "LN": 1, "SPLIT": 2},
    {"MR": 8, "RT": 2, "NV": 3, "VW": 8, "KU": 1, "LN": 1, "SPLIT": 1},
)
GPU_GUESSES = (
    {"MR": 4, "RT": 1, "NV": 1, "VW": 4, "KU": 4, "LN": 16, "SPLIT": 1},
    {"MR": 4, "RT": 2, "NV": 1, "VW": 4, "KU": 4, "LN": 32, "SPLIT": 1},
    {"MR": 8, "RT": 1, "NV": 1, "VW": 4, "KU": 2, "LN": 32, "SPLIT": 2},
    {"MR": 4, "RT": 1, "NV": 1, "VW": 2, "KU": 4, "LN": 64, "SPLIT": 1},
    {"MR": 2, "RT": 4, "NV": 1, "VW": 1, "KU": 4, "LN": 64, "SPLIT": 1},
)


def cut_unrolling(cut: dict[str, int], reduction: int) -> None:
    """Halves KU until it is within the reduction and compiling does not take too long."""
    while cut["KU"] > 1 and (cut["KU"] > reduction or cut["KU"] * cut["MR"] * cut["NV"] > MOST_UNROLLED):
        cut["KU"] //= 2


def unrolling_constraint() -> Constraint:
    """Return the constraint that says what compilers can take."""
    return Constraint(
        ("KU", "MR", "NV"),
        lambda ku, mr, nv: ku * mr * nv <= MOST_UNROLLED,
        f"MR*NV*KU must not exceed {MOST_UNROLLED}, or compiling takes too long",
    )


def widest_even(fitting: Sequence[int], columns: int) -> int:
    """Return the fewest pixels of a tile that cover a row in as few tiles as the most do; 1 where none fits."""
    fewest = min((ceil_div(columns, pixels) for pixels in fitting), default=0)
    return next((pixels for pixels in fitting if ceil_div(columns, pixels) == fewest), 1)


def few_loads(window: Window, pixels: int) -> bool:
    """Return whether so many neighbours can be computed together."""
    return pixels == 1 or window.span(pixels) <= MOST_LOADS


def depthwise_cost(window: Window, pixels: int) -> int:
    """Multiply-adds that a vector of channels of a row of the middle takes as much time as, in tiles of so many
    neighbours: loads count where those are more, and each pixel's end is about as much as three."""
    rows, columns = window.kernel
    tile = rows * max(window.span(pixels) + columns, columns * pixels) + 3 * pixels
    return ceil_div(window.output[1], pixels) * tile


def fitting_tile(
    usual: Configuration,
    fitting: Iterable[int],
    window: Window,
    channels: int,
    outputs: int,
    steps: Callable[[int, int], int],
    limits: DeviceLimits,
) -> dict[str, int]:
    """MR, NV and KU for a CPU: of the usual tile, or of one with an MR of `fitting` that takes clearly less time.

    channels: of the middle. steps: of the reductions for a map, with tiles of so many pixels and columns.
    """
    width, rows = usual["VW"], window.output[0]
    tiles = [
        (pixels, vectors)
        for pixels in fitting
        for vectors in VECTORS
        if (vectors - 1) * width < outputs and unrolled_fits(pixels, vectors, width, limits)
    ]
    pixels, vectors = cheapest_tile(
        (usual["MR"], usual["NV"]),
        tiles,
        width,
        lambda mr, nv: steps(mr, nv * width),
        limits,
        beside=lambda mr: rows * ceil_div(channels, width) * depthwise_cost(window, mr),
    )
    # Also a tile that takes all registers: here the left side lies on the stack, and LLVM spills nothing.
    return {"MR": pixels, "NV": vectors, "KU": FEW_UNROLLING if few_registers(limits) else usual["KU"]}


STRIP = ("MR", "RT", "LN")
"""The parameters that decide the memory of a strip."""


@dataclass(frozen=True)
class Strips:
    """A problem as these kernels see it: maps of `channels`, which a window sees and of which `outputs` are made."""

    batch: int
    window: Window
    channels: int
    outputs: int
    dtype: str = FLOAT

    @property
    def lines(self) -> int:
        """Rows of all the output's maps."""
        return self.batch * self.window.output[0]

    @property
    def columns(self) -> int:
        """Pixels of such a row."""
        return self.window.output[1]

    def tiles(self, pixels: int) -> int:
        """Tiles of `pixels` neighbours in a line that cover the output."""
        return self.lines * ceil_div(self.columns, pixels)

    def middle_bytes(self, pixels: int) -> int:
        """Return what so many pixels of the middle take; the template pads channels that would share places of a
        cache."""
        pitch = self.channels if self.channels % 256 else self.channels + 16
        return pixels * pitch * ELEMENT_TYPES[self.dtype].sum_bytes

    @property
    def needs(self) -> Declared:
        """The needs of the kernel: work-items that share a strip have it in local memory."""
        return Declared(STRIP, self._needs, f"a work-group's strip of MR*RT*{self.middle_bytes(1)} bytes")

    def _needs(self, pixels: int, tiles: int, together: int) -> Needs:
        nbytes = local_bytes(self.middle_bytes(pixels * tiles))
        return Needs(nbytes, cooperates=True) if together > 1 else ALONE

    def packing(self, vectors: int, width: int, together: int) -> Packing:
        """Return the packed matrix [channels, outputs] for NV, VW and LN."""
        panel = vectors * width * together
        return Packing(self.outputs, self.channels, panel, output_stride=1, input_stride=self.outputs, dtype=self.dtype)

    def launch_sizes(self, configuration: Configuration) -> tuple[tuple[int, int], tuple[int, int]]:
        """(global size, local size)."""
        strips = ceil_div(self.tiles(configuration["MR"]), configuration["RT"])
        together = configuration["LN"]
        return (together * configuration["SPLIT"], strips), (together, 1)

    def space(self, limits: DeviceLimits) -> TuningSpace:
        """Return every tile that fits the registers, with a strip that fits where it is kept."""
        return TuningSpace(
            (
                Parameter("MR", PIXELS, "neighbouring pixels of a tile"),
                Parameter("RT", (1, 2, 3, 4, 7, 8), "tiles of a strip, for which the middle is kept at once"),
                Parameter("NV", VECTORS, "vectors of a tile's row"),
                Parameter("VW", VECTOR_WIDTHS, "channels of a vector"),
                Parameter("KU", (1, 2, 4, 8), "unrolling of the reduction"),
                PREFETCH,
                Parameter(
                    "LN", (1, 2, 4, 8, 16, 32, 64), "work-items of a work-group, which share a strip", of_group=True
                ),
                Parameter("SPLIT", (1, 2, 4), "work-groups that divide a strip's columns"),
            ),
            (*self._tile_constraints(limits), *self._strip_constraints(limits), *self._group_constraints(limits)),
        )

    def default(self, limits: DeviceLimits) -> dict[str, int]:
        """Return what won most often on devices of the kind, cut to the problem; on a CPU with a tile that fits it
        better, if there is one."""
        guess, space = _guesses(limits)[0], self.space(limits)
        wanted = self._cut(guess, limits)
        if limits.device_type == "cpu":
            fitting = self._fitting(guess["MR"], limits)
            tile = fitting_tile(wanted, fitting, self.window, self.channels, self.outputs, self._steps, limits)
            wanted = self._cut(guess | tile, limits)
        return space.first() if space.violations(wanted) else wanted

    def guesses(self, limits: DeviceLimits) -> list[dict[str, int]]:
        """Return what won elsewhere, cut to the problem."""
        return [self._cut(guess, limits) for guess in _guesses(limits)]

    def _tile_constraints(self, limits: DeviceLimits) -> Iterator[Constraint]:
        yield Constraint(
            ("MR",), lambda mr: mr <= self.columns, f"MR must not exceed the output's width of {self.columns}"
        )
        yield Constraint(
            ("MR",),
            lambda mr: few_loads(self.window, mr),
            f"MR pixels must not need more than {MOST_LOADS} vectors of the input at once",
        )
        yield fits(self.channels, "the channels")
        yield last_vector_holds(self.outputs, "columns")
        yield accumulators_fit(limits)
        yield Constraint(("KU",), lambda ku: ku <= self.channels, f"KU must not exceed the {self.channels} channels")
        yield unrolling_constraint()
        yield prefetch_constraint(self._weight_bytes, limits)
        if limits.device_type == "cpu":
            least = min(least_width(limits), power_at_most(min(self.channels, self.outputs)))
            yield Constraint(("VW",), lambda vw: vw >= least, f"a CPU's vectors need VW of at least {least}")
        yield from packed_constraints(self.packing, limits)

    def _strip_constraints(self, limits: DeviceLimits) -> Iterator[Constraint]:
        own, pixel = _own_bytes(limits), self.middle_bytes(1)
        yield Constraint(
            ("MR", "RT"),
            lambda mr, rt: rt <= self.tiles(mr),
            "RT must not exceed the tiles, or the last would have nothing to do",
        )
        yield Constraint(
            STRIP,
            lambda mr, rt, ln: ln > 1 or mr * rt == 1 or self.middle_bytes(mr * rt) <= own,
            f"a work-item's own strip, MR*RT*{pixel} bytes, must not exceed {own} bytes",
        )
        yield self.needs.limit(limits)

    def _group_constraints(self, limits: DeviceLimits) -> Iterator[Constraint]:
        if limits.device_type == "cpu":
            yield Constraint(("LN",), lambda ln: ln == 1, "on a CPU, LN must be 1: barriers cost more than they bring")
        most = _most_together(limits)
        yield DeviceLimit(("LN",), lambda ln: ln <= most, f"LN must not exceed the device's {most} work-items")
        yield Constraint(
            ("NV", "VW", "LN"), self._busy, "the last of LN work-items must find channels or columns to compute"
        )
        yield Constraint(
            ("NV", "VW", "LN", "SPLIT"), self._divides, "the last of SPLIT work-groups must find columns to compute"
        )

    @property
    def _weight_bytes(self) -> int:
        """What the packed matrix takes at least."""
        return self.packing(1, 1, 1).nbytes

    def _steps(self, pixels: int, columns: int) -> int:
        """Return how many steps the reduction takes for a map, with tiles of so many pixels and columns."""
        return self.tiles(pixels) // self.batch * self.channels * ceil_div(self.outputs, columns)

    def _fitting(self, most: int, limits: DeviceLimits) -> list[int]:
        """Return what MR may be on a CPU, no more than `most`, whatever NV is."""
        return [
            pixels
            for pixels in PIXELS
            if pixels <= min(self.columns, most)
            and self.middle_bytes(pixels) <= _own_bytes(limits)
            and few_loads(self.window, pixels)
        ]

    def _busy(self, vectors: int, width: int, together: int) -> bool:
        return together == 1 or (together - 1) * width < max(self.channels, ceil_div(self.outputs, vectors))

    def _divides(self, vectors: int, width: int, together: int, split: int) -> bool:
        return (split - 1) * together * vectors * width < self.outputs

    def _cut(self, guess: Configuration, limits: DeviceLimits) -> dict[str, int]:
        """Return a guess made to fit: within a line, the channels, the registers and the memory for the middle."""
        cut = {**guess, "PF": steps_ahead(self._weight_bytes, limits)}
        if limits.device_type == "cpu":
            cut["VW"] = min(cut["VW"], power_at_most(max(limits.preferred_float_width, 4)))
        cut["VW"] = min(cut["VW"], power_at_most(self.channels))
        while cut["VW"] > 1 and cut["VW"] // 2 >= self.outputs:
            cut["VW"] //= 2
        while (cut["NV"] - 1) * cut["VW"] >= self.outputs:
            cut["NV"] -= 1
        cut["LN"] = min(cut["LN"], power_at_most(_most_together(limits)))
        if self.middle_bytes(1) > limits.local_memory_bytes:
            cut["LN"] = 1
        while not self._busy(cut["NV"], cut["VW"], cut["LN"]):
            cut["LN"] //= 2
        while not self._divides(cut["NV"], cut["VW"], cut["LN"], cut["SPLIT"]):
            cut["SPLIT"] //= 2
        room = limits.local_memory_bytes if cut["LN"] > 1 else _own_bytes(limits)
        fitting = [
            pixels
            for pixels in PIXELS
            if pixels <= min(self.columns, guess["MR"])
            and tile_fits(pixels, cut["NV"], cut["VW"], limits)
            and self.middle_bytes(pixels) <= room
            and few_loads(self.window, pixels)
        ]
        cut["MR"] = widest_even(fitting, self.columns)
        while cut["RT"] > 1 and (cut["RT"] > self.tiles(cut["MR"]) or self.middle_bytes(cut["MR"] * cut["RT"]) > room):
            cut["RT"] //= 2
        cut_unrolling(cut, self.channels)
        return cut


def _guesses(limits: DeviceLimits) -> tuple[dict[str, int], ...]:
    return CPU_GUESSES if limits.device_type == "cpu" else GPU_GUESSES


def _own_bytes(limits: DeviceLimits) -> int:
    """Return how much of the middle a work-item may keep for itself."""
    return CPU_MIDDLE_BYTES if limits.device_type == "cpu" else GPU_MIDDLE_BYTES


def _most_together(limits: DeviceLimits) -> int:
    """Return how many work-items may share a strip."""
    return min(limits.max_work_group_size, limits.max_work_item_sizes[0])
