"""Make up spaces of a stencil and a matrix product on made-up GPUs, to fix the constants of strategies on.

Recordings of our own kernels on one CPU are small and smooth. These have what makes real ones hard: work that does not
divide, occupancy that falls in steps with registers and local memory, spilling, bank conflicts, launches that fail, and
optima that differ from device to device. Every device draws its limits and ratios from its number; nothing in here was
taken from a recorded space.
"""

import itertools
import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from benchmarks.search.landscapes import all_landscapes
from benchmarks.search.spaces import RecordedSpace, Recording
from gputune.kernels.space import Configuration, Parameter, configuration_key

DEVICES = 4

STENCIL = {
    "BX": (8, 16, 32, 48, 64, 96, 128, 160, 192, 256),
    "BY": (1, 2, 4, 8, 16),
    "TX": (1, 2, 3, 4),
    "TY": (1, 2, 3, 4, 6),
    "LOCAL": (0, 1),
    "PAD": (0, 1),
    "RO": (0, 1),
}
GEMM = {
    "BX": (4, 8, 16, 32, 64),
    "BY": (4, 8, 16, 32),
    "TX": (1, 2, 4, 8),
    "TY": (1, 2, 4, 8),
    "KU": (1, 2, 4, 8),
    "VEC": (1, 2, 4),
    "LOCAL": (0, 1),
}
"""BX x BY work-items in a group, TX x TY results each, KU unrolling, VEC loads, LOCAL memory, PAD against conflicts."""

REGISTERS = 65536
MOST_REGISTERS = 160
SPILLS_BEYOND = 128
JITTER = 0.02


@dataclass(frozen=True)
class Device:
    """What the draws of one device gave."""

    warp: int
    units: int
    items: int
    local_bytes: int
    group_bytes: int
    memory_ratio: float
    latency: float
    conflict: float
    cached: float
    base_registers: int
    group_cost: float
    local_cost: float
    scalar_loads: float
    groups: int
    reach: int
    """Side of the stencil's window less one."""

    @classmethod
    def drawn(cls, kernel: str, number: int) -> "Device":
        chance = random.Random(f"{kernel}{number}")
        return cls(
            warp=chance.choice((32, 32, 64)),
            units=chance.choice((20, 48, 84, 108)),
            items=chance.choice((1024, 1536, 2048)),
            local_bytes=chance.choice((49152, 65536, 102400)),
            group_bytes=chance.choice((32768, 49152)),
            memory_ratio=chance.uniform(8, 40),
            latency=chance.uniform(8, 24),
            conflict=chance.uniform(0.2, 1.2),
            cached=chance.uniform(0.2, 0.9),
            base_registers=chance.randint(16, 32),
            group_cost=chance.uniform(200, 3000),
            local_cost=chance.uniform(0.1, 0.5),
            scalar_loads=chance.uniform(1, 1.6),
            groups=chance.choice((16, 32)),
            reach=chance.choice((8, 14)),
        )


def made_up(kernel: str, number: int) -> Recording:
    """The space of "stencil" or "gemm" on a device, as if it had been recorded."""
    parameters = STENCIL if kernel == "stencil" else GEMM
    device = Device.drawn(kernel, number)
    samples: dict[str, tuple[float, ...]] = {}
    listed = []
    for configuration in _legal(parameters):
        key = configuration_key(configuration)
        cost = _cost(kernel == "stencil", device, configuration)
        jitter = math.exp(random.Random(f"{key}{number}").gauss(0, JITTER))
        samples[key] = () if cost is None else (cost * jitter,)
        listed.append(tuple(configuration.values()))
    space = RecordedSpace(
        tuple(Parameter(name, values, "made up") for name, values in parameters.items()), tuple(listed)
    )
    return Recording(f"made-up {kernel}", str(number), space, samples)


def _legal(parameters: Mapping[str, tuple[int, ...]]) -> Iterator[dict[str, int]]:
    for values in itertools.product(*parameters.values()):
        c = dict(zip(parameters, values, strict=True))
        padded_nothing = c.get("PAD", 0) and not c["LOCAL"]
        if 32 <= c["BX"] * c["BY"] <= 1024 and not padded_nothing and c.get("VEC", 1) <= c["TX"]:
            yield c


def _cost(stencil: bool, device: Device, c: Configuration) -> float | None:
    """A time in arbitrary units; None where the group does not fit the device."""
    width, height, reach = (4096, 4096, device.reach) if stencil else (2048, 2048, 0)
    steps = reach * reach if stencil else 2048
    unroll, vector, tile = c.get("KU", 2), c.get("VEC", 1), c["TX"] * c["TY"]
    items = c["BX"] * c["BY"]
    warps = -(-items // device.warp)
    across, down = c["BX"] * c["TX"], c["BY"] * c["TY"]
    registers = device.base_registers + int(tile * 1.6) + 4 * vector + 2 * unroll
    registers += 4 * c["TX"] if stencil else c["TX"] + c["TY"]
    spilled = max(0, registers - SPILLS_BEYOND) / 40
    registers = min(registers, MOST_REGISTERS)
    padded = (across + reach + c.get("PAD", 0)) * (down + reach) if stencil else (across + down) * unroll * 4
    local_bytes = 4 * padded * c["LOCAL"]
    groups = min(device.items // (warps * device.warp), REGISTERS // (registers * warps * device.warp), device.groups)
    if local_bytes:
        groups = min(groups, device.local_bytes // local_bytes)
    if local_bytes > device.group_bytes or not groups:
        return None
    waves: int = -(-(-(-width // across) * -(-height // down)) // (device.units * groups))
    parallel = groups * warps * (1 + 0.5 * math.log2(tile)) * (1 + 0.1 * unroll)
    hidden = 1 - math.exp(-parallel / device.latency)
    busy = hidden / (1 + spilled) * min(1, 0.45 + 0.1 * math.log2(tile * 4) + 0.05 * math.log2(unroll))
    arithmetic = groups * warps * device.warp * tile * steps / (128 * busy)
    if c["LOCAL"]:
        loads: float = (across + reach) * (down + reach) if stencil else (across + down) * steps
    elif stencil:
        missed = 1 - device.cached * (1 if c["RO"] else 0.8)
        loads = items * (tile * steps / (1 + c["TX"] * 0.7)) * missed * 0.3
    else:
        loads = items * (c["TX"] + c["TY"]) * steps * (1 - device.cached)
    scattered: float = max(1, device.warp / (c["BX"] * vector)) ** 0.6 * (device.scalar_loads if vector == 1 else 1)
    memory = groups * loads * scattered * device.memory_ratio / 128 / max(hidden, 0.2)
    local = 0.0
    if c["LOCAL"]:
        conflicts = 1.0
        if stencil and not c["PAD"] and (across + reach) % 32 == 0:
            conflicts += device.conflict * c["TX"] / 2
        if not stencil and c["TX"] >= 4 and vector == 1:
            conflicts += device.conflict
        uneven = 1 if c["BX"] % device.warp == 0 or device.warp == 32 else 1.2
        local = arithmetic * device.local_cost * conflicts * uneven
    overlapped = max(arithmetic, memory) + 0.25 * min(arithmetic, memory)
    total: float = waves * (overlapped + local + device.group_cost * groups)
    return total


def all_made_up() -> list[Recording]:
    """Both kernels on every made-up device, and the kernels of `landscapes.py`."""
    ours = [made_up(kernel, number) for kernel in ("stencil", "gemm") for number in range(DEVICES)]
    return ours + all_landscapes()
