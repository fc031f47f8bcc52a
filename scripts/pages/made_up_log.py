"""Make up a large profile log, which needs no device."""

from pathlib import Path

import numpy as np

from gputune.client.viewer.schematic import GraphPlan, OperationPlan, Schematic, TensorPlan, write_schematic
from gputune.runtime.devices.discovery import NULL_REPORT
from gputune.runtime.profiling.clocks import ClockFit
from gputune.runtime.profiling.log import LogWriter
from gputune.runtime.profiling.records import HostPart, LoggedGraph, LoggedInference, LoggedLaunch, LogHeader, digest_of

LAUNCHES = 40


def write_log(folder: Path, inferences: int) -> tuple[Path, Path]:
    """A log of inferences of LAUNCHES operations each, and its schematic."""
    assert NULL_REPORT.identity is not None
    device = NULL_REPORT.identity.to_dict()
    launches = tuple(LoggedLaunch(f"conv_{n}", f"{n:064x}", "run", (64, 8), (8, 1)) for n in range(LAUNCHES))
    graph = LoggedGraph("net", "net.bin", digest_of(launches), True, launches, {"x": 4000}, {"y": 400}, (8192,), 0, 1)
    log, schematic = folder / "made-up.log", folder / "made-up_schematic.bin"
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
    parts = [
        (HostPart.WRITE, 0, 0, 8_000),
        (HostPart.ENQUEUE, -1, 9_000, 40_000),
        (HostPart.WAIT, -1, 40_000, last - begun_ns),
    ]
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
