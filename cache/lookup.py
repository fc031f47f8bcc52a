"""What a cache knows of a task under other conditions than today's, and what has changed since."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from gputune.cache.key import TaskKey, Validity
from gputune.cache.record import WinnerRecord
from gputune.cache.summary import TaskSummary

THE_DEVICE = ("device_name", "compute_units", "vendor")
"""Fields that make a device the same one; what is known of another is no stale record but a seed."""


@dataclass(frozen=True)
class Change:
    """A reason to measure again: a field of Validity, and its values then and now."""

    field: str
    before: Any
    now: Any

    def __str__(self) -> str:
        return f"{self.field}: {_short(self.before)} -> {_short(self.now)}"


@dataclass(frozen=True)
class Earlier:
    """What was found out about a task before.

    winner: the one on this device whose validity is nearest to today's, None where there is none; changes: in what that
    differs; origin: of which other devices a winner is known, where there is none of this one.
    """

    winner: WinnerRecord | None = None
    changes: tuple[Change, ...] = ()
    origin: str = ""


def changes(before: Validity, now: Validity) -> tuple[Change, ...]:
    """The fields in which two validities differ, settings one by one."""
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
    """What is known of a task whose measurements would have the validity `now`."""
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
