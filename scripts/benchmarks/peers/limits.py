"""Measure a device's limits, multiply-adds and bytes a second, each by a kernel that does nothing else.

A claim about GFLOP/s needs the limit measured in the same run, so both limits are contenders that take turns with the
others. The fact "amount" of a limit is what one launch does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gputune.client.compare.engines import TimedEngine
from gputune.runtime.backends import Backend, Bound

ACCUMULATORS = (4, 6, 8, 12, 16, 24)
"""Vectors of 16 floats. With registers of 8 floats each takes two, so that 16 registers hold 6, and the constants."""
LAUNCH_NS = 20e6
STREAM_BYTES = 256 << 20
"""Read and written together by one launch: far more than any cache holds."""

FMA_SOURCE = """
// Nothing but multiply-adds on ACCUMULATORS independent vectors: the limit of what any kernel can reach.
__kernel void fma_limit(__global float *out, int loops) {
    float16 value[ACCUMULATORS];
    const float16 factor = (float16)(0.999f), summand = (float16)(0.001f * (float)(1 + get_global_id(0)));
    for (int a = 0; a < ACCUMULATORS; ++a) value[a] = (float16)((float)a);
    for (int loop = 0; loop < loops; ++loop) {
#pragma unroll
        for (int a = 0; a < ACCUMULATORS; ++a) value[a] = fma(value[a], factor, summand);
    }
    float16 sum = value[0];
    for (int a = 1; a < ACCUMULATORS; ++a) sum += value[a];
    out[get_global_id(0)] = sum.s0 + sum.s5 + sum.sa + sum.sf;
}
"""

STREAM_SOURCE = """
// A copy in long rows: each work-item has EACH vectors, those of neighbours beside each other on a GPU only.
__kernel void stream(__global const float16 *restrict from, __global float16 *restrict to) {
    const size_t first = STRIDE == 1 ? get_global_id(0) * EACH : get_global_id(0);
    for (size_t i = 0; i < EACH; ++i) to[first + i * STRIDE] = from[first + i * STRIDE];
}
"""


class FmaLimit(TimedEngine):
    """The fastest form of the multiply-add kernel on one device, calibrated to launches of about 20 ms."""

    def __init__(self, backend: Backend) -> None:
        """Tries each number of accumulators and keeps the fastest."""
        self._backend = backend
        forms = [self._form(accumulators) for accumulators in ACCUMULATORS]
        self._bound, flops = max(forms, key=lambda form: form[1] / backend.time(form[0], 1).event_ns)
        self.facts: Mapping[str, Any] = {"computes": False, "amount": flops}

    def timed(self) -> float:
        return self._backend.time(self._bound, 1).event_ns

    def _form(self, accumulators: int) -> tuple[Bound, float]:
        """Return a launch of so many accumulators, and its operations."""
        backend, device = self._backend, self._backend.identity
        # One item's vectors fill a processor core; a GPU's compute unit hides latency behind many items.
        per_unit, group = (8, 1) if device.device_type == "cpu" else (2048, 64)
        items = device.compute_units * per_unit
        out = backend.allocate(4 * items)
        program = backend.build(FMA_SOURCE, f"-DACCUMULATORS={accumulators}")

        def bind(loops: int) -> Bound:
            return backend.bind(program, "fma_limit", (items,), (group,), [out, loops])

        loops = 1000
        bound = bind(loops)
        backend.time(bound, 3)  # code generation and clocks
        while (elapsed := backend.time(bound, 1).event_ns) < LAUNCH_NS / 2:
            loops = min(loops * 10, int(loops * LAUNCH_NS / max(elapsed, 1)) + 1)
            bound = bind(loops)
        return bound, 2.0 * 16 * accumulators * loops * items


class Bandwidth(TimedEngine):
    """A copy of memory to memory, larger than all caches."""

    def __init__(self, backend: Backend) -> None:
        device = backend.identity
        on_cpu = device.device_type == "cpu"
        each, group = (4096, 1) if on_cpu else (8, 64)
        nbytes = min(STREAM_BYTES // 2, device.max_allocation_bytes)
        items = nbytes // (64 * each) // group * group
        buffers = [backend.allocate(items * each * 64) for _ in range(2)]
        for buffer in buffers:
            backend.fill(buffer, 0)
        program = backend.build(STREAM_SOURCE, f"-DEACH={each} -DSTRIDE={1 if on_cpu else items}")
        self._bound = backend.bind(program, "stream", (items,), (group,), buffers)
        self._backend = backend
        self.facts: Mapping[str, Any] = {"computes": False, "amount": 2.0 * items * each * 64}

    def timed(self) -> float:
        return self._backend.time(self._bound, 1).event_ns
