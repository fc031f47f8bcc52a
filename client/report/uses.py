"""What a context binary says of itself that a report needs: what it runs, what was tuned for it, what it gained."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gputune.client.report.data import EndToEnd, Run, WholeContext
from gputune.client.report.reading import LONGEST_NS, SHORTEST_NS, number
from gputune.client.tuning.measuring.intervals import WANTED, Interval
from gputune.runtime.context.records import ContextHeader

NAMED = 3
"""Operations of a task that are named."""


@dataclass(frozen=True)
class Uses:
    """What a context runs: every operation of its graphs once, in order, however many launches that takes."""

    name: str
    graphs: tuple[str, ...]
    runs: tuple[Run, ...]
    alternatives: frozenset[str]
    """Digests of the tasks that were tuned for it beside those that it runs, such as the parts of a fused operation."""
    end_to_end: tuple[EndToEnd, ...]

    @property
    def weights(self) -> Mapping[str, int]:
        """How many operations each task computes."""
        return Counter(run.task for run in self.runs)

    @property
    def operations(self) -> Mapping[str, Sequence[str]]:
        """Some of the operations of each task."""
        names: dict[str, list[str]] = {}
        for run in self.runs:
            names.setdefault(run.task, []).append(run.operation)
        return {task: own[:NAMED] for task, own in names.items()}


def uses_of(header: ContextHeader, name: str) -> Uses:
    """The runs of all graphs of a context, whose launches one by one are read: a persistent kernel names no task."""
    runs = [Run(graph.name, one.operation, one.task) for graph in header.graphs for one in graph.launches]
    tuned = header.configuration.get("tuned_tasks")
    digests = [task for task in tuned if isinstance(task, str)] if isinstance(tuned, list) else []
    measured = header.configuration.get("end_to_end")
    told = measured if isinstance(measured, Mapping) else {}
    found = (_end_to_end(graph.name, told.get(graph.name)) for graph in header.graphs)
    return Uses(
        name=name,
        graphs=tuple(graph.name for graph in header.graphs),
        runs=tuple(dict.fromkeys(runs)),
        alternatives=frozenset(digests) - {run.task for run in runs},
        end_to_end=tuple(one for one in found if one is not None),
    )


def _end_to_end(graph: str, told: object) -> EndToEnd | None:
    """What whole inferences took; None where the file does not say so, or not in numbers that can be true."""
    if not isinstance(told, Mapping) or not isinstance(told.get("gain"), Mapping):
        return None
    untuned_ns, tuned_ns = (number(told.get(key)) for key in ("untuned_ns", "tuned_ns"))
    gain, low, high = (number(told["gain"].get(key)) for key in ("median", "low", "high"))
    if untuned_ns is None or tuned_ns is None or gain is None or low is None or high is None:
        return None
    if not all(SHORTEST_NS <= time_ns <= LONGEST_NS for time_ns in (untuned_ns, tuned_ns)) or not 0 < low <= high:
        return None
    contexts = _contexts(told.get("contexts"), untuned_ns, tuned_ns)
    return EndToEnd(graph, untuned_ns, tuned_ns, gain, Interval(low, high, WANTED), contexts)


def _contexts(told: object, untuned_ns: float, tuned_ns: float) -> tuple[WholeContext, ...]:
    """What was compared in whole; nothing where the file does not say it of all, or not with these times."""
    found = [_context(one) for one in told] if isinstance(told, list) else []
    known = [one for one in found if one is not None]
    ends = [[one.time_ns for one in known if one.untuned], [one.time_ns for one in known if one.chosen]]
    if len(known) < len(found) or ends != [[untuned_ns], [tuned_ns]]:
        return ()
    return tuple(sorted(known, key=lambda one: (not one.untuned, bool(one.fused), bool(one.persistent), one.time_ns)))


def _context(told: object) -> WholeContext | None:
    """A context that was compared; None where that cannot be one."""
    if not isinstance(told, Mapping):
        return None
    time_ns, operations, fused = (number(told.get(key)) for key in ("median_ns", "operations", "fused"))
    flags = [told.get(key) for key in ("untuned", "chosen", "persistent")]
    if time_ns is None or operations is None or fused is None or not all(isinstance(flag, bool) for flag in flags):
        return None
    if not SHORTEST_NS <= time_ns <= LONGEST_NS:
        return None
    untuned, chosen, persistent = map(bool, flags)
    return WholeContext(time_ns, untuned, chosen, int(operations), int(fused), persistent)
