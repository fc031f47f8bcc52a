"""Rearrange constant weights and bias once, in a launch that runs before a tiled kernel reads them.

Borders have no memory of their own. A tap outside of the map reads zeros that lie after the packed weights, which costs
a comparison for each tap and not for each channel. Depthwise kernels, in which a tap is one multiply-add, skip rows
outside, and know at compile time which columns of a strip can be outside.
"""

from collections.abc import Callable
from dataclasses import dataclass

from gputune.core.dtypes import ELEMENT_TYPES, FLOAT
from gputune.kernels.family import ALONE, DeviceLimits, Launch
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


def packed_constraints(
    packing: Callable[[int, int, int], Packing], limits: DeviceLimits, names: tuple[str, str, str] = ("NV", "VW", "LN")
) -> tuple[Constraint, DeviceLimit]:
    """Return the rules for the packed buffer; `packing` gives what lies in it for values of the parameters `names`."""
    least = packing(1, 1, 1)
    what = f"the packed weights, {least.nbytes} bytes or more,"
    return buffer_constraints(names, lambda *panel: packing(*panel).size, what, limits, least.dtype)
