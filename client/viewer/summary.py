"""Write a profile as tables for tools: plain JSON values, each section a list of rows with the same columns.

The summary has the sections of a QHAS summary: overall, op types, op instances, dominant path. Further sections say
where the rest of the time goes and how far to trust it. Names of columns hold units: `_ns` are nanoseconds, whole
numbers for totals, and shares are fractions of 1. Rows name their graph by its place in `overall` and their log by its
place in `logs`.

The totals equal the log's totals to the nanosecond: the account's rows add up to elapsed_total_ns, and the instances
and the types of operations add up to the account's kernels.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from gputune.client.tuning.measuring.intervals import median_interval
from gputune.client.viewer.analysis.critical_path import critical_path_of
from gputune.client.viewer.analysis.findings import findings_of
from gputune.client.viewer.analysis.forms import forms_of
from gputune.client.viewer.analysis.roofline import roofline_of
from gputune.client.viewer.profile import GraphProfile, OperationTimes, Profile
from gputune.client.viewer.schematic import OperationPlan
from gputune.client.viewer.summary_form import COLUMNS, KIND, VERSION

Row = dict[str, Any]


def summary_of(profile: Profile) -> dict[str, Any]:
    """Return all sections of a profile. Moments, those of the zoom and where phases begin, are by the host's clock."""
    subjects = [_Subject(profile, place) for place in range(len(profile.graphs))]
    sections = {name: [row for subject in subjects for row in rows(subject)] for name, rows in _BY_GRAPH.items()}
    sections |= {name: list(rows(profile)) for name, rows in _BY_LOG.items()}
    zoom_ns = None if profile.zoom is None else list(profile.zoom)
    model = None if profile.schematic is None else profile.schematic.model
    head = {"kind": KIND, "version": VERSION, "model": model, "zoom_ns": zoom_ns}
    return {**head, **{name: sections[name] for name in COLUMNS}}


class _Subject:
    """A graph of a profile with its analysis."""

    def __init__(self, profile: Profile, place: int) -> None:
        self.profile = profile
        self.place = place
        self.graph: GraphProfile = profile.graphs[place]
        self.account = self.graph.account
        self.path = critical_path_of(self.graph)
        self.roofline = roofline_of(profile, self.graph)
        self.places = {} if self.graph.plan is None else {o.name: i for i, o in enumerate(self.graph.plan.operations)}

    def planned(self, name: str) -> OperationPlan | None:
        return self.graph.plan.operations[self.places[name]] if self.graph.plan and name in self.places else None

    def of_kernels(self, total_ns: int) -> float:
        return total_ns / self.account.kernels_ns if self.account.kernels_ns else 0.0

    def roofline_ns(self, name: str) -> float | None:
        return self.roofline.rows[self.places[name]].best_ns if self.roofline and name in self.places else None


def _overall(of: _Subject) -> Iterator[Row]:
    graph, account = of.graph.graph, of.account
    forms = [one.form for one in of.graph.inferences]
    times_ns = [one.elapsed_ns for one in of.graph.inferences]
    interval = median_interval(times_ns) if times_ns else None
    yield {
        "graph": of.place,
        "log": _log(of.profile, of.graph),
        "name": graph.name,
        "context": graph.context,
        "digest": graph.digest,
        "computes": graph.computes,
        "launches": len(graph.launches),
        "persistent_launches": graph.persistent,
        "operations": len({each.operation for each in graph.launches}),
        "inferences": len(forms),
        "inferences_by_launches": forms.count("launches"),
        "inferences_persistent": forms.count("persistent"),
        "inferences_aborted": forms.count("aborted"),
        "inferences_marked": len(of.graph.marked),
        "unmarked": of.graph.unmarked,
        "inferences_with_timestamps": len(of.graph.timed),
        "elapsed_total_ns": account.elapsed_ns,
        "elapsed_median_ns": _median(times_ns),
        "elapsed_low_ns": interval and interval.low,
        "elapsed_high_ns": interval and interval.high,
        "kernels_total_ns": account.kernels_ns,
        "kernels_share": account.kernels_ns / account.elapsed_ns if account.elapsed_ns else None,
        "load_ns": graph.load_ns,
        "dominant_path_ns": of.path and of.path.length_ns,
        "dominant_path_share": of.path and of.path.share,
        "roofline_ns": of.roofline and of.roofline.best_ns,
        "roofline_share": of.roofline and of.roofline.share,
    }


def _account(of: _Subject) -> Iterator[Row]:
    whole_ns = of.account.elapsed_ns
    for name, total_ns in of.account.rows():
        yield {
            "graph": of.place,
            "row": name,
            "total_ns": total_ns,
            "share": total_ns / whole_ns if whole_ns else 0.0,
        }


def _op_types(of: _Subject) -> Iterator[Row]:
    found: dict[str | None, list[OperationTimes]] = {}
    for one in of.graph.operations:
        plan = of.planned(one.name)
        found.setdefault(plan.op if plan else None, []).append(one)
    for op, operations in found.items():
        plans = [plan for one in operations if (plan := of.planned(one.name)) is not None]
        best = [best_ns for one in operations if (best_ns := of.roofline_ns(one.name)) is not None]
        times_ns = np.sum([one.times_ns for one in operations], axis=0)
        total_ns = int(times_ns.sum())
        yield {
            "graph": of.place,
            "op": op,
            "operations": len(operations),
            "launches": sum(len(one.launches) for one in operations),
            "total_ns": total_ns,
            "median_ns": float(np.median(times_ns)) if times_ns.size else 0.0,
            "kernels_share": of.of_kernels(total_ns),
            "flops": sum(plan.flops for plan in plans) if plans else None,
            "bytes": sum(plan.nbytes for plan in plans) if plans else None,
            "roofline_ns": sum(best) if best else None,
        }


def _op_instances(of: _Subject) -> Iterator[Row]:
    for one in of.graph.operations:
        plan = of.planned(one.name)
        yield {
            "graph": of.place,
            "operation": one.name,
            "op": plan and plan.op,
            "task": one.task,
            "launches": len(one.launches),
            "total_ns": one.total_ns,
            "median_ns": one.median_ns,
            "least_ns": int(one.times_ns.min()) if one.times_ns.size else None,
            "most_ns": int(one.times_ns.max()) if one.times_ns.size else None,
            "kernels_share": of.of_kernels(one.total_ns),
            "roofline_ns": of.roofline_ns(one.name),
            "alone_ns": plan and plan.alone_ns,
            "default_ns": plan and plan.default_ns,
            "inside_ns": of.graph.inside[one.name].median_ns if of.graph.inside else None,
            "slack_ns": of.path.slack_ns[of.places[one.name]] if of.path and plan else None,
            "onnx_nodes": list(plan.nodes) if plan else [],
        }


def _dominant_path(of: _Subject) -> Iterator[Row]:
    if of.path is None or of.graph.plan is None:
        return
    medians = {one.name: one.median_ns for one in of.graph.operations}
    ended_ns = 0.0
    for step, place in enumerate(of.path.places):
        plan = of.graph.plan.operations[place]
        median_ns = medians.get(plan.name, 0.0)
        ended_ns += median_ns
        yield {
            "graph": of.place,
            "step": step,
            "operation": plan.name,
            "op": plan.op,
            "median_ns": median_ns,
            "ended_ns": ended_ns,
            "path_share": median_ns / of.path.length_ns if of.path.length_ns else 0.0,
        }


def _roofline(of: _Subject) -> Iterator[Row]:
    for row in of.roofline.rows if of.roofline else ():
        yield {
            "graph": of.place,
            "operation": row.name,
            "flops": row.flops,
            "bytes": row.nbytes,
            "median_ns": row.median_ns,
            "roofline_ns": row.best_ns,
            "share": row.share,
            "bound": row.bound,
            "gflops_per_s": row.gflops_per_s,
            "gbytes_per_s": row.gbytes_per_s,
        }


def _peaks(of: _Subject) -> Iterator[Row]:
    if of.roofline:
        peaks = of.roofline.peaks
        rates = {"gflops_per_s": peaks.flops_per_ns, "gbytes_per_s": peaks.bytes_per_ns}
        yield {"graph": of.place, **rates, "origin": peaks.origin}


def _findings(of: _Subject) -> Iterator[Row]:
    for rank, one in enumerate(findings_of(of.profile, of.graph), 1):
        yield {"graph": of.place, "rank": rank, "kind": one.kind, "share": one.share, "text": one.text}


def _comparisons(of: _Subject) -> Iterator[Row]:
    for one in of.graph.comparisons:
        if (forms := forms_of([one])) is not None:
            yield {"graph": of.place, "inferences": len(one.profiled_ns), **forms.to_dict()}


def _profiler(of: _Subject) -> Iterator[Row]:
    behind_ns = sum(one.profiler_ns for one in of.graph.inferences)
    yield {"graph": of.place, "within_total_ns": of.account.profiler_ns, "behind_total_ns": behind_ns}


def _clocks(of: _Subject) -> Iterator[Row]:
    bounds: dict[str, list[int]] = {}
    for one in of.graph.inferences:
        if one.clock is not None:
            bounds.setdefault(one.clock.method, []).append(one.clock.bound_ns)
    for method, found in bounds.items():
        yield {"graph": of.place, "method": method, "inferences": len(found), "bound_ns": max(found)}


def _counters(of: _Subject) -> Iterator[Row]:
    found: dict[str, list[int]] = {}
    for one in of.graph.inferences:
        for name, count in one.counters.items():
            found.setdefault(name, []).append(count)
    for name, counts in found.items():
        yield {"graph": of.place, "counter": name, "total": sum(counts), "median": float(statistics.median(counts))}


def _preemptions(of: _Subject) -> Iterator[Row]:
    found: dict[int, int] = {}
    for one in of.graph.inferences:
        for thread, count in one.preemptions.items():
            found[thread] = found.get(thread, 0) + count
    for thread, count in sorted(found.items()):
        yield {"graph": of.place, "thread": thread, "count": count}


def _logs(profile: Profile) -> Iterator[Row]:
    for place, log in enumerate(profile.logs):
        yield {
            "log": place,
            "path": log.path,
            "level": log.header.level,
            "software": log.header.software,
            "device": str(log.header.device.get("name", "")),
            "driver": str(log.header.device.get("driver_version", "")),
            "complete": log.complete,
            "begun_unix_ns": log.header.begun_unix_ns,
        }


def _unavailable_counters(profile: Profile) -> Iterator[Row]:
    for place, log in enumerate(profile.logs):
        for name, reason in log.header.unavailable.items():
            yield {"log": place, "counter": name, "reason": reason}


def _states(profile: Profile) -> Iterator[Row]:
    for place, log in enumerate(profile.logs):
        found: dict[str, list[float]] = {}
        for sample in log.states:
            for name, value in sample.values.items():
                found.setdefault(name, []).append(value)
        for name, values in found.items():
            median = statistics.median(values)
            extremes = {"least": min(values), "median": median, "most": max(values)}
            yield {"log": place, "value": name, "samples": len(values), **extremes}


def _phases(profile: Profile) -> Iterator[Row]:
    for place, log in enumerate(profile.logs):
        for span in log.spans:
            yield {
                "log": place,
                "name": span.name,
                "identifier": span.identifier,
                "begun_ns": span.begun_ns,
                "elapsed_ns": span.ended_ns - span.begun_ns,
            }


_BY_GRAPH: Mapping[str, Callable[[_Subject], Iterator[Row]]] = {
    "overall": _overall,
    "account": _account,
    "op_types": _op_types,
    "op_instances": _op_instances,
    "dominant_path": _dominant_path,
    "roofline": _roofline,
    "peaks": _peaks,
    "findings": _findings,
    "comparisons": _comparisons,
    "profiler": _profiler,
    "clocks": _clocks,
    "counters": _counters,
    "preemptions": _preemptions,
}
_BY_LOG: Mapping[str, Callable[[Profile], Iterator[Row]]] = {
    "logs": _logs,
    "unavailable_counters": _unavailable_counters,
    "states": _states,
    "phases": _phases,
}


def _log(profile: Profile, graph: GraphProfile) -> int:
    """Return the place of a graph's log among all."""
    return next(place for place, log in enumerate(profile.logs) if log is graph.log)


def _median(times_ns: Sequence[int]) -> float | None:
    return float(statistics.median(times_ns)) if times_ns else None
