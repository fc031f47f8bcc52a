"""Rearrange constant weights and bias once, in a launch that runs before a tiled kernel reads them.

Borders have no memory of their own. A tap outside of the map reads zeros that lie after the packed weights, which costs
a comparison for each tap and not for each channel. Depthwise kernels, in which a tap is one multiply-add, skip rows
outside, and know at compile time which columns of a strip can be outside.

Weights may also stay the whole numbers that a model has, with their scales, in contexts and in device memory.
`Quantised` says how they are stored, and what they stand for; ops/quantised_factors.cl reads them in the innermost
loops of products, with a conversion and a multiplication for each vector. For other kernels they are widened once, when
they are packed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from gputune.core.dtypes import ELEMENT_TYPES, FLOAT
from gputune.kernels.family import ALONE, Array, DeviceLimits, Launch, TensorSpec
from gputune.kernels.space import Constraint, DeviceLimit
from gputune.kernels.template import build_options, template
from gputune.kernels.tiling.streaming import MOST_ELEMENTS, ceil_div, round_up

PACK_TEMPLATE = "pack_filter.cl"
PACK_RUN = 16
"""Elements that a work-item of the pack kernel writes; the same for every problem, so one build serves them all."""


def buffer_constraints(
    names: tuple[str, ...], elements: Callable[..., int], what: str, limits: DeviceLimits, dtype: str
) -> tuple[Constraint, DeviceLimit]:
    """Return the rules for a buffer of a type; `elements` gives its length for values of the parameters `names`."""
    nbytes = ELEMENT_TYPES[dtype].nbytes
    return (
        Constraint(names, lambda *v: elements(*v) <= MOST_ELEMENTS, f"{what} must fit 32-bit indices"),
        DeviceLimit(
            names,
            lambda *v: nbytes * elements(*v) <= limits.max_allocation_bytes,
            f"{what} must fit the device's largest allocation of {limits.max_allocation_bytes} bytes",
        ),
    )


@dataclass(frozen=True)
class Packing:
    """Where weight[group, output, input, tap] comes from, and how wide the panels are that it goes to.

    The packed buffer holds [group][panel][tap][input][`panel` outputs], then the bias as
    [group][panel][`panel` outputs], then `zeros` zeros. In the source, outputs lie `output_stride`
    elements apart, inputs `input_stride`, taps 1.
    """

    outputs: int
    inputs: int
    panel: int
    output_stride: int
    input_stride: int
    groups: int = 1
    taps: int = 1
    zeros: int = 0
    dtype: str = FLOAT

    @property
    def size(self) -> int:
        """Elements of the packed buffer."""
        columns = self.groups * round_up(self.outputs, self.panel)
        return columns * (self.taps * self.inputs + 1) + self.zeros

    @property
    def nbytes(self) -> int:
        """Bytes of the packed buffer."""
        return self.size * ELEMENT_TYPES[self.dtype].nbytes

    def launch(self, weight: str, bias: bool) -> Launch:
        """Fill the buffer "packed" from `weight`, and from "bias" if there is one."""
        return Launch(
            source=template(PACK_TEMPLATE, dtype=self.dtype),
            entry="pack_filter",
            needs=ALONE,
            writes=("packed",),
            options=build_options({"RUN": PACK_RUN}),
            global_size=(ceil_div(self.size, PACK_RUN),),
            local_size=(1,),
            arguments=(
                weight,
                "bias" if bias else weight,
                "packed",
                self.size,
                self.groups,
                self.outputs,
                self.panel,
                self.taps,
                self.inputs,
                self.output_stride,
                self.input_stride,
                int(bias),
            ),
        )


def of_bytes(launch: Launch) -> Launch:
    """Return a launch that makes packed weights of float32 from what it is given, from whole numbers in int8."""
    source = launch.source.replace("__global const TYPE *restrict weight", "__global const char *restrict weight")
    source = source.replace("__global const TYPE *taps", "__global const char *taps")
    return replace(launch, source=source, source_sha256="")


def packed_constraints(
    packing: Callable[[int, int, int], Packing], limits: DeviceLimits, names: tuple[str, str, str] = ("NV", "VW", "LN")
) -> tuple[Constraint, DeviceLimit]:
    """Return the rules for the packed buffer; `packing` gives what lies in it for values of the parameters `names`."""
    least = packing(1, 1, 1)
    what = f"the packed weights, {least.nbytes} bytes or more,"
    return buffer_constraints(names, lambda *panel: packing(*panel).size, what, limits, least.dtype)


ALIGNED_BYTES = 64
"""Scales behind numbers begin at a multiple of this."""
BITS = (4, 8)


@dataclass(frozen=True)
class Quantised:
    """Weights [inputs, outputs] as numbers with a sign, of `bits` each.

    A weight is a number, from which its zero point is taken away if there are `zeros`, times its scale. `block`
    neighbouring inputs of an output share both. 0: there is neither scale nor zero point, weights are whole numbers.
    """

    bits: int = 8
    block: int = 0
    zeros: bool = False

    def __post_init__(self) -> None:
        if self.bits not in BITS:
            raise ValueError(f"quantised weights have 4 or 8 bits, not {self.bits}")
        if self.block < 0 or (self.zeros and not self.block):
            raise ValueError(f"zero points of quantised weights come with scales of blocks, not of {self.block}")

    def inputs(self, inputs: int, outputs: int, dtype: str) -> tuple[TensorSpec, ...]:
        """Return the tensors that take the place of weights "b". dtype: of scales."""
        rows = ceil_div(inputs, self.block) if self.block else 0
        numbers = (
            TensorSpec("b", (inputs, ceil_div(outputs, 2)), True, "uint8")
            if self.bits == 4
            else TensorSpec("b", (inputs, outputs), True, "int8")
        )
        scales = TensorSpec("scales", (rows, outputs), True, dtype)
        zeros = TensorSpec("zeros", (rows, outputs), True, "int8")
        return (numbers, *([scales] if self.block else []), *([zeros] if self.zeros else []))

    def nbytes(self, inputs: int, outputs: int, dtype: str) -> int:
        """Return what these tensors take."""
        return sum(spec.nbytes for spec in self.inputs(inputs, outputs, dtype))

    def weights(self, tensors: Mapping[str, Array], inputs: int, outputs: int) -> Array:
        """Return the weights [inputs, outputs] that these tensors stand for, in float64."""
        numbers = tensors["b"]
        if self.bits == 4:
            pairs = numbers.view(np.int8)
            numbers = np.stack(((pairs << 4).astype(np.int8) >> 4, pairs >> 4), -1).reshape(inputs, -1)[:, :outputs]
        values = numbers.astype(np.float64)
        if self.block:
            blocks = np.arange(inputs) // self.block
            values -= tensors["zeros"].astype(np.float64)[blocks] if self.zeros else 0
            values *= tensors["scales"].astype(np.float64)[blocks]
        return values

    def sample(
        self, inputs: int, outputs: int, dtype: str, generator: np.random.Generator, whole: bool = False
    ) -> dict[str, Array]:
        """Return random tensors such that sums of products with normal numbers have unit variance. whole: the weights
        are whole numbers, and sums of products with numbers up to 255 are below 2 ** 24."""
        made: dict[str, Array] = {}
        largest = 2 ** (self.bits - 1)
        most = max(1, min(largest, 2**22 // (255 * inputs))) if whole else largest
        for spec in self.inputs(inputs, outputs, dtype):
            if spec.name == "scales":
                scales = generator.uniform(0.5, 1.5, spec.shape) / (2 * largest / 12**0.5 * inputs**0.5)
                made[spec.name] = np.ones(spec.shape, dtype) if whole else scales.astype(dtype)
            elif spec.name == "b":
                made["b"] = packed_as(generator.integers(-most, most, (inputs, outputs)), self.bits)
            else:
                made["zeros"] = generator.integers(-most, most, spec.shape).astype(np.int8)
        return made

    @property
    def macros(self) -> dict[str, int]:
        """Return the sizes that kernels which read numbers take."""
        scaled = {"Q_SCALES": int(self.block > 0), "Q_OFFSETS": int(self.zeros)}
        return {"Q_BITS": self.bits, "Q_BLOCK": max(self.block, 1)} | scaled


def packed_as(numbers: Array, bits: int) -> Array:
    """Return numbers with a sign [inputs, outputs] as they are stored: int8, or pairs of 4 bits in uint8."""
    if bits == 8:
        return np.ascontiguousarray(numbers, np.int8)
    even = np.pad(numbers, ((0, 0), (0, numbers.shape[1] % 2))).astype(np.uint8) & 15
    return np.ascontiguousarray(even[:, ::2] | even[:, 1::2] << 4)


@dataclass(frozen=True)
class QuantisedPacking:
    """Say how quantised weights lie in a packed buffer. plain: how their floats would; vector: columns of one.

    widened: whether they are these floats there.
    """

    quantised: Quantised
    plain: Packing
    vector: int
    widened: bool = False

    @property
    def begin(self) -> int:
        """Bytes of numbers in front of what has elements."""
        if self.widened:
            return 0
        return round_up(ceil_div(self._columns * self.plain.inputs * self.quantised.bits, 8), ALIGNED_BYTES)

    @property
    def places(self) -> int:
        """Bytes of numbers and elements behind them."""
        if self.widened:
            return self.plain.size
        kept = self.quantised
        scaled = (1 + kept.zeros) * ceil_div(self.plain.inputs, kept.block) if kept.block else 0
        return self.begin + self._columns * (scaled + 1)

    @property
    def nbytes(self) -> int:
        """Bytes of the packed buffer."""
        return self.begin + (self.places - self.begin) * ELEMENT_TYPES[self.plain.dtype].nbytes

    def launch(self, weight: str, bias: bool) -> Launch:
        """Fill the buffer "packed" from numbers, and from "scales", "zeros" and "bias" as far as there are such."""
        kept = self.quantised
        has = {"scales": kept.block > 0, "zeros": kept.zeros, "bias": bias}
        macros = {"Q_BITS": kept.bits, "Q_SCALES": int(has["scales"]), "Q_ZEROS": int(has["zeros"])}
        macros |= {"HAS_BIAS": int(bias), "WIDENED": int(self.widened), "RUN": PACK_RUN}
        return Launch(
            source=template("pack_quantised.cl", dtype=self.plain.dtype),
            entry="pack_quantised",
            needs=ALONE,
            writes=("packed",),
            options=build_options(macros),
            global_size=(ceil_div(self.places, PACK_RUN),),
            local_size=(1,),
            arguments=(
                weight,
                *(name if there else weight for name, there in has.items()),
                "packed",
                self.places,
                self.begin,
                self.plain.outputs,
                self.plain.panel,
                self.plain.inputs,
                kept.block or self.plain.inputs,
                self._width,
            ),
        )

    @property
    def _width(self) -> int:
        """Return of how many columns the first half shares bytes with the second: of a panel, if that is whole vectors,
        else of a vector."""
        panel = self.plain.panel
        return panel if panel // self.vector % 2 == 0 else max(self.vector, 2)

    @property
    def _columns(self) -> int:
        return round_up(self.plain.outputs, self.plain.panel)
