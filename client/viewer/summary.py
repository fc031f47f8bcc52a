"""Write a profile as tables for tools: plain JSON values, each section a list of rows with the same columns.

The summary has the sections of a QHAS summary: overall, op types, op instances, dominant path. Further sections say
where the rest of the time goes and how far to trust it. Names of columns hold units: `_ns` are nanoseconds, whole
numbers for totals, and shares are fractions of 1. Rows name their graph by its place in `overall` and their log by its
place in `logs`. The JSON schema follows from the columns.

The totals equal the log's totals to the nanosecond: the account's rows add up to elapsed_total_ns, and the instances
and the types of operations add up to the account's kernels.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from gputune.client.tuning.measuring.intervals import median_interval
from gputune.client.viewer.analysis.critical_path import critical_path_of, medians_ns
from gputune.client.viewer.analysis.findings import findings_of
from gputune.client.viewer.analysis.forms import forms_of
from gputune.client.viewer.analysis.roofline import roofline_of
from gputune.client.viewer.profile import GraphProfile, OperationTimes, Profile, grouped, states_of
from gputune.client.viewer.schematic import OperationPlan
from gputune.runtime.profiling.log import Log
from gputune.runtime.profiling.records import Times

KIND = "gputune-profile-summary"
VERSION = 2
INTEGER, NUMBER, STRING, BOOLEAN = ({"type": kind} for kind in ("integer", "number", "string", "boolean"))
INTEGER_OR_NULL, NUMBER_OR_NULL, STRING_OR_NULL = (
    {"type": [kind["type"], "null"]} for kind in (INTEGER, NUMBER, STRING)
)
STRINGS = {"type": "array", "items": STRING}
Columns = Mapping[str, tuple[Mapping[str, Any], Callable[[Any, Any], Any]]]
"""By name, the JSON schema of a column, and its value, of the graph or log and of the row's item."""


@dataclass(frozen=True)
class Section:
    """Define a section. by: graph or log, whose place is the first column; items: what there is a row for."""

    by: str
    items: Callable[[Any], Iterable[Any]]
    columns: Columns

    def rows(self, all_of: Sequence[Any]) -> list[dict[str, Any]]:
        """Return the rows of all graphs or logs."""
        return [
            {self.by: place, **{name: value(of, item) for name, (_, value) in self.columns.items()}}
            for place, of in enumerate(all_of)
            for item in self.items(of)
        ]

    @property
    def schema(self) -> dict[str, Any]:
        """Return the JSON schema."""
        properties = {self.by: INTEGER, **{name: kind for name, (kind, _) in self.columns.items()}}
        row = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
        return {"type": "array", "items": row}


def summary_of(profile: Profile) -> dict[str, Any]:
    """Return all sections of a profile. Moments, those of the zoom and where phases begin, are by the host's clock."""
    all_of = {"graph": [_Subject(profile, graph) for graph in profile.graphs], "log": profile.logs}
    zoom_ns = None if profile.zoom is None else list(profile.zoom)
    model = None if profile.schematic is None else profile.schematic.model
    head = {"kind": KIND, "version": VERSION, "model": model, "zoom_ns": zoom_ns}
    return {**head, **{name: section.rows(all_of[section.by]) for name, section in SECTIONS.items()}}


class _Subject:
    """A graph of a profile with its analysis. best_ns, slack_ns: of operations by their names, as far as known."""

    def __init__(self, profile: Profile, graph: GraphProfile) -> None:
        self.profile, self.graph, self.account, self.plans = profile, graph, graph.account, graph.plans
        self.path, self.roofline = critical_path_of(graph), roofline_of(profile, graph)
        self.best_ns = {row.name: row.best_ns for row in self.roofline.rows} if self.roofline else {}
        planned = graph.plan.operations if self.path and graph.plan else ()
        slack_ns = self.path.slack_ns if self.path else ()
        self.slack_ns = {plan.name: ns for plan, ns in zip(planned, slack_ns, strict=True)}
        self.times_ns = [one.elapsed_ns for one in graph.inferences]
        self.interval = median_interval(self.times_ns) if self.times_ns else None
        self.forms = [one.form for one in graph.inferences]

    def op(self, one: OperationTimes) -> str | None:
        return self.plans[one.name].op if one.name in self.plans else None

    def types(self) -> Iterator[tuple[str | None, list[OperationTimes], list[OperationPlan], Times]]:
        """Yield each op, its operations, what the schematic says of these, and what they take together."""
        for op, operations in grouped((self.op(one), one) for one in self.graph.operations).items():
            plans = [self.plans[one.name] for one in operations if one.name in self.plans]
            yield op, operations, plans, np.sum([one.times_ns for one in operations], axis=0)

    def steps(self) -> Iterator[tuple[int, OperationPlan, float, float, float]]:
        """Yield the steps of the dominant path: number, operation, what it takes, when it has ended, and its share."""
        if self.path is None or self.graph.plan is None:
            return
        medians, ended_ns = medians_ns(self.graph, self.graph.plan), 0.0
        for step, place in enumerate(self.path.places):
            ended_ns += medians[place]
            share = _share(medians[place], self.path.length_ns)
            yield step, self.graph.plan.operations[place], medians[place], ended_ns, share

    def turns(self) -> Iterator[SimpleNamespace]:
        """Yield how the forms compare in each turn of them."""
        for one in self.graph.comparisons:
            if (forms := forms_of([one])) is not None:
                yield SimpleNamespace(inferences=len(one.profiled_ns), **forms.to_dict())


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _sum(values: Sequence[float]) -> float | None:
    return sum(values) if values else None


def _graphs(
    items: Callable[[_Subject], Iterable[Any]], **columns: tuple[Any, Callable[[_Subject, Any], Any]]
) -> Section:
    return Section("graph", items, columns)


def _logs(items: Callable[[Log], Iterable[Any]], **columns: tuple[Any, Callable[[Log, Any], Any]]) -> Section:
    return Section("log", items, columns)


def _same(kind: Mapping[str, Any], *names: str) -> Columns:
    """Return columns that an item has by the same names."""

    def value(name: str) -> Callable[[Any, Any], Any]:
        return lambda of, item: getattr(item, name)

    return {name: (kind, value(name)) for name in names}


SECTIONS: Mapping[str, Section] = {
    "logs": _logs(
        lambda log: [log.header],
        path=(STRING, lambda log, _: log.path),
        **_same(STRING, "level", "software"),
        device=(STRING, lambda log, header: str(header.device.get("name", ""))),
        driver=(STRING, lambda log, header: str(header.device.get("driver_version", ""))),
        complete=(BOOLEAN, lambda log, _: log.complete),
        **_same(INTEGER, "begun_unix_ns"),
    ),
    "overall": _graphs(
        lambda of: [of.graph.graph],
        log=(INTEGER, lambda of, _: next(n for n, log in enumerate(of.profile.logs) if log is of.graph.log)),
        **_same(STRING, "name", "context", "digest"),
        **_same(BOOLEAN, "computes"),
        launches=(INTEGER, lambda of, graph: len(graph.launches)),
        persistent_launches=(INTEGER, lambda of, graph: graph.persistent),
        operations=(INTEGER, lambda of, graph: len({each.operation for each in graph.launches})),
        inferences=(INTEGER, lambda of, _: len(of.forms)),
        inferences_by_launches=(INTEGER, lambda of, _: of.forms.count("launches")),
        inferences_persistent=(INTEGER, lambda of, _: of.forms.count("persistent")),
        inferences_aborted=(INTEGER, lambda of, _: of.forms.count("aborted")),
        inferences_marked=(INTEGER, lambda of, _: len(of.graph.marked)),
        unmarked=(STRING, lambda of, _: of.graph.unmarked),
        inferences_with_timestamps=(INTEGER, lambda of, _: len(of.graph.timed)),
        elapsed_total_ns=(INTEGER, lambda of, _: of.account.elapsed_ns),
        elapsed_median_ns=(
            NUMBER_OR_NULL,
            lambda of, _: float(statistics.median(of.times_ns)) if of.times_ns else None,
        ),
        elapsed_low_ns=(NUMBER_OR_NULL, lambda of, _: of.interval and of.interval.low),
        elapsed_high_ns=(NUMBER_OR_NULL, lambda of, _: of.interval and of.interval.high),
        kernels_total_ns=(INTEGER, lambda of, _: of.account.kernels_ns),
        kernels_share=(
            NUMBER_OR_NULL,
            lambda of, _: of.account.kernels_ns / of.account.elapsed_ns if of.account.elapsed_ns else None,
        ),
        **_same(INTEGER, "load_ns", "state_bytes"),
        dominant_path_ns=(NUMBER_OR_NULL, lambda of, _: of.path and of.path.length_ns),
        dominant_path_share=(NUMBER_OR_NULL, lambda of, _: of.path and of.path.share),
        roofline_ns=(NUMBER_OR_NULL, lambda of, _: of.roofline and of.roofline.best_ns),
        roofline_share=(NUMBER_OR_NULL, lambda of, _: of.roofline and of.roofline.share),
    ),
    "account": _graphs(
        lambda of: of.account.rows(),
        row=(STRING, lambda of, row: row[0]),
        total_ns=(INTEGER, lambda of, row: row[1]),
        share=(NUMBER, lambda of, row: _share(row[1], of.account.elapsed_ns)),
    ),
    "op_types": _graphs(
        _Subject.types,
        op=(STRING_OR_NULL, lambda of, row: row[0]),
        operations=(INTEGER, lambda of, row: len(row[1])),
        launches=(INTEGER, lambda of, row: sum(len(one.launches) for one in row[1])),
        total_ns=(INTEGER, lambda of, row: int(row[3].sum())),
        median_ns=(NUMBER, lambda of, row: float(np.median(row[3])) if row[3].size else 0.0),
        kernels_share=(NUMBER, lambda of, row: _share(int(row[3].sum()), of.account.kernels_ns)),
        flops=(INTEGER_OR_NULL, lambda of, row: _sum([plan.flops for plan in row[2]])),
        bytes=(INTEGER_OR_NULL, lambda of, row: _sum([plan.nbytes for plan in row[2]])),
        roofline_ns=(
            NUMBER_OR_NULL,
            lambda of, row: _sum([of.best_ns[one.name] for one in row[1] if one.name in of.best_ns]),
        ),
    ),
    "op_instances": _graphs(
        lambda of: [(one, of.plans.get(one.name)) for one in of.graph.operations],
        operation=(STRING, lambda of, row: row[0].name),
        op=(STRING_OR_NULL, lambda of, row: row[1] and row[1].op),
        task=(STRING, lambda of, row: row[0].task),
        launches=(INTEGER, lambda of, row: len(row[0].launches)),
        total_ns=(INTEGER, lambda of, row: row[0].total_ns),
        median_ns=(NUMBER, lambda of, row: row[0].median_ns),
        least_ns=(INTEGER_OR_NULL, lambda of, row: int(row[0].times_ns.min()) if row[0].times_ns.size else None),
        most_ns=(INTEGER_OR_NULL, lambda of, row: int(row[0].times_ns.max()) if row[0].times_ns.size else None),
        kernels_share=(NUMBER, lambda of, row: _share(row[0].total_ns, of.account.kernels_ns)),
        roofline_ns=(NUMBER_OR_NULL, lambda of, row: of.best_ns.get(row[0].name)),
        alone_ns=(NUMBER_OR_NULL, lambda of, row: row[1] and row[1].alone_ns),
        default_ns=(NUMBER_OR_NULL, lambda of, row: row[1] and row[1].default_ns),
        inside_ns=(
            NUMBER_OR_NULL,
            lambda of, row: of.graph.inside[row[0].name].median_ns if of.graph.inside else None,
        ),
        slack_ns=(NUMBER_OR_NULL, lambda of, row: of.slack_ns.get(row[0].name)),
        onnx_nodes=(STRINGS, lambda of, row: list(row[1].nodes) if row[1] else []),
    ),
    "dominant_path": _graphs(
        _Subject.steps,
        step=(INTEGER, lambda of, row: row[0]),
        operation=(STRING, lambda of, row: row[1].name),
        op=(STRING, lambda of, row: row[1].op),
        median_ns=(NUMBER, lambda of, row: row[2]),
        ended_ns=(NUMBER, lambda of, row: row[3]),
        path_share=(NUMBER, lambda of, row: row[4]),
    ),
    "roofline": _graphs(
        lambda of: of.roofline.rows if of.roofline else (),
        operation=(STRING, lambda of, row: row.name),
        **_same(INTEGER, "flops"),
        bytes=(INTEGER, lambda of, row: row.nbytes),
        **_same(NUMBER, "median_ns"),
        roofline_ns=(NUMBER, lambda of, row: row.best_ns),
        **_same(NUMBER, "share"),
        **_same(STRING, "bound"),
        **_same(NUMBER, "gflops_per_s", "gbytes_per_s"),
    ),
    "peaks": _graphs(
        lambda of: [of.roofline.peaks] if of.roofline else (),
        gflops_per_s=(NUMBER, lambda of, peaks: peaks.flops_per_ns),
        gbytes_per_s=(NUMBER, lambda of, peaks: peaks.bytes_per_ns),
        origin=(STRING, lambda of, peaks: peaks.origin),
    ),
    "findings": _graphs(
        lambda of: enumerate(findings_of(of.profile, of.graph), 1),
        rank=(INTEGER, lambda of, row: row[0]),
        kind=(STRING, lambda of, row: row[1].kind),
        share=(NUMBER, lambda of, row: row[1].share),
        text=(STRING, lambda of, row: row[1].text),
    ),
    "comparisons": _graphs(
        _Subject.turns,
        **_same(INTEGER, "inferences"),
        **_same(NUMBER, "unprofiled_ns", "profiled_ns", "usual_ns"),
        **_same(STRING, "usual_form"),
        **_same(NUMBER, "profiled_by_unprofiled", "profiled_by_unprofiled_low", "profiled_by_unprofiled_high"),
        **_same(NUMBER_OR_NULL, "usual_by_unprofiled", "usual_by_unprofiled_low", "usual_by_unprofiled_high"),
    ),
    "profiler": _graphs(
        lambda of: [of.account],
        within_total_ns=(INTEGER, lambda of, account: account.profiler_ns),
        behind_total_ns=(INTEGER, lambda of, _: sum(one.profiler_ns for one in of.graph.inferences)),
    ),
    "clocks": _graphs(
        lambda of: grouped((one.clock.method, one.clock) for one in of.graph.inferences if one.clock).items(),
        method=(STRING, lambda of, row: row[0]),
        inferences=(INTEGER, lambda of, row: len(row[1])),
        bound_ns=(INTEGER, lambda of, row: max(clock.bound_ns for clock in row[1])),
    ),
    "counters": _graphs(
        lambda of: of.graph.counters.items(),
        counter=(STRING, lambda of, row: row[0]),
        total=(INTEGER, lambda of, row: sum(row[1])),
        median=(NUMBER, lambda of, row: float(statistics.median(row[1]))),
    ),
    "unavailable_counters": _logs(
        lambda log: log.header.unavailable.items(),
        counter=(STRING, lambda log, row: row[0]),
        reason=(STRING, lambda log, row: row[1]),
    ),
    "preemptions": _graphs(
        lambda of: of.graph.preemptions.items(),
        thread=(INTEGER, lambda of, row: row[0]),
        count=(INTEGER, lambda of, row: row[1]),
    ),
    "states": _logs(
        lambda log: states_of(log).items(),
        value=(STRING, lambda log, row: row[0]),
        samples=(INTEGER, lambda log, row: len(row[1])),
        least=(NUMBER, lambda log, row: min(row[1])),
        median=(NUMBER, lambda log, row: statistics.median(row[1])),
        most=(NUMBER, lambda log, row: max(row[1])),
    ),
    "phases": _logs(
        lambda log: log.spans,
        **_same(STRING, "name"),
        **_same(INTEGER, "identifier", "begun_ns"),
        elapsed_ns=(INTEGER, lambda log, span: span.ended_ns - span.begun_ns),
    ),
}
_HEAD: dict[str, Any] = {
    "kind": {"const": KIND},
    "version": {"const": VERSION},
    "model": STRING_OR_NULL,
    "zoom_ns": {"type": ["array", "null"], "items": INTEGER, "minItems": 2, "maxItems": 2},
}
SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Summary of a profile, by gputune profile-viewer",
    "type": "object",
    "properties": {**_HEAD, **{name: section.schema for name, section in SECTIONS.items()}},
    "required": [*_HEAD, *SECTIONS],
    "additionalProperties": False,
}
"""The JSON schema (draft 2020-12) of the result of summary_of."""
