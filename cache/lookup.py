"""Gather in one record what a cache knows of a task.

The record includes measurements under other conditions than today's, and what has changed since.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any

from gputune.cache.key import TaskKey, Validity
from gputune.cache.record import RecordError, WinnerRecord, read_json
from gputune.core.statuses import STATUSES
from gputune.core.tier import Tier

THE_DEVICE = ("device_name", "compute_units", "vendor")
"""Fields that make a device the same one; what is known of another is no stale record but a seed."""


@dataclass(frozen=True)
class TaskSummary:
    """Hold what the file knows of one task under one validity."""

    task: TaskKey
    validity: Validity
    tier: Tier
    trials: dict[str, int]
    """Number of stored trials by status."""
    winner: WinnerRecord | None
    """None until the task is concluded."""
    last_change: datetime
    """UTC."""


@dataclass
class _Gathered:
    owner: Sequence[Any]  # task digest, task key, validity digest, validity key, tier, family, vendor
    trials: dict[Any, int] = field(default_factory=dict)
    winner: WinnerRecord | None = None
    times: list[Any] = field(default_factory=list)


def gather(
    owners: Iterable[Sequence[Any]], counts: Iterable[Sequence[Any]], winners: Iterable[Sequence[Any]]
) -> Iterator[_Gathered]:
    """Return those owners that have trials or a winner, with both.

    owners: (task, validity, *owner of _Gathered); counts: (task, validity, status, count, time); winners:
    (task, validity, time, WinnerRecord). task and validity are row numbers.
    """
    found = {(task, validity): _Gathered(owner) for task, validity, *owner in owners}
    for task, validity, status, count, stored_at in counts:
        if one := found.get((task, validity)):
            one.trials[status] = count
            one.times.append(stored_at)
    for task, validity, stored_at, winner in winners:
        if one := found.get((task, validity)):
            one.winner = winner
            one.times.append(stored_at)
    return (one for one in found.values() if one.times)


def summary_from_rows(rows: _Gathered) -> TaskSummary:
    """Return the checked summary. Raises RecordError."""
    task_digest, task_key, validity_digest, validity_key, *tier = rows.owner
    if not all(isinstance(name, str) for name in tier):
        raise RecordError(f"tier, family and vendor are {tier!r}, not text")
    try:
        task = TaskKey(**read_json(task_key, "task key"))
        validity = Validity(**read_json(validity_key, "validity key"))
        last_change = datetime.fromtimestamp(max(rows.times), UTC)
    except (TypeError, ValueError, OverflowError, OSError) as error:
        raise RecordError(str(error)) from error
    if (task.digest, validity.digest) != (task_digest, validity_digest):
        raise RecordError(f"the key of task {task_digest!r:.14} does not match its digest")
    if unknown := set(rows.trials) - set(STATUSES):
        raise RecordError(f"unknown status {unknown.pop()!r}")
    trials: dict[str, int] = {status: rows.trials[status] for status in STATUSES if status in rows.trials}
    return TaskSummary(task, validity, Tier(*tier), trials, rows.winner, last_change)


@dataclass(frozen=True)
class Change:
    """Give a reason to measure again: a field of Validity, and its values then and now."""

    field: str
    before: Any
    now: Any

    def __str__(self) -> str:
        return f"{self.field}: {_short(self.before)} -> {_short(self.now)}"


@dataclass(frozen=True)
class Earlier:
    """Hold what was found out about a task before.

    winner: the one on this device whose validity is nearest to today's, None where there is none; changes: in what that
    differs; origin: of which other devices a winner is known, where there is none of this one.
    """

    winner: WinnerRecord | None = None
    changes: tuple[Change, ...] = ()
    origin: str = ""


def changes(before: Validity, now: Validity) -> tuple[Change, ...]:
    """Return the fields in which two validities differ, settings one by one."""
    found = []
    for item in fields(Validity):
        old, new = getattr(before, item.name), getattr(now, item.name)
        if item.name == "settings":
            names = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
            found += [Change(f"settings.{name}", old.get(name), new.get(name)) for name in names]
        elif old != new:
            found.append(Change(item.name, old, new))
    return tuple(found)


def look_up(task: TaskKey, now: Validity, known: Iterable[TaskSummary]) -> Earlier:
    """Return what is known of a task whose measurements would have the validity `now`."""
    concluded = [summary for summary in known if summary.task == task and summary.winner is not None]
    here = [summary for summary in concluded if _same_device(summary.validity, now)]
    if here:
        nearest = min(here, key=lambda summary: len(changes(summary.validity, now)))
        return Earlier(nearest.winner, changes(nearest.validity, now))
    if concluded:
        devices = sorted({f"{s.validity.device_name}, {s.validity.compute_units} compute units" for s in concluded})
        return Earlier(origin=f"other devices: {'; '.join(devices)}")
    return Earlier()


def _same_device(one: Validity, other: Validity) -> bool:
    return all(getattr(one, name) == getattr(other, name) for name in THE_DEVICE)


def _short(value: Any) -> str:
    text = "nothing" if value is None else str(value)
    return text[:12] if len(text) == 64 and text.isalnum() else text  # a digest says as much by its start
