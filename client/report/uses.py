"""Read from a context binary what a report needs: what it runs, what was tuned for it, and what it gained."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gputune.client.report.data import Inferences, Run, WholeContext
from gputune.client.tuning.measuring.end_to_end import EndToEnd, gain_from_dict
from gputune.core.json_text import finite_number
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
    end_to_end: tuple[Inferences, ...]

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
    """Return the runs of all graphs of a context, whose launches one by one are read: a persistent kernel names no
    task."""
    runs = [Run(graph.name, one.operation, one.task) for graph in header.graphs for one in graph.launches]
    tuned = header.configuration.get("tuned_tasks")
    digests = [task for task in tuned if isinstance(task, str)] if isinstance(tuned, list) else []
    measured = header.configuration.get("end_to_end")
    told = measured if isinstance(measured, Mapping) else {}
    found = (_inferences(graph.name, told.get(graph.name)) for graph in header.graphs)
    return Uses(
        name=name,
        graphs=tuple(graph.name for graph in header.graphs),
        runs=tuple(dict.fromkeys(runs)),
        alternatives=frozenset(digests) - {run.task for run in runs},
        end_to_end=tuple(one for one in found if one is not None),
    )


def _inferences(graph: str, told: object) -> Inferences | None:
    """Return what whole inferences took; None where the file does not say so, or not in numbers that can be true."""
    measured = EndToEnd.from_dict(told)
    if measured is None or not isinstance(told, Mapping):
        return None
    return Inferences(graph, measured, _contexts(told.get("contexts"), measured))


def _contexts(told: object, measured: EndToEnd) -> tuple[WholeContext, ...]:
    """Return what was compared in whole; nothing where the file does not say it of all, or not with this gain."""
    found = [_context(one) for one in told] if isinstance(told, list) else []
    known = [one for one in found if one is not None]
    chosen = [one for one in known if one.chosen]
    untuned = [one for one in known if one.untuned]
    if len(known) < len(found) or len(chosen) != 1 or len(untuned) != 1:
        return ()
    if (chosen == untuned) != (measured.kept == "untuned") or measured.gain not in [one.gain for one in known]:
        return ()
    return tuple(sorted(known, key=lambda one: (not one.untuned, bool(one.fused), bool(one.persistent), _speed(one))))


def _context(told: object) -> WholeContext | None:
    """Return a context that was compared; None where that cannot be one."""
    if not isinstance(told, Mapping):
        return None
    operations, fused = (finite_number(told.get(key)) for key in ("operations", "fused"))
    flags = [told.get(key) for key in ("untuned", "chosen", "persistent")]
    if operations is None or fused is None or not all(isinstance(flag, bool) for flag in flags):
        return None
    untuned, chosen, persistent = map(bool, flags)
    gain = gain_from_dict(told.get("gain"))
    if (gain is None) != untuned:
        return None
    return WholeContext(gain, chosen, int(operations), int(fused), persistent)


def _speed(one: WholeContext) -> float:
    return 1.0 if one.gain is None else one.gain.median
