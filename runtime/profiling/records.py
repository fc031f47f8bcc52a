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
from typing import Annotated, Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from gputune.core.bounds import Amount, CText, Stored, Within, in_files
from gputune.core.json_text import canonical_json
from gputune.runtime.context.records import GraphRecord
from gputune.runtime.profiling.clocks import MOST_PPB, ClockFit, Method
from gputune.runtime.profiling.levels import Level

Times = npt.NDArray[np.int64]

QUEUED, SUBMITTED, STARTED, ENDED = range(4)
"""The columns of launches' timestamps; those of level detailed are the last two of them."""

Form = Literal["launches", "recorded", "persistent", "aborted"]
"""How an inference ran: launch by launch; by launches that were recorded and enqueued at once; by persistent kernels;
begun by those, given up and ended by launches."""

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


class HostPart(IntEnum):
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
"""The columns of parts: a HostPart, the place of the tensor among inputs (write) or outputs (read) or -1, and when."""


END_NS = 1 << 60
"""No moment of the host's clock is as late, which is 36 years."""
DEVICE_END_NS = 1 << 62
"""The same of the device's, which may count from any year; sums and differences of two fit into 64 bits."""


def _times(data: bytes) -> Times:
    """Timestamps as they lie in a record."""
    if len(data) % 8:
        raise ValueError(f"{len(data)} bytes are no 64-bit integers")
    times = np.frombuffer(data, "<i8").astype(np.int64, copy=False)
    if times.size and (times.min() <= -DEVICE_END_NS or times.max() >= DEVICE_END_NS):
        raise ValueError("it has impossible timestamps")
    return times


def _parts(data: bytes) -> Times:
    parts = _times(data)
    if parts.size % 4:
        raise ValueError(f"{parts.size} numbers are no parts of an inference")
    return parts.reshape(-1, 4)


def _clock(items: tuple[Any, ...]) -> ClockFit | None:
    if not items:
        return None
    if len(items) != 5 or not all(type(each) is int and abs(each) < DEVICE_END_NS for each in items[:4]):
        raise ValueError("a clock is four numbers and a method")
    at_ns, offset_ns, rate_ppb, bound_ns, method = items
    if abs(rate_ppb) > MOST_PPB or bound_ns < 0 or method not in get_args(Method):
        raise ValueError(f"a clock with an impossible rate ({rate_ppb} ppb) or bound ({bound_ns} ns)")
    return ClockFit(at_ns, offset_ns, rate_ppb, bound_ns, method)


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value)[:1000] for name, value in values.items()}


Moment = Annotated[int, Within(0, END_NS - 1)]
Texts = Annotated[Mapping[str, str], Stored(dict[str, Any], _texts)]


@in_files()
@dataclass(frozen=True)
class LogHeader:
    """The beginning of a log. device: DeviceIdentity.to_dict(). begun_ns, begun_unix_ns: the same moment by the host's
    clock and by the calendar. settings: of the environment, those that change the driver's code or time. unavailable:
    counters that cannot be read here, with the reason of each."""

    level: Level
    software: CText
    device: Mapping[str, Any]
    begun_ns: Amount
    begun_unix_ns: Amount
    settings: Texts = field(default_factory=dict)
    unavailable: Texts = field(default_factory=dict)


@in_files()
@dataclass(frozen=True)
class LoggedLaunch:
    """A launch of a graph: the operation that it belongs to, its task's digest, its kernel and sizes."""

    operation: CText
    task: CText
    entry: CText
    global_size: tuple[Amount, ...]
    local_size: tuple[Amount, ...]


@in_files("unmarked", "state_bytes")
@dataclass(frozen=True)
class LoggedGraph:
    """A graph whose inferences follow. context: the name of its context or file; digest: of its launches, as a
    schematic has it; inputs, outputs: bytes by name; persistent: how many launches its persistent form has, 0 without
    one; load_ns: what loading it took. unmarked: why its launches have no times inside of persistent kernels, for a
    sentence; empty where they have, or there is nothing to say. state_bytes: of device memory, of each state; 0 of a
    graph that remembers nothing."""

    name: CText
    context: CText
    digest: CText
    computes: bool
    launches: tuple[LoggedLaunch, ...]
    inputs: Mapping[str, Amount]
    outputs: Mapping[str, Amount]
    arena_bytes: tuple[Amount, ...]
    persistent: Amount
    load_ns: Amount
    unmarked: CText = ""
    state_bytes: Amount = 0


def no_times_inside(reason: str) -> str:
    """Return what there is to say of a graph that has persistent kernels and no marks of its launches."""
    return f"there are no times of launches inside persistent kernels: {reason}"


@in_files()
@dataclass(frozen=True)
class Span:
    """Something that took from one moment to another, such as a phase of a generation; a name with slashes lies within
    the one before the last of them. identifier: an event identifier such as INIT."""

    name: CText
    identifier: Amount
    begun_ns: Moment
    ended_ns: Moment


@in_files()
@dataclass(frozen=True, eq=False)
class LoggedInference:
    """One inference. graph: its place among the log's graphs; number: from 0, of this graph; thread: the host's, by its
    number. parts: rows as PART_KIND and so on say. launches: a row of device times for each launch, in order, of two or
    four columns; none where it was not launch by launch, or at level basic. clock: from the device's to the host's.
    counters: what they grew by; preemptions: by thread number, how often the system took a processor from it;
    profiler_ns: what recording this took behind its end, when it delays only what comes next."""

    graph: Amount
    number: Amount
    thread: Amount
    form: Form
    begun_ns: Moment
    ended_ns: Moment
    parts: Annotated[Times, Stored(bytes, _parts)]
    launches: Annotated[Times, Stored(bytes, _times)]
    clock: Annotated[ClockFit | None, Stored(tuple[Any, ...], _clock)] = None
    counters: Mapping[str, Amount] = field(default_factory=dict)
    preemptions: Annotated[Mapping[int, int], Stored(tuple[tuple[Amount, Amount], ...], dict)] = field(
        default_factory=dict
    )
    observed: Mapping[str, float] = field(default_factory=dict)
    profiler_ns: Amount = 0

    @property
    def elapsed_ns(self) -> int:
        """The whole inference by the host's clock."""
        return self.ended_ns - self.begun_ns

    def took_ns(self) -> Times:
        """Return what each launch took, by the host's clock; nothing without timestamps."""
        times = self.launches_ns()
        return np.asarray(times[:, -1] - times[:, -2], np.int64)

    def launches_ns(self) -> Times:
        """Return the timestamps of launches by the host's clock, of the same shape."""
        return self.launches if self.clock is None else self.clock.to_host(self.launches)


@dataclass(frozen=True, eq=False)
class MarkedInference(LoggedInference):
    """One by persistent kernels that mark when each launch that they stand for began and ended: from the first group's
    beginning to the last group's end. They take a little more time than those without marks."""


@in_files()
@dataclass(frozen=True)
class StateSample:
    """What could be read of clocks, load and temperatures at a moment of the host's clock."""

    at_ns: Amount
    values: Mapping[str, float]


@in_files()
@dataclass(frozen=True)
class Comparison:
    """What profiling costs, by inferences that took turns: profiled, the same launches without a profiler, and as the
    graph usually runs (by persistent kernels where it has them). ns of each."""

    graph: Amount
    profiled_ns: tuple[Amount, ...]
    unprofiled_ns: tuple[Amount, ...]
    usual_ns: tuple[Amount, ...]
    usual_form: Form


def logged_launches(graph: GraphRecord) -> tuple[LoggedLaunch, ...]:
    """Return what logs and schematics say of a graph's launches one by one."""
    return tuple(
        LoggedLaunch(each.operation, each.task, each.entry, each.global_size, each.local_size)
        for each in graph.launches
    )


def digest_of(launches: tuple[LoggedLaunch, ...]) -> str:
    """By which a log and a schematic of the same launches know each other."""
    rows = [[each.operation, each.task, each.entry, each.global_size, each.local_size] for each in launches]
    return hashlib.sha256(canonical_json(rows).encode()).hexdigest()
