"""Turn the records of one task into the values that a report shows."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from gputune.cache import TaskSummary, TrialRecord
from gputune.client.report.data import PHASES, Attempt, Failure, Roof, Roofline, TaskView, Timed, Value
from gputune.client.report.problems import meanings, problem_of, words, work_of
from gputune.client.report.reading import batch_of, drift_of, how_measured, resources_of, spent_of
from gputune.client.tuning.measuring.intervals import (
    Interval,
    median_interval,
    median_ratio,
    paired_interval,
    ratio_interval,
)
from gputune.core.statuses import OK
from gputune.kernels.family import Work
from gputune.kernels.space import configuration_key
from gputune.runtime.measuring.successive_halving import paired

SHOWN = 12
"""Configurations in a task's table; all of them are a command away, `gputune performance-cache show`."""


def task_view(
    summary: TaskSummary, trials: Sequence[TrialRecord], weight: int | None, operations: Sequence[str]
) -> TaskView:
    """Return a task, still without its place under the roof, which is known when all tasks are.

    A configuration has one time, wherever the page shows it: the default's and the tuned one's are those of the records
    that the gain is told by, any other's is that of its last measurement.
    """
    working = [trial for trial in trials if trial.status == OK]
    latest = {configuration_key(trial.configuration): trial for trial in trials}
    after = _tuned(summary, list(latest.values()), working)
    before = _default(summary, trials, after)
    level = _level_of(summary, after)
    default, tuned = _timed(before, level), _timed(after, level)
    times = _times(latest, [(before, default), (after, tuned)], level)
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
                trial.status,
                _time_ns(times, trial) if trial.status == OK else None,
                batch_of(trial),
                sum(known.values()),
            )
            for trial, known in zip(trials, spent, strict=True)
        ),
        best=tuple(sorted(times.values(), key=lambda timed: timed.median_ns)[:SHOWN]),
        parameters=_parameters(list(latest.values()), times),
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
    """Return the least that the task must do; None where today's families do not know it."""
    return work_of(summary.task.op, problem_of(summary.task.op, summary.task.problem))


def under_roof(work: Work, tuned_ns: float, roof: Roof) -> Roofline:
    """Return where a kernel stands that does this work in this time."""
    ideal_ns = max(work.flops / roof.gflops if work.flops else 0.0, work.bytes / roof.gb_per_s)
    return Roofline(work.flops, work.bytes, work.flops / tuned_ns, work.bytes / tuned_ns, ideal_ns / tuned_ns)


@dataclass(frozen=True)
class _Level:
    """How fast the device was when the tuned configuration was measured. The others of its `batch`, None for none, were
    sampled in turns with it, and their times compare as they are; what was measured at another drift is scaled."""

    drift: float = 1.0
    batch: int | None = None

    def factor(self, trial: TrialRecord) -> float:
        beside = self.batch is not None and batch_of(trial) == self.batch
        return 1.0 if beside else self.drift / drift_of(trial)

    def time_ns(self, trial: TrialRecord) -> float:
        return self.factor(trial) * (trial.median_ns or math.inf)


def _level_of(summary: TaskSummary, tuned: TrialRecord | Timed | None) -> _Level:
    if not isinstance(tuned, TrialRecord):
        return _Level()
    return _Level(drift_of(tuned), batch_of(tuned) if summary.winner is not None else None)


def _gain(default: TrialRecord, tuned: TrialRecord) -> tuple[float, Interval]:
    """Return how many times as fast the tuned one is; sample by sample where both were measured side by side."""
    if batch_of(default) is not None and batch_of(default) == batch_of(tuned):
        before, after = default.samples_ns, tuned.samples_ns
        return statistics.median(paired(before, after)), paired_interval(before, after)
    over, under = ([sample / drift_of(trial) for sample in trial.samples_ns] for trial in (default, tuned))
    return median_ratio(over, under), ratio_interval(over, under)


def _timed(found: TrialRecord | Timed | None, level: _Level) -> Timed | None:
    """Return a record on this level of the device; what has no record as it is."""
    if not isinstance(found, TrialRecord):
        return found
    samples = [level.factor(found) * sample for sample in found.samples_ns]
    return Timed(
        configuration=found.configuration,
        median_ns=level.time_ns(found),
        samples_ns=tuple(samples),
        interval=median_interval(samples),
        compile_ns=found.compile_ns,
        resources=resources_of(found),
    )


def _times(
    latest: Mapping[str, TrialRecord],
    compared: Sequence[tuple[TrialRecord | Timed | None, Timed | None]],
    level: _Level,
) -> dict[str, Timed]:
    """Return the time of each configuration that works, by its key. compared: records that stand for theirs, with their
    times; what has no record among the trials is left out."""
    last = {key: _timed(trial, level) for key, trial in latest.items() if trial.status == OK}
    own = {configuration_key(found.configuration): timed for found, timed in compared if isinstance(found, TrialRecord)}
    return {key: timed for key, timed in (last | own).items() if timed is not None}


def _time_ns(times: Mapping[str, Timed], trial: TrialRecord) -> float | None:
    """Return the time of the trial's configuration; None where that does not work."""
    found = times.get(configuration_key(trial.configuration))
    return None if found is None else found.median_ns


def _find(median_ns: float, working: Sequence[TrialRecord], configuration: Mapping[str, int]) -> TrialRecord | None:
    """Return the last measurement of this configuration with this median."""
    for trial in reversed(working):
        same = trial.median_ns is not None and math.isclose(trial.median_ns, median_ns, rel_tol=1e-9)
        if same and configuration == trial.configuration:
            return trial
    return None


def _default(
    summary: TaskSummary, trials: Sequence[TrialRecord], tuned: TrialRecord | Timed | None
) -> TrialRecord | Timed | None:
    """Return the default configuration, which is measured first, where possible as it was beside the tuned one."""
    winner = summary.winner
    if winner is not None and winner.default_ns is None:
        return None
    if tuned is not None and trials and trials[0].configuration == tuned.configuration:
        return tuned
    own = [trial for trial in trials if trial.status == OK and trial.configuration == trials[0].configuration]
    batch = batch_of(tuned) if isinstance(tuned, TrialRecord) else None
    beside = [trial for trial in own if batch is not None and batch_of(trial) == batch]
    if beside or own:
        return (beside or own)[-1]
    return None if winner is None or winner.default_ns is None else Timed({}, winner.default_ns)


def _tuned(
    summary: TaskSummary, latest: Sequence[TrialRecord], working: Sequence[TrialRecord]
) -> TrialRecord | Timed | None:
    """Return the winner; the fastest so far where the task is not concluded."""
    winner = summary.winner
    if winner is None:
        return min((trial for trial in latest if trial.status == OK), key=_Level().time_ns, default=None)
    found = _find(winner.median_ns, working, winner.configuration)
    return found or Timed(winner.configuration, winner.median_ns)


def _parameters(trials: Sequence[TrialRecord], times: Mapping[str, Timed]) -> dict[str, tuple[Value, ...]]:
    """By parameter, the best time with each of its values; parameters that were never varied are left out."""
    found: dict[str, dict[int, list[TrialRecord]]] = {}
    for trial in trials:
        for name, value in trial.configuration.items():
            found.setdefault(name, {}).setdefault(value, []).append(trial)
    return {
        name: tuple(_value(value, own, times) for value, own in sorted(values.items()))
        for name, values in found.items()
        if len(values) > 1
    }


def _value(value: int, trials: Sequence[TrialRecord], times: Mapping[str, Timed]) -> Value:
    known = [time_ns for trial in trials if (time_ns := _time_ns(times, trial)) is not None]
    return Value(value, len(trials), min(known, default=None))


def _failures(trials: Sequence[TrialRecord]) -> tuple[Failure, ...]:
    counts = Counter(trial.status for trial in trials if trial.status != OK)
    examples = {trial.status: trial for trial in reversed(trials)}
    return tuple(
        Failure(status, count, examples[status].message, examples[status].configuration)
        for status, count in counts.most_common()
    )
