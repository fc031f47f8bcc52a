"""Gather what a report shows from a performance cache and a context. This module reads; it writes and draws nothing."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from gputune.cache import PerformanceCache, TaskSummary, TrialRecord, Validity
from gputune.client.report.data import DeviceView, Report, Roof, TaskView
from gputune.client.report.reading import LONGEST_NS, SHORTEST_NS, believable
from gputune.client.report.task_view import day, task_view, under_roof, work_of_task
from gputune.client.report.uses import Uses
from gputune.kernels.family import Work


@dataclass(frozen=True)
class Peak:
    """What the maker says that the device does at most; None where it is not known."""

    gflops: float | None = None
    gb_per_s: float | None = None


def gather(cache: PerformanceCache, uses: Uses | None, peak: Peak, now: datetime) -> Report:
    """Everything that a report of this cache shows. Raises CacheError."""
    skipped = 0
    places: dict[str, list[tuple[TaskSummary, list[TrialRecord]]]] = {}
    older: Counter[str] = Counter()
    seen: set[tuple[str, str]] = set()
    for summary in sorted(cache.tasks(), key=lambda one: one.last_change, reverse=True):
        place = _place(summary.validity)
        if (place, summary.task.digest) in seen:
            older[place] += 1
            continue
        seen.add((place, summary.task.digest))
        trials = cache.trials_of(summary.task, summary.validity)
        good = [trial for trial in trials if believable(trial)]
        skipped += len(trials) - len(good)
        places.setdefault(place, []).append((_bounded(summary), good))
    notes = []
    if unread := skipped + cache.malformed_rows:
        notes.append(f"{unread} rows of the cache have impossible values and are not shown")
    if uses is not None and not any(_launched(place, uses) for place in places.values()):
        notes.append(f"this cache has no measurement of {uses.name}: it belongs to another device or an older gputune")
    order = sorted(places, key=lambda place: uses is not None and not _launched(places[place], uses))
    return Report(
        cache=cache.path.name,
        tier=cache.path.stem,
        context=uses.name if uses else None,
        graphs=uses.graphs if uses else (),
        end_to_end=uses.end_to_end if uses else (),
        made_at=day(now),
        places=tuple(
            _place_view(number, places[place], uses, peak, older[place]) for number, place in enumerate(order)
        ),
        notes=tuple(notes),
    )


_Measured = Sequence[tuple[TaskSummary, list[TrialRecord]]]


def _place(validity: Validity) -> str:
    """Return what must be equal for two tasks to be shown together: all but what belongs to the task's own kernel."""
    return replace(validity, source_sha256="", space_sha256="").digest


def _bounded(summary: TaskSummary) -> TaskSummary:
    """Without a winner whose time cannot be true."""
    winner = summary.winner
    times = [] if winner is None else [winner.median_ns, winner.default_ns or 1.0]
    return summary if all(SHORTEST_NS <= one <= LONGEST_NS for one in times) else replace(summary, winner=None)


def _launched(measured: _Measured, uses: Uses) -> bool:
    return any(summary.task.digest in uses.weights for summary, _ in measured)


def _place_view(number: int, measured: _Measured, uses: Uses | None, peak: Peak, older: int) -> DeviceView:
    weights, operations = ({}, {}) if uses is None else (uses.weights, uses.operations)
    views: list[tuple[TaskView, Work | None]] = []
    for summary, trials in measured:
        digest = summary.task.digest
        weight = None if uses is None else weights.get(digest, 0)
        views.append((task_view(summary, trials, weight, operations.get(digest, ())), work_of_task(summary)))
    roof = _roof(views, peak)
    tasks = [
        replace(view, roofline=under_roof(work, view.tuned.median_ns, roof)) if work and view.tuned and roof else view
        for view, work in views
    ]
    tasks.sort(key=_longest_first)
    own = [view for view in tasks if uses is None or view.weight or view.digest in uses.alternatives]
    known = [view for view in own if view.default is not None and view.tuned is not None and view.weight != 0]
    timed = {view.digest for view in own}
    runs = () if uses is None else tuple(run for run in uses.runs if run.task in timed)
    validity = measured[0][0].validity
    return DeviceView(
        number=number,
        device=validity.device_name,
        facts=_facts(validity),
        tasks=tuple(own),
        others=tuple(view for view in tasks if view not in own),
        runs=runs,
        roof=roof,
        set_aside=older,
        missing=len(set(weights) - timed),
        before_ns=_sum((view.default.median_ns, view.weight) for view in known if view.default),
        after_ns=_sum((view.tuned.median_ns, view.weight) for view in known if view.tuned),
        summed=sum(1 if view.weight is None else view.weight for view in known),
        operations=len(own) if uses is None else len(uses.runs),
    )


def _longest_first(view: TaskView) -> tuple[float, float]:
    """By the time of all its runs, and of one where there are none."""
    time_ns = view.tuned.median_ns if view.tuned else 0.0
    return -time_ns * (1 if view.weight is None else view.weight), -time_ns


def _facts(validity: Validity) -> dict[str, str]:
    settings = ", ".join(f"{name}={value}" for name, value in sorted(validity.settings.items()))
    facts = {
        "type": validity.device_type,
        "compute units": str(validity.compute_units),
        "platform": f"{validity.platform}, {validity.platform_version}".strip(", "),
        "driver": validity.driver_version,
        "settings": settings,
        "measuring protocol": str(validity.measuring_version),
    }
    return {name: text for name, text in facts.items() if text}


def _roof(views: Sequence[tuple[TaskView, Work | None]], peak: Peak) -> Roof | None:
    """Return the best that any task reaches, or the peak; None where no work is known."""
    reached = [(work, view.tuned.median_ns) for view, work in views if work and view.tuned]
    if not reached:
        return None
    gflops = max(work.flops / time_ns for work, time_ns in reached)
    gb_per_s = max(work.bytes / time_ns for work, time_ns in reached)
    return Roof(
        gflops=peak.gflops or gflops or 1.0,  # without any operation the roof is memory's alone
        gb_per_s=peak.gb_per_s or gb_per_s,
        gflops_given=peak.gflops is not None,
        gb_per_s_given=peak.gb_per_s is not None,
    )


def _sum(parts: Iterable[tuple[float, int | None]]) -> float | None:
    """Return the sum of times by weight; None of nothing."""
    times = [time_ns * (1 if weight is None else weight) for time_ns, weight in parts]
    return math.fsum(times) if times else None
