"""What travels between files: all that one knows of a task under one validity, and when it was stored."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from gputune.cache.chain import ChainRecord
from gputune.cache.key import TaskKey, Validity
from gputune.cache.record import RecordError, TrialRecord, WinnerRecord, moment

EFFORTS = ("none", "quick", "normal", "full")
"""Tuning efforts, the more thorough ones later."""


@dataclass(frozen=True)
class Stored:
    """A trial and when it was stored: seconds since 1970, UTC."""

    trial: TrialRecord
    stored_at: float


@dataclass(frozen=True)
class Conclusion:
    """A winner and when it was stored: seconds since 1970, UTC."""

    winner: WinnerRecord
    stored_at: float

    @property
    def foundation(self) -> tuple[int, int, float]:
        """What tells which of two winners rests on more: the effort, then the number of trials, then the later one."""
        effort = EFFORTS.index(self.winner.effort) if self.winner.effort in EFFORTS else -1
        return effort, sum(self.winner.trials.values()), self.stored_at


@dataclass(frozen=True)
class Entry:
    """All trials of a task under one validity in order of arrival, and its winner where it is concluded."""

    task: TaskKey
    validity: Validity
    trials: tuple[Stored, ...]
    conclusion: Conclusion | None


@dataclass(frozen=True)
class Conflict:
    """Two files that know different winners of one task under one validity, and which of them stays."""

    task: TaskKey
    validity: Validity
    kept: WinnerRecord
    dropped: WinnerRecord


@dataclass
class Merged:
    """What taking entries in has changed. `known` counts trials that were there already."""

    trials: int = 0
    known: int = 0
    winners: int = 0
    chains: int = 0
    conflicts: list[Conflict] = field(default_factory=list)


@dataclass(frozen=True)
class Contents:
    """Everything that a file or an export holds; chains by their digest, each with the time at which it was stored."""

    entries: tuple[Entry, ...]
    chains: Mapping[str, tuple[ChainRecord, float]]


@dataclass(frozen=True)
class Origin:
    """Trials that were taken in together from `source`."""

    source: str
    trials: int
    taken_at: datetime


def origin_from_row(row: Sequence[Any]) -> Origin:
    """The origin of a row of source, number of trials, seconds since 1970. Raises RecordError."""
    source, trials, taken_at = row
    if not isinstance(source, str):
        raise RecordError(f"source is {source!r}, not text")
    return Origin(source, int(trials), datetime.fromtimestamp(moment(taken_at, "stored_at"), UTC))
