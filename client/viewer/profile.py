"""Combine logs and a schematic: the graphs, their inferences, and what each launch stands for."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import numpy as np

from gputune.client.errors import ConfigError
from gputune.client.viewer.account import Account, account_of, total
from gputune.client.viewer.schematic import GraphPlan, OperationPlan, Schematic, read_schematic
from gputune.core.errors import MalformedLog, shortened
from gputune.runtime.profiling.log import Log, read_log
from gputune.runtime.profiling.records import (
    END_NS,
    Comparison,
    LoggedGraph,
    LoggedInference,
    MarkedInference,
    Span,
    Times,
    no_times_inside,
)

Key = TypeVar("Key")
Value = TypeVar("Value")


def grouped(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """Return the values of each key."""
    found: dict[Key, list[Value]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


def states_of(log: Log) -> dict[str, list[float]]:
    """Return what clocks, load and temperatures were, by what was read."""
    return grouped(pair for sample in log.states for pair in sample.values.items())


@dataclass(frozen=True, eq=False)
class GraphProfile:
    """A graph of a log with all of its inferences. plan: what the schematic says of it, None without one. marked:
    inferences that are not among the others."""

    log: Log
    graph: LoggedGraph
    plan: GraphPlan | None
    inferences: Sequence[LoggedInference]
    comparisons: Sequence[Comparison] = ()
    marked: Sequence[MarkedInference] = ()

    @cached_property
    def accounts(self) -> list[Account]:
        """Of each inference."""
        return [account_of(one) for one in self.inferences]

    @cached_property
    def account(self) -> Account:
        """Of all inferences together."""
        return total(self.accounts)

    @cached_property
    def operations(self) -> list[OperationTimes]:
        """The operations in the order in which they run first, with what their launches took."""
        return self._operations(self.launches_ns)

    @cached_property
    def inside(self) -> dict[str, OperationTimes]:
        """The same by name of inferences with marks: what launches took inside persistent kernels; empty without."""
        return {one.name: one for one in self._operations(self._rows(self.marked))} if self.marked else {}

    @property
    def unmarked(self) -> str:
        """Why launches have no times inside of persistent kernels, as a sentence without its point; empty where they
        have, or there are no such kernels."""
        if self.marked or not self.graph.persistent:
            return ""
        return no_times_inside(self.graph.unmarked or "this log has no marks of launches")

    @cached_property
    def families(self) -> dict[str, list[OperationTimes]]:
        """The operations by their op if a schematic says it, else by the kernel of their first launch; those that take
        most first."""
        ops = {name: plan.op for name, plan in self.plans.items()}
        entries = self.graph.launches
        found = grouped((ops.get(one.name) or entries[one.launches[0]].entry, one) for one in self.operations)
        return dict(sorted(found.items(), key=lambda each: -sum(one.total_ns for one in each[1])))

    @cached_property
    def plans(self) -> Mapping[str, OperationPlan]:
        """Return the plans of operations by their names, as the schematic has them; empty without a schematic."""
        return {one.name: one for one in self.plan.operations} if self.plan else {}

    @property
    def counters(self) -> Mapping[str, list[int]]:
        """Return the counts of all inferences, by the name of the counter."""
        return grouped(pair for one in self.inferences for pair in one.counters.items())

    @property
    def preemptions(self) -> Mapping[int, int]:
        """How often each thread has lost its processor."""
        found = grouped(pair for one in self.inferences for pair in one.preemptions.items())
        return {thread: sum(counts) for thread, counts in sorted(found.items())}

    @cached_property
    def timed_ns(self) -> int:
        """What the inferences with timestamps took, all together."""
        return sum(one.elapsed_ns for one in self.timed)

    def share(self, total_ns: float) -> float:
        """Return the share of an operation or of several: of the whole time of the inferences with timestamps, so that
        shares are those of means, and add up."""
        return total_ns / self.timed_ns if self.timed_ns else 0.0

    @cached_property
    def launches_ns(self) -> Times:
        """What each launch took in each inference that has timestamps: a row for each of those inferences."""
        return self._rows(self.timed)

    @cached_property
    def timed(self) -> list[LoggedInference]:
        """The inferences that have timestamps of their launches."""
        return [one for one in self.inferences if len(one.launches)]

    def _rows(self, inferences: Sequence[LoggedInference]) -> Times:
        rows = [one.took_ns() for one in inferences]
        return np.array(rows, np.int64).reshape(len(rows), len(self.graph.launches))

    def _operations(self, rows: Times) -> list[OperationTimes]:
        places = grouped((launch.operation, place) for place, launch in enumerate(self.graph.launches))
        return [
            OperationTimes(name, self.graph.launches[own[0]].task, tuple(own), rows[:, own].sum(axis=1))
            for name, own in places.items()
        ]


@dataclass(frozen=True, eq=False)
class OperationTimes:
    """An operation: its task's digest, the places of its launches, and its ns in each inference with timestamps."""

    name: str
    task: str
    launches: tuple[int, ...]
    times_ns: Times

    @property
    def median_ns(self) -> float:
        """Of the inferences; 0 without any."""
        return float(np.median(self.times_ns)) if len(self.times_ns) else 0.0

    @property
    def mean_ns(self) -> float:
        """Of the inferences; 0 without any."""
        return float(np.mean(self.times_ns)) if len(self.times_ns) else 0.0

    @property
    def total_ns(self) -> int:
        return int(self.times_ns.sum())


@dataclass(frozen=True, eq=False)
class Profile:
    """All that is shown. zoom: in ns by the host's clock, from where to where; what lies elsewhere was left out."""

    logs: Sequence[Log]
    schematic: Schematic | None
    graphs: Sequence[GraphProfile]
    zoom: tuple[int, int] | None = field(default=None)

    @property
    def begun_ns(self) -> int:
        """The first moment that is shown, by the host's clock."""
        moments = [one.begun_ns for graph in self.graphs for one in graph.inferences]
        return min([*moments, *(span.begun_ns for log in self.logs for span in log.spans)], default=0)

    def spans_of(self, log: Log) -> list[Span]:
        """Return the phases of a log that lie at least partly in the zoom."""
        begun_ns, ended_ns = self.zoom or (0, END_NS)
        return [span for span in log.spans if span.ended_ns >= begun_ns and span.begun_ns <= ended_ns]


def open_profile(
    paths: Sequence[Path], schematic: Path | None = None, zoom: tuple[float | None, float | None] = (None, None)
) -> Profile:
    """Read logs and, where one is given, a schematic, which must be of one of their graphs at least.

    zoom: in ms behind the beginning of the first log, from where to where inferences are kept. Raises MalformedLog,
    OSError; ConfigError where schematic and logs do not belong together, or nothing lies in the zoom."""
    logs = [read_log(path) for path in paths]
    return profile_of(logs, None if schematic is None else read_schematic(schematic), zoom)


def profile_of(
    logs: Sequence[Log], schematic: Schematic | None, zoom: tuple[float | None, float | None] = (None, None)
) -> Profile:
    """Do the same with what was read. Raises MalformedLog, ConfigError."""
    graphs = [graph_profile(log, place, schematic) for log in logs for place in range(len(log.graphs))]
    if schematic is not None and graphs and not any(graph.plan for graph in graphs):
        raise ConfigError(
            f"the schematic of {shortened([schematic.context])} does not fit {logs[0].path}: none of the graphs "
            f"{shortened([graph.graph.name for graph in graphs])} has the launches that it describes; "
            "give the schematic that was written with the context"
        )
    profile = Profile(logs, schematic, graphs)
    return profile if zoom == (None, None) else _zoomed(profile, *zoom)


def graph_profile(log: Log, place: int, schematic: Schematic | None = None) -> GraphProfile:
    """Return a graph of a log. Raises MalformedLog for a schematic that does not fit it."""
    graph = log.graphs[place]
    plan = None if schematic is None else schematic.graph(graph.digest)
    for one in () if plan is None else plan.operations:
        if max(one.launches, default=0) >= len(graph.launches):
            raise MalformedLog(
                f"the schematic's operation {shortened([one.name])} has a launch that graph "
                f"{shortened([graph.name])} does not have"
            )
    inferences = [one for one in log.inferences if one.graph == place]
    marked = [one for one in log.marked if one.graph == place]
    return GraphProfile(log, graph, plan, inferences, [one for one in log.comparisons if one.graph == place], marked)


def _zoomed(profile: Profile, start_ms: float | None, end_ms: float | None) -> Profile:
    """Return the profile with those inferences that lie at least partly between two moments."""
    zero_ns = profile.begun_ns
    last_ns = max((one.ended_ns for graph in profile.graphs for one in graph.inferences), default=zero_ns)
    if not 0 <= (start_ms or 0) <= (math.inf if end_ms is None else end_ms):
        raise ConfigError(f"--zoom_start, --zoom_end: nothing lies from {start_ms or 0:g} ms to {end_ms} ms")
    begun_ns = zero_ns if start_ms is None else zero_ns + round(min(start_ms * 1e6, END_NS))
    ended_ns = last_ns if end_ms is None else zero_ns + round(min(end_ms * 1e6, END_NS))
    graphs = [
        replace(
            graph,
            inferences=[one for one in graph.inferences if one.ended_ns >= begun_ns and one.begun_ns <= ended_ns],
            marked=[one for one in graph.marked if one.ended_ns >= begun_ns and one.begun_ns <= ended_ns],
        )
        for graph in profile.graphs
    ]
    if not any(graph.inferences for graph in graphs):
        inferences = any(graph.inferences for graph in profile.graphs)
        there = f"they end at {(last_ns - zero_ns) / 1e6:.3f} ms" if inferences else "these logs have none"
        raise ConfigError(f"--zoom_start, --zoom_end: no inference lies there; {there}")
    return replace(profile, graphs=graphs, zoom=(begun_ns, ended_ns))
