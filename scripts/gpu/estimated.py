"""Estimate what today's defaults take on the card of a kept day, for products and convolutions that PyTorch ran."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpu.checking.devices import DEVICES
from gpu.phases.baselines import CONVOLUTIONS
from gputune.kernels.algorithms import ALG
from gputune.kernels.catalogue import family_of
from gputune.kernels.family import DeviceLimits
from gputune.kernels.ops.conv import ConvProblem
from gputune.kernels.ops.matmul import MatMulProblem
from gputune.kernels.tiling.estimate import Card

PRODUCTS = ((512, 512, 512), (1024, 1024, 1024), (4096, 4096, 4096), (1, 4096, 4096))
WIDEST_ALLOCATION = 4
"""A buffer may have a quarter of a card's memory, as OpenCL promises."""


CARDS: Mapping[str, tuple[str, float]] = {
    "H100": ("h100", 2900),
    "RTX 3060": ("rtx3060", 330),
    "Adreno 740": ("adreno740", 67),
    "Mali G57, 4 cores": ("mali-g57", 30),
}
"""The cards of the page: their names in DEVICES, and gigabytes of memory in a second."""


@dataclass(frozen=True)
class Estimated:
    """A default. name: as PyTorch's times have it; way: its algorithm and tile in words."""

    group: str
    name: str
    way: str
    us: float


def estimated(device: Mapping[str, Any]) -> Iterator[Estimated]:
    """Yield the defaults for a device of which the facts of a day are known, with their estimated microseconds."""
    limits, clock = limits_of(device), float(device["MAX_CLOCK_FREQUENCY"])
    for group, name, op, problem in _problems():
        family = family_of(op)
        default, estimate = family.default(problem, limits), family.estimate(problem, limits)
        assert estimate is not None, "products and convolutions have estimates"
        yield Estimated(group, name, _in_words(default), estimate(default) / clock)


def limits_of(device: Mapping[str, Any]) -> DeviceLimits:
    """Return the limits of a device by the facts of a day."""
    return DeviceLimits(
        max_work_group_size=device["MAX_WORK_GROUP_SIZE"],
        max_work_item_sizes=(device["MAX_WORK_GROUP_SIZE"],) * 2 + (64,),
        local_memory_bytes=device["LOCAL_MEM_SIZE"],
        max_allocation_bytes=device["GLOBAL_MEM_SIZE"] // WIDEST_ALLOCATION,
        compute_units=device["MAX_COMPUTE_UNITS"],
        device_type="gpu",
        preferred_float_width=1,
    )


def on_cards() -> list[list[Any]]:
    """Return a row for each product and convolution: what its default is estimated to take on CARDS, and at least, by
    the card's arithmetic or by memory that is read once."""
    rows: list[list[Any]] = [["kernel", *CARDS]]
    for _, name, op, problem in _problems():
        family, row = family_of(op), [name.removesuffix(" g1")]
        for device, gigabytes in CARDS.values():
            limits, card = DEVICES[device].limits, Card.of(DEVICES[device].limits)
            estimate, work = family.estimate(problem, limits), family.work(problem)
            assert estimate is not None, "products and convolutions have estimates"
            clocks = work.flops / (2 * card.units * card.lanes * card.issued)
            least = max(clocks / card.mhz, work.bytes / gigabytes / 1e3)
            us = estimate(family.default(problem, limits)) / card.mhz
            row.append(f"{_digits(us, 3)} ({_digits(least, 2)})")
        rows.append(row)
    return rows


def _digits(value: float, digits: int) -> str:
    rounded = float(f"{value:.{digits}g}")
    return f"{rounded:g}" if rounded < 1e6 else f"{rounded:.0f}"


def _problems() -> Iterator[tuple[str, str, str, Any]]:
    """Yield where PyTorch's times of a problem are, the op that computes it, and the problem."""
    for m, k, n in PRODUCTS:
        yield "products", f"{m}x{k}x{n}", "MatMul", MatMulProblem(m, k, n)
    for height, width, inputs, outputs, kernel, stride in CONVOLUTIONS:
        name = f"{height}x{width} {inputs}-{outputs} {kernel}x{kernel} /{stride} g1"
        if kernel == stride == 1:  # the model's plan makes products of these
            yield "convolutions", name, "MatMul", MatMulProblem(height * width, inputs, outputs)
        else:
            pads, both = (kernel // 2,) * 4, (kernel, kernel)
            problem = ConvProblem(1, height, width, inputs, outputs, both, (stride, stride), pads)
            yield "convolutions", name, "Conv", problem


def _in_words(default: Mapping[str, int]) -> str:
    """Say what the algorithm is, and for tiles in local memory rows, columns and shares of the reduction."""
    if default.get(ALG) != 1:
        return {0: "direct", 2: "few rows"}.get(default.get(ALG, 0), "Winograd")
    rows, columns = default["MR"] * default["LM"], math.prod(default[name] for name in ("NV", "VW", "LN"))
    return f"local, {rows}x{columns}" + (f", {default['SPLIT']} shares" if default["SPLIT"] > 1 else "")
