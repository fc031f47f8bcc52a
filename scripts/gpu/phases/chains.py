"""Take the launches of a network apart, to find why they cost more than launches in a chain of small kernels.

They run by gputune, by a loop in C, with and without their surroundings, one by one, in pairs, and with each omitted
once. Chains of made-up kernels and the same kernels by CUDA follow.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import itertools
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpu import cuda
from gpu.device import Device, cl, in_turns
from gpu.loop import Launch, Loop, Prepared
from gpu.made_chains import LENGTH, made_chains
from gpu.phases.models import CONTEXTS
from gpu.record import Record, run, spread
from gputune.runtime.context.records import BufferRef
from gputune.runtime.execution.executor import Executor
from gputune.runtime.execution.loading import load
from models import classic_models, tune_models

NETWORKS = ("squeezenet", "resnet50", "mobilenet_v2")
UNTUNED = "untuned"
COPIES = 32
LONG_US = 100.0
"""Kernels that take longer are repeated fewer times."""
COLD_BYTES = 128 << 20
"""More than a card's caches hold."""
ROUNDS = 15

Enqueue = Callable[[], Any]


def main(record: Record) -> None:
    """Takes apart the first context, measures made-up chains and CUDA, and then what other contexts there are."""
    loop = Loop(record.folder)
    found = _contexts(record)
    for place, (name, path) in enumerate(found.items()):
        if record.left > 3:
            record.attempt(name, functools.partial(_network, record, loop, name, path, first=place == 0))
        if place == 0:
            record.attempt("made", functools.partial(_made, record, loop))


def _contexts(record: Record) -> dict[str, Path]:
    """The contexts that the phase before has left; an untuned one where it has left none."""
    folder = record.folder.parent / CONTEXTS
    found = {name: folder / f"{name}.bin" for name in NETWORKS if (folder / f"{name}.bin").exists()}
    if found:
        return found
    model = (tune_models.small if record.rehearse else classic_models.squeezenet)()
    command = [sys.executable, "-m", "gputune", "context-binary-generator", "--model", str(model.path)]
    command += ["--tuning_effort", "none", "--binary_file", UNTUNED, "--output_dir", str(folder)]
    subprocess.run(command, check=True)
    return {UNTUNED: folder / f"{UNTUNED}.bin"}


# --- a network ---


class Network:
    """A context that is loaded, and its launches."""

    def __init__(self, path: Path, loop: Loop) -> None:
        self.executor: Executor = load(path)
        self.bounds = self.executor.one_by_one()
        self.launches = [
            Launch(one.kernel, one.global_size, one.local_size) for bound in self.bounds for one in bound.sequence
        ]
        self.loop = loop
        self.context = self.launches[0].kernel.context
        (self.device,) = self.context.devices
        self.queue = cl.CommandQueue(self.context, self.device)
        clock = cl.command_queue_properties.PROFILING_ENABLE
        self.timed = cl.CommandQueue(self.context, self.device, properties=clock)
        numbers = np.random.default_rng(5)
        self.inputs = {
            one.name: numbers.standard_normal(one.shape).astype(one.dtype) for one in self.executor.graph.inputs
        }

    def c(self, launches: Sequence[Launch], queue: Any = None, **how: Any) -> Enqueue:
        """Return what enqueues launches by the loop in C."""
        return functools.partial(self.loop.run, queue or self.queue, self.loop.prepared(launches), **how)

    def total(self, enqueue: Enqueue, queue: Any = None, enqueued: list[float] | None = None) -> Callable[[], float]:
        """Return what measures the microseconds of enqueuing and finishing; those of the former go into a list."""
        queue = queue or self.queue

        def measure() -> float:
            queue.finish()
            start = time.perf_counter()
            enqueue()
            middle = time.perf_counter()
            queue.finish()
            if enqueued is not None:
                enqueued.append((middle - start) * 1e6)
            return (time.perf_counter() - start) * 1e6

        return measure


def _network(record: Record, loop: Loop, name: str, path: Path, first: bool) -> dict[str, Any]:
    network = Network(path, loop)
    found: dict[str, Any] = {"launches": len(network.launches)}
    steps: dict[str, Callable[[], Any]] = {
        "ways": lambda: _ways(record, network),
        "each": lambda: _each(record, network),
        "without": lambda: _without(record, network),
        "pairs": lambda: _pairs(record, network),
    }
    steps |= {"copies": lambda: _copies(record, network), "cuda": lambda: _by_cuda(record, network)} if first else {}
    try:
        for step, work in steps.items():
            if record.left > 1:
                try:
                    found[step] = work()
                except Exception as error:
                    found.setdefault("error", {})[step] = " ".join(f"{type(error).__name__}: {error}".split())[:400]
                record.put(name, value=found)
    finally:
        network.executor.close()
    for way, cell in found.get("ways", {}).items():
        record.say(f"{name} {way}: {_median(cell.get('enqueue_us'))} us until enqueued, {_median(cell['us'])} in all")
    if "each" in found:
        inside, alone, cold = (sum(one[key] for one in found["each"]) for key in ("inside_us", "alone_us", "cold_us"))
        record.say(f"{name} kernels: {inside:.0f} us in the chain, {alone:.0f} alone, {cold:.0f} with cold caches")
    record.say(f"{name} by CUDA: {found.get('cuda')}, copies: {found.get('copies')}, errors: {found.get('error')}")
    return found


def _median(cell: Any) -> Any:
    return cell.get("median") if isinstance(cell, dict) else cell


def _told(samples: dict[str, Any], enqueued: dict[str, list[float]]) -> dict[str, Any]:
    """Spreads of in_turns, without the first round, with what enqueuing took."""
    result: dict[str, Any] = {}
    for name, one in samples.items():
        result[name] = {"us": one if isinstance(one, str) else spread(one[1:], 1)}
        if enqueued.get(name):
            result[name]["enqueue_us"] = spread(enqueued[name][1:], 1)
    return result


def _ways(record: Record, network: Network) -> dict[str, Any]:
    """A whole inference, and its launches alone in all ways in which they can be enqueued."""
    executor, launches = network.executor, network.launches
    in_order, c = executor.backend.in_order(network.bounds), functools.partial(network.c, launches)
    input_bytes = next(iter(network.inputs.values()))
    target = cl.Buffer(network.context, cl.mem_flags.READ_WRITE, input_bytes.nbytes)
    plain, timed = c(), c(queue=network.timed)

    def own() -> None:
        in_order()
        executor.backend.finish()

    def written() -> None:
        cl.enqueue_copy(network.queue, target, input_bytes, is_blocking=False)
        plain()

    def rested() -> None:
        time.sleep(0.005)
        plain()

    ways: dict[str, tuple[Enqueue, Any]] = {
        "whole inference": (lambda: executor.run(network.inputs), None),
        "executor's loop": (own, None),
        "python": (lambda: _python(network.queue, launches), None),
        "c": (plain, None),
        "c, events": (c(events=True), None),
        "c, clock": (timed, network.timed),
        "c, clock and events": (c(queue=network.timed, events=True), network.timed),
        "c, sizeless": (c(sizeless=True), None),
        **{f"c, flush each {count}": (c(flush_each=count), None) for count in (1, 4, 16)},
        "write, c": (written, None),
        "c after 5 ms (they count)": (rested, None),
        "first launch": (network.c(launches[:1]), None),
        "first half": (network.c(launches[: len(launches) // 2]), None),
        "second half": (network.c(launches[len(launches) // 2 :]), None),
        "c, twice": (network.c([*launches, *launches]), None),
    }
    enqueued: dict[str, list[float]] = {name: [] for name in ways}
    cells = {name: network.total(enqueue, queue, enqueued[name]) for name, (enqueue, queue) in ways.items()}
    return _told(in_turns(cells, 5 if record.rehearse else 40, lambda: record.left), enqueued)


def _python(queue: Any, launches: Sequence[Launch]) -> list[Any]:
    """Enqueues by Python; the events."""
    return [cl.enqueue_nd_range_kernel(queue, one.kernel, one.global_size, one.local_size) for one in launches]


def _each(record: Record, network: Network) -> list[dict[str, Any]]:
    """Each launch: what it is, the host's time for it in the chain, the device's time in the chain, alone and with cold
    caches, and what a row of it costs."""
    launches, rounds = network.launches, 5 if record.rehearse else 20
    single = (ctypes.c_double * len(launches))()
    hosts, lengths, gaps = [], [], []
    for _ in range(rounds):
        network.queue.finish()
        network.c(launches, each=single)()
        network.queue.finish()
        hosts.append(list(single))
        events = _python(network.timed, launches)
        network.timed.finish()
        moments = np.array([(one.profile.start, one.profile.end) for one in events], np.int64)
        lengths.append((moments[:, 1] - moments[:, 0]) / 1e3)
        gaps.append(np.concatenate([[0.0], (moments[1:, 0] - moments[:-1, 1]) / 1e3]))
    host, inside, gap = (np.median(samples, axis=0) for samples in (hosts, lengths, gaps))
    other = cl.Buffer(network.context, cl.mem_flags.READ_WRITE, (1 << 20) if record.rehearse else COLD_BYTES)
    found, info = [], cl.kernel_work_group_info
    buffers = [bound.buffers if one is bound else () for bound in network.bounds for one in bound.sequence]
    for place, (one, read) in enumerate(zip(launches, buffers, strict=True)):
        copies = COPIES if inside[place] < LONG_US else 8
        enqueued: list[float] = []
        row = network.total(network.c([one] * copies), enqueued=enqueued)
        rows = [row() for _ in range(5)][1:]
        told: dict[str, Any] = {
            "entry": one.kernel.function_name,
            "global": one.global_size,
            "local": one.local_size,
            "arguments": one.kernel.num_args,
            "bytes": [buffer.nbytes for buffer in read],
            "private_bytes": one.kernel.get_work_group_info(info.PRIVATE_MEM_SIZE, network.device),
            "local_bytes": one.kernel.get_work_group_info(info.LOCAL_MEM_SIZE, network.device),
            "host_us": round(float(host[place]), 1),
            "gap_us": round(float(gap[place]), 1),
            "inside_us": round(float(inside[place]), 1),
            "alone_us": _by_events(network, [one] * 8),
            "cold_us": _cold(network, one, other),
            "row_us": round(float(np.median(rows)) / copies, 1),
            "row_enqueue_us": round(float(np.median(enqueued[1:])) / copies, 1),
        }
        found.append(told)
        if record.left < 1:
            break
    return found


def _by_events(network: Network, launches: Sequence[Launch]) -> float:
    events = _python(network.timed, launches)
    network.timed.finish()
    return round(float(np.median([one.profile.end - one.profile.start for one in events])) / 1e3, 1)


def _cold(network: Network, launch: Launch, other: Any) -> float:
    """The median time of a launch whose data no cache holds any more."""
    samples = []
    for _ in range(3):
        cl.enqueue_fill_buffer(network.timed, other, np.zeros(1, np.float32), 0, other.size)
        samples.append(_by_events(network, [launch]))
    return float(np.median(samples))


def _without(record: Record, network: Network) -> list[Any]:
    """What the chain takes less, in microseconds, when one launch is left out: for each."""
    launches = network.launches
    cells = {"whole": network.total(network.c(launches))}
    for place in range(len(launches)):
        cells[str(place)] = network.total(network.c([*launches[:place], *launches[place + 1 :]]))
    samples = in_turns(cells, 3 if record.rehearse else ROUNDS, lambda: record.left - 4)
    medians = {name: float(np.median(one)) for name, one in samples.items() if not isinstance(one, str)}
    return [round(medians["whole"] - medians[name], 1) for name in cells if name != "whole"]


def _pairs(record: Record, network: Network) -> list[Any]:
    """Each launch in turns with the next: microseconds of a launch, to be held against both `row_us`."""
    launches = network.launches
    cells = {
        str(place): network.total(network.c([one, other] * 8))
        for place, (one, other) in enumerate(itertools.pairwise(launches))
    }
    samples = in_turns(cells, 3 if record.rehearse else 7, lambda: record.left - 4)
    return [None if isinstance(one, str) else round(float(np.median(one)) / 16, 1) for one in samples.values()]


def _copies(record: Record, network: Network) -> dict[str, Any]:
    """The input's copy to the device and the output's from it, from memory of all kinds."""
    found: dict[str, Any] = {}
    sizes = {"write": 602_112, "read": 4000}
    queue, flags = network.queue, cl.mem_flags
    for way, nbytes in sizes.items():
        buffer = cl.Buffer(network.context, flags.READ_WRITE, nbytes)
        pageable = np.zeros(nbytes, np.uint8)
        pinned = cl.Buffer(network.context, flags.READ_WRITE | flags.ALLOC_HOST_PTR, nbytes)
        access: Any = cl.map_flags.READ | cl.map_flags.WRITE
        mapped: Any
        mapped, _ = cl.enqueue_map_buffer(queue, pinned, access, 0, (nbytes,), np.dtype(np.uint8))

        def copied(array: Any, blocking: bool, way: str = way, buffer: Any = buffer) -> Enqueue:
            ends = (buffer, array) if way == "write" else (array, buffer)
            return lambda: cl.enqueue_copy(queue, *ends, is_blocking=blocking)

        cells = {
            f"{kind}, {how}": network.total(copied(array, how == "blocking"))
            for kind, array in (("pageable", pageable), ("pinned", mapped))
            for how in ("blocking", "queued")
        }
        samples = in_turns(cells, 5 if record.rehearse else 30, lambda: record.left - 3)
        found[way] = {name: one if isinstance(one, str) else spread(one[1:], 1) for name, one in samples.items()}
    return found


# --- others ---


def _made(record: Record, loop: Loop) -> dict[str, Any]:
    """Chains of made-up kernels, in turns: microseconds of each launch."""
    device = Device(profiling=False)
    cells: dict[str, Callable[[], float]] = {}
    enqueued: dict[str, list[float]] = {}
    for name, launches in made_chains(device, 100 if record.rehearse else 10_000).items():
        prepared, taken = loop.prepared(launches), enqueued.setdefault(name, [])

        def measure(prepared: Prepared = prepared, taken: list[float] = taken) -> float:
            device.queue.finish()
            start = time.perf_counter()
            taken.append(loop.run(device.queue, prepared) / LENGTH)
            device.queue.finish()
            return (time.perf_counter() - start) / LENGTH * 1e6

        cells[name] = measure
    found = _told(in_turns(cells, 5 if record.rehearse else 30, lambda: record.left - 5), enqueued)
    for name, cell in found.items():
        record.say(f"{name}: {_median(cell.get('enqueue_us'))} us until enqueued, {_median(cell['us'])} us of a launch")
    return found


def _by_cuda(record: Record, network: Network) -> dict[str, Any]:
    """The same kernels with arguments of the same sizes by CUDA, in a stream and as a graph."""
    cupy, graph = importlib.import_module("cupy"), network.executor.graph
    if len(graph.launches) != len(network.launches):
        raise ValueError("some launches are of several kernels")
    sizes: dict[tuple[str, int], int] = {}
    for ref in (ref for launch in graph.launches for ref in launch.refs):
        sizes[ref.kind, ref.index] = max(sizes.get((ref.kind, ref.index), 0), ref.offset + ref.nbytes)
    memory = {place: cupy.zeros(nbytes, cupy.uint8) for place, nbytes in sizes.items()}
    modules: dict[int, Any] = {}
    calls = []
    for launch, own in zip(graph.launches, network.launches, strict=True):
        program = own.kernel.program
        if program.int_ptr not in modules:
            path = record.folder / f"program_{len(modules)}.bin"
            path.write_bytes(program.get_info(cl.program_info.BINARIES)[0].rstrip(b"\0"))
            modules[program.int_ptr] = cupy.RawModule(path=str(cuda.loadable(path)))
        given = tuple(
            np.uint64(memory[one.kind, one.index].data.ptr + one.offset)
            if isinstance(one, BufferRef)
            else np.int32(one)
            for one in launch.arguments
        )
        local = (*own.local_size, 1, 1)[:3]
        grid = tuple(whole // part for whole, part in zip((*own.global_size, 1, 1)[:3], local, strict=True))
        calls.append((modules[program.int_ptr].get_function(own.kernel.function_name), grid, local, given))
    stream = cupy.cuda.Stream(non_blocking=True)

    def enqueue() -> None:
        with stream:
            for function, grid, local, given in calls:
                function(grid, local, given)

    enqueue()
    stream.synchronize()
    with stream:
        stream.begin_capture()
        enqueue()
        captured = stream.end_capture()
    ways: dict[str, Enqueue] = {"stream": enqueue, "graph": lambda: captured.launch(stream)}

    def measured(way: Enqueue) -> float:
        start = time.perf_counter()
        way()
        stream.synchronize()
        return (time.perf_counter() - start) * 1e6

    samples = in_turns({name: functools.partial(measured, way) for name, way in ways.items()}, 40, lambda: record.left)
    return {name: one if isinstance(one, str) else spread(one[1:], 1) for name, one in samples.items()}


if __name__ == "__main__":
    run(main)
