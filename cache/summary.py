"""A task of the store in one record, gathered from the rows of its tables."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from gputune.cache.key import TaskKey, Validity
from gputune.cache.record import RecordError, WinnerRecord, read_json
from gputune.cache.tier import Tier
from gputune.core.statuses import STATUSES


@dataclass(frozen=True)
class TaskSummary:
    """What the file knows of one task under one validity."""

    task: TaskKey
    validity: Validity
    tier: Tier
    trials: dict[str, int]
    """Number of stored trials by status."""
    winner: WinnerRecord | None
    """None until the task is concluded; without its binary, which a summary does not load."""
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
    """Those owners that have trials or a winner, with both.

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
    """The checked summary. Raises RecordError."""
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
        raise RecordError(f"the key of task {task_digest!r:.14} does not have its digest")
    if unknown := set(rows.trials) - set(STATUSES):
        raise RecordError(f"unknown status {unknown.pop()!r}")
    trials: dict[str, int] = {status: rows.trials[status] for status in STATUSES if status in rows.trials}
    return TaskSummary(task, validity, Tier(*tier), trials, rows.winner, last_change)
