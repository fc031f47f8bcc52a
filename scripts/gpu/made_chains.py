"""Make chains of made-up kernels, each different from the plainest in one respect, to find what makes launches slow."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpu.device import Device
from gpu.loop import Launch

LENGTH = 32
ITEMS = 64
GROUPS = (1, 16, 256, 4096)
SMALL, LARGE = 4096, 64 << 20
STACKS = (256, 1024, 1536)
BUSY_STEPS = 10_000
"""Dependent multiplications, of 4 cycles each on a GPU: some 20 us."""

PLAIN = "__kernel void NAME(__global float *a) { a[get_global_id(0) & 63] += 1.0f; }\n"
MANY = (
    "__kernel void NAME(__global float *a, __global float *b, __global float *c, __global float *d, const int e,"
    " const int f, const int g, const int h) { a[get_global_id(0) & 63] += b[e] + c[f] + d[g + h]; }\n"
)
BUSY = """__kernel void NAME(__global float *a) {
    float x = a[get_global_id(0) & 63];
    for (int s = 0; s < STEPS; ++s)
        x = fma(x, 0.999f, 0.001f);
    a[get_global_id(0) & 63] = x;
}
"""
STACK = """__kernel void NAME(__global float *a) {
    volatile float kept[WORDS];
    const int i = get_global_id(0) & 63;
    for (int s = 0; s < WORDS; ++s)
        kept[s] = a[(i + s) & 63];
    a[i] = kept[(int)a[0] & (WORDS - 1)] + kept[i % WORDS];
}
"""
LOCAL = """__kernel void NAME(__global float *a) {
    __local float kept[WORDS];
    const int i = get_local_id(0);
    kept[i * (WORDS / 64)] = a[i];
    barrier(CLK_LOCAL_MEM_FENCE);
    a[i] = kept[(63 - i) * (WORDS / 64)] * 0.5f;
}
"""


def made_chains(device: Device, steps: int = BUSY_STEPS) -> dict[str, list[Launch]]:
    """Return chains by what is special in them."""
    small, large = device.empty(SMALL), device.empty(LARGE if device.gpu else SMALL)
    numbers = iter(range(10_000))

    def kernel(
        text: str, *arguments: Any, groups: int = 1, program: Any = None, name: str = "", **defines: int
    ) -> Launch:
        name = name or f"made_{next(numbers)}"
        built = device.build(text.replace("NAME", name), "", **defines) if program is None else program
        return Launch(device.kernel(built, name, *(arguments or (small,))), (groups * ITEMS,), (ITEMS,))

    both = device.build(PLAIN.replace("NAME", "one") + PLAIN.replace("NAME", "other"))
    plain, others = kernel(PLAIN), [kernel(PLAIN) for _ in range(LENGTH)]
    busy = kernel(BUSY, STEPS=steps)
    chains = {
        "plain": _turns(plain),
        "one program, two kernels": _turns(*(kernel(PLAIN, program=both, name=name) for name in ("one", "other"))),
        "two programs": _turns(*others[:2]),
        f"{LENGTH} programs": _turns(*others),
        "large buffer": _turns(kernel(PLAIN, large)),
        "8 arguments": _turns(kernel(MANY, small, small, small, small, *(np.int32(0),) * 4)),
        "8 arguments, large buffers": _turns(kernel(MANY, large, large, large, large, *(np.int32(0),) * 4)),
        "busy": _turns(busy),
        "busy and plain": _turns(busy, plain),
    }
    chains |= {f"{count} groups": _turns(kernel(PLAIN, groups=count)) for count in GROUPS[1:]}
    for nbytes in STACKS:
        stacked = kernel(STACK, WORDS=nbytes // 4)
        chains |= {f"stack {nbytes}": _turns(stacked), f"stack {nbytes} and plain": _turns(stacked, plain)}
    for nbytes in (8 << 10, 32 << 10):
        local = kernel(LOCAL, WORDS=nbytes // 4)
        chains |= {f"local {nbytes}": _turns(local), f"local {nbytes} and plain": _turns(local, plain)}
    return chains


def _turns(*launches: Launch) -> list[Launch]:
    return [launches[place % len(launches)] for place in range(LENGTH)]
