"""Define what is remembered: trials and winners of tasks, and choices for whole models.

The module also defines how records lie in rows of the store, and how they travel between files. A record checks itself
when it is made, so the same rules hold for what is written and for what is read back.
"""

import math
import re
import statistics
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from gputune.cache.key import TaskKey, Validity
from gputune.core.json_text import DEEPEST, canonical_json, json_value
from gputune.core.statuses import OK, STATUSES

EFFORTS = ("none", "quick", "normal", "full")
"""Tuning efforts, the more thorough ones later."""

PLACES = "validities"
"""The key of `measured` that holds the digests of the validities of the tasks: where the contexts were compared."""

DEEPEST_CELL = DEEPEST - 5
"""Levels of a JSON value in a record. It lies in a trial of a list in an entry of a list in an export."""

LAST_MOMENT = datetime.max.replace(tzinfo=UTC).timestamp() - 1


class RecordError(ValueError):
    """Report a trial or winner with impossible contents; the text names the field."""


@dataclass(frozen=True)
class TrialRecord:
    """Hold one measurement of one configuration. Raises RecordError for impossible contents.

    Median, minimum and spread may be left out: they are then taken from the samples. A failed trial has
    neither samples nor statistics unless it was measured before it failed.
    """

    configuration: Mapping[str, int]
    """Parameter name -> value."""
    status: str
    """One of STATUSES."""
    samples_ns: Sequence[float] = ()
    """Every sample: nanoseconds of one execution, in the order taken."""
    median_ns: float | None = None
    minimum_ns: float | None = None
    spread: float | None = None
    """(largest - smallest sample) / median, a share of 1."""
    compile_ns: float | None = None
    """Building the variant, its first launch included; None where it was not built."""
    message: str = ""
    """Why it failed, in one line; empty for "ok"."""
    measured: Mapping[str, Any] = field(default_factory=dict)
    """How it was measured, and what the kernels take (core/resources.py), as plain JSON values."""
    rendered_sha256: str = ""
    """Identity of the launches, prepare and main, that the configuration rendered to when it was measured."""

    def __post_init__(self) -> None:
        _set(self, "configuration", _configuration(self.configuration))
        if self.status not in STATUSES:
            raise RecordError(f"status is {self.status!r}, not one of {', '.join(STATUSES)}")
        _set(self, "samples_ns", tuple(positive(value, "samples_ns") for value in self.samples_ns))
        if self.samples_ns:
            smallest, largest = min(self.samples_ns), max(self.samples_ns)
            median = statistics.median(self.samples_ns)
            self._check_or_fill("median_ns", median)
            self._check_or_fill("minimum_ns", smallest)
            self._check_or_fill("spread", (largest - smallest) / median, compare=False)
        elif self.status == OK:
            raise RecordError('samples_ns is empty, but status is "ok"')
        elif (self.median_ns, self.minimum_ns, self.spread) != (None, None, None):
            raise RecordError("statistics without samples_ns")
        if self.compile_ns is not None:
            _set(self, "compile_ns", finite(self.compile_ns, "compile_ns"))
        _text(self.message, "message")
        _set(self, "measured", plain_object(self.measured, "measured"))
        _digest(self.rendered_sha256, "rendered_sha256")

    def _check_or_fill(self, name: str, value: float, compare: bool = True) -> None:
        given = getattr(self, name)
        if given is None:
            _set(self, name, value)
            return
        _set(self, name, finite(given, name))
        if compare and not math.isclose(given, value, rel_tol=1e-6):
            raise RecordError(f"{name} is {given!r}, but the samples give {value!r}")


@dataclass(frozen=True)
class WinnerRecord:
    """Hold the outcome of tuning one task. Raises RecordError for impossible contents."""

    configuration: Mapping[str, int]
    """The fastest verified configuration: parameter name -> value."""
    median_ns: float
    """Its time: the tuned_ns of summaries."""
    default_ns: float | None
    """Time of the default configuration as it would be while the winner was measured; None where it failed."""
    effort: str
    """The tuning effort that was spent, as the tuner names it."""
    trials: Mapping[str, int] = field(default_factory=dict)
    """Number of trials by status."""
    rendered_sha256: str = ""
    """As in TrialRecord."""

    def __post_init__(self) -> None:
        _set(self, "configuration", _configuration(self.configuration))
        _set(self, "median_ns", positive(self.median_ns, "median_ns"))
        if self.default_ns is not None:
            _set(self, "default_ns", positive(self.default_ns, "default_ns"))
        _text(self.effort, "effort")
        _set(self, "trials", _counts(self.trials))
        _digest(self.rendered_sha256, "rendered_sha256")


@dataclass(frozen=True)
class ChainRecord:
    """Hold what contexts of a model, compared on the device, have led to. Raises RecordError for impossible
    contents."""

    winners: Mapping[str, WinnerRecord]
    """By task digest, what takes the place of the task's own winner."""
    times_ns: Mapping[str, float]
    """By task digest, the times by which it was decided what is fused; empty where nothing is."""
    launch_ns: float
    """What a launch costs beside the time of its kernel."""
    measured: Mapping[str, Any] = field(default_factory=dict)
    """What was compared and what it gained, as plain JSON values."""

    def __post_init__(self) -> None:
        times = {task: positive(time, "times_ns") for task, time in plain_object(self.times_ns, "times_ns").items()}
        _set(self, "times_ns", times)
        _set(self, "launch_ns", finite(self.launch_ns, "launch_ns"))
        _set(self, "measured", plain_object(self.measured, "measured"))


def trial_to_row(trial: TrialRecord) -> tuple[Any, ...]:
    """Return column values in the order of TRIAL_COLUMNS."""
    samples = struct.pack(f"<{len(trial.samples_ns)}d", *trial.samples_ns)
    return (canonical_json(trial.configuration), trial.status, samples, trial.median_ns, trial.minimum_ns,
            trial.spread, trial.compile_ns, trial.message, canonical_json(trial.measured),
            trial.rendered_sha256)  # fmt: skip


TRIAL_COLUMNS = (
    "configuration", "status", "samples_ns", "median_ns", "minimum_ns", "spread", "compile_ns", "message",
    "measured", "rendered_sha256",
)  # fmt: skip


def trial_from_row(row: Sequence[Any]) -> TrialRecord:
    """Return the trial of a row of TRIAL_COLUMNS. Raises RecordError."""
    samples = row[TRIAL_COLUMNS.index("samples_ns")]
    if not isinstance(samples, bytes) or len(samples) % 8:
        raise RecordError("samples_ns is not a row of 8-byte numbers")
    fields = _fields(TRIAL_COLUMNS, row, "configuration", "measured")
    return TrialRecord(**fields | {"samples_ns": struct.unpack(f"<{len(samples) // 8}d", samples)})


WINNER_COLUMNS = ("configuration", "median_ns", "default_ns", "effort", "trials", "rendered_sha256")


def winner_to_row(winner: WinnerRecord) -> tuple[Any, ...]:
    """Return column values in the order of WINNER_COLUMNS."""
    return (canonical_json(winner.configuration), winner.median_ns, winner.default_ns, winner.effort,
            canonical_json(winner.trials), winner.rendered_sha256)  # fmt: skip


def winner_from_row(row: Sequence[Any]) -> WinnerRecord:
    """Return the winner of a row of WINNER_COLUMNS. Raises RecordError."""
    return WinnerRecord(**_fields(WINNER_COLUMNS, row, "configuration", "trials"))


CHAIN_COLUMNS = ("times_ns", "launch_ns", "measured")


def chain_to_row(chain: ChainRecord) -> tuple[Any, ...]:
    """Return column values in the order of CHAIN_COLUMNS; the winners have rows of their own."""
    return canonical_json(chain.times_ns), chain.launch_ns, canonical_json(chain.measured)


def chain_from_rows(row: Sequence[Any], winners: Iterable[Sequence[Any]]) -> ChainRecord:
    """Return the record of a row of CHAIN_COLUMNS and of rows of a task's digest and WINNER_COLUMNS. Raises
    RecordError."""
    by_task: dict[str, WinnerRecord] = {}
    for task, *winner in winners:
        if not isinstance(task, str):
            raise RecordError(f"task is {task!r}, not a digest")
        by_task[task] = winner_from_row(winner)
    return ChainRecord(by_task, **_fields(CHAIN_COLUMNS, row, "times_ns", "measured"))


def _fields(columns: Sequence[str], row: Sequence[Any], *json: str) -> dict[str, Any]:
    """Return the values of a row by their columns, those of some read as JSON. Raises RecordError."""
    found = dict(zip(columns, row, strict=True))
    return found | {name: read_json(found[name], name) for name in json}


@dataclass(frozen=True)
class Stored:
    """Hold a trial and when it was stored: seconds since 1970, UTC."""

    trial: TrialRecord
    stored_at: float


@dataclass(frozen=True)
class Conclusion:
    """Hold a winner and when it was stored: seconds since 1970, UTC."""

    winner: WinnerRecord
    stored_at: float

    @property
    def foundation(self) -> tuple[int, int, float]:
        """Return what tells which of two winners rests on more: the effort, then the number of trials, then the later
        one."""
        effort = EFFORTS.index(self.winner.effort) if self.winner.effort in EFFORTS else -1
        return effort, sum(self.winner.trials.values()), self.stored_at


@dataclass(frozen=True)
class Entry:
    """Hold all trials of a task under one validity in order of arrival, and its winner where it is concluded."""

    task: TaskKey
    validity: Validity
    trials: tuple[Stored, ...]
    conclusion: Conclusion | None


@dataclass(frozen=True)
class Conflict:
    """Name two files that know different winners of one task under one validity, and which of them stays."""

    task: TaskKey
    validity: Validity
    kept: WinnerRecord
    dropped: WinnerRecord


@dataclass
class Merged:
    """Tell what taking entries in has changed. `known` counts trials that were there already."""

    trials: int = 0
    known: int = 0
    winners: int = 0
    chains: int = 0
    conflicts: list[Conflict] = field(default_factory=list)


@dataclass(frozen=True)
class Contents:
    """Hold everything that a file or an export holds; chains by their digest, each with the time at which it was
    stored."""

    entries: tuple[Entry, ...]
    chains: Mapping[str, tuple[ChainRecord, float]]


@dataclass(frozen=True)
class Origin:
    """Hold trials that were taken in together from `source`."""

    source: str
    trials: int
    taken_at: datetime


def origin_from_row(row: Sequence[Any]) -> Origin:
    """Return the origin of a row of source, number of trials, seconds since 1970. Raises RecordError."""
    source, trials, taken_at = row
    if not isinstance(source, str):
        raise RecordError(f"source is {source!r}, not text")
    return Origin(source, int(trials), datetime.fromtimestamp(moment(taken_at, "stored_at"), UTC))


def read_json(text: Any, name: str) -> Any:
    """Return the value of a JSON text that came from a disk. Raises RecordError."""
    try:
        return json_value(_text(text, name), DEEPEST_CELL)
    except ValueError as error:
        raise RecordError(f"{name} is not JSON: {error}") from error


def _set(record: object, name: str, value: object) -> None:
    object.__setattr__(record, name, value)


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise RecordError(f"{name} is {value!r}, not text")
    if not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
        raise RecordError(f"{name} has half of a surrogate pair, which no file can hold")
    return value


def _digest(value: Any, name: str) -> None:
    if not isinstance(value, str) or not re.fullmatch(r"(?:[0-9a-f]{64})?", value):
        raise RecordError(f"{name} is {value!r}, neither 64 hexadecimal digits nor empty")


def finite(value: Any, name: str) -> float:
    """Return a number that is not negative. Raises RecordError."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise RecordError(f"{name} is {value!r}, not a finite number of at least 0")
    return float(value)


def moment(value: Any, name: str) -> float:
    """Return seconds since 1970 that a calendar has a day for. Raises RecordError."""
    seconds = finite(value, name)
    if seconds > LAST_MOMENT:
        raise RecordError(f"{name} is {value!r}, seconds until after the year 9999")
    return seconds


def positive(value: Any, name: str) -> float:
    """Return a number above 0. Raises RecordError."""
    number = finite(value, name)
    if number == 0:
        raise RecordError(f"{name} is 0; a time is above 0")
    return number


def plain_object(value: Any, name: str) -> dict[str, Any]:
    """Return a mapping as plain JSON values. Raises RecordError."""
    if not isinstance(value, Mapping):
        raise RecordError(f"{name} is {value!r}, not an object")
    try:
        plain: dict[str, Any] = json_value(canonical_json(value), DEEPEST_CELL)
    except (TypeError, ValueError, RecursionError) as error:
        raise RecordError(f"{name}: {error}") from error
    return plain


def _configuration(value: Any) -> dict[str, int]:
    plain = plain_object(value, "configuration")
    for name, number in plain.items():
        if type(number) is not int:
            raise RecordError(f"configuration has {name} = {number!r}, not an integer")
    return plain


def _counts(value: Any) -> dict[str, int]:
    plain = plain_object(value, "trials")
    for status, number in plain.items():
        if status not in STATUSES or type(number) is not int or number < 0:
            raise RecordError(f"trials has {status!r}: {number!r}, not a known status and its count")
    return plain
