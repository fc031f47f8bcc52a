"""Make up kernels, each with parameters and mechanisms of its own, on made-up GPUs: many spaces to fix constants on.

A number decides which parameters a kernel has and which mechanisms matter, and another one the device, so that what
holds on average over them does not hang on one shape: groups that fill a device in steps, edges and last waves that are
wasted, reuse that grows with the tile and ends with the registers, unrolling that pays until the instruction cache is
full, loads that want width, flags that help only together, choices without an order, and whims of a compiler that
couple two parameters. Nothing in here was taken from a recorded space.
"""

import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from benchmarks.search.spaces import RecordedSpace, Recording
from gputune.kernels.space import Configuration, Parameter, configuration_key

KERNELS, DEVICES = 6, 2
LEAST, MOST = 800, 9000
"""Configurations of a space; kernels outside are drawn again."""

REGISTERS, MOST_REGISTERS = 65536, 255
JITTER = 0.02

Values = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Kernel:
    """What the draws of one kernel gave. Parameters that it lacks have one value."""

    parameters: Values
    width: int
    height: int
    depth: int
    """Steps of the inner loop."""
    reach: int
    """Side of a stencil's window less one; 0 for none."""
    bytes_per_step: float
    always_local: bool

    @classmethod
    def drawn(cls, number: int) -> "Kernel":
        chance = random.Random(f"kernel {number}")
        while True:
            parameters = _parameters(chance)
            if LEAST <= sum(1 for _ in _legal(parameters)) <= MOST:
                break
        return cls(
            parameters,
            width=chance.choice((1000, 1024, 2048, 4000, 4096)),
            height=chance.choice((500, 1024, 2048, 4096)),
            depth=chance.choice((16, 64, 225, 512)),
            reach=chance.choice((0, 0, 2, 6, 14)),
            bytes_per_step=10 ** chance.uniform(-1, 0.5),
            always_local=chance.random() < 0.3,
        )


def _parameters(chance: random.Random) -> dict[str, tuple[int, ...]]:
    """Six to nine parameters, as kernels have them."""
    sizes = chance.choice(((16, 32, 64, 128, 256), (8, 16, 32, 48, 64, 96, 128), (32, 64, 96, 128, 160, 192, 224, 256)))
    found = {
        "BX": sizes,
        "BY": chance.choice(((1, 2, 4, 8), (1, 2, 4, 8, 16, 32), (1, 3, 4, 6, 8))),
        "TX": chance.choice(((1, 2, 4, 8), (1, 2, 3, 4), (1, 2, 3, 4, 5, 6, 7, 8))),
        "TY": chance.choice(((1, 2, 4, 8), (1, 2, 3, 4, 5), (1, 2, 4))),
    }
    more = {
        "UNROLL": chance.choice(((1, 2, 4, 8), (0, 1), (1, 3, 5, 15))),
        "VEC": (1, 2, 4),
        "LOCAL": (0, 1),
        "PAD": (0, 1),
        "CACHED": (0, 1),
        "STRIDED": (0, 1),
        "GROUPS": (0, 1, 2, 3, 4),
        "ORDER": (0, 1, 2),
    }
    return found | {name: more[name] for name in sorted(chance.sample(sorted(more), chance.randint(2, 5)))}


def _legal(parameters: Values) -> Iterator[dict[str, int]]:
    for values in product(*parameters.values()):
        c = dict(zip(parameters, values, strict=True))
        padded_nothing = c.get("PAD", 0) and not c.get("LOCAL", 1)
        if 32 <= c["BX"] * c["BY"] <= 1024 and not padded_nothing and c["TX"] % c.get("VEC", 1) == 0:
            yield c


class Device:
    """Limits, ratios and whims of a device for a kernel; `cost` is what a configuration takes on it."""

    def __init__(self, kernel: Kernel, seed: str) -> None:
        chance = random.Random(seed)
        draw, pick = chance.uniform, chance.choice
        self.kernel, self.seed = kernel, seed
        self.warp, self.units, self.items = pick((32, 32, 64)), pick((24, 48, 84, 120)), pick((1024, 1536, 2048))
        self.local_bytes, self.group_bytes = pick((65536, 102400)), pick((32768, 49152))
        self.base_registers, self.per_result, self.per_step = draw(14, 34), draw(0.9, 2.6), draw(1, 4)
        self.ratio, self.latency, self.ports = 10 ** draw(0.3, 1.5), draw(6, 28), draw(2, 8)
        self.overhead, self.loop, self.instructions = draw(0.5, 4), draw(0.3, 3), pick((48, 96, 192))
        self.conflict, self.hit, self.tail, self.start = draw(0.1, 1), draw(0.2, 0.9), draw(0.3, 1), draw(50, 2000)
        self.narrow, self.strided, self.cached = draw(1, 1.5), draw(0.8, 1.3), draw(0.85, 1.15)
        self.orders = [math.exp(chance.gauss(0, 0.15)) for _ in range(3)]
        self.whim = draw(0.02, 0.12)
        self.coupled = [tuple(chance.sample(sorted(kernel.parameters), 2)) for _ in range(3)]

    def cost(self, c: Configuration) -> float | None:
        """A time in arbitrary units; None where the group does not fit."""
        kernel = self.kernel
        unroll, vector, tile = max(c.get("UNROLL", 1), 1), c.get("VEC", 1), c["TX"] * c["TY"]
        items, local = c["BX"] * c["BY"], bool(c.get("LOCAL", int(kernel.always_local)))
        warps = -(-items // self.warp)
        across, down = c["BX"] * c["TX"], c["BY"] * c["TY"]
        wanted = self.base_registers + self.per_result * tile + self.per_step * (unroll**0.5 + vector) + c["TX"]
        limit = min(MOST_REGISTERS, self._bound(c.get("GROUPS", 0), warps))
        spilled = max(0.0, wanted - limit) / 24
        registers = 8 * math.ceil(min(wanted, limit) / 8)
        bytes_used = 4 * (across + kernel.reach + c.get("PAD", 0)) * (down + kernel.reach) * local
        groups = min(self.items // (warps * self.warp), REGISTERS // (registers * warps * self.warp), 32)
        groups = min(groups, self.local_bytes // bytes_used) if local else groups
        if bytes_used > self.group_bytes or groups < 1:
            return None
        waves = -(-kernel.width // across) * -(-kernel.height // down) / (self.units * groups)
        waves = self.tail * math.ceil(waves) + (1 - self.tail) * max(waves, 1)
        hidden = 1 - math.exp(-groups * warps * (1 + 0.4 * math.log2(tile * unroll)) / self.latency)
        crowded = 1 + max(0.0, tile * unroll * 1.5 / self.instructions - 1)
        per_result = 1 + self.overhead / tile + self.loop / (unroll * tile**0.5) + spilled * self.ports
        lanes = warps * self.warp
        arithmetic = lanes * tile * kernel.depth * per_result * crowded / hidden / 128
        memory = self._traffic(c, items, tile, across, down, local) * vector**-0.1 / max(hidden, 0.15)
        memory *= max(1, self.warp / (c["BX"] * vector)) ** 0.7 * (self.narrow if vector == 1 else 1)
        memory *= self.strided if c.get("STRIDED", 0) and c["TX"] > 1 else 1
        memory *= self.orders[c.get("ORDER", 0)] ** math.log2(2 + tile)
        memory *= self.ratio / 128
        conflicts = 1 + self.conflict * ((across + kernel.reach) % 32 == 0) * (not c.get("PAD", 0)) * local
        group = max(arithmetic * conflicts, memory) + 0.3 * min(arithmetic, memory)
        total: float = waves * (groups * group + self.start) * math.exp(self._whims(c))
        return total

    def _bound(self, groups: int, warps: int) -> float:
        """Registers that a compiler told of so many resident groups allows itself."""
        return REGISTERS / (groups * warps * self.warp) if groups else MOST_REGISTERS

    def _traffic(self, c: Configuration, items: int, tile: int, across: int, down: int, local: bool) -> float:
        """Bytes that a group loads."""
        kernel = self.kernel
        if kernel.reach:
            once = float((across + kernel.reach) * (down + kernel.reach))
            each = items * tile * kernel.depth / (1 + 0.5 * c["TX"])
        else:
            once, each = float((across + down) * kernel.depth), float(items * (c["TX"] + c["TY"]) * kernel.depth)
        cached = 1 - self.hit * (self.cached if c.get("CACHED", 0) else 1)
        return kernel.bytes_per_step * (once if local else once + each * max(cached, 0.05))

    def _whims(self, c: Configuration) -> float:
        """What couples two parameters for no reason that a model of the device would give."""
        return sum(
            random.Random(f"{self.seed}{names}{[c[name] for name in names]}").gauss(0, self.whim)
            for names in self.coupled
        )


def landscape(kernel: int, device: int) -> Recording:
    """The space of a made-up kernel on a made-up device, as if it had been recorded."""
    drawn = Kernel.drawn(kernel)
    on = Device(drawn, f"kernel {kernel} device {device}")
    samples: dict[str, tuple[float, ...]] = {}
    listed = []
    for configuration in _legal(drawn.parameters):
        key, cost = configuration_key(configuration), on.cost(configuration)
        jitter = math.exp(random.Random(f"{key}{on.seed}").gauss(0, JITTER))
        samples[key] = () if cost is None else (cost * jitter,)
        listed.append(tuple(configuration.values()))
    parameters = tuple(Parameter(name, values, "made up") for name, values in drawn.parameters.items())
    return Recording(f"landscape {kernel}", str(device), RecordedSpace(parameters, tuple(listed)), samples)


def all_landscapes() -> list[Recording]:
    """Every made-up kernel on every made-up device."""
    return [landscape(kernel, device) for kernel in range(KERNELS) for device in range(DEVICES)]
