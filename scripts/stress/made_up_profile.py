"""Make up a profile without a run, with everything that a page has to show, including texts that try to be HTML.

It contains a network with a residual branch in each block, its inferences, and its schematic.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gputune.client.viewer.profile import Profile, profile_of
from gputune.client.viewer.schematic import GraphPlan, OperationPlan, RooflinePeaks, Schematic, TensorPlan
from gputune.runtime.profiling.levels import Level
from gputune.runtime.profiling.log import Log
from gputune.runtime.profiling.records import (
    Comparison,
    LoggedGraph,
    LoggedInference,
    LoggedLaunch,
    StateSample,
    digest_of,
)
from stress.made_up_cache import HOSTILE
from tests.runtime.profiling.made_up import BEGUN_NS, header, inference

PEAKS = RooflinePeaks(
    180.0, 22.0, "the best rates of any kernel measured on this device: a matrix product and a copy of 64 MB"
)
DEVICE = {**header().device, "name": "Made-up GPU 8"}
UNAVAILABLE = {"cycles": "ENOENT: this machine has no hardware counters", "cache_misses": "ENOENT: the same"}
HIDDEN = 96
"""Channels between two operations of a block."""


@dataclass(frozen=True)
class _Kind:
    """An op of the network. flops, nbytes: of an operation; reach: the share of the roofline that it reaches."""

    op: str
    flops: int
    nbytes: int
    reach: float
    launches: int = 1


KINDS = (
    _Kind("Conv", 26_000_000, 900_000, 0.82),
    _Kind("DepthwiseConv", 2_700_000, 1_200_000, 0.55),
    _Kind("Conv", 19_000_000, 800_000, 0.74, launches=3),
    _Kind("Elementwise", 150_000, 1_800_000, 0.63),
)
HEAD, TAIL = _Kind("Pool", 60_000, 400_000, 0.3), _Kind("MatMul", 2_600_000, 5_200_000, 0.9)


def made_up_profile(
    operations: int = 100,
    count: int = 100,
    level: Level = "qhas",
    name: str = "mobilenet_v2",
    with_schematic: bool = True,
) -> Profile:
    """So many operations, at least 2, and so many inferences; the operation in the middle is slow, and the 13th
    inference is."""
    chance = random.Random(operations)
    kinds = [HEAD, *(KINDS[place % len(KINDS)] for place in range(operations - 2)), TAIL]
    plans = _plans(kinds, chance)
    graph = _graph(plans, name)
    inferences = list(_inferences(graph, plans, kinds, count, level))
    described = replace(header(), level=level, device=DEVICE, settings={"POCL_AFFINITY": "1"}, unavailable=UNAVAILABLE)
    log = Log("gputune-profiling-data.log", described, [graph], [], inferences)
    log.states = [
        StateSample(BEGUN_NS + at * 10**8, {"cpu0_mhz": 3200.0 - 7 * at, "temperature_c": 51.5 + at}) for at in range(9)
    ]
    log.comparisons = [_comparison(chance, inferences)]
    log.complete = True
    return profile_of([log], _schematic(graph, plans) if with_schematic else None)


def hostile_profile(level: Level = "qhas") -> Profile:
    """Every text that comes from a file tries to be HTML."""
    profile = made_up_profile(12, 5, level, HOSTILE)
    (log,), schematic = profile.logs, profile.schematic
    assert schematic is not None
    (graph,) = log.graphs
    launches = tuple(replace(one, operation=_hostile(one.operation), entry=HOSTILE) for one in graph.launches)
    graph = replace(graph, launches=launches, digest=digest_of(launches), context=HOSTILE)
    (plan,) = schematic.graphs
    operations = tuple(
        replace(one, name=_hostile(one.name), op=HOSTILE, nodes=(HOSTILE,), configuration={HOSTILE: HOSTILE})
        for one in plan.operations
    )
    plan = replace(plan, digest=graph.digest, operations=operations)
    header_of = replace(
        log.header,
        software=HOSTILE,
        unavailable={HOSTILE: HOSTILE},
        settings={HOSTILE: HOSTILE},
        device={"name": HOSTILE},
    )
    inferences = [replace(one, counters={HOSTILE: 3}) for one in log.inferences]
    log = replace(log, path=HOSTILE, header=header_of, graphs=[graph], inferences=inferences)
    peaks = RooflinePeaks(1.0, 1.0, HOSTILE)
    return profile_of([log], replace(schematic, model=HOSTILE, context=HOSTILE, graphs=(plan,), peaks=peaks))


def _hostile(operation: str) -> str:
    return f"{operation} {HOSTILE}"


def _plans(kinds: Sequence[_Kind], chance: random.Random) -> list[OperationPlan]:
    """Blocks of four: the first one's output goes to two beside each other, and those to the first of the next."""
    plans = []
    launch = 0
    for place, kind in enumerate(kinds):
        before = [place - 1, *([place - 2] if place % 4 == 0 else [])] if place % 4 != 3 else [place - 2]
        inputs = {f"x{number}": _tensor(one) for number, one in enumerate(before)}
        scale = chance.uniform(0.5, 1.7)
        flops, nbytes = int(kind.flops * scale), int(kind.nbytes * scale)
        alone_ns = max(flops / PEAKS.flops_per_ns, nbytes / PEAKS.bytes_per_ns) / kind.reach
        plans.append(
            OperationPlan(
                name=f"/features.{place // 4}/{kind.op.lower()}_{place}",
                op=kind.op,
                task=f"{place % 31:064x}",
                problem={"input": [1, 56, 56, HIDDEN], "kernel": [3, 3], "strides": [1, 1], "dtype": "float32"},
                configuration={"MR": 4, "NR": 16, "VW": 8, "LM": 1, "LN": 4 + place % 3},
                default={"MR": 2, "NR": 16, "VW": 4, "LM": 1, "LN": 4},
                alone_ns=alone_ns,
                default_ns=alone_ns * chance.uniform(1.1, 2.6),
                flops=flops,
                nbytes=nbytes,
                nodes=(f"/features.{place // 4}/{kind.op}", f"/features.{place // 4}/Relu"),
                inputs=inputs,
                output=_tensor(place),
                launches=tuple(range(launch, launch + kind.launches)),
            )
        )
        launch += kind.launches
    return plans


def _tensor(place: int) -> str:
    return f"t{place}" if place >= 0 else "x"


def _graph(plans: Sequence[OperationPlan], name: str) -> LoggedGraph:
    launches = tuple(
        LoggedLaunch(plan.name, plan.task, f"{plan.op.lower()}_tiles", (56, 56, 12), (1, 4, 4))
        for plan in plans
        for _ in plan.launches
    )
    return LoggedGraph(
        name=name,
        context=f"{name}.bin",
        digest=digest_of(launches),
        computes=True,
        launches=launches,
        inputs={"x": 602_112},
        outputs={"y": 4_000},
        arena_bytes=(3_400_000,),
        persistent=3,
        load_ns=412_000_000,
    )


def _inferences(
    graph: LoggedGraph, plans: Sequence[OperationPlan], kinds: Sequence[_Kind], count: int, level: Level
) -> Sequence[LoggedInference]:
    chance = random.Random(count)
    found: list[LoggedInference] = []
    begun_ns = BEGUN_NS + 1000
    for number in range(count):
        slow = 1.9 if number == 12 else 1 + abs(chance.gauss(0, 0.03))
        kernels_ns = [
            int(slow * chance.gauss(1.04, 0.015) * (plan.alone_ns or 0) / kind.launches * (4 if place == 50 else 1))
            for place, (plan, kind) in enumerate(zip(plans, kinds, strict=True))
            for _ in plan.launches
        ]
        gaps_ns = [int(abs(chance.gauss(4_500, 1_500))) for _ in kernels_ns[1:]]
        one = inference(kernels_ns, gaps_ns, begun_ns=begun_ns, number=number, write_ns=61_000, queue_ns=140_000)
        begun_ns = one.ended_ns + 25_000
        counters = {"task_clock_ns": one.elapsed_ns * 2, "page_faults": number % 3, "context_switches": 2 + number % 5}
        found.append(_at_level(replace(one, counters=counters, preemptions={1: number % 2}, profiler_ns=21_000), level))
    return found


def _at_level(one: LoggedInference, level: Level) -> LoggedInference:
    if level == "basic":
        return replace(one, launches=one.launches[:0], clock=None, form="persistent", counters={})
    return replace(one, launches=one.launches[:, 2:]) if level == "detailed" else one


def _comparison(chance: random.Random, inferences: Sequence[LoggedInference]) -> Comparison:
    profiled = [one.elapsed_ns for one in inferences]
    return Comparison(
        graph=0,
        profiled_ns=tuple(profiled),
        unprofiled_ns=tuple(int(ns / chance.gauss(1.06, 0.01)) for ns in profiled),
        usual_ns=tuple(int(ns / chance.gauss(1.31, 0.02)) for ns in profiled),
        usual_form="persistent",
    )


def _schematic(graph: LoggedGraph, plans: Sequence[OperationPlan]) -> Schematic:
    tensors = [TensorPlan("x", (1, 56, 56, HIDDEN), "float32", 602_112, "input", 0, 0, -1, 0)]
    for place, plan in enumerate(plans):
        last = max([place, *(reader for reader, one in enumerate(plans) if plan.output in one.inputs.values())])
        nbytes = min(plan.nbytes, 850_000)
        offset = place % 4 * 850_000
        tensors.append(TensorPlan(plan.output, (1, 56, 56, HIDDEN), "float32", nbytes, "arena", 0, offset, place, last))
    nodes = {node: node.rpartition("/")[2] for plan in plans for node in plan.nodes}
    described = GraphPlan(
        name=graph.name,
        digest=graph.digest,
        inputs=("x",),
        outputs=(plans[-1].output,),
        tensors=tuple(tensors),
        operations=tuple(plans),
        aliases={},
        nodes=nodes,
        arena_bytes=graph.arena_bytes,
        arena_bound_bytes=3_150_000,
    )
    return Schematic(
        model=f"{graph.name}.onnx",
        model_sha256="c" * 64,
        context=graph.context,
        software="gputune 0",
        tier="made-up",
        device=DEVICE,
        graphs=(described,),
        peaks=PEAKS,
    )
