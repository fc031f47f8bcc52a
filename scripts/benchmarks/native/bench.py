"""Compare gputune.load and a C program with a C program that makes the same OpenCL calls by hand, and gputune.load with
that of another gputune."""

import argparse
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

import tool
from benchmarks.native.peers import Contenders, Memory, Peer, can_be_by_hand
from benchmarks.options import add_options
from benchmarks.result import Result, told
from gputune.client.tuning.measuring.intervals import Interval, median_interval, paired_ratio
from gputune.runtime.backends import open_backend
from gputune.runtime.context.format import read_header, write_context
from gputune.runtime.context.records import BufferRef, Context, GraphRecord, LaunchRecord, ProgramRecord, TensorRecord
from gputune.runtime.devices.discovery import find, wanted_device
from models import classic_models

LARGEST_LAUNCH_NS, LARGEST_MEMORY_KB = 1000, 2000
NOT_SLOWER = "at most 1"
LAUNCHES = 200
WARM_UP = 20
STEP = "__kernel void advance(__global const float *from, __global float *to) { to[get_global_id(0)] = from[0] + 1; }"

Row = tuple[str, str, str]


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    add_options(command, rounds=250, device=None)
    command.add_argument("--inferences", type=int, default=4, help="of a turn (default: %(default)s)")
    command.add_argument("--loads", type=int, default=20, help="fresh processes of each (default: %(default)s)")
    command.add_argument(
        "--context", type=Path, action="append", help="a context binary, by default MobileNetV2-0.5 160 of defaults"
    )
    command.add_argument("--beside", type=Path, help="a Python that has another gputune, to compare with")


def run(options: argparse.Namespace) -> Result:
    """Measure processes of all. Raises RuntimeError."""
    work: Path = options.work / "native"
    work.mkdir(parents=True, exist_ok=True)
    contexts = options.context or [_generated(work, options.device)]
    rows: list[Row] = []
    result: dict[str, object] = {}
    for context in contexts:
        found, result[str(context)] = _of_context(context, work, options)
        rows += found
    steps = _contenders(_chain(work / "chain.bin", options.device), work, options)
    times, memory = _turns([steps.native, steps.by_hand], options)
    added = _added_ns(*times, options.inferences)
    limit = f"at most {LARGEST_LAUNCH_NS}"
    rows.append((f"per launch of a C program, beside by hand, {LAUNCHES} launches", f"{_shown(added)} ns", limit))
    rows += _memory_rows(f"{LAUNCHES} launches", memory)
    result |= {"per_launch_ns": asdict(added), "memory_kb": [asdict(one) for one in memory]}
    return Result(result, [(("what", "result", "mark"), rows)])


def _of_context(context: Path, work: Path, options: argparse.Namespace) -> tuple[list[Row], dict[str, object]]:
    """Return rows and figures of one context."""
    launches = _contenders(context, work, options)
    whole = launches.persistently()
    result: dict[str, object] = {}
    rows = [("context", f"{context.name}, {len(read_header(context).graphs[0].launches)} launches", "")]
    if options.beside is not None:
        loads = _loads({"this one": whole.loaded, "the other": whole.other}, options.loads)
        result["loads"] = {name: vars(one) for name, one in loads.items()}
        rows += _load_rows(*loads.values())
        for name, one in {"as loaded": whole, "launches one by one": launches}.items():
            (mine, other), _ = _turns([one.loaded, one.other], options)
            ratio = paired_ratio(mine, other)
            shown = f"{told(ratio)}, {_ms(mine)} by {_ms(other)}"
            rows.append((f"inference by the other's, {name}", shown, NOT_SLOWER))
            result[name] = asdict(ratio)
    if not can_be_by_hand(context):
        return [*rows, ("inference by that by hand", "not measured: it packs weights", "")], result
    for name, start in {"gputune.load": launches.loaded, "a C program": launches.native}.items():
        (mine, other), _ = _turns([start, launches.by_hand], options)
        ratio = paired_ratio(mine, other)
        rows.append((f"inference of {name} by that by hand", f"{told(ratio)}, {_ms(mine)} by {_ms(other)}", ""))
        result[f"{name} by hand"] = asdict(ratio)
    return rows, result


@dataclass(frozen=True)
class Loads:
    """Of fresh processes, in ns each: loading a context, opening the device, and all until one inference was over."""

    load_ns: list[int] = field(default_factory=list)
    device_open_ns: list[int] = field(default_factory=list)
    first_ns: list[int] = field(default_factory=list)


def _loads(starts: Mapping[str, Callable[[], Peer]], count: int) -> dict[str, Loads]:
    found = {name: Loads() for name in starts}
    for number in range(count):
        for name in reversed([*starts]) if number % 2 else starts:
            begun_ns = time.perf_counter_ns()
            with starts[name]() as peer:
                peer.infer(1)
                found[name].first_ns.append(time.perf_counter_ns() - begun_ns)
                found[name].load_ns.append(peer.load_ns)
                found[name].device_open_ns.append(peer.device_open_ns)
    return found


def _load_rows(mine: Loads, other: Loads) -> list[Row]:
    named = {
        "load by the other's, device open before it": (mine.load_ns, other.load_ns),
        "opening the device by the other's": (mine.device_open_ns, other.device_open_ns),
        "a short process until its first inference by the other's": (mine.first_ns, other.first_ns),
    }
    return [
        (name, f"{told(paired_ratio(*times))}, {_ms(times[0])} by {_ms(times[1])}", NOT_SLOWER)
        for name, times in named.items()
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


def _memory_rows(name: str, memory: tuple[Memory, Memory]) -> list[Row]:
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


def _contenders(context: Path, work: Path, options: argparse.Namespace) -> Contenders:
    graph = read_header(context).graphs[0]
    numbers = np.random.default_rng(1)
    inputs = []
    for place, tensor in enumerate(graph.inputs):
        inputs.append(work / f"{context.stem}.{place}.raw")
        numbers.random(tensor.shape).astype(tensor.dtype).tofile(inputs[-1])
    return Contenders(context, work, inputs, len(graph.outputs), options.beside)


def _generated(work: Path, device: str | None) -> Path:
    """A context of some fifty kernels, from default configurations."""
    model = classic_models.mobilenet_v2(0.5, 160)
    return tool.generate(work / "generated", model.path, model.shapes, "none", device=device).context


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
