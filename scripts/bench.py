"""Run the benchmarks of kernels, networks, fresh processes, warm caches, accuracy, the protocol, failing variants and
tuning."""

import argparse
import json
import shutil
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

import tool
from benchmarks import (
    builds,
    certainty,
    channel,
    executor,
    kernels,
    launches,
    load,
    networks,
    rpc,
    survive,
)
from benchmarks import cache as cache_bench
from benchmarks.agents import bench as agents
from benchmarks.farm import bench as farm_bench
from benchmarks.memory import arena
from benchmarks.memory import handles as memory
from benchmarks.native import bench as native
from benchmarks.peers import halves
from benchmarks.peers.comparing import LARGEST_DEVIATION, Failed
from benchmarks.peers.limits import LARGEST_DRIFT, FmaLimit, Refused, spread
from benchmarks.persistent import contention, recorded, short_processes
from benchmarks.profiles import recording, viewer
from benchmarks.search import bench as search_bench
from benchmarks.sessions import bench as sessions
from benchmarks.tuning import bench as tune_bench
from benchmarks.validity import agreement
from benchmarks.validity import bench as validity_bench
from gputune.client.progress import reporting
from gputune.client.tuning.measuring.quiet import OPTION, Quiet
from gputune.runtime.backends import open_backend
from gputune.runtime.devices import load as load_state
from gputune.runtime.devices.discovery import find, wanted_device
from models import material

WORK = tool.ROOT / "build" / "bench"
CHANNELS, SIDE, KERNEL = 64, 56, 3

RANDOM_INPUTS = 8


def report(result: dict[str, Any], rows: list[tuple[str, str]], file: Path | None) -> None:
    """Prints a markdown table, and writes the numbers when a file is asked for."""
    print("\n" + tool.table(["what", "result"], rows), flush=True)
    write(result, file)


def write(result: dict[str, Any], file: Path | None) -> None:
    """Writes the numbers where a file is asked for."""
    if file is not None:
        file.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def convolution_model() -> Path:
    """A model of one 3x3 convolution: 64 channels to 64 on a 56x56 map, padded to keep the size."""
    shape = [1, CHANNELS, SIDE, SIDE]
    weight = np.random.default_rng(1).standard_normal((CHANNELS, CHANNELS, KERNEL, KERNEL), dtype=np.float32)
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Conv", ["x", "w"], ["y"], name="conv", pads=[KERNEL // 2] * 4)],
        "conv",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, shape)],
        [onnx.numpy_helper.from_array(weight, "w")],
    )
    opset = onnx.helper.make_opsetid("", 13)
    model = onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8)
    path = WORK / "conv.onnx"
    onnx.save(model, path)
    return path


def bench_conv(options: argparse.Namespace) -> None:
    """Measure which share of the device's multiply-add limit a 3x3 convolution reaches, tuned anew in each round."""
    choice = find(wanted_device(options.device))
    limit = FmaLimit.calibrated(open_backend(choice.report))
    model = convolution_model()
    flops = 2 * CHANNELS * CHANNELS * KERNEL**2 * SIDE**2
    limits, rates, configurations = [limit.gflops()], [], []
    for number in range(options.rounds):
        cache = WORK / f"cache_{number}"
        shutil.rmtree(cache, ignore_errors=True)
        dimensions = f"x=1,{CHANNELS},{SIDE},{SIDE}"
        run = tool.generate(WORK / "conv", model, dimensions, options.effort, cache, options.device)
        (task,) = (task for task in run.summary["tasks"] if task["op"] == "Conv")
        rates.append(flops / task["tuned_ns"])
        configurations.append(task["configuration"])
        limits.append(limit.gflops())
    if spread(limits) > LARGEST_DRIFT:
        blocks = ", ".join(f"{value:.0f}" for value in limits)
        raise Refused(
            f"the limit's blocks reached {blocks} GFLOP/s, a spread of {spread(limits):.0%} where "
            f"{LARGEST_DRIFT:.0%} is allowed: run this again on a quiet machine"
        )
    top, rate = statistics.median(limits), statistics.median(rates)
    result = {
        "device": choice.report.title,
        "effort": options.effort,
        "fma_gflops": limits,
        "conv_gflops": rates,
        "share": rate / top,
        "configurations": configurations,
    }
    name = f"conv {KERNEL}x{KERNEL} {CHANNELS}x{SIDE}x{SIDE}, tuned with effort {options.effort}"
    rows = [
        ("device", choice.report.title),
        ("multiply-add limit", f"{top:.0f} GFLOP/s, spread {spread(limits):.1%} of {len(limits)} blocks"),
        (name, f"{rate:.0f} GFLOP/s, spread {spread(rates):.1%} of {len(rates)} tunings"),
        ("share of the limit", f"{rate / top:.1%}"),
    ]
    report(result, rows, options.json)


def bench_cache(options: argparse.Namespace) -> None:
    """Measure a performance cache of a million trials: opening it, finding a task, its size, storing a batch."""
    result = cache_bench.measure(options.trials, options.rounds)
    report(result, cache_bench.rows_of(result), options.json)


def bench_validity(options: argparse.Namespace) -> None:
    """Change each field of a record's validity, and show what a generation measures again and what it says."""
    if options.agree:
        agreed = agreement.measure(options.device, validity_bench.WORK)
        told = [(row["model"], row["step"], f"{row['said']} of {row['tasks']}", row["line"]) for row in agreed]
        print("\n" + tool.table(["model", "generation", "to be measured", "said"], told), flush=True)
        write({"device": options.device, "agreement": agreed}, options.json)
        return
    rows = validity_bench.measure(options.device, options.fields)
    if options.fields is None:
        rows += validity_bench.measure_room(options.device)
    cells = [(row["field"], f"{row['measured']} of {row['tasks']}", row["said"]) for row in rows]
    print("\n" + tool.table(["field", "measured again", "said"], cells), flush=True)
    write({"device": options.device, "fields": rows}, options.json)


def bench_warm(options: argparse.Namespace) -> None:
    """Measure how much a warm cache saves for the page-orientation model, against an empty cache."""
    model = material.orientation_model()
    dimensions = f"{material.ORIENTATION_INPUT}={','.join(map(str, material.ORIENTATION_SHAPE))}"
    cache = WORK / "warm_cache"
    shutil.rmtree(cache, ignore_errors=True)

    def run() -> tool.Run:
        return tool.generate(WORK / "warm", model, dimensions, options.effort, cache, options.device)

    first = run()
    again = [run() for _ in range(options.rounds)]
    seconds = [generation.seconds for generation in again]
    requests = [
        sum(generation.summary["totals"][name] for name in ("profile_requests", "compile_requests"))
        for generation in again
    ]
    median = statistics.median(seconds)
    result = {
        "effort": options.effort,
        "first_seconds": first.seconds,
        "second_seconds": seconds,
        "ratio": first.seconds / median,
        "requests": requests,
        "phases_first": first.summary["totals"]["wall_seconds"],
        "phases_second": again[-1].summary["totals"]["wall_seconds"],
    }
    rows = [
        (f"first generation, effort {options.effort}", f"{first.seconds:.1f} s"),
        ("from the warm cache", f"{median:.2f} s, spread {spread(seconds):.1%} of {len(seconds)}"),
        ("ratio", f"{first.seconds / median:.0f}"),
        ("profile and compile requests", str(max(requests))),
    ]
    report(result, rows, options.json)


def bench_accuracy(options: argparse.Namespace) -> None:
    """Compare outputs for random inputs with onnxruntime's: max|a-b| / max|b| must not exceed 0.001."""
    models = {
        "orientation": (material.orientation_model(), material.ORIENTATION_INPUT, material.ORIENTATION_SHAPE),
        "angle": (material.angle_model(), material.ANGLE_INPUT, material.ANGLE_SHAPE),
    }
    cache = None if options.effort == "none" else WORK / "warm_cache"
    deviations = {}
    for title, (model, name, shape) in models.items():
        dimensions = f"{name}={','.join(map(str, shape))}"
        context = tool.generate(WORK / title, model, dimensions, options.effort, cache, options.device).context
        for output, values in deviations_of(WORK / f"{title}_run", context, model, name, shape).items():
            deviations[f"{title}, output {output}"] = values
    rows = [
        (what, f"{max(values):.1e} at most of {len(values)} random inputs, median {statistics.median(values):.1e}")
        for what, values in deviations.items()
    ]
    report({"effort": options.effort, "deviations": deviations}, rows, options.json)
    if wrong := [what for what, values in deviations.items() if not np.max(values) <= LARGEST_DEVIATION]:
        raise Failed(f"more than {LARGEST_DEVIATION} away from onnxruntime: {'; '.join(wrong)}")


def deviations_of(
    folder: Path, context: Path, model: Path, name: str, shape: tuple[int, ...]
) -> dict[str, list[float]]:
    """max|a-b| / max|b| by output for each random input, a from a context and b from onnxruntime."""
    numbers = np.random.default_rng(8)
    arrays = [numbers.standard_normal(shape, dtype=np.float32) for _ in range(RANDOM_INPUTS)]
    paths = [folder.with_suffix(f".{number}.raw") for number in range(RANDOM_INPUTS)]
    for array, path in zip(arrays, paths, strict=True):
        array.tofile(path)
    inputs = folder.with_suffix(".txt")
    inputs.write_text("".join(f"{name}:={path}\n" for path in paths), encoding="utf-8")
    run = tool.net_run(folder, context, inputs, RANDOM_INPUTS)
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    outputs = [output.name for output in session.get_outputs()]
    deviations: dict[str, list[float]] = {output: [] for output in outputs}
    for number, array in enumerate(arrays):
        for output, want in zip(outputs, session.run(outputs, {name: array}), strict=True):
            got = np.frombuffer(run.result(number, output), dtype=np.float32).reshape(want.shape)
            deviations[output].append(float(np.abs(got - want).max() / np.abs(want).max()))
    return deviations


def bench_rpc(options: argparse.Namespace) -> None:
    """Compare the protocol with plain sockets and MsgPack, and measure the framework's cost per variant."""
    figures, rows = rpc.run(options)
    print("\n" + tool.table(["what", "gputune", "plain sockets", "ratio", "mark"], rows), flush=True)
    write(figures, options.json)


def bench_survive(options: argparse.Namespace) -> None:
    """Measure the cost of a variant that hangs, crashes or fails otherwise."""
    figures, rows = survive.run(options)
    print("\n" + tool.table(["a variant that", "status", "cost", "serves again after", "mark"], rows), flush=True)
    write(figures, options.json)


BENCHES: dict[str, Callable[[argparse.Namespace], None]] = {
    "agent": agents.run,
    "arena": arena.run,
    "builds": builds.run,
    "cache": bench_cache,
    "channel": channel.run,
    "accuracy": bench_accuracy,
    "certainty": certainty.run,
    "contention": contention.run,
    "conv": bench_conv,
    "executor": executor.run,
    "farm": farm_bench.run,
    "profiling": recording.run,
    "halves": halves.run,
    "kernels": kernels.run,
    "launches": launches.run,
    "load": load.run,
    "memory": memory.run,
    "models": networks.run,
    "native": native.run,
    "recorded": recorded.run,
    "rpc": bench_rpc,
    "search": search_bench.main,
    "sessions": sessions.run,
    "short": short_processes.run,
    "survive": bench_survive,
    "tune": tune_bench.main,
    "validity": bench_validity,
    "viewer": viewer.run,
    "warm": bench_warm,
}


OWN_ARGUMENTS: dict[Callable[[argparse.Namespace], None], Callable[[argparse.ArgumentParser], None]] = {
    bench_cache: cache_bench.add_arguments,
    bench_validity: validity_bench.add_arguments,
    agents.run: agents.add_arguments,
    arena.run: arena.add_arguments,
    builds.run: builds.add_arguments,
    channel.run: channel.add_arguments,
    certainty.run: certainty.add_arguments,
    contention.run: contention.add_arguments,
    executor.run: executor.add_arguments,
    recorded.run: recorded.add_arguments,
    farm_bench.run: farm_bench.add_arguments,
    recording.run: recording.add_arguments,
    halves.run: halves.add_arguments,
    kernels.run: kernels.add_arguments,
    launches.run: launches.add_arguments,
    load.run: load.add_arguments,
    memory.run: memory.add_arguments,
    native.run: native.add_arguments,
    networks.run: networks.add_arguments,
    search_bench.main: search_bench.add_arguments,
    sessions.run: sessions.add_arguments,
    short_processes.run: short_processes.add_arguments,
    tune_bench.main: tune_bench.add_arguments,
    viewer.run: viewer.add_arguments,
}


def sentences() -> dict[str, str]:
    """What each benchmark shows, by its name: the first sentence of its docstring, which is its help, too."""
    return {name: tool.first_sentence(BENCHES[name].__doc__) for name in sorted(BENCHES)}


class Listing(argparse.Action):
    """Prints a line for each benchmark, and ends."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        for name, sentence in sentences().items():
            print(f"{name:12}{sentence}")
        parser.exit()


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench", description="Measures what gputune claims.")
    parser.add_argument("--list", action=Listing, nargs=0, help="name every benchmark in one line, and what it shows")
    parser.add_argument(
        OPTION, type=int, metavar="MINUTES", help="wait for a busy machine to become quiet, at most so long"
    )
    commands = parser.add_subparsers(dest="bench", required=True)
    for name, bench in BENCHES.items():
        command = commands.add_parser(name, help=sentences()[name], description=bench.__doc__)
        if bench in OWN_ARGUMENTS:
            OWN_ARGUMENTS[bench](command)
            continue
        if bench is bench_accuracy:  # default configurations answer for the kernels as well as tuned ones
            command.add_argument("--effort", choices=["none", "quick", "normal", "full"], default="none")
        elif bench not in (bench_rpc, bench_survive):
            command.add_argument("--effort", choices=["quick", "normal", "full"], default="quick")
        if bench is not bench_accuracy:
            command.add_argument("--rounds", type=int, default=3, help="repetitions (default: %(default)s)")
        command.add_argument("--device", help="the device to use, as gputune's --device")
        command.add_argument("--json", type=Path, help="write the numbers to this file as well")
    options = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    with reporting(sys.stderr) as progress:
        Quiet([load_state.read], progress, options.wait_for_quiet).settle()
    try:
        BENCHES[options.bench](options)
    except Refused as refusal:
        print(f"refused: {refusal}", file=sys.stderr)
        return 1
    except Failed as failure:
        print(f"failed: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
