"""Compare the C runtime, for loads and inferences, with Python's runtime and with a C program that makes the same
OpenCL calls by hand."""

import argparse
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

import tool
from benchmarks.native.peers import Contenders, Memory, Peer
from benchmarks.result import Result, told
from gputune.client.tuning.measuring.intervals import Interval, median_interval, paired_ratio
from gputune.runtime.backends import open_backend
from gputune.runtime.context.format import read_header, write_context
from gputune.runtime.context.records import BufferRef, Context, GraphRecord, LaunchRecord, ProgramRecord, TensorRecord
from gputune.runtime.devices.discovery import find, wanted_device
from models import classic_models

LARGEST_LOAD, LARGEST_TIME, LARGEST_LAUNCH_NS, LARGEST_MEMORY_KB = 0.7, 1.02, 1000, 2000
LAUNCHES = 200
WARM_UP = 20
STEP = "__kernel void advance(__global const float *from, __global float *to) { to[get_global_id(0)] = from[0] + 1; }"


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    command.add_argument("--rounds", type=int, default=250, help="turns of each (default: %(default)s)")
    command.add_argument("--inferences", type=int, default=4, help="of a turn (default: %(default)s)")
    command.add_argument("--loads", type=int, default=20, help="fresh processes of each (default: %(default)s)")
    command.add_argument("--context", type=Path, help="a context binary, by default MobileNetV2-0.5 160 of defaults")
    command.add_argument("--device", help="the device to use, as gputune's --device")


def run(options: argparse.Namespace) -> Result:
    """Measure processes of all three. Raises RuntimeError."""
    work: Path = options.work / "native"
    work.mkdir(parents=True, exist_ok=True)
    context = options.context or _generated(work, options.device)
    chain = _chain(work / "chain.bin", options.device)
    made = [(context, True), (context, False), (chain, False)]
    whole, by_launches, steps = (_contenders(path, work, persistent) for path, persistent in made)
    loads = _loads(whole, options.loads)
    times = {}
    for name, one in {"as loaded": whole, "launches one by one": by_launches}.items():
        times[name], _ = _turns([one.native, one.python], options)
    per_launch, memory = _turns([steps.native, steps.by_hand], options)
    beside, others = _turns([by_launches.native, by_launches.by_hand], options)
    rows = [("context", f"{context.name}, {len(read_header(context).graphs[0].launches)} launches", "")]
    rows += _load_rows(loads)
    result: dict[str, object] = {"loads": {name: vars(one) for name, one in loads.items()}}
    for name, (mine, other) in times.items():
        ratio = paired_ratio(mine, other)
        shown = f"{told(ratio)}, {_ms(mine)} by {_ms(other)}"
        rows.append((f"inference by Python's, {name}", shown, f"at most {LARGEST_TIME}"))
        result[name] = asdict(ratio)
    added = _added_ns(*per_launch, options.inferences)
    rows += [
        (f"per launch, beside by hand, {LAUNCHES} launches", f"{_shown(added)} ns", f"at most {LARGEST_LAUNCH_NS}"),
        ("inference by that by hand", f"{told(paired_ratio(*beside))}, {_ms(beside[0])} by {_ms(beside[1])}", ""),
        *_memory_rows("200 launches", memory),
        *_memory_rows(context.stem, others),
    ]
    result |= {"per_launch_ns": asdict(added), "memory_kb": [asdict(one) for one in (*memory, *others)]}
    return Result(result, [(("what", "result", "mark"), rows)])


@dataclass(frozen=True)
class Loads:
    """Of fresh processes, in ns each: loading a context, opening the device, and all until they were ready."""

    load_ns: list[int]
    device_open_ns: list[int]
    ready_ns: list[int]


def _loads(made: Contenders, count: int) -> dict[str, Loads]:
    found = {"C": Loads([], [], []), "Python": Loads([], [], [])}
    for number in range(count):
        order = [("C", made.native), ("Python", made.python)]
        for name, start in reversed(order) if number % 2 else order:
            with start() as peer:
                found[name].load_ns.append(peer.load_ns)
                found[name].device_open_ns.append(peer.device_open_ns)
                found[name].ready_ns.append(peer.ready_ns)
    return found


def _load_rows(loads: dict[str, Loads]) -> list[tuple[str, str, str]]:
    mine, other = loads["C"], loads["Python"]
    return [
        (
            "load by Python's, device open before it",
            f"{told(paired_ratio(mine.load_ns, other.load_ns))}, {_ms(mine.load_ns)} by {_ms(other.load_ns)}",
            f"at most {LARGEST_LOAD}",
        ),
        ("opening the device", f"{_ms(mine.device_open_ns)} by {_ms(other.device_open_ns)}", ""),
        ("process start until ready, imports included", f"{_ms(mine.ready_ns)} by {_ms(other.ready_ns)}", ""),
    ]


def _turns(
    starts: Sequence[Callable[[], Peer]], options: argparse.Namespace
) -> tuple[tuple[list[int], list[int]], tuple[Memory, Memory]]:
    """The inferences of two peers in ns, which take turns there and back, and their memory behind these. Raises
    RuntimeError where their outputs are not the same bits."""
    first, second = starts
    with first() as one, second() as other:
        times: tuple[list[int], list[int]] = ([], [])
        for peer in (one, other):
            peer.infer(WARM_UP)
        for number in range(options.rounds):
            for place in (1, 0) if number % 2 else (0, 1):
                times[place].extend((one, other)[place].infer(options.inferences))
        memory = one.memory(), other.memory()
        if one.close() != other.close():
            raise RuntimeError("the two gave other outputs")
    return times, memory


def _added_ns(mine: Sequence[int], other: Sequence[int], inferences: int) -> Interval:
    """What the runtime adds to each launch: pairs of the medians of turns, in ns."""
    turns = range(0, len(mine), inferences)
    medians = [[statistics.median(times[turn : turn + inferences]) for turn in turns] for times in (mine, other)]
    return median_interval([(a - b) / LAUNCHES for a, b in zip(*medians, strict=True)])


def _memory_rows(name: str, memory: tuple[Memory, Memory]) -> list[tuple[str, str, str]]:
    mine, other = memory
    added, anonymous = mine.resident - other.resident, mine.anonymous - other.anonymous
    return [
        (
            f"memory, beside by hand: {name}",
            f"{added:+} kB of {other.resident}, {anonymous:+} kB without mapped files",
            f"at most {LARGEST_MEMORY_KB}",
        )
    ]


def _shown(interval: Interval) -> str:
    return f"{interval.low:.0f} to {interval.high:.0f}"


def _ms(times_ns: Sequence[int]) -> str:
    return f"{statistics.median(times_ns) / 1e6:.3f} ms"


def _contenders(context: Path, work: Path, persistent: bool) -> Contenders:
    graph = read_header(context).graphs[0]
    numbers = np.random.default_rng(1)
    inputs = []
    for place, tensor in enumerate(graph.inputs):
        inputs.append(work / f"{context.stem}.{place}.raw")
        numbers.random(tensor.shape).astype(tensor.dtype).tofile(inputs[-1])
    return Contenders(context, work, persistent, inputs, len(graph.outputs))


def _generated(work: Path, device: str | None) -> Path:
    """A context of some fifty kernels, from default configurations."""
    model = classic_models.mobilenet_v2(0.5, 160)
    return tool.generate(work / "generated", model.path, "x=1,3,160,160", "none", None, device).context


def _chain(path: Path, device: str | None) -> Path:
    """A context of so many launches that do next to nothing."""
    backend = open_backend(find(wanted_device(device)).report, profiling=False)
    program = backend.build(STEP, "")
    ends = [backend.allocate(64) for _ in range(2)]
    backend.enqueue(backend.bind(program, "advance", (4,), (4,), ends))  # else who runs it first compiles it
    backend.finish()
    binary = backend.harvest(program)
    arena = [BufferRef("arena", place, 0, 64) for place in range(2)]
    places = [BufferRef("input", 0, 0, 64), *(arena[number % 2] for number in range(LAUNCHES - 1))]
    places.append(BufferRef("output", 0, 0, 64))
    launches = tuple(
        LaunchRecord(f"step {number}", "0" * 64, 0, "advance", (4,), (4,), (places[number], places[number + 1]))
        for number in range(LAUNCHES)
    )
    tensors = [(TensorRecord(name, (16,)),) for name in "xy"]
    graph = GraphRecord("chain", tensors[0], tensors[1], launches, (64, 64))
    programs = (ProgramRecord(binary, STEP, ""),)
    identity = backend.identity
    write_context(path, Context([graph], programs, (), identity.to_dict(), "chain", {}, {"gputune": "0.1.0"}))
    return path
