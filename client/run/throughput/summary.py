"""Summarise a throughput run: rates, percentiles by instance and by minute, wrong results and energy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from gputune.client.run.inferences import Times
from gputune.client.run.throughput.contexts import Loaded, LoadedContext
from gputune.client.run.throughput.meters import Energy
from gputune.client.run.throughput.running import Counted, Throughput
from gputune.runtime.application.percentiles import METHOD, in_words, inferences, percentiles_ns

MINUTE_NS = 60 * 10**9
THROTTLED = 1.1
"""From how many times the first minute's median on a later one is told."""


def summarise(loaded: Loaded, run: Throughput) -> dict[str, Any]:
    """Return the names of --summary_json. `executed` of a context is what its executors have counted by themselves,
    warm-up included: it must be the sum of what its instances say."""
    instances = {counted.instance.name: _of_instance(counted, run) for counted in run.counted}
    return {
        "device": loaded.device.name,
        "computes": loaded.computes,
        "interrupted": run.interrupted,
        "failed": None if run.failure is None else f"{run.failure.instance.name}: {run.failure}",
        "seconds": run.took_s,
        "inferences": run.inferences,
        "inferences_per_second": _rate(run.inferences, run.took_s),
        "wrong": sum(counted.wrong for counted in run.counted),
        "contexts": {name: _of_context(context, run) for name, context in loaded.contexts.items()},
        "instances": instances,
        "groups": {name: asdict(group.memory) for name, group in loaded.groups.items()},
        "energy": energy_of(run.energy, run.took_s, run.inferences),
    }


def by_minute(times: Times, begin_ns: int, minute_ns: int = MINUTE_NS) -> list[dict[str, Any]]:
    """Of each minute since the begin, the inferences that began in it: their count, p50 and p99 in ns, and p50 over
    that of the first minute that has any. None stands for what a minute without inferences does not have."""
    minutes = (np.asarray(times.begin_ns, np.int64) - begin_ns) // minute_ns
    took_ns = np.asarray(times.elapsed_ns, np.int64)
    found: list[dict[str, Any]] = []
    first: float | None = None
    for minute in range(int(minutes.max(initial=-1)) + 1):
        values = took_ns[minutes == minute]
        p50, p99 = (
            (float(value) for value in np.percentile(values, (50, 99), method=METHOD)) if len(values) else (None, None)
        )
        first = p50 if first is None else first
        drift = p50 / first if p50 is not None and first else None
        found.append(
            {"minute": minute, "inferences": len(values), "p50_ns": p50, "p99_ns": p99, "p50_over_first": drift}
        )
    return found


def energy_of(energy: Energy, seconds: float, inferences: int) -> dict[str, Any]:
    """Of each meter joules, watts and joules per inference; `unreadable` says of others why not."""
    return {
        "meters": [
            {
                "name": meter.name,
                "source": meter.source,
                "joules": meter.joules,
                "watts": _rate(meter.joules, seconds),
                "joules_per_inference": _rate(meter.joules, inferences),
            }
            for meter in energy.meters
        ],
        "unreadable": list(energy.problems),
    }


def lines_of(summary: dict[str, Any]) -> list[str]:
    """Return a summary for people: energy, each instance, and all together at the end."""
    lines = [
        f"energy: {meter['joules']:.3g} J, {meter['watts']:.3g} W, {meter['joules_per_inference']:.3g} J per inference"
        f", by {meter['name']}"
        for meter in summary["energy"]["meters"]
        if meter["joules_per_inference"] is not None
    ]
    if not lines:
        lines = [f"no energy: {'; '.join(summary['energy']['unreadable'])}"]
    for name, one in summary["instances"].items():
        count = one["inferences"]
        words = in_words(one["percentiles_ns"], count) if one["percentiles_ns"] else "none ended"
        lines.append(f"{name}: {inferences(count)}: {words}")
    rate = summary["inferences_per_second"] or 0.0
    wrong = f"{summary['wrong']} wrong results" if summary["wrong"] else "no wrong result"
    told = f"{inferences(summary['inferences'])} in {summary['seconds']:.2f} s on {summary['device']}"
    return [*lines, f"{told}: {rate:.1f} per second, {wrong}"]


def slower_minutes(summary: dict[str, Any]) -> list[str]:
    """For each instance that was slower than in its first minute, in how far, at its worst."""
    found = []
    for name, one in summary["instances"].items():
        worst = max(one["minutes"], key=lambda minute: minute["p50_over_first"] or 0.0, default=None)
        if worst is not None and (worst["p50_over_first"] or 0.0) >= THROTTLED:
            found.append(
                f"{name}: in minute {worst['minute']} p50 was {worst['p50_over_first']:.2f} times that of the first: "
                "the device was throttled, or had other work"
            )
    return found


def _of_instance(counted: Counted, run: Throughput) -> dict[str, Any]:
    elapsed_ns: Sequence[int] = counted.times.elapsed_ns
    return {
        "context": counted.instance.context.name,
        "inferences": len(elapsed_ns),
        "inferences_per_second": _rate(len(elapsed_ns), run.took_s),
        "warmup": counted.warmup,
        "wrong": counted.wrong,
        "waited_ns": counted.waited_ns,
        "percentiles_ns": percentiles_ns(elapsed_ns) if elapsed_ns else None,
        "minutes": by_minute(counted.times, run.begin_ns or 0),
    }


def _of_context(context: LoadedContext, run: Throughput) -> dict[str, Any]:
    own = [counted for counted in run.counted if counted.instance.context is context.plan]
    return {
        "path": str(context.plan.path),
        "graph": context.graph.name,
        "group": context.plan.group,
        "priority": context.plan.priority,
        "instances": len(own),
        "inferences": sum(len(counted.times.elapsed_ns) for counted in own),
        "warmup": sum(counted.warmup for counted in own),
        "executed": context.executed(),
        "warnings": list(context.warnings),
    }


def _rate(amount: float, of: float) -> float | None:
    return amount / of if of else None
