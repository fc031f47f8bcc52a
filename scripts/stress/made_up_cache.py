"""Make up a performance cache and a context binary without a measurement, with everything that a report has to show.

They contain healthy tasks, a task for which nothing works, a task that is not concluded, a kernel that no family knows,
records of an older gputune, texts that try to be HTML, and a second driver.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gputune.cache import PerformanceCache, TaskKey, TrialRecord, Validity, WinnerRecord
from gputune.core.resources import Resources, measured_of
from gputune.kernels.catalogue import family_of
from gputune.kernels.chain import Chain, Step
from gputune.kernels.family import DeviceLimits, problem_to_dict
from gputune.kernels.ops.conv import ConvProblem
from gputune.kernels.ops.depthwise import DepthwiseProblem
from gputune.kernels.ops.elementwise import ElementwiseProblem
from gputune.kernels.ops.matmul import MatMulProblem
from gputune.kernels.ops.pool import PoolProblem
from gputune.kernels.ops.transpose import TransposeProblem
from gputune.runtime.context.format import write_context
from gputune.runtime.context.records import BufferRef, Context, GraphRecord, LaunchRecord, ProgramRecord, TensorRecord
from gputune.runtime.devices.discovery import NULL_REPORT

LIMITS = DeviceLimits(4096, (4096, 4096, 4096), 1 << 19, 1 << 30, 8, "gpu", 4)
HOSTILE = "</script><script>alert(1)</script><img src=http://example.com/x onerror=alert(2)>\u202e\x1b[31m\"'&"
VALIDITY = Validity(
    device_name="Made-up GPU 8",
    platform="Imagined",
    driver_version="7.1",
    compute_units=8,
    source_sha256="a" * 64,
    space_sha256="b" * 64,
    measuring_version=2,
    vendor="Made-up",
    platform_version="OpenCL 3.0",
    device_type="gpu",
    settings={"POCL_AFFINITY": "1"},
)
MESSAGES = {
    "compile": "error: use of undeclared identifier 'acc17'",
    "device_limits": "local memory: asked 65536 bytes, available 32768",
    "correctness": "output[3] is 0.25, expected 1.5 within 2e-05",
    "timeout": "no answer within 1.5 s; the best launch takes 41 us",
    "crash": "the worker ended with signal 11 while it was launching this variant",
}
RELU = Chain((Step("relu"),))


@dataclass(frozen=True)
class MadeUp:
    """A task: so many trials around a best time, a share of which fail. weight: operations of the context that it
    computes, each with so many launches. old: records as protocol 1 left them."""

    problem: Any
    op: str
    best_ns: float
    trials: int
    failing: float = 0.05
    weight: int = 1
    effort: str | None = "normal"
    old: bool = False
    launches: int = 1

    @property
    def key(self) -> TaskKey:
        plain = problem_to_dict(self.problem)
        return TaskKey(op=self.op, problem=plain, layout=plain.get("layout", ""))


TASKS = (
    MadeUp(
        ConvProblem(1, 28, 28, 64, 64, (3, 3), pads=(1, 1, 1, 1), bias=True, epilogue=RELU),
        "Conv",
        41e3,
        104,
        weight=4,
        launches=2,
    ),
    MadeUp(ConvProblem(1, 224, 224, 3, 16, (3, 3), strides=(2, 2), pads=(1, 1, 1, 1)), "Conv", 52e3, 60, 0.2),
    MadeUp(
        DepthwiseProblem(1, 112, 112, 32, (3, 3), pads=(1, 1, 1, 1), epilogue=RELU), "DepthwiseConv", 23e3, 48, weight=3
    ),
    MadeUp(MatMulProblem(196, 256, 256, bias=True), "MatMul", 66e3, 96, 0.0, weight=6),
    MadeUp(MatMulProblem(1, 1024, 1000, bias=True), "MatMul", 250e3, 29, effort="quick", old=True),
    MadeUp(PoolProblem("max", 1, 56, 56, 64, (3, 3), (2, 2), (1, 1, 1, 1), (28, 28)), "Pool", 9e3, 16, effort=None),
    MadeUp(TransposeProblem(1, 3, 224, 224, "NCHW", "NHWC"), "Transpose", 12e3, 24),
    MadeUp(
        ElementwiseProblem((1, 8, 8, 16), (), (1, 8, 8, 16), Chain((Step("hard_swish"),))), "Elementwise", 1.4e3, 1, 0
    ),
    MadeUp(MatMulProblem(7, 7, 7), "MatMul", 1e3, 12, 1.0, effort=None),
)
ALTERNATIVE = MadeUp(MatMulProblem(98, 256, 256), "MatMul", 31e3, 40, weight=0)
"""Tuned for the context, which does not run it."""
OTHER = MadeUp(ConvProblem(1, 14, 14, 32, 32, (3, 3)), "Conv", 900e3, 70, weight=0)
"""Of another model, and longer than anything here."""
GAIN = {"median": 1.153, "low": 1.121, "high": 1.184, "rounds": 60}
END_TO_END: dict[str, Any] = {
    "untuned_ns": 2.41e6,
    "tuned_ns": 2.41e6 / 1.153,
    "gain": GAIN,
    "kept": "tuned",
    "open": False,
    "contexts": [
        {"untuned": gain is None, "chosen": gain is GAIN, "operations": 20 - fused, "fused": fused,
         "persistent": persistent, "gain": gain}
        for fused, persistent, gain in (
            (4, True, GAIN),
            (4, False, {"median": 1.048, "low": 0.985, "high": 1.102, "rounds": 60}),
            (0, True, {"median": 1.066, "low": 1.021, "high": 1.109, "rounds": 60}),
            (3, True, None),
        )
    ],
}  # fmt: skip


def make(folder: Path) -> tuple[Path, Path]:
    """Writes both into the folder; their paths: the cache's and the context's."""
    path = folder / "made-up-gpu-8-cu8.sqlite"
    chance = random.Random(4)
    with PerformanceCache.open(path) as cache:
        elsewhere = replace(VALIDITY, driver_version="6.9 <beta>", settings={})
        _store(cache, TASKS[0], elsewhere, chance)
        _store(cache, TASKS[3], replace(VALIDITY, source_sha256="c" * 64), chance)  # before the kernel was changed
        for task in reversed((*TASKS, ALTERNATIVE, OTHER)):
            _store(cache, task, VALIDITY, chance)
        unknown = TaskKey(op="Sparkle & <b>Co</b>", problem={"colour": HOSTILE, "limit": math.inf})
        odd = {"spent_ns": HOSTILE, "batch": [], "drift": "x", "resources": [{"registers": HOSTILE}]}
        trial = TrialRecord({"<A>": 1}, "ok", [1e5, 1.1e5, 0.9e5], measured=odd)
        failed = TrialRecord({"<A>": 2}, "runtime", message=HOSTILE, measured={"spent_ns": {"build": -1}})
        cache.store_trials(unknown, VALIDITY, [trial, failed])
    context = folder / "made_up.bin"
    _write_context(context)
    return path, context


def _store(cache: PerformanceCache, task: MadeUp, validity: Validity, chance: random.Random) -> None:
    family = family_of(task.op)
    default = family.default(task.problem, LIMITS)
    space = list(itertools.islice(family.space(task.problem, LIMITS).configurations(), 4000))
    chosen = [default, *chance.sample(space, min(task.trials - 1, len(space)))]
    slowness = [chance.uniform(1.6, 3.2)]  # the search finds better ones as it goes on
    slowness += [1 + chance.expovariate(2 + 6 * n / len(chosen)) for n in range(1, len(chosen))]
    trials = [
        _trial(task, configuration, task.best_ns * slow, n // 8, chance, n > 0 or task.failing == 1)
        for n, (configuration, slow) in enumerate(zip(chosen, slowness, strict=True))
    ]
    working = sorted((one for one in trials if one.status == "ok"), key=lambda one: one.median_ns or math.inf)
    if task.effort is None or not working:
        cache.store_trials(task.key, validity, trials)
        return
    again = {str(one.configuration): one for one in [trials[0], *working[:3]]}.values()
    last = len(trials) // 8 + 1
    final = [_trial(task, one.configuration, one.median_ns or 1.0, last, chance, False, 16) for one in again]
    cache.store_trials(task.key, validity, [*trials, *final])
    best = min(final, key=lambda one: one.median_ns or math.inf)
    counts = {status: sum(one.status == status for one in trials) for status in ("ok", *MESSAGES)}
    winner = WinnerRecord(best.configuration, best.median_ns or 1.0, final[0].median_ns, task.effort, counts)
    cache.conclude(task.key, validity, winner)


def _trial(
    task: MadeUp,
    configuration: Mapping[str, int],
    time_ns: float,
    batch: int,
    chance: random.Random,
    may_fail: bool,
    samples: int = 0,
) -> TrialRecord:
    spent: dict[str, Any] = {"build": chance.uniform(20e6, 160e6), "verify": chance.uniform(3e6, 9e6)}
    if may_fail and chance.random() < task.failing:
        status = chance.choice(list(MESSAGES))
        measured = {} if task.old else {"batch": batch, "spent_ns": spent}
        return TrialRecord(configuration, status, message=MESSAGES[status], measured=measured)
    count = samples or (3 if task.old else chance.choice((1, 3, 3, 7, 16)))
    taken = [time_ns * (1 + 0.01 * chance.gauss(0, 1) + 0.3 * (chance.random() < 0.01)) for _ in range(count)]
    measured = {"protocol": 1 if task.old else 2, "timing": "event", "samples": count, "sample_ns": 1e6}
    measured |= {"warm_up_ns": 2e8, "drift": 1.0}
    if not task.old:
        stopped = {1: "slower", 16: "settled"}.get(count, "slower")
        spent["measure"] = count * 1.2e6
        measured |= {"batch": batch, "cold": False, "stopped": stopped, "spent_ns": spent}
        measured |= measured_of([Resources(32 + 8 * (batch % 5), 16 * (batch % 3), 0, 4096)])
        if chance.random() < 0.05:
            measured["same_as"] = 0
    return TrialRecord(configuration, "ok", taken, compile_ns=spent["build"], measured=measured)


def _write_context(path: Path) -> None:
    """Runs every task as often as its weight says, and one that was never measured; also in one persistent kernel."""
    arguments = (BufferRef("input", 0, 0, 32), BufferRef("output", 0, 0, 32))
    computed = [(task.key.digest, task.launches) for task in TASKS for _ in range(task.weight)] + [("f" * 64, 1)]
    launches = tuple(
        LaunchRecord(f"/layer{n}/<{n}>", digest, 0, "f", (8,), (4,), arguments)
        for n, (digest, count) in enumerate(computed)
        for _ in range(count)
    )
    persistent = LaunchRecord("all", "", 0, "f", (8,), (4,), (BufferRef("counters", 0, 0, 64), *arguments))
    tensors = (TensorRecord("x", (2, 4)),), (TensorRecord("y", (8,)),)
    graph = GraphRecord("net <1>", *tensors, launches, (), (persistent,), 64)
    device = NULL_REPORT.identity.to_dict() if NULL_REPORT.identity else {}
    programs = (ProgramRecord(b"", "__kernel void f() {}", ""),)
    configuration = {
        "tuned_tasks": [task.key.digest for task in (*TASKS, ALTERNATIVE)],
        "end_to_end": {graph.name: END_TO_END},
    }
    write_context(path, Context((graph,), programs, (), device, "null", configuration, {"gputune": "0"}, False))
