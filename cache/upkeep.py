"""Find what a performance cache no longer needs, and compare two caches."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from gputune.cache.key import TaskKey
from gputune.cache.lookup import TaskSummary
from gputune.cache.record import WinnerRecord


def not_changed_for(summaries: Iterable[TaskSummary], days: float, now: datetime) -> list[TaskSummary]:
    """Return the tasks to which nothing was added for so many days."""
    return [summary for summary in summaries if summary.last_change < now - timedelta(days=days)]


def of_drivers(summaries: Iterable[TaskSummary], drivers: Iterable[str]) -> list[TaskSummary]:
    """Return the tasks that were measured with one of some drivers, by version."""
    wanted = set(drivers)
    return [summary for summary in summaries if summary.validity.driver_version in wanted]


def beyond_size(summaries: Sequence[TaskSummary], size_bytes: int, most_bytes: int) -> list[TaskSummary]:
    """Return the oldest ones that have to go from a file of `size_bytes` to make it one of at most `most_bytes`, by the
    share of its trials that they have."""
    trials = sum(_trials(summary) for summary in summaries)
    goes: list[TaskSummary] = []
    for summary in sorted(summaries, key=lambda one: one.last_change):
        if size_bytes <= most_bytes:
            break
        size_bytes -= size_bytes * _trials(summary) // max(trials, 1)
        trials -= _trials(summary)
        goes.append(summary)
    return goes


def _trials(summary: TaskSummary) -> int:
    return sum(summary.trials.values()) + 1  # a winner weighs something, too


@dataclass(frozen=True)
class Difference:
    """Name a task of which two caches know different winners; None where one knows none. `same_place`: both were found
    on the same device with the same driver, code and protocol."""

    task: TaskKey
    left: WinnerRecord | None
    right: WinnerRecord | None
    same_place: bool

    @property
    def same_choice(self) -> bool:
        return self.left is not None and self.right is not None and self.left.configuration == self.right.configuration


def differences(left: Iterable[TaskSummary], right: Iterable[TaskSummary]) -> list[Difference]:
    """Return every concluded task of either cache: choices and times side by side, first those from the same place."""
    ours, theirs = _concluded(left), _concluded(right)
    found = []
    for digest in dict.fromkeys([*ours, *theirs]):
        mine, other = ours.get(digest, {}), theirs.get(digest, {})
        both = mine.keys() & other.keys()
        places: list[tuple[str | None, str | None]] = [(place, place) for place in mine if place in both]
        if not places:
            places = [(next(iter(mine), None), next(iter(other), None))]
        for a, b in places:
            one, two = mine.get(a or ""), other.get(b or "")
            some = one or two
            assert some is not None
            found.append(Difference(some.task, one.winner if one else None, two.winner if two else None, a == b))
    return found


def _concluded(summaries: Iterable[TaskSummary]) -> dict[str, dict[str, TaskSummary]]:
    """Return task digest -> validity digest -> summary with a winner."""
    found: dict[str, dict[str, TaskSummary]] = {}
    for summary in summaries:
        if summary.winner is not None:
            found.setdefault(summary.task.digest, {})[summary.validity.digest] = summary
    return found
