"""State what must be true of a kernel for a GPU; each rule returns what is wrong in words, empty if nothing is."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gpu.checking.cases import DEFAULT, PERSISTENT, Case
from gpu.compiling.listing import Facts
from gputune.core.launches import Launch, Stage
from gputune.kernels.tiling.estimate import Card

NVIDIA_LOCAL_BYTES = 48 << 10
"""PTX has no more for variables in local memory, and NVIDIA's OpenCL has no way beyond."""

WIDE_SHARE = 0.9
FILLED = 1 / 4
"""The share of a device's lanes that a default has work-items for."""
ELEMENTS_EACH = 16
"""A default for a small problem gives a work-item at most so many elements of the largest tensor."""

UNITS, UNIT_VECTORS = 132, 32
"""An H100's multiprocessors, and how many vectors of the largest tensor make a work-group of one worth it."""

WAVE = 0.7
"""The share of compute units that must have a tile in local memory: a hundred tiles that run at once on 132
multiprocessors end sooner than more tiles in two turns, and the estimate weighs both."""

LEAST_WARPS, NEAR_A_STEP = 8, 4
"""The warps of a multiprocessor for which a default leaves room. So few registers beyond those with which there is room
for another work-group are not worth it."""

LEAST_RATIO: Mapping[str, tuple[float, float]] = {
    "attention_local": (8, 6),
    "matmul_local": (8, 6),
    "conv_local": (8, 6),
}
"""By the entries of kernels: multiply-adds for each load of the hottest loop that a kernel was written for, those of
defaults and those of starters."""

STEP, FEW_GROUPS = 8, 4
"""Registers are given in such steps. Of more work-groups another one is worth little."""

DIRECT = ("matmul_tiled", "conv_direct")
MOST_VECTORS, LEAST_SHARE, MOST_LOAD_CYCLES = 32, 0.45, 12

NOT_COHERENT = "ld.global.nc"
NARROW_FENCES = ("membar.cta", "fence.acq_rel.cta", "fence.sc.cta")


@dataclass(frozen=True)
class Look:
    """A kernel of a case, and what became of it; no facts where nothing was compiled. fault: why a compiler refused
    it."""

    case: Case
    kernel: Stage | Launch
    facts: Facts | None = None
    fault: str = ""


def compiles(look: Look) -> str:
    """Every compiler takes the text."""
    return look.fault


def fits_limits(look: Look) -> str:
    """Work-groups and the local memory that a family declares are within the device's limits."""
    limits, kernel = look.case.device.limits, look.kernel
    if math.prod(kernel.local_size) > limits.max_work_group_size:
        return f"{math.prod(kernel.local_size)} work-items in a group, at most {limits.max_work_group_size} can be"
    if any(size > most for size, most in zip(kernel.local_size, limits.max_work_item_sizes, strict=False)):
        return f"a group of {kernel.local_size}, at most {limits.max_work_item_sizes} can be"
    return limits.lack(kernel.needs) and f"it needs {limits.lack(kernel.needs)}" if kernel.needs else ""


def no_spills(look: Look) -> str:
    """No register goes to memory."""
    spills = look.facts.spills if look.facts else None
    return f"{spills} spilled" if spills else ""


def no_stack(look: Look) -> str:
    """Private arrays are registers: there is no stack frame and no scratch memory."""
    bytes_ = look.facts.stack_bytes if look.facts else None
    return f"{bytes_} bytes of stack" if bytes_ else ""


def local_memory(look: Look) -> str:
    """The local memory that a compiler gives a group fits the device, and what NVIDIA's drivers allow."""
    most = look.case.device.limits.local_memory_bytes
    if look.case.device.maker == "nvidia":
        most = min(most, NVIDIA_LOCAL_BYTES)
    used = (look.facts.local_bytes if look.facts else None) or 0
    return f"{used} bytes of local memory, at most {most} can be" if used > most else ""


def wide_accesses(look: Look) -> str:
    """Check that 90 % of the bytes of global memory move 8 or more at a time, if the configuration has such vectors."""
    share = look.facts.wide_share if look.facts else None
    if (
        look.case.configuration.get("VW", 1) < (4 if look.case.problem.in_half else 2)
        or share is None
        or share >= WIDE_SHARE
    ):
        return ""
    return f"{share:.0%} of the bytes move 8 and more at a time"


def enough_arithmetic(look: Look) -> str:
    """The hottest loop has as many multiply-adds for each load as the kernel was written for."""
    if look.kernel.entry not in LEAST_RATIO:
        return ""
    least = LEAST_RATIO[look.kernel.entry][look.case.kind != DEFAULT]
    ratio = look.facts.ratio if look.facts else None
    return f"{ratio:.1f} multiply-adds for each load, not {least}" if ratio and ratio < least else ""


def fills_device(look: Look) -> str:
    """A default has work-items for a quarter of the device's lanes, or one for 16 elements of the largest tensor."""
    if look.case.kind != DEFAULT or not look.case.elements:
        return ""
    device = look.case.device
    wanted = min(FILLED * device.lanes * device.limits.compute_units, look.case.elements / ELEMENTS_EACH)
    items = math.prod(look.kernel.global_size)
    return f"{items} work-items, {math.ceil(wanted)} would be enough" if items < wanted else ""


def enough_groups(look: Look) -> str:
    """A default has a work-group for each compute unit, up to 132, if the largest tensor has 132 * 32 vectors."""
    case, kernel = look.case, look.kernel
    vectors = case.elements // case.configuration.get("VW", 1)
    if case.kind != DEFAULT or vectors < UNITS * UNIT_VECTORS:
        return ""
    units = min(case.device.limits.compute_units, UNITS)
    groups = math.prod(kernel.global_size) // math.prod(kernel.local_size)
    wanted = WAVE * units if kernel.entry in LEAST_RATIO else units
    return f"{groups} work-groups for {units} compute units" if groups < wanted else ""


def occupancy(look: Look) -> str:
    """A default on NVIDIA's devices leaves room for 8 warps, and not for a work-group less by few registers."""
    case, facts = look.case, look.facts
    if case.kind != DEFAULT or case.device.maker != "nvidia" or facts is None or not facts.registers:
        return ""
    card, items = Card.of(case.device.limits), math.prod(look.kernel.local_size)
    taken = math.ceil(items / card.lanes) * card.lanes
    groups = max(card.registers // (taken * STEP * math.ceil(facts.registers / STEP)), 1)
    if groups * taken < LEAST_WARPS * card.lanes and items >= card.lanes:
        return f"{facts.registers} registers: there is room for {groups * taken // card.lanes} warps"
    fits = card.local_bytes // max(facts.local_bytes or 0, 1) > groups and (groups + 1) * taken <= card.work_items
    one_more = card.registers // (taken * (groups + 1)) // STEP * STEP
    if groups < FEW_GROUPS and fits and 0 < facts.registers - one_more <= NEAR_A_STEP:
        return f"{facts.registers} registers: with {one_more} there would be {groups + 1} work-groups, not {groups}"
    return ""


def phone_registers(look: Look) -> str:
    """A default has at most 32 vectors of 4 registers on Adreno, so that 2 or more waves hide what others wait for."""
    registers = look.facts.registers if look.facts else None
    if look.case.kind != DEFAULT or look.case.device.maker != "adreno" or registers is None:
        return ""
    return f"{registers} vectors of registers" if registers > MOST_VECTORS else ""


def multiply_adds(look: Look) -> str:
    """A default's hottest loop on Adreno has 0.45 multiply-adds for each instruction, if it is a product's."""
    case, facts = look.case, look.facts
    direct = look.kernel.entry in DIRECT and case.kind == DEFAULT
    if not direct or case.device.maker != "adreno" or facts is None or not facts.slots:
        return ""
    share = facts.multiply_adds / facts.slots
    return f"{facts.multiply_adds} of {facts.slots} instructions" if share < LEAST_SHARE else ""


def load_cycles(look: Look) -> str:
    """A direct product's default on Mali takes 12 cycles of loads and stores for one of arithmetic at most."""
    cycles = look.facts.load_cycles if look.facts else None
    if look.kernel.entry != DIRECT[0] or look.case.kind != DEFAULT or cycles is None or cycles <= MOST_LOAD_CYCLES:
        return ""
    return f"{cycles:.1f} cycles of loads and stores for one of arithmetic"


def ordered_memory(look: Look) -> str:
    """Persistent kernels read what others wrote, not older copies, and their fences are for the whole device."""
    if look.case.problem.family != PERSISTENT or look.facts is None:
        return ""
    found = look.facts.instructions
    wrong = {name: number for name, number in found.items() if name.startswith((NOT_COHERENT, *NARROW_FENCES))}
    return ", ".join(f"{number} {name}" for name, number in sorted(wrong.items()))


Rule = Callable[[Look], str]
RULES: Mapping[str, Rule] = {
    rule.__name__: rule
    for rule in (
        compiles,
        fits_limits,
        no_spills,
        no_stack,
        local_memory,
        wide_accesses,
        enough_arithmetic,
        fills_device,
        enough_groups,
        occupancy,
        phone_registers,
        multiply_adds,
        load_cycles,
        ordered_memory,
    )
}


def broken(look: Look) -> dict[str, str]:
    """Return what is wrong with a kernel, by the names of the rules that it breaks."""
    return {name: why for name, rule in RULES.items() if (why := rule(look))}
