"""Define Winograd convolution for conv_winograd.cl and pack_winograd.cl: conditions, parameters, guesses and launches.

ALG says how a convolution is computed: 0 directly, m as F(m x m, 3 x 3), in tiles of m x m outputs. A tile needs side^2
products for each pair of channels, with side = m * stride + 3 - stride, and not 9 * m^2.

Its sums are the sums of a direct convolution in another order, of numbers that the transforms have made larger.
Relative to the greatest magnitude of the float64 result, m = 2 is off by some 1e-6 and m = 4 by 1e-5. That is a tenth
of what a direct convolution of so many channels is allowed, so it has no tolerance of its own. With fewer than
LEAST_CHANNELS there is no gain, and the algorithm does not apply. An infinite input makes its whole tile NaN.

What is transformed is what numbers are summed up in, also if tensors hold half: in half, m = 4 would be off by 7e-3.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from gputune.core.dtypes import ELEMENT_TYPES, FLOAT, SUMS
from gputune.kernels.family import ALONE, DeviceLimits, Launch, Stage
from gputune.kernels.pointers import aligned
from gputune.kernels.space import Configuration, Constraint
from gputune.kernels.template import build_options, template
from gputune.kernels.tiling.packing import PACK_RUN, buffer_constraints
from gputune.kernels.tiling.prefetching import prefetch_constraint, steps_ahead
from gputune.kernels.tiling.streaming import ceil_div, power_at_most, round_up
from gputune.kernels.tiling.tiles import MOST_UNROLLED, ROWS, VECTORS
from gputune.kernels.tiling.workgroups import (
    Grid,
    TiledKernel,
    accumulators_fit,
    cheapest_tile,
    clip_group,
    cut_tile,
    few_registers,
    group_constraints,
    has_avx512,
    last_vector_holds,
    least_tiles,
    least_width,
    registers,
    unrolled_fits,
)

TEMPLATE, PACK_TEMPLATE = "conv_winograd.cl", "pack_winograd.cl"
PACKED_ROWS = {(2, 1): 0, (2, 2): 4, (4, 1): 9}
"""First row of the filter's transform in pack_winograd.cl, by outputs of a tile and stride: all that there is."""

LEAST_CHANNELS = 16
BLOCKS = (1, 2, 4)
SKEW = 16
"""Elements between the frequencies of a block of transformed inputs."""

CHANNELS = 64
"""Input channels that a work-item transforms on a CPU; on a GPU it transforms one vector."""

TRANSFORMED = 80
"""Elements of a tile's inputs that a GPU's work-item transforms at once, in registers."""

TRANSFORM_COST, READ_COST = 25, 4
"""What it costs to transform a number there and back, and to read a byte of packed filters, in operations of products:
fitted to the networks of docs/performance.md."""
LEAST_GAIN = 1.2
"""A default that is computed by this algorithm is expected to be so many times as fast as a direct one."""

CPU_PRODUCT_BYTES = 160 << 10
"""The bytes of products that a work-item may keep: a part of a core's second cache."""

GPU_SUMS = 160
"""Sums of a GPU's work-item, of a product and of all pixels of its tiles: they must be in registers."""

LEAST_ROWS = 4
"""Fewer tiles at a time read filters more often than what they save by leaving none over."""

CACHED_FILTER_BYTES = 640 << 10
"""Transformed filters that a CPU's core keeps in its second cache beside all else."""

CPU_GUESSES = (
    {"ALG": 4, "MR": 6, "NV": 4, "VW": 16, "KU": 2, "ORDER": 1, "RB": 1},
    {"ALG": 2, "MR": 7, "NV": 2, "VW": 16, "KU": 2, "ORDER": 1, "RB": 1},
    {"ALG": 4, "MR": 8, "NV": 2, "VW": 16, "KU": 2, "ORDER": 0, "RB": 2},
    {"ALG": 2, "MR": 4, "NV": 4, "VW": 16, "KU": 2, "ORDER": 1, "RB": 4},
    {"ALG": 4, "MR": 4, "NV": 4, "VW": 16, "KU": 4, "ORDER": 0, "RB": 4},
    {"ALG": 2, "MR": 8, "NV": 2, "VW": 16, "KU": 4, "ORDER": 0, "RB": 2},
)
FEW_TILES = 16
"""Up to so many tiles, and from two thirds of them on, a convolution takes long to read its filters, where no core's
cache holds those. Then a default reads them seldom:"""

ONE_PASS = {"MR": 8, "NV": 2, "RB": 2, "ORDER": 0}
"""With AVX-512 once: a block of filters is used for all tiles before the next one, in place of coming from memory for
each row of tiles. With all else out of the caches, on two such cores, 13 x 13 pixels of 512 by 1024 channels take
4.7 ms so, and 7.3 in tiles of 4 x 4; 7 x 7 of 512 by 512 1.1 and 1.6."""

TWO_PASSES = {"MR": 4, "NV": 3, "RB": 2, "ORDER": 1}
"""With 16 registers twice, and not four times: 1.05 to 1.23 times as fast on six shapes of 7 x 7 to 16 x 16 pixels.
One pass is 1.3 times as fast on some of them and slower on others."""

GPU_GUESSES = (
    {"ALG": 2, "MR": 4, "NV": 1, "VW": 4, "KU": 4, "ORDER": 0, "RB": 1},
    {"ALG": 4, "MR": 2, "NV": 1, "VW": 4, "KU": 4, "ORDER": 0, "RB": 1},
)


@dataclass(frozen=True)
class Winograd:
    """A 3x3 convolution computed in tiles of `outputs` x `outputs` (ALG), a key of PACKED_ROWS with its stride."""

    batch: int
    output_size: tuple[int, int]
    in_channels: int
    out_channels: int
    stride: int
    outputs: int
    dtype: str = FLOAT

    @property
    def side(self) -> int:
        """Rows and columns of a transformed tile."""
        return self.outputs * self.stride + 3 - self.stride

    @property
    def tiles(self) -> int:
        """Tiles of the whole batch."""
        down, across = (ceil_div(size, self.outputs) for size in self.output_size)
        return self.batch * down * across

    def grid(self, rows: int, blocks: int, vectors: int, width: int) -> Grid:
        """Blocks of MR * RB tiles, and tiles of NV * VW columns."""
        return ceil_div(self.tiles, rows * blocks), ceil_div(self.out_channels, vectors * width)

    @property
    def gain(self) -> float:
        """How many times as fast as the direct algorithm this one is expected to be on a CPU: products, transforms and
        filters to be read, of which a larger tile has fewer, the same, and more."""
        frequencies, pairs = self.side**2, self.in_channels * self.out_channels
        transformed = frequencies * self.tiles * (self.in_channels + self.out_channels)
        products = 2 * frequencies * self.tiles * pairs
        filters = self._nbytes * READ_COST * pairs
        direct = 2 * self.batch * self.output_size[0] * self.output_size[1] * pairs
        return 9 * (direct + filters) / (products + TRANSFORM_COST * transformed + frequencies * filters)

    def blocks(self, configuration: Configuration) -> int:
        """Work-groups of the products on a CPU."""
        return math.prod(self.grid(*(configuration[name] for name in ("MR", "RB", "NV", "VW"))))

    def packed_size(self, vectors: int, width: int) -> int:
        """Elements of the packed filters, the bias and a pixel of zeros."""
        columns = round_up(self.out_channels, vectors * width)
        return columns * (self.side**2 * self.in_channels + 1) + self.in_channels

    def transformed_size(self, rows: int, blocks: int) -> int:
        """Elements of the transformed input."""
        slices = ceil_div(self.tiles, rows * blocks) * self.side**2
        return slices * (rows * blocks * self.in_channels + SKEW)

    def guesses(self, limits: DeviceLimits) -> Iterator[dict[str, int]]:
        """Guesses for this ALG, best first, cut to the problem; a device's limits may forbid them."""
        cpu = limits.device_type == "cpu"
        own = [guess for guess in (CPU_GUESSES if cpu else GPU_GUESSES) if guess["ALG"] == self.outputs]
        if seldom := self._reads_filters_seldom(limits):
            yield self._cut(own[0], limits) | seldom
        for guess in own:
            yield self._cut(guess, limits)

    def _cut(self, guess: Configuration, limits: DeviceLimits) -> dict[str, int]:
        """Return a guess that fits the problem and the device's registers."""
        cpu = limits.device_type == "cpu"
        cut = dict(guess) | ({"LM": 1, "LN": 1} if cpu else {"LM": 8, "LN": 8})
        cut["PF"] = steps_ahead(self._weight_bytes, limits)
        if cpu:
            cut["VW"] = min(guess["VW"], registers(limits)[1])
        heights = [rows for rows in ROWS if rows <= min(self.tiles, guess["MR"])]
        vectors = min(guess["NV"], ceil_div(self.out_channels, cut["VW"]))
        if not cpu:
            heights = [rows for rows in heights if self._gpu_sums(rows, vectors, cut["VW"]) <= GPU_SUMS] or [1]
            while len(heights) > 1 and math.prod(self.grid(heights[-1], 1, vectors, cut["VW"])) < least_tiles(limits):
                heights.pop()
        cut["MR"], cut["NV"] = cut_tile(heights, vectors, cut["VW"], limits)
        if cpu:
            cut |= self._fitting_tile(cut, limits)
        cut["RB"] = min(guess["RB"], power_at_most(ceil_div(self.tiles, cut["MR"])))
        grid = self.grid(cut["MR"], cut["RB"], cut["NV"], cut["VW"])
        return cut | clip_group(grid, cut, limits)

    def _reads_filters_seldom(self, limits: DeviceLimits) -> dict[str, int] | None:
        """ONE_PASS or TWO_PASSES, where the tiles are FEW_TILES at most and there are columns for every core."""
        passes = ONE_PASS if has_avx512(limits) else TWO_PASSES if few_registers(limits) else None
        if passes is None or self._weight_bytes <= CACHED_FILTER_BYTES:
            return None
        columns = self.out_channels // (passes["NV"] * registers(limits)[1])
        few = 2 * FEW_TILES // 3 <= self.tiles <= FEW_TILES
        return passes if few and columns >= least_tiles(limits) else None

    def _fitting_tile(self, usual: Configuration, limits: DeviceLimits) -> dict[str, int]:
        """MR and NV of a CPU's guess that compute no more than they must, and ORDER: where the filters stay in a
        core's cache, a block of transformed inputs is used for all columns before the next one."""
        width = usual["VW"]
        tiles = (
            (rows, vectors)
            for rows in ROWS
            for vectors in VECTORS
            if min(LEAST_ROWS, self.tiles) <= rows <= self.tiles
            and (vectors - 1) * width < self.out_channels
            and (usual["KU"] == 1 or unrolled_fits(rows, vectors, width, limits))
        )
        rows, vectors = cheapest_tile(
            (usual["MR"], usual["NV"]), tiles, width, lambda mr, nv: math.prod(self.grid(mr, 1, nv, width)), limits
        )
        order = 0 if self._weight_bytes <= CACHED_FILTER_BYTES else usual["ORDER"]
        return {"MR": rows, "NV": vectors, "ORDER": order}

    def buffers(self, configuration: Configuration) -> tuple[dict[str, int], dict[str, int]]:
        """(packed, scratch) of a configuration: name -> bytes."""
        packed = self.packed_size(configuration["NV"], configuration["VW"])
        scratch = self.transformed_size(configuration["MR"], configuration["RB"])
        return {"packed": packed * self._nbytes}, {"transformed": scratch * self._nbytes}

    def prepare(self, configuration: Configuration, bias: bool) -> Launch:
        """Fill "packed" from "weight", and from "bias" if there is one."""
        size = self.packed_size(configuration["NV"], configuration["VW"])
        return Launch(
            source=template(PACK_TEMPLATE, dtype=self.dtype),
            entry="pack_winograd",
            needs=ALONE,
            writes=("packed",),
            options=build_options({"RUN": PACK_RUN}),
            global_size=(ceil_div(size, PACK_RUN),),
            local_size=(1,),
            arguments=(
                "weight",
                "bias" if bias else "weight",
                "packed",
                size,
                PACKED_ROWS[self.outputs, self.stride],
                self.side,
                self.in_channels,
                self.out_channels,
                configuration["NV"] * configuration["VW"],
                int(bias),
            ),
        )

    def main(
        self, configuration: Configuration, prelude: str, window: dict[str, int], operands: tuple[str, ...]
    ) -> Launch:
        """Transform, multiply and transform back; `prelude` defines the epilogue, `window` the map's macros."""
        grid = self.grid(*(configuration[name] for name in ("MR", "RB", "NV", "VW")))
        less, more = sorted((configuration["LM"], configuration["LN"]))
        keep = more == 1  # a CPU's block is a work-group
        most = configuration["VW"] if keep else min(configuration["VW"], TRANSFORMED // self.side**2)
        width = max(size for size in (1, 2, 4, 8, 16) if size <= most and self.in_channels % size == 0)
        channels = CHANNELS if keep else width
        items = ceil_div(self.in_channels, channels)
        group = min(more, power_at_most(items)), less
        sizes = {
            "BATCH": self.batch,
            "INPUTS": self.in_channels,
            "OUTPUTS": self.out_channels,
            "IW": width,
            "CHANNELS": channels,
            "SKEW": SKEW,
            **window,
        }
        if not keep:
            sizes |= {"KEEP": 0, "TC": group[0], "TT": group[1]}
        transform = Stage(
            entry="winograd_transform",
            needs=ALONE,
            writes=("transformed",),
            global_size=(round_up(items, group[0]), round_up(self.tiles, group[1])),
            local_size=group,
            arguments=("input", "packed", "transformed"),
        )
        source = prelude + template(TEMPLATE, dtype=self.dtype)
        inputs, whole = ("transformed", "packed"), aligned(configuration["VW"], self.out_channels)
        kernel = TiledKernel(source, "winograd_multiply", sizes, inputs, operands, whole)
        return kernel.launch(grid, configuration, (transform,))

    def _gpu_sums(self, rows: int, vectors: int, width: int) -> int:
        """Return how many sums a block has that keeps no products."""
        return (self.outputs**2 + 1) * rows * vectors * width

    @property
    def _nbytes(self) -> int:
        return ELEMENT_TYPES[SUMS].nbytes

    @property
    def _weight_bytes(self) -> int:
        """What the packed filters take at least."""
        return self.packed_size(1, 1) * self._nbytes

    def constraints(self, limits: DeviceLimits) -> Iterator[Constraint]:
        """Yield what a configuration with this ALG must keep."""
        cpu = limits.device_type == "cpu"
        yield prefetch_constraint(self._weight_bytes, limits)
        yield Constraint(("MR",), lambda mr: mr <= self.tiles, f"MR must not exceed the {self.tiles} tiles")
        yield last_vector_holds(self.out_channels, "channels")
        yield accumulators_fit(limits)
        least = min(least_width(limits), self.out_channels) if cpu else 1
        yield Constraint(("VW",), lambda vw: vw >= least, f"vectors need VW of at least {least}")
        yield Constraint(
            ("KU",), lambda ku: ku <= self.in_channels, f"KU must not exceed the {self.in_channels} channels"
        )
        yield Constraint(
            ("MR", "NV", "KU"),
            lambda mr, nv, ku: mr * nv * ku <= MOST_UNROLLED,
            f"MR*NV*KU must not exceed {MOST_UNROLLED}, or compiling takes too long",
        )
        yield Constraint(
            ("MR", "RB"),
            lambda mr, rb: (rb - 1) * mr < self.tiles,
            f"the last of RB register tiles must hold one of the {self.tiles} tiles",
        )
        if cpu:
            number = ELEMENT_TYPES[self.dtype].sum_bytes
            yield Constraint(
                ("MR", "NV", "VW", "RB"),
                lambda *block: self.side**2 * math.prod(block) * number <= CPU_PRODUCT_BYTES,
                f"the products of a block, {self.side**2} * MR*RB*NV*VW floats, must not exceed {CPU_PRODUCT_BYTES}"
                " bytes",
            )
            yield Constraint(("LM", "LN"), lambda lm, ln: lm * ln == 1, "on a CPU a block is a work-group: LM and LN 1")
        else:
            yield Constraint(
                ("MR", "NV", "VW"),
                lambda *block: self._gpu_sums(*block) <= GPU_SUMS,
                f"the sums of a block, {self._gpu_sums(1, 1, 1)} * MR*NV*VW floats, must not exceed {GPU_SUMS}",
            )
            yield Constraint(("RB",), lambda rb: rb == 1, "beyond CPUs there is no cache for several register tiles")
        yield from group_constraints(("MR", "RB", "NV", "VW"), self.grid, limits)
        yield from buffer_constraints(("NV", "VW"), self.packed_size, "the packed weights", limits, SUMS)
        yield from buffer_constraints(("MR", "RB"), self.transformed_size, "the transformed input", limits, SUMS)
