"""Define what a profile log holds. Times are ns; host times are readings of time.perf_counter_ns, others name their
clock.

A log describes graphs once. It then has a record for each inference: when it began and ended, the parts that the host
has stamped, and the timestamps of its launches by the device's clock, with the line that converts them to the host's.
Nothing in it is the difference of other parts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from gputune.core.json_text import canonical_json
from gputune.runtime.context.records import GraphRecord
from gputune.runtime.profiling.clocks import ClockFit

Times = npt.NDArray[np.int64]
Level = Literal["basic", "detailed", "qhas"]
LEVELS: tuple[Level, ...] = get_args(Level)
"""basic: whole inferences and their parts by the host's clock, in the form in which they usually run. detailed: also
when each launch started and ended, one by one. qhas: also when it was queued and submitted, counters and the state of
the device."""
SYNONYMS: Mapping[str, Level] = {"backend": "qhas", "linting": "qhas"}
"""What the original tools call the level that a backend fills."""

QUEUED, SUBMITTED, STARTED, ENDED = range(4)
"""The columns of launches' timestamps; those of level detailed are the last two of them."""

Form = Literal["launches", "persistent", "aborted"]
"""How an inference ran: launch by launch; by persistent kernels; begun by those, given up and ended by launches."""

INIT, FINALIZE, EXECUTE, NODE, QUEUE_WAIT, PREPROCESS, DEVICE, POSTPROCESS, DEINIT = (
    100,
    300,
    400,
    404,
    405,
    406,
    407,
    408,
    500,
)
"""Event identifiers that tools of others know."""


class Part(IntEnum):
    """What the host does in an inference; the numbers are those of logs."""

    HOST = 0
    """Checks and bookkeeping, before the first and behind the last step."""
    WRITE = 1
    """An input is copied to where launches read it, or its memory given to the device."""
    ENQUEUE = 2
    """Launches are given to the driver."""
    WAIT = 3
    """Until the device has finished."""
    READ = 4
    """An output is copied to the application, or its memory given back."""
    PROFILER = 5
    """The profiler reads timestamps in the middle of an inference with many launches."""


PART_KIND, PART_TENSOR, PART_BEGUN, PART_ENDED = range(4)
"""The columns of parts: which Part, the place of the tensor among inputs (write) or outputs (read) or -1, and when."""


@dataclass(frozen=True)
class LogHeader:
    """The beginning of a log. device: DeviceIdentity.to_dict(). begun_ns, begun_unix_ns: the same moment by the host's
    clock and by the calendar. settings: of the environment, those that change the driver's code or time. unavailable:
    counters that cannot be read here, with the reason of each."""

    level: Level
    software: str
    device: Mapping[str, Any]
    begun_ns: int
    begun_unix_ns: int
    settings: Mapping[str, str] = field(default_factory=dict)
    unavailable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class LoggedLaunch:
    """A launch of a graph: the operation that it belongs to, its task's digest, its kernel and sizes."""

    operation: str
    task: str
    entry: str
    global_size: tuple[int, ...]
    local_size: tuple[int, ...]


@dataclass(frozen=True)
class LoggedGraph:
    """A graph whose inferences follow. context: the name of its context or file; digest: of its launches, as a
    schematic has it; inputs, outputs: bytes by name; persistent: how many launches its persistent form has, 0 without
    one; load_ns: what loading it took. unmarked: why its launches have no times inside of persistent kernels, for a
    sentence; empty where they have, or there is nothing to say."""

    name: str
    context: str
    digest: str
    computes: bool
    launches: tuple[LoggedLaunch, ...]
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]
    arena_bytes: tuple[int, ...]
    persistent: int
    load_ns: int
    unmarked: str = ""


def no_times_inside(reason: str) -> str:
    """What there is to say of a graph that has persistent kernels and no marks of its launches."""
    return f"{reason}, so launches inside persistent kernels have no times of their own"


@dataclass(frozen=True)
class Span:
    """Something that took from one moment to another, such as a phase of a generation; a name with slashes lies within
    the one before the last of them. identifier: an event identifier such as INIT."""

    name: str
    identifier: int
    begun_ns: int
    ended_ns: int


@dataclass(frozen=True, eq=False)
class LoggedInference:
    """One inference. graph: its place among the log's graphs; number: from 0, of this graph; thread: the host's, by its
    number. parts: rows as PART_KIND and so on say. launches: a row of device times for each launch, in order, of two or
    four columns; none where it was not launch by launch, or at level basic. clock: from the device's to the host's.
    counters: what they grew by; preemptions: by thread number, how often the system took a processor from it;
    profiler_ns: what recording this took behind its end, when it delays only what comes next."""

    graph: int
    number: int
    thread: int
    form: Form
    begun_ns: int
    ended_ns: int
    parts: Times
    launches: Times
    clock: ClockFit | None = None
    counters: Mapping[str, int] = field(default_factory=dict)
    preemptions: Mapping[int, int] = field(default_factory=dict)
    observed: Mapping[str, float] = field(default_factory=dict)
    profiler_ns: int = 0

    @property
    def elapsed_ns(self) -> int:
        """The whole inference by the host's clock."""
        return self.ended_ns - self.begun_ns

    def took_ns(self) -> Times:
        """What each launch took, by the host's clock; nothing without timestamps."""
        times = self.launches_ns()
        return np.asarray(times[:, -1] - times[:, -2], np.int64)

    def launches_ns(self) -> Times:
        """The timestamps of launches by the host's clock, of the same shape."""
        return self.launches if self.clock is None else self.clock.to_host(self.launches)


@dataclass(frozen=True, eq=False)
class MarkedInference(LoggedInference):
    """One by persistent kernels that mark when each launch that they stand for began and ended: from the first group's
    beginning to the last group's end. They take a little more time than those without marks."""


@dataclass(frozen=True)
class StateSample:
    """What could be read of clocks, load and temperatures at a moment of the host's clock."""

    at_ns: int
    values: Mapping[str, float]


@dataclass(frozen=True)
class Comparison:
    """What profiling costs, by inferences that took turns: profiled, the same launches without a profiler, and as the
    graph usually runs (by persistent kernels where it has them). ns of each."""

    graph: int
    profiled_ns: tuple[int, ...]
    unprofiled_ns: tuple[int, ...]
    usual_ns: tuple[int, ...]
    usual_form: Form


def level_named(name: str) -> Level:
    """The level of a name, which may be one of the original tools'. Raises ValueError for another one."""
    for level in LEVELS:
        if name == level:
            return level
    if name not in SYNONYMS:
        raise ValueError(f"{name!r} is no profiling level; there are {', '.join([*LEVELS, *SYNONYMS])}")
    return SYNONYMS[name]


def logged_launches(graph: GraphRecord) -> tuple[LoggedLaunch, ...]:
    """What logs and schematics say of a graph's launches one by one."""
    return tuple(
        LoggedLaunch(each.operation, each.task, each.entry, each.global_size, each.local_size)
        for each in graph.launches
    )


def digest_of(launches: tuple[LoggedLaunch, ...]) -> str:
    """By which a log and a schematic of the same launches know each other."""
    rows = [[each.operation, each.task, each.entry, each.global_size, each.local_size] for each in launches]
    return hashlib.sha256(canonical_json(rows).encode()).hexdigest()
