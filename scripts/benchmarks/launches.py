"""Measure what the host takes for a launch, in each form of arguments and in each loop (`scripts/bench launches`).

A chain of small launches is enqueued by the loop in Python, by the loop in C, and by a program that is written by hand
in C with the same calls. They take turns, so that whatever else the machine does disturbs all of them alike.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import tool
from benchmarks.native.peers import FLAGS, HERE, environment, library
from gputune.core.launches import ARGUMENT_FORMS, OFFSET_BYTES, ArgumentForm
from gputune.runtime.backends import Backend, Bound, Buffer, open_backend
from gputune.runtime.devices.discovery import DeviceReport, find, wanted_device
from gputune.runtime.native.building import COMPILER, NONE, native_part
from gputune.runtime.queues.loop import loop
from tests.native.compiling import compiled

ARGUMENTS = (1, 4, 8)
LAUNCHES = 32
TENSORS, TENSOR_BYTES = 8, 4096
RUNS = 8
"""In a turn; the first of them does not count."""

Chain = tuple[ArgumentForm, int]
Times = Mapping[str, Sequence[tuple[int, int]]]
"""By the loop: when all was enqueued and when all was done, in ns from the beginning."""


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    command.add_argument("--rounds", type=int, default=30, help="turns of each chain (default: %(default)s)")
    command.add_argument("--device", help="the device to use, as gputune's --device")
    command.add_argument("--json", type=Path, help="write the numbers to this file as well")


def run(options: argparse.Namespace) -> None:
    """Measure what the host takes for a launch, in each form of arguments: from Python, from the loop in C, and from a
    program in C that is written by hand with the same calls."""
    report = find(wanted_device(options.device)).report
    assert report.identity is not None
    backend = open_backend(report, profiling=False)
    chains = list(itertools.product(ARGUMENT_FORMS, ARGUMENTS))
    taken: dict[Chain, dict[str, list[tuple[int, int]]]] = {
        chain: {"Python": [], "C": [], "by hand": []} for chain in chains
    }
    with tempfile.TemporaryDirectory() as folder, _by_hand(chains, report, Path(folder)) as by_hand:
        loops = {name: [_loop(backend, chain, name == "C") for chain in chains] for name in ("Python", "C")}
        for _ in range(options.rounds):
            for number, chain in enumerate(chains):
                taken[chain]["by hand"] += by_hand(number)
                for name, starts in loops.items():
                    taken[chain][name] += _turn(backend, starts[number])
    rows, result = [], []
    for (form, arguments), times in taken.items():
        us = {name: _per_launch_us(own) for name, own in times.items()}
        more = us["C"][0] - us["by hand"][0]
        rows.append((form, str(arguments), *(f"{us[name][0]:.2f} / {us[name][1]:.2f}" for name in us), f"{more:+.2f}"))
        result.append({"form": form, "arguments": arguments, "us": us, "c_more_us": more})
    print(f"\n{report.title}; microseconds for a launch until all {LAUNCHES} are enqueued / done, medians")
    print(tool.table(["form", "arguments", "Python", "C", "by hand", "C - by hand"], rows), flush=True)
    if options.json is not None:
        text = json.dumps({"device": report.title, "chains": result}, indent=2)
        options.json.write_text(text + "\n", encoding="utf-8")


def _per_launch_us(times: Sequence[tuple[int, int]]) -> tuple[float, float]:
    enqueued, done = zip(*times, strict=True)
    return statistics.median(enqueued) / LAUNCHES / 1e3, statistics.median(done) / LAUNCHES / 1e3


def _source(form: ArgumentForm, arguments: int) -> str:
    """A kernel that touches its first argument."""
    offsets = form == "offsets"
    parameters = [f"__global float *a{n}" + f", int o{n}" * offsets for n in range(arguments)]
    place = f"o0 * {OFFSET_BYTES // 4} + " if offsets else ""
    return f"__kernel void touch({', '.join(parameters)}) {{ a0[{place}get_global_id(0)] = 1; }}\n"


def _loop(backend: Backend, chain: Chain, in_c: bool) -> Callable[[], None]:
    form, arguments = chain
    program = backend.build(_source(form, arguments), "")
    arena = backend.allocate_arena(TENSORS * TENSOR_BYTES, form)
    if form == "buffers":
        tensors = [backend.allocate(TENSOR_BYTES) for _ in range(TENSORS)]
    elif form == "offsets":
        tensors = [arena] * TENSORS
    else:
        tensors = [backend.part(arena, place * TENSOR_BYTES, TENSOR_BYTES) for place in range(TENSORS)]

    def given(launch: int) -> Iterator[Buffer | int]:
        for place in range(launch, launch + arguments):
            yield tensors[place % TENSORS]
            if form == "offsets":
                yield place % TENSORS * TENSOR_BYTES // OFFSET_BYTES

    bounds: list[Bound] = [
        backend.bind(program, "touch", (4,), (1,), list(given(launch))) for launch in range(LAUNCHES)
    ]
    os.environ[COMPILER] = os.environ.get("CC", "cc") if in_c else NONE
    native_part.cache_clear()
    loop.cache_clear()
    start = backend.in_order(bounds)
    del os.environ[COMPILER]
    return start


def _turn(backend: Backend, start: Callable[[], None]) -> list[tuple[int, int]]:
    times = []
    for _ in range(RUNS):
        begun_ns = time.perf_counter_ns()
        start()
        enqueued_ns = time.perf_counter_ns()
        backend.finish()
        times.append((enqueued_ns - begun_ns, time.perf_counter_ns() - begun_ns))
    return times[1:]


@contextmanager
def _by_hand(
    chains: Sequence[Chain], report: DeviceReport, folder: Path
) -> Iterator[Callable[[int], list[tuple[int, int]]]]:
    """The program in C, which runs a turn of the chain with this number."""
    program = compiled("launches", [HERE / "launches.c"], FLAGS, ("-std=c99",))
    assert report.identity is not None
    command: list[str] = [str(program), library(), report.identity.name, str(LAUNCHES)]
    for form, arguments in chains:
        source = folder / f"{form}_{arguments}.cl"
        source.write_text(_source(form, arguments), encoding="utf-8")
        command += [form, str(arguments), str(source)]
    variables = environment() | report.environment()
    peer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=variables)
    assert peer.stdin is not None and peer.stdout is not None
    try:
        if peer.stdout.readline() != "ready\n":
            raise SystemExit("the program in C did not start")

        def turn(number: int) -> list[tuple[int, int]]:
            assert peer.stdin is not None and peer.stdout is not None
            peer.stdin.write(f"{number} {RUNS}\n")
            peer.stdin.flush()
            values = [int(value) for value in peer.stdout.readline().split()]
            return list(zip(values[::2], values[1::2], strict=True))[1:]

        yield turn
    finally:
        peer.stdin.close()
        peer.wait()
