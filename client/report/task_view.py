"""From the records of one task to what a report shows of it."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime

from gputune.cache import TaskSummary, TrialRecord
from gputune.client.report.data import PHASES, Attempt, Failure, Roof, Roofline, TaskView, Timed, Value
from gputune.client.report.problems import meanings, problem_of, words, work_of
from gputune.client.report.reading import batch_of, drift_of, how_measured, spent_of
from gputune.client.tuning.intervals import (
    Interval,
    median_interval,
    median_ratio,
    paired_interval,
    ratio_interval,
)
from gputune.kernels.family import Work
from gputune.kernels.space import configuration_key
from gputune.runtime.racing import paired

OK = "ok"
SHOWN = 12
"""Configurations in a task's table; all of them are a command away, `gputune performance-cache show`."""


def task_view(
    summary: TaskSummary, trials: Sequence[TrialRecord], weight: int | None, operations: Sequence[str]
) -> TaskView:
    """A task, still without its place under the roof, which is known when all tasks are."""
    working = [trial for trial in trials if trial.status == OK]
    latest = {configuration_key(trial.configuration): trial for trial in trials}
    ranked = sorted((trial for trial in latest.values() if trial.status == OK), key=_cost)
    before, after = _default(summary, trials), _tuned(summary, ranked, working)
    level = drift_of(after) if isinstance(after, TrialRecord) else 1.0
    default, tuned = _timed(before, level), _timed(after, level)
    gain = interval = None
    if default is not None and tuned is not None:
        gain = default.median_ns / tuned.median_ns
        if isinstance(before, TrialRecord) and isinstance(after, TrialRecord):
            gain, interval = _gain(before, after)
    spent = [spent_of(trial) for trial in trials]
    return TaskView(
        digest=summary.task.digest,
        op=summary.task.op,
        words=words(summary.task.op, summary.task.problem),
        weight=weight,
        operations=tuple(operations),
        effort=summary.winner.effort if summary.winner else None,
        default=default,
        tuned=tuned,
        gain=gain,
        gain_interval=interval,
        attempts=tuple(
            Attempt(
                trial.status, level * _cost(trial) if trial.status == OK else None, batch_of(trial), sum(known.values())
            )
            for trial, known in zip(trials, spent, strict=True)
        ),
        best=tuple(timed for trial in ranked[:SHOWN] if (timed := _timed(trial, level))),
        parameters=_parameters(list(latest.values()), level),
        meanings=meanings(summary.task.op, summary.task.problem),
        failures=_failures(trials),
        spent_ns={phase: total for phase in PHASES if (total := math.fsum(known.get(phase, 0.0) for known in spent))},
        untold=sum(not known for known in spent),
        how=how_measured(trials, summary.validity.settings),
        roofline=None,
        last_change=day(summary.last_change),
    )


def day(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M UTC")


def work_of_task(summary: TaskSummary) -> Work | None:
    """The least that the task must do; None where today's families do not know it."""
    return work_of(summary.task.op, problem_of(summary.task.op, summary.task.problem))


def under_roof(work: Work, tuned_ns: float, roof: Roof) -> Roofline:
    """Where a kernel stands that does this work in this time."""
    ideal_ns = max(work.flops / roof.gflops if work.flops else 0.0, work.bytes / roof.gb_per_s)
    return Roofline(work.flops, work.bytes, work.flops / tuned_ns, work.bytes / tuned_ns, ideal_ns / tuned_ns)


def _cost(trial: TrialRecord) -> float:
    return (trial.median_ns or math.inf) / drift_of(trial)


def _gain(default: TrialRecord, tuned: TrialRecord) -> tuple[float, Interval]:
    """How many times as fast the tuned one is; sample by sample where both were in a race."""
    if batch_of(default) is not None and batch_of(default) == batch_of(tuned):
        before, after = default.samples_ns, tuned.samples_ns
        return statistics.median(paired(before, after)), paired_interval(before, after)
    over, under = _level(default), _level(tuned)
    return median_ratio(over, under), ratio_interval(over, under)


def _level(trial: TrialRecord) -> list[float]:
    """The samples as they would be on a device that is as fast as at first."""
    drift = drift_of(trial)
    return [sample / drift for sample in trial.samples_ns]


def _timed(found: TrialRecord | Timed | None, level: float) -> Timed | None:
    """A record as it would be on a device that is slower than at first by this much; what has no record as it is."""
    if not isinstance(found, TrialRecord):
        return found
    factor = level / drift_of(found)
    samples = [factor * sample for sample in found.samples_ns]
    return Timed(
        configuration=found.configuration,
        median_ns=level * _cost(found),
        samples_ns=tuple(samples),
        interval=median_interval(samples),
        compile_ns=found.compile_ns,
    )


def _find(
    median_ns: float, working: Sequence[TrialRecord], configuration: Mapping[str, int] | None
) -> TrialRecord | None:
    """The last measurement with this median, of this configuration where one is given."""
    for trial in reversed(working):
        same = trial.median_ns is not None and math.isclose(trial.median_ns, median_ns, rel_tol=1e-9)
        if same and configuration in (None, trial.configuration):
            return trial
    return None


def _default(summary: TaskSummary, trials: Sequence[TrialRecord]) -> TrialRecord | Timed | None:
    """The default configuration, which is measured first. Which one it was is not stored: it is told by its time."""
    first = trials[0].configuration if trials else {}
    working = [trial for trial in trials if trial.status == OK]
    if summary.winner is None:
        own = [trial for trial in working if trial.configuration == first]
        return own[-1] if own else None
    median_ns = summary.winner.default_ns
    if median_ns is None:
        return None
    return _find(median_ns, working, first) or _find(median_ns, working, None) or Timed({}, median_ns)


def _tuned(
    summary: TaskSummary, ranked: Sequence[TrialRecord], working: Sequence[TrialRecord]
) -> TrialRecord | Timed | None:
    """The winner; the fastest so far where the task is not concluded."""
    winner = summary.winner
    if winner is None:
        return ranked[0] if ranked else None
    found = _find(winner.median_ns, working, winner.configuration)
    return found or Timed(winner.configuration, winner.median_ns)


def _parameters(trials: Sequence[TrialRecord], level: float) -> dict[str, tuple[Value, ...]]:
    """By parameter, the best time with each of its values; parameters that were never varied are left out."""
    found: dict[str, dict[int, list[TrialRecord]]] = {}
    for trial in trials:
        for name, value in trial.configuration.items():
            found.setdefault(name, {}).setdefault(value, []).append(trial)
    return {
        name: tuple(
            Value(value, len(own), min((level * _cost(trial) for trial in own if trial.status == OK), default=None))
            for value, own in sorted(values.items())
        )
        for name, values in found.items()
        if len(values) > 1
    }


def _failures(trials: Sequence[TrialRecord]) -> tuple[Failure, ...]:
    counts = Counter(trial.status for trial in trials if trial.status != OK)
    examples = {trial.status: trial for trial in reversed(trials)}
    return tuple(
        Failure(status, count, examples[status].message, examples[status].configuration)
        for status, count in counts.most_common()
    )
