"""Write a large profile log as a trace for Chrome, a trace for Perfetto, and a table (`scripts/bench viewer`)."""

import argparse
import json
import multiprocessing
import resource
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np

import tool
from benchmarks.peers.comparing import Failed
from gputune.client.viewer.features import Features
from gputune.client.viewer.profile import open_profile
from gputune.client.viewer.schematic import GraphPlan, OperationPlan, Schematic, TensorPlan, write_schematic
from gputune.client.viewer.traces.chrome_trace import write_chrome_trace
from gputune.client.viewer.traces.csv_table import write_csv
from gputune.client.viewer.traces.perfetto import write_perfetto
from gputune.client.viewer.traces.timeline import Timeline
from gputune.runtime.devices.discovery import NULL_REPORT
from gputune.runtime.profiling.clocks import ClockFit
from gputune.runtime.profiling.log import LogWriter
from gputune.runtime.profiling.records import LoggedGraph, LoggedInference, LoggedLaunch, LogHeader, Part, digest_of

WORK = tool.ROOT / "build" / "bench" / "viewer"
LAUNCHES = 40
FILES = ("chrometrace.json", "trace.pftrace", "table.csv")
MOST_SECONDS, MOST_BYTES = 20.0, 1e9
"""Promised for each file of a million launches; seconds are of a processor, which a busy machine does not change."""


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    command.add_argument("--events", type=int, default=1_000_000, help="launches in the log (default: %(default)s)")
    command.add_argument("--json", type=Path, help="write the numbers to this file as well")


def run(options: argparse.Namespace) -> None:
    """Turn a profile log of a million launches into a trace and a table, and measure the cost; needs no device."""
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    log, schematic = write_log(max(1, options.events // LAUNCHES))
    result: dict[str, Any] = {"events": options.events, "log_bytes_per_event": log.stat().st_size / options.events}
    for name in FILES:
        result[name] = _measured(log, schematic, WORK / name)
        (WORK / name).unlink()
    rows = [
        (
            name,
            f"{result[name]['seconds']:.1f} s",
            f"{result[name]['cpu_seconds']:.1f} s",
            f"{result[name]['peak_bytes'] / 1e6:.0f} MB",
            f"{result[name]['file_bytes'] / 1e6:.0f} MB",
        )
        for name in FILES
    ]
    print(f"\n{options.events} launches, {result['log_bytes_per_event']:.1f} bytes of the log for each")
    print(tool.table(["file", "time", "of a processor", "memory at most", "size"], rows), flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    scale = max(1.0, options.events / 1e6)
    slow = [name for name in FILES if result[name]["cpu_seconds"] > MOST_SECONDS * scale]
    large = [name for name in FILES if result[name]["peak_bytes"] > MOST_BYTES * scale]
    if slow or large:
        raise Failed(f"slower than promised: {slow}; larger than promised: {large}")


def _measured(log: Path, schematic: Path, output: Path) -> dict[str, float]:
    """Seconds and the most memory of a process of its own that writes a file."""
    context = multiprocessing.get_context("spawn")
    answers = context.SimpleQueue()
    process = context.Process(target=_convert, args=(log, schematic, output, answers))
    process.start()
    process.join()
    if process.exitcode:
        raise Failed(f"{output.name} was not written: exit code {process.exitcode}")
    seconds, cpu_seconds, peak_bytes = answers.get()
    return {
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "peak_bytes": peak_bytes,
        "file_bytes": output.stat().st_size,
    }


def _convert(log: Path, schematic: Path, output: Path, answers: Any) -> None:
    """Reads a log and writes a file, with the features that are on without a config file."""
    begun, begun_cpu = time.perf_counter(), time.process_time()
    profile = open_profile([log], schematic)
    if output.suffix == ".csv":
        write_csv(profile, output)
    elif output.suffix == ".pftrace":
        write_perfetto(Timeline(profile, Features()), output)
    else:
        write_chrome_trace(Timeline(profile, Features()), output)
    seconds, cpu_seconds = time.perf_counter() - begun, time.process_time() - begun_cpu
    answers.put((seconds, cpu_seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024))


def write_log(inferences: int) -> tuple[Path, Path]:
    """A log of inferences of LAUNCHES operations each, and its schematic."""
    assert NULL_REPORT.identity is not None
    device = NULL_REPORT.identity.to_dict()
    launches = tuple(LoggedLaunch(f"conv_{n}", f"{n:064x}", "run", (64, 8), (8, 1)) for n in range(LAUNCHES))
    graph = LoggedGraph("net", "net.bin", digest_of(launches), True, launches, {"x": 4000}, {"y": 400}, (8192,), 0, 1)
    log, schematic = WORK / "made-up.log", WORK / "made-up_schematic.bin"
    plan = _plan(graph)
    write_schematic(schematic, Schematic("net.onnx", "ab" * 32, "net.bin", "gputune", "", device, (plan,), None))
    with LogWriter(log.open("wb"), LogHeader("qhas", "gputune", device, 0, 0)) as writer:
        writer.add_graph(graph)
        for number in range(inferences):
            writer.add(_inference(number))
    return log, schematic


def _inference(number: int) -> LoggedInference:
    """Launches of 20 us and gaps of 3 us, one microsecond behind the inference before."""
    took_ns, gap_ns = 20_000 + number % 97, 3_000
    begun_ns = 10**12 + number * 1_200_000
    started = begun_ns + 50_000 + np.arange(LAUNCHES, dtype=np.int64) * (took_ns + gap_ns)
    queued = begun_ns + 10_000 + np.arange(LAUNCHES, dtype=np.int64) * 500
    launches = np.stack([queued, queued + 400, started, started + took_ns], axis=1)
    last = int(launches[-1, 3]) + 5_000
    parts = [(Part.WRITE, 0, 0, 8_000), (Part.ENQUEUE, -1, 9_000, 40_000), (Part.WAIT, -1, 40_000, last - begun_ns)]
    rows = np.array([(kind, tensor, begun_ns + a, begun_ns + b) for kind, tensor, a, b in parts], np.int64)
    return LoggedInference(
        graph=0,
        number=number,
        thread=1,
        form="launches",
        begun_ns=begun_ns,
        ended_ns=last + 10_000,
        parts=rows,
        launches=launches,
        clock=ClockFit(0, 0, 0, 1000, "bracketed"),
        counters={"task_clock_ns": 1_000_000 + number},
        preemptions={1: number % 2},
    )


def _plan(graph: LoggedGraph) -> GraphPlan:
    operations = tuple(
        OperationPlan(
            name=launch.operation,
            op="Conv",
            task=launch.task,
            problem={},
            configuration={"MR": 4, "NV": 2, "VW": 16, "UNROLL": 4},
            default={},
            alone_ns=20_000.0,
            default_ns=40_000.0,
            flops=10**6,
            nbytes=10**5,
            nodes=(f"/net/{launch.operation}",),
            inputs={"x": f"t{place}"},
            output=f"t{place + 1}",
            launches=(place,),
        )
        for place, launch in enumerate(graph.launches)
    )
    tensors = tuple(
        TensorPlan(f"t{place}", (250,), "float32", 1000 + place, "arena", 0, 0, place - 1, place)
        for place in range(LAUNCHES + 1)
    )
    nodes = {f"/net/{launch.operation}": "Conv" for launch in graph.launches}
    return GraphPlan("net", graph.digest, ("t0",), (f"t{LAUNCHES}",), tensors, operations, {}, nodes, (8192,), 8192)
