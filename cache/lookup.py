"""Why a task has to be measured, or has not: what a cache knows of it, and what has changed since."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from gputune.cache.key import TaskKey, Validity
from gputune.cache.record import WinnerRecord
from gputune.cache.summary import TaskSummary

Kind = Literal["hit", "stale", "seeded", "new"]
KINDS: tuple[Kind, ...] = ("hit", "stale", "seeded", "new")

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
class Verdict:
    """What a cache says of a task.

    kind: "hit" (concluded under today's validity), "stale" (concluded on this device, but under another validity;
    `changes` says what is different from the nearest), "seeded" (known from other devices, or not concluded: `origin`
    says from where), "new". winner: of the hit or of the stale record.
    """

    kind: Kind
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


def look_up(task: TaskKey, now: Validity, known: Iterable[TaskSummary]) -> Verdict:
    """The verdict on a task whose measurements would have the validity `now`."""
    same = [summary for summary in known if summary.task == task]
    concluded = [summary for summary in same if summary.winner is not None]
    for summary in concluded:
        if summary.validity == now:
            return Verdict("hit", summary.winner)
    here = [summary for summary in concluded if _same_device(summary.validity, now)]
    if here:
        nearest = min(here, key=lambda summary: len(changes(summary.validity, now)))
        return Verdict("stale", nearest.winner, changes(nearest.validity, now))
    if concluded:
        devices = sorted({f"{s.validity.device_name}, {s.validity.compute_units} compute units" for s in concluded})
        return Verdict("seeded", origin=f"other devices: {'; '.join(devices)}")
    if any(summary.validity == now for summary in same):
        return Verdict("seeded", origin="its own trials: it was begun and not finished")
    return Verdict("new")


def describe(verdict: Verdict) -> str:
    """Why a task has to be measured, in a few words."""
    if verdict.changes:
        return "; ".join(map(str, verdict.changes))
    return f"known from {verdict.origin}" if verdict.origin else "new" if verdict.kind == "new" else "not tuned enough"


def counts(verdicts: Iterable[Verdict]) -> Mapping[Kind, int]:
    """How many verdicts there are of each kind."""
    found = [verdict.kind for verdict in verdicts]
    return {kind: found.count(kind) for kind in KINDS}


def _same_device(one: Validity, other: Validity) -> bool:
    return all(getattr(one, name) == getattr(other, name) for name in THE_DEVICE)


def _short(value: Any) -> str:
    text = "nothing" if value is None else str(value)
    return text[:12] if len(text) == 64 and text.isalnum() else text  # a digest says as much by its start
