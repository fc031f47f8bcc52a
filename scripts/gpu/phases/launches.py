"""Measure what a launch costs the host and the device: by kind of memory, by way of calling, by number of arguments.

A chain is 32 launches of a kernel that hardly computes. `enqueue` is the host's time for each call, `inference` the
time for each until the last is done. Bandwidths of the same kinds of memory follow.
"""

from __future__ import annotations

import itertools
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu.device import Device, cl, in_turns
from gpu.loop import Launch, Loop
from gpu.record import Record, run, spread

CHAIN = 32
ITEMS = 64
TENSORS = 64
STEP = 4096
ARGUMENTS = (1, 4, 8)
OTHERS = 2000
"""Buffers that lie around, in one of the kinds."""

Enqueue = Callable[[Any, Sequence[Any]], float]


@dataclass(frozen=True)
class Memory:
    """A kind of memory: tensors to give kernels, by their number; offsets: kernels take one base and offsets."""

    name: str
    tensors: tuple[Any, ...]
    offsets: bool = False
    keeps: tuple[Any, ...] = ()


def main(record: Record) -> None:
    """Measures the cells of the table in turns, then the gaps on the device, then bandwidths."""
    device = Device(profiling=False)
    ways = _ways(device, record)
    kinds = _memories(device)
    timed = device.new_queue(profiling=True)
    rounds = 5 if record.rehearse else 60
    cells: dict[str, Callable[[], float]] = {}
    inference: dict[str, list[float]] = {}
    for kind in kinds:
        for count in ARGUMENTS:
            kernels = _chain(device, kind, count)
            for way, call in ways.items():
                name = f"{kind.name} {way} {count}"
                cells[name] = _cell(device.queue, call, kernels, inference.setdefault(name, []))
            name = f"{kind.name} timed_queue {count}"
            cells[name] = _cell(timed, ways["python"], kernels, inference.setdefault(name, []))
    enqueue = in_turns(cells, rounds, lambda: record.left - 12)
    for name, samples in enqueue.items():
        kind_name, way, count_name = name.split()
        value: Any = samples
        if not isinstance(samples, str):
            value = {"enqueue_us": spread(samples[1:]), "inference_us": spread(inference[name][1:])}
        record.put("launches", kind_name, way, count_name, value=value)
    for kind in kinds:
        record.put("gaps", kind.name, value=_gaps(device, timed, _chain(device, kind, 4), rounds))
        record.say(f"{kind.name}, 4 arguments: {', '.join(_shown(record, kind.name, way) for way in ways)}")
    record.attempt("bandwidth", lambda: _bandwidths(device, record))
    for nbytes, rates in (record.get("bandwidth") or {}).items():
        told = ", ".join(
            f"{name} {rate.get('median') if isinstance(rate, dict) else rate}" for name, rate in rates.items()
        )
        record.say(f"GB/s of {nbytes} bytes: {told}")


def _shown(record: Record, kind: str, way: str) -> str:
    """A cell in words: microseconds of an enqueue, and of a launch until all is done."""
    cell = record.get("launches", kind, way, "4")
    if not isinstance(cell, dict):
        return f"{way} {cell}"
    return f"{way} {cell['enqueue_us'].get('median')} and {cell['inference_us'].get('median')} us"


def _cell(queue: Any, call: Enqueue, kernels: Sequence[Any], whole: list[float]) -> Callable[[], float]:
    """One chain: microseconds of each enqueue; those of each launch until all is done go into `whole`."""

    def measure() -> float:
        queue.finish()
        start = time.perf_counter()
        taken = call(queue, kernels)
        queue.finish()
        whole.append((time.perf_counter() - start) / len(kernels) * 1e6)
        return taken / len(kernels)

    return measure


def _ways(device: Device, record: Record) -> dict[str, Enqueue]:
    def python(queue: Any, kernels: Sequence[Any]) -> float:
        start = time.perf_counter()
        for kernel in kernels:
            cl.enqueue_nd_range_kernel(queue, kernel, (ITEMS,), (ITEMS,))
        return (time.perf_counter() - start) * 1e6

    ways: dict[str, Enqueue] = {"python": python}
    try:
        loop = Loop(record.folder)
    except (OSError, subprocess.CalledProcessError) as error:
        record.put("error", "c", value=str(getattr(error, "stderr", error)))
        return ways

    def by_c(events: bool) -> Enqueue:
        def call(queue: Any, kernels: Sequence[Any]) -> float:
            prepared = loop.prepared([Launch(kernel, (ITEMS,), (ITEMS,)) for kernel in kernels])
            return loop.run(queue, prepared, events)

        return call

    return {**ways, "c": by_c(False), "c_event": by_c(True)}


def _memories(device: Device) -> list[Memory]:
    """The kinds: buffers of their own, also among many others, parts of an arena, an arena of shared virtual memory
    with pointers into it, and one base with offsets."""
    size = TENSORS * STEP
    whole = tuple(device.empty(STEP) for _ in range(TENSORS))
    arena, few = device.empty(size), device.empty(size)
    parts = tuple(arena.get_sub_region(number * STEP, STEP) for number in range(TENSORS))
    eight = tuple(few.get_sub_region(number * STEP, STEP) for number in range(8))
    kinds = [
        Memory("whole", whole),
        Memory("parts", parts, keeps=(arena,)),
        Memory("few_parts", eight, keeps=(few,)),
        Memory("offsets", tuple(range(0, TENSORS * STEP, STEP)), offsets=True, keeps=(device.empty(size),)),
    ]
    try:
        shared = cl.SVMAllocation(device.context, size, 0, cl.svm_mem_flags.READ_WRITE, queue=device.queue)
        kinds.append(Memory("svm", tuple(shared.svm_ptr + number * STEP for number in range(TENSORS)), keeps=(shared,)))
    except Exception as error:
        print(f"no shared virtual memory: {error}")
    crowd = tuple(device.empty(STEP) for _ in range(OTHERS))
    kinds.append(Memory("crowded", tuple(device.empty(STEP) for _ in range(TENSORS)), keeps=crowd))
    return kinds


def _chain(device: Device, kind: Memory, count: int) -> list[Any]:
    """The kernels of a chain, each with `count` tensors."""
    program = device.build(_source(kind.offsets, count))
    kernels = []
    for number in range(CHAIN):
        tensors = [kind.tensors[(number + place) % len(kind.tensors)] for place in range(count)]
        given = [kind.keeps[0], *(np.int32(tensor) for tensor in tensors)] if kind.offsets else tensors
        kernels.append(device.kernel(program, "link", *given))
    return kernels


def _source(offsets: bool, count: int) -> str:
    """A kernel that adds all its tensors into the first one."""
    names = [f"t{number}" for number in range(count)]
    if offsets:
        head = ", ".join(["__global char *base", *(f"const int o{number}" for number in range(count))])
        body = "".join(
            f"    __global float *t{number} = (__global float *)(base + o{number});\n" for number in range(count)
        )
    else:
        head, body = ", ".join(f"__global float *{name}" for name in names), ""
    total = " + ".join(f"{name}[i]" for name in names)
    return (
        f"__kernel void link({head}) {{\n    const int i = get_global_id(0);\n{body}    t0[i] = 0.5f * ({total});\n}}\n"
    )


def _gaps(device: Device, queue: Any, kernels: Sequence[Any], rounds: int) -> dict[str, Any]:
    """Microseconds of kernels and between them, by the device's clock."""
    lengths, gaps = [], []
    for _ in range(rounds):
        events = [cl.enqueue_nd_range_kernel(queue, kernel, (ITEMS,), (ITEMS,)) for kernel in kernels]
        queue.finish()
        times = [(event.profile.start, event.profile.end) for event in events]
        lengths += [(end - start) / 1e3 for start, end in times]
        gaps += [(later[0] - earlier[1]) / 1e3 for earlier, later in itertools.pairwise(times)]
    return {"kernel_us": spread(lengths), "gap_us": spread(gaps)}


COPY = """
__kernel void copy(__global const TYPE *a, __global TYPE *b) { b[get_global_id(0)] = a[get_global_id(0)]; }
__kernel void sum(__global const TYPE *a, __global TYPE *b, const int steps) {
    const int i = get_global_id(0), all = get_global_size(0);
    TYPE total = a[i];
    for (int s = 1; s < steps; ++s)
        total += a[i + s * all];
    b[i] = total;
}
"""


def _bandwidths(device: Device, record: Record) -> dict[str, Any]:
    """GB/s of copies and of sums, for buffers and shared virtual memory, within the caches and beyond them."""
    queue = device.new_queue(profiling=True)
    sizes = (1 << 20, 1 << 22) if record.rehearse else (4 << 20, 16 << 20, 1 << 30)
    found: dict[str, Any] = {}
    for nbytes in sizes:
        a, b = device.upload(np.random.default_rng(1).random(nbytes // 4, np.float32)), device.empty(nbytes)
        memories: dict[str, tuple[Any, Any]] = {"buffers": (a, b)}
        if nbytes <= 16 << 20:  # far from the memory of any card
            flags = cl.svm_mem_flags.READ_WRITE
            two = [cl.SVMAllocation(device.context, nbytes, 0, flags, queue=device.queue) for _ in range(2)]
            start = device.kernel(device.build(COPY, "-DTYPE=float4"), "copy", a, two[0].svm_ptr)
            cl.enqueue_nd_range_kernel(device.queue, start, (nbytes // 16,), (64,))
            device.queue.finish()
            memories["svm"] = (two[0].svm_ptr, two[1].svm_ptr)
        contenders: dict[str, Callable[[], float]] = {}
        for kind, (source, target) in memories.items():
            for type_name, width in (("float", 4), ("float4", 16)):
                program = device.build(COPY, f"-DTYPE={type_name}")
                kernel = device.kernel(program, "copy", source, target)
                contenders[f"{kind} copy {type_name}"] = _rate(queue, kernel, nbytes // width, 2 * nbytes)
            items = min(1 << 17, nbytes // 64)
            total = device.kernel(program, "sum", source, target, np.int32(nbytes // 16 // items))
            contenders[f"{kind} sum float4"] = _rate(queue, total, items, nbytes)
        rates = in_turns(contenders, 3 if record.rehearse else 15, lambda: record.left)
        found[str(nbytes)] = {name: one if isinstance(one, str) else spread(one[1:], 1) for name, one in rates.items()}
        record.put("bandwidth", value=found)
    return found


def _rate(queue: Any, kernel: Any, items: int, nbytes: int) -> Callable[[], float]:
    def measure() -> float:
        event = cl.enqueue_nd_range_kernel(queue, kernel, (items,), (min(256, items),))
        event.wait()
        return nbytes / max(event.profile.end - event.profile.start, 1)

    return measure


if __name__ == "__main__":
    run(main)
