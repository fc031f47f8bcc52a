"""Define the tuning space of kernels that compute whole network blocks: strips of ROWS rows, MR x NV register tiles.

A work-group expands the rows that STEP rows of its strip see, NV x VW channels at a time. It takes the depthwise
convolution of those, and multiplies the rows when it has all their channels. Longer strips expand fewer rows twice.

In one step, strips keep one tile of the channels of what they see, and all channels of the whole strip between the
convolutions. In several steps, they keep all channels of the few rows that a step sees, and of the step. On two cores
with AVX-512, a block of 24-144-24 channels over 56 x 56 pixels takes 250 us in strips of 28 rows and steps of 2 to 4,
and 277 us in strips of 10 rows in one step.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from gputune.core.dtypes import ELEMENT_TYPES, FLOAT
from gputune.kernels.family import ALONE, DeviceLimits, Needs
from gputune.kernels.space import Configuration, Constraint, DeviceLimit, Parameter, TuningSpace
from gputune.kernels.tiling.packing import Packing, buffer_constraints
from gputune.kernels.tiling.prefetching import PREFETCH, prefetch_constraint, steps_ahead
from gputune.kernels.tiling.streaming import VECTOR_WIDTHS, Declared, ceil_div, local_bytes, power_at_most, round_up
from gputune.kernels.tiling.strips import (
    MOST_LOADS,
    PIXELS,
    VECTORS,
    cut_unrolling,
    few_loads,
    fitting_tile,
    unrolling_constraint,
    widest_even,
)
from gputune.kernels.tiling.window import Window
from gputune.kernels.tiling.workgroups import (
    accumulators_fit,
    last_vector_holds,
    least_width,
    tile_fits,
)

STRIP_ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 14, 16, 20, 28, 56)
STEP_ROWS = (1, 2, 4)
"""Of a strip of several steps."""

WORTH_LONGER = 0.87
"""A default's strips are longer where they cost so much less: with AVX2 1.15 to 1.31 times as fast for 5 to 14 rows;
for more rows, where they cost a little less, 0.97 to 1.05 times."""

CPU_STRIP_BYTES = 512 << 10
"""A longer strip would leave the caches of a core on its way; threads have stacks several times as large."""

GPU_STRIP_BYTES = 4 << 10
"""A work-item's own arrays lie in a GPU's main memory, and there are thousands of work-items."""

GUESSES = (
    {"MR": 7, "NV": 2, "KU": 2, "STRIPS": 2, "STEP": 0},
    {"MR": 8, "NV": 3, "KU": 2, "STRIPS": 1, "STEP": 2},
    {"MR": 7, "NV": 2, "KU": 4, "STRIPS": 1, "STEP": 0},
    {"MR": 14, "NV": 1, "KU": 4, "STRIPS": 2, "STEP": 0},
    {"MR": 10, "NV": 2, "KU": 2, "STRIPS": 4, "STEP": 0},
    {"MR": 14, "NV": 2, "KU": 1, "STRIPS": 1, "STEP": 0},
    {"MR": 7, "NV": 2, "KU": 2, "STRIPS": 2, "STEP": 2},
)
"""Tiles, how many strips each compute unit gets, and rows of a step: 0 for all of a strip's where there is room."""


GPU_DEFAULT = GUESSES[0] | {"MR": 4, "NV": 1}
"""A GPU holds a tile of 7 x 2 vectors in registers, but not Intel's."""


STRIP = ("ROWS", "STEP", "NV", "VW", "LN")
"""The parameters that decide the memory of a strip."""


@dataclass(frozen=True)
class BlockStrips:
    """A block as these kernels see it: maps with `inputs` channels, `channels` inside of it, `outputs` behind it."""

    batch: int
    window: Window
    inputs: int
    channels: int
    outputs: int
    dtype: str = FLOAT

    def strip_bytes(self, rows: int, step: int, vectors: int, width: int) -> int:
        """Return what a strip of so many rows takes: the rows that a step sees, for NV * VW channels where it is the
        only one and else for all, and the step's own for all of them."""
        seen = self.window.span(step, axis=0)
        whole = round_up(self.channels, width)
        pitch = whole if whole % 256 else whole + 16  # as the template has it
        kept = vectors * width if step == rows else round_up(self.channels, vectors * width)
        each = ELEMENT_TYPES[self.dtype].sum_bytes
        return local_bytes(seen * self.window.size[1] * kept * each, step * self.window.output[1] * pitch * each)

    @property
    def needs(self) -> Declared:
        """The needs of the kernel: work-items that share a strip have it in local memory."""
        return Declared(STRIP, self._needs, "a work-group's strip")

    def _needs(self, rows: int, step: int, vectors: int, width: int, together: int) -> Needs:
        return Needs(self.strip_bytes(rows, step, vectors, width), cooperates=True) if together > 1 else ALONE

    def expansion(self, configuration: Configuration) -> Packing:
        """Return the packed matrix [inputs, channels]."""
        panel = configuration["NV"] * configuration["VW"]
        return Packing(self.channels, self.inputs, panel, output_stride=1, input_stride=self.channels, dtype=self.dtype)

    def filters(self, configuration: Configuration) -> Packing:
        """Return the packed depthwise filters."""
        taps, panel = math.prod(self.window.kernel), round_up(self.channels, configuration["VW"])
        return Packing(self.channels, 1, panel, output_stride=taps, input_stride=taps, taps=taps, dtype=self.dtype)

    def projection(self, configuration: Configuration) -> Packing:
        """Return the packed matrix [channels, outputs]."""
        panel = configuration["NV"] * configuration["VW"]
        return Packing(self.outputs, self.channels, panel, output_stride=1, input_stride=self.outputs, dtype=self.dtype)

    def launch_sizes(self, configuration: Configuration) -> tuple[tuple[int, int], tuple[int, int]]:
        """(global size, local size)."""
        together = configuration["LN"]
        return (together, self.batch * ceil_div(self.window.output[0], configuration["ROWS"])), (together, 1)

    def space(self, limits: DeviceLimits) -> TuningSpace:
        """Return every tile that fits the registers, with a strip that fits where it is kept."""
        return TuningSpace(
            (
                Parameter("ROWS", STRIP_ROWS, "rows of the output that a work-group computes"),
                Parameter("STEP", STRIP_ROWS, "rows of them that are computed at a time"),
                Parameter("MR", PIXELS, "pixels of a tile"),
                Parameter("NV", VECTORS, "vectors of a tile's pixel"),
                Parameter("VW", VECTOR_WIDTHS, "channels of a vector"),
                Parameter("KU", (1, 2, 4, 8), "unrolling of the reductions"),
                PREFETCH,
                Parameter(
                    "LN", (1, 8, 16, 32, 64, 128), "work-items of a work-group, which share a strip", of_group=True
                ),
            ),
            (*self._tile_constraints(limits), *self._strip_constraints(limits)),
        )

    def default(self, limits: DeviceLimits) -> dict[str, int]:
        """Return a middling tile, cut to the problem; on a CPU one that fits it better, if there is one, and longer
        strips where those take clearly less time."""
        guess, space = GUESSES[0] if limits.device_type == "cpu" else GPU_DEFAULT, self.space(limits)
        wanted = self._cut(guess, limits)
        if limits.device_type == "cpu":
            most = min(guess["MR"], self.window.output[1])
            fitting = [pixels for pixels in PIXELS if pixels <= most and few_loads(self.window, pixels)]
            tile = fitting_tile(wanted, fitting, self.window, self.channels, self.outputs, self._steps, limits)
            # Tiles of the products run on from row to row, so it does not matter whether they divide one.
            usual, longer = (self._cut(guess | tile | {"STRIPS": strips}, limits) for strips in (guess["STRIPS"], 1))
            costs = (self._strips_cost(each["ROWS"], limits) for each in (longer, usual))
            wanted = (longer if next(costs) < WORTH_LONGER * next(costs) else usual) | {"MR": tile["MR"]}
        return space.first() if space.violations(wanted) else wanted

    def guesses(self, limits: DeviceLimits) -> list[dict[str, int]]:
        """Tiles and strips that won elsewhere, cut to the problem."""
        first = 1 if limits.device_type == "cpu" else 0
        return [self._cut(guess, limits) for guess in GUESSES[first:]]

    def _tile_constraints(self, limits: DeviceLimits) -> Iterator[Constraint]:
        rows, columns = self.window.output
        yield Constraint(("ROWS",), lambda count: count <= rows, f"ROWS must not exceed the output's {rows} rows")
        yield Constraint(("MR",), lambda mr: mr <= columns, f"MR must not exceed the output's width of {columns}")
        yield Constraint(
            ("MR",),
            lambda mr: few_loads(self.window, mr),
            f"MR pixels must not need more than {MOST_LOADS} vectors of a row at once",
        )
        widest = max(self.channels, self.outputs)
        yield last_vector_holds(widest, "channels")
        yield accumulators_fit(limits)
        yield Constraint(("KU",), lambda ku: ku <= self.inputs, f"KU must not exceed the {self.inputs} input channels")
        yield unrolling_constraint()
        yield prefetch_constraint(self._weight_bytes, limits)
        if limits.device_type == "cpu":
            least = min(least_width(limits), power_at_most(widest))
            yield Constraint(("VW",), lambda vw: vw >= least, f"a CPU's vectors need VW of at least {least}")

    def _strip_constraints(self, limits: DeviceLimits) -> Iterator[Constraint]:
        own = _own_bytes(limits)
        most = min(limits.max_work_group_size, limits.max_work_item_sizes[0])
        if limits.device_type == "cpu":
            yield Constraint(("LN",), lambda ln: ln == 1, "on a CPU, LN must be 1: barriers cost more than they bring")
        yield DeviceLimit(("LN",), lambda ln: ln <= most, f"LN must not exceed the device's {most} work-items")
        yield Constraint(
            ("ROWS", "STEP"),
            lambda rows, step: step == rows or (step in STEP_ROWS and step < rows),
            f"STEP must be ROWS, or one of {', '.join(map(str, STEP_ROWS))} below it",
        )
        yield Constraint(
            STRIP,
            lambda *v: v[-1] > 1 or v[0] == 1 or self.strip_bytes(*v[:-1]) <= own,
            f"a work-item's own strip of several rows must not exceed {own} bytes",
        )
        yield self.needs.limit(limits)
        yield from buffer_constraints(
            ("NV", "VW"),
            lambda nv, vw: self._most_packed({"NV": nv, "VW": vw}),
            "the packed weights",
            limits,
            self.dtype,
        )

    @property
    def _weight_bytes(self) -> int:
        """What the two matrices take at least."""
        return (self.inputs + self.outputs) * self.channels * ELEMENT_TYPES[self.dtype].nbytes

    def _most_packed(self, configuration: Configuration) -> int:
        """Elements of the largest packed buffer."""
        packings = (self.expansion(configuration), self.filters(configuration), self.projection(configuration))
        return max(each.size for each in packings)

    def _steps(self, pixels: int, columns: int) -> int:
        """Return how many steps both reductions take for a map. Its tiles have so many columns and so many pixels,
        which run on from row to row."""
        expanded = ceil_div(math.prod(self.window.size), pixels) * self.inputs * ceil_div(self.channels, columns)
        projected = ceil_div(math.prod(self.window.output), pixels) * self.channels * ceil_div(self.outputs, columns)
        return expanded + projected

    def _strips_cost(self, rows: int, limits: DeviceLimits) -> int:
        """Multiply-adds for a channel of the unit that computes the most strips of so many rows: few rows divide into
        many strips unevenly, and each expands what it sees of its neighbours."""
        strips = self.batch * ceil_div(self.window.output[0], rows)
        expanded = min(self.window.span(rows, axis=0), self.window.size[0]) * self.window.size[1] * self.inputs
        return ceil_div(strips, limits.compute_units) * (expanded + rows * self.window.output[1] * self.outputs)

    def _cut(self, guess: Configuration, limits: DeviceLimits) -> dict[str, int]:
        """Return a guess made to fit the device's vectors and units, the maps and the memory."""
        rows, columns = self.window.output
        cpu = limits.device_type == "cpu"
        width = power_at_most(max(limits.preferred_float_width, 4)) if cpu else 4
        cut = {"ROWS": 1, "STEP": 1, "MR": 1, "NV": guess["NV"], "VW": min(width, VECTOR_WIDTHS[-1]), "KU": guess["KU"]}
        cut |= {"LN": 1, "PF": steps_ahead(self._weight_bytes, limits)}
        while cut["VW"] > 1 and cut["VW"] // 2 >= max(self.channels, self.outputs):
            cut["VW"] //= 2
        while cut["NV"] > 1 and (cut["NV"] - 1) * cut["VW"] >= self.outputs:
            cut["NV"] -= 1
        fitting = [
            pixels
            for pixels in PIXELS
            if pixels <= min(columns, guess["MR"])
            and tile_fits(pixels, cut["NV"], cut["VW"], limits)
            and few_loads(self.window, pixels)
        ]
        cut["MR"] = widest_even(fitting, columns)
        room = _own_bytes(limits)
        if not cpu and self.strip_bytes(1, 1, cut["NV"], cut["VW"]) <= limits.local_memory_bytes:
            room = limits.local_memory_bytes
            cut["LN"] = min(64, power_at_most(min(limits.max_work_group_size, limits.max_work_item_sizes[0])))
            cut["LN"] = cut["LN"] if cut["LN"] >= 8 else 1
        wanted = ceil_div(rows * self.batch, guess["STRIPS"] * limits.compute_units)

        def step(count: int) -> int:
            """Rows of a step of a strip of so many: the most for which there is room, no more than wanted."""
            steps = (count, *(each for each in reversed(STEP_ROWS) if each < count))
            most = guess["STEP"] or count
            fitting = (
                each for each in steps if each <= most and self.strip_bytes(count, each, cut["NV"], cut["VW"]) <= room
            )
            return next(fitting, 0)

        longest = [count for count in STRIP_ROWS if count <= rows and step(count)]
        cut["ROWS"] = next((count for count in longest if count >= wanted), max(longest, default=1))
        cut["STEP"] = step(cut["ROWS"]) or 1
        cut_unrolling(cut, self.inputs)
        return cut


def _own_bytes(limits: DeviceLimits) -> int:
    """Return how much of a strip a work-item may keep for itself."""
    return CPU_STRIP_BYTES if limits.device_type == "cpu" else GPU_STRIP_BYTES
