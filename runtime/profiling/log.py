"""Write and read profile logs: a stream of MsgPack arrays [kind, fields], whole up to wherever it was cut off.

The first array is ["gputune-profile", ...], a LogHeader with the version of this form. Then follow, in any order but
each graph before its inferences, "graph", "span", "inference", "marked" (a MarkedInference), "state" and "comparison",
and at the end of a log that was closed "end". Timestamps are blocks of little-endian 64-bit integers, so that a million
of them are read at once. Each record is written as soon as it exists, so a killed process loses at most the inference
that it was in. A log from a target comes as the same bytes.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, get_args

import msgpack
import numpy as np

from gputune.core.errors import MalformedLog, shortened
from gputune.core.files import open_file
from gputune.core.identity import is_count
from gputune.core.opened import Closing
from gputune.runtime.context.records import Fields
from gputune.runtime.profiling.clocks import MOST_PPB, ClockFit, Method
from gputune.runtime.profiling.records import (
    LEVELS,
    PART_BEGUN,
    PART_ENDED,
    PART_KIND,
    Comparison,
    Form,
    LoggedGraph,
    LoggedInference,
    LoggedLaunch,
    LogHeader,
    MarkedInference,
    Part,
    Span,
    StateSample,
    Times,
)

KIND = "gputune-profile"
VERSION = 1
LOG_NAME = "gputune-profiling-data.log"
LARGEST_RECORD_BYTES = 1 << 28
END_NS = 1 << 60
"""No moment of the host's clock is as late, which is 36 years."""
LONGEST_NS = 1 << 50
"""Of an inference and of its launches together, which is 13 days: sums of thousands fit into 64 bits."""
DEVICE_END_NS = 1 << 62
"""The same of the device's, which may count from any year; sums and differences of two fit into 64 bits."""
_RECORDS: Mapping[type, str] = {
    LoggedGraph: "graph",
    Span: "span",
    LoggedInference: "inference",
    MarkedInference: "marked",
    StateSample: "state",
    Comparison: "comparison",
}
Inference = TypeVar("Inference", bound=LoggedInference)
Record = LoggedGraph | Span | LoggedInference | StateSample | Comparison


class LogWriter(Closing):
    """Writes a log, record by record; several threads may. `with` and close() end it."""

    def __init__(self, stream: BinaryIO, header: LogHeader) -> None:
        """Writes the header. Raises OSError."""
        self._stream = stream
        self._lock = threading.Lock()
        self._graphs = 0
        self._ended = False
        self._write(KIND, {"version": VERSION, **_plain(header)})

    def add_graph(self, graph: LoggedGraph) -> int:
        """Describes a graph; its place, which its inferences name. Raises OSError; ValueError for a log that has
        ended."""
        with self._lock:
            if self._ended:
                raise ValueError("the profile log has ended; a new profiler writes a new one")
            self._write("graph", _plain(graph))
            self._graphs += 1
            return self._graphs - 1

    def add(self, record: Record) -> None:
        """Writes a record, unless the log has ended meanwhile. Raises OSError."""
        content = _plain(record)
        with self._lock:
            if not self._ended:
                self._write(_RECORDS[type(record)], content)

    def end(self) -> None:
        """Says that nothing is missing. Doing so again does nothing. Raises OSError."""
        with self._lock:
            if not self._ended:
                self._ended = True
                self._write("end", {})

    def close(self) -> None:
        """Ends the log and closes the stream. Raises OSError."""
        try:
            self.end()
        finally:
            self._stream.close()

    def _write(self, kind: str, content: Mapping[str, Any]) -> None:
        self._stream.write(msgpack.packb([kind, content]))
        self._stream.flush()  # what was measured survives this process


@dataclass
class Log:
    """A log that was read. inferences: in the order in which they were written; marked: others, which are not among
    them; complete: whether it ends as a log that was closed does; else the last record may be missing."""

    path: str
    header: LogHeader
    graphs: list[LoggedGraph] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    inferences: list[LoggedInference] = field(default_factory=list)
    marked: list[MarkedInference] = field(default_factory=list)
    states: list[StateSample] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)
    complete: bool = False


def read_log(path: Path | str) -> Log:
    """A log with all of its whole records. Raises MalformedLog for a file that is none, or has a record that cannot be;
    OSError."""
    with open_file(path) as stream:
        return read_log_of(stream, str(path))


def read_log_of(stream: BinaryIO, name: str) -> Log:
    """The same from a stream; name: in messages."""
    unpacker = msgpack.Unpacker(stream, max_buffer_size=LARGEST_RECORD_BYTES)
    log: Log | None = None
    number = 0
    while True:
        place = f"{name}: record {number}"
        what = f"{place} is no record of a profile log" if number else f"{name} is no profile log"
        try:
            record = unpacker.unpack()
        except msgpack.OutOfData:
            break
        except (ValueError, msgpack.UnpackException) as error:  # no MsgPack, or a record that is too large
            raise MalformedLog(f"{what}: {error or type(error).__name__}") from None
        if not isinstance(record, list) or len(record) != 2 or not isinstance(record[0], str):
            raise MalformedLog(what)
        content = Fields(record[1], place, MalformedLog)
        if log is None:
            log = Log(name, _header(record[0], content, name))
        else:
            _take(log, record[0], content, place)
        number += 1
    if log is None:
        raise MalformedLog(f"{name} is no profile log, or was cut off in its first record")
    return log


def _header(kind: str, content: Fields, name: str) -> LogHeader:
    if kind != KIND:
        raise MalformedLog(f"{name} is no profile log: it begins with {kind[:40]!r}")
    if (version := content.count("version")) != VERSION:
        raise MalformedLog(f"{name} is a profile log of version {version}, this gputune reads version {VERSION}")
    level: Any = content.text("level")
    if level not in LEVELS:
        raise MalformedLog(f"{name}: unknown level {level[:40]!r}")
    device = content.map("device")
    if not isinstance(device.get("name", ""), str):
        raise MalformedLog(f"{name}: the device's name is no text")
    return LogHeader(
        level=level,
        software=content.text("software"),
        device=device,
        begun_ns=content.count("begun_ns"),
        begun_unix_ns=content.count("begun_unix_ns"),
        settings=_texts(content, "settings"),
        unavailable=_texts(content, "unavailable"),
    )


def _take(log: Log, kind: str, content: Fields, place: str) -> None:
    """Adds a record to the log."""
    if log.complete:
        raise MalformedLog(f"{place} is after the end of the log")
    if kind == "inference":
        log.inferences.append(_inference(LoggedInference, content, log, place))
    elif kind == "marked":
        log.marked.append(_inference(MarkedInference, content, log, place))
    elif kind == "graph":
        log.graphs.append(_graph(content, place))
    elif kind == "span":
        begun_ns, ended_ns = _moments(content, place)
        log.spans.append(Span(content.text("name"), content.count("identifier"), begun_ns, ended_ns))
    elif kind == "state":
        log.states.append(StateSample(content.count("at_ns"), _numbers(content, "values", place)))
    elif kind == "comparison":
        log.comparisons.append(_comparison(content, log, place))
    elif kind == "end":
        log.complete = True
    else:
        raise MalformedLog(f"{place} is of the unknown kind {kind[:40]!r}")


def _graph(content: Fields, place: str) -> LoggedGraph:
    launches = tuple(
        LoggedLaunch(
            operation=each.text("operation"),
            task=each.text("task"),
            entry=each.text("entry"),
            global_size=each.counts("global_size"),
            local_size=each.counts("local_size"),
        )
        for each in content.maps("launches")
    )
    return LoggedGraph(
        name=content.text("name"),
        context=content.text("context"),
        digest=content.text("digest"),
        computes=content.flag("computes"),
        launches=launches,
        inputs=_counts(content, "inputs", place),
        outputs=_counts(content, "outputs", place),
        arena_bytes=content.counts("arena_bytes"),
        persistent=content.count("persistent"),
        load_ns=content.count("load_ns"),
        unmarked=content.text("unmarked") if content.has("unmarked") else "",
    )


def _inference(made: type[Inference], content: Fields, log: Log, place: str) -> Inference:
    graph = log.graphs[_graph_place(content, log, place)]
    begun_ns, ended_ns = _moments(content, place)
    if ended_ns - begun_ns > LONGEST_NS:
        raise MalformedLog(f"{place}: an inference of {ended_ns - begun_ns} ns")
    launches = _block(content, "launches", place)
    count = len(graph.launches)
    if launches.size not in ((2 * count,) if made is MarkedInference else (0, 2 * count, 4 * count)):
        raise MalformedLog(f"{place}: {launches.size} timestamps of {count} launches")
    parts = _block(content, "parts", place)
    if parts.size % 4:
        raise MalformedLog(f"{place}: {parts.size} numbers are no parts of an inference")
    parts = parts.reshape(-1, 4)
    if len(parts) and not (
        parts[:, PART_KIND].min() >= 0
        and parts[:, PART_KIND].max() < len(Part)
        and (parts[:, PART_BEGUN] <= parts[:, PART_ENDED]).all()
        and begun_ns <= parts[:, PART_BEGUN].min()
        and parts[:, PART_ENDED].max() <= ended_ns
    ):
        raise MalformedLog(f"{place}: a part of the inference is of no known kind, or does not lie within it")
    launches = launches.reshape(count, -1) if launches.size else np.zeros((0, 4), np.int64)
    clock = _clock(content, place)
    _check_launches(launches, clock, place)
    return made(
        graph=content.count("graph"),
        number=content.count("number"),
        thread=content.count("thread"),
        form=_form(content, "form", place),
        begun_ns=begun_ns,
        ended_ns=ended_ns,
        parts=parts,
        launches=launches,
        clock=clock,
        counters=_counts(content, "counters", place),
        preemptions=_by_thread(content, place),
        observed=_numbers(content, "observed", place),
        profiler_ns=content.count("profiler_ns"),
    )


def _check_launches(launches: Times, clock: ClockFit | None, place: str) -> None:
    """That each launch's timestamps are in order, and are moments of the host's clock. Raises MalformedLog."""
    if not launches.size:
        return
    if (launches[:, :-1] > launches[:, 1:]).any():
        raise MalformedLog(f"{place}: a launch whose timestamps are not in order")
    ends = [int(launches.min()), int(launches.max())]
    first_ns, last_ns = ends if clock is None else map(clock.to_host, ends)
    if not 0 <= first_ns <= last_ns < min(first_ns + LONGEST_NS, END_NS):
        raise MalformedLog(f"{place}: launches from {first_ns} to {last_ns} ns by the host's clock")


def _clock(content: Fields, place: str) -> ClockFit | None:
    items = content.items("clock")
    if not items:
        return None
    if len(items) != 5 or not all(type(each) is int and abs(each) < DEVICE_END_NS for each in items[:4]):
        raise MalformedLog(f"{place}: a clock that is not four numbers and a method")
    at_ns, offset_ns, rate_ppb, bound_ns, method = items
    if abs(rate_ppb) > MOST_PPB or bound_ns < 0 or method not in get_args(Method):
        raise MalformedLog(f"{place}: a clock with an impossible rate ({rate_ppb} ppb) or bound ({bound_ns} ns)")
    return ClockFit(at_ns, offset_ns, rate_ppb, bound_ns, method)


def _comparison(content: Fields, log: Log, place: str) -> Comparison:
    return Comparison(
        graph=_graph_place(content, log, place),
        profiled_ns=content.counts("profiled_ns"),
        unprofiled_ns=content.counts("unprofiled_ns"),
        usual_ns=content.counts("usual_ns"),
        usual_form=_form(content, "usual_form", place),
    )


def _graph_place(content: Fields, log: Log, place: str) -> int:
    if (graph := content.count("graph")) >= len(log.graphs):
        names = shortened([each.name for each in log.graphs])
        raise MalformedLog(f"{place} is of graph {graph}, which was not described; there are {names}")
    return graph


def _form(content: Fields, name: str, place: str) -> Form:
    form: Any = content.text(name)
    if form not in get_args(Form):
        raise MalformedLog(f"{place}: unknown form {form[:40]!r}")
    return form  # type: ignore[no-any-return]


def _moments(content: Fields, place: str) -> tuple[int, int]:
    begun_ns, ended_ns = content.count("begun_ns"), content.count("ended_ns")
    if not begun_ns <= ended_ns:
        raise MalformedLog(f"{place} ends before it begins")
    if ended_ns >= END_NS:
        raise MalformedLog(f"{place} ends at {ended_ns} ns, which is impossible for a host's clock")
    return begun_ns, ended_ns


def _block(content: Fields, name: str, place: str) -> Times:
    """Timestamps as they lie in a record."""
    data = content.bytes(name)
    if len(data) % 8:
        raise MalformedLog(f"{place}: {name!r} has {len(data)} bytes, which are no 64-bit integers")
    times = np.frombuffer(data, "<i8").astype(np.int64, copy=False)
    if times.size and (times.min() <= -DEVICE_END_NS or times.max() >= DEVICE_END_NS):
        raise MalformedLog(f"{place}: {name!r} has impossible timestamps")
    return times


def _texts(content: Fields, name: str) -> dict[str, str]:
    return {key: str(value)[:1000] for key, value in content.map(name).items()}


def _counts(content: Fields, name: str, place: str) -> dict[str, int]:
    found = content.map(name)
    if not all(map(is_count, found.values())):
        raise MalformedLog(f"{place}: {name!r} has values that are no counts")
    return found


def _numbers(content: Fields, name: str, place: str) -> dict[str, float]:
    found = content.map(name)
    if not all(type(value) in (int, float) for value in found.values()):
        raise MalformedLog(f"{place}: {name!r} has values that are no numbers")
    return {key: float(value) for key, value in found.items()}


def _by_thread(content: Fields, place: str) -> dict[int, int]:
    rows = content.items("preemptions")
    if not all(isinstance(row, list) and len(row) == 2 and all(map(is_count, row)) for row in rows):
        raise MalformedLog(f"{place}: preemptions that are no counts by thread")
    return {row[0]: row[1] for row in rows}


def _plain(value: Any) -> Any:
    """Dataclasses as maps, timestamps as bytes, tuples as lists, all the way down."""
    if isinstance(value, ClockFit):
        return [value.at_ns, value.offset_ns, value.rate_ppb, value.bound_ns, value.method]
    if is_dataclass(value):
        found = {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
        if isinstance(value, LoggedInference):
            found["clock"] = found["clock"] or []
            found["preemptions"] = [list(row) for row in value.preemptions.items()]
        return found
    if isinstance(value, np.ndarray):
        return np.ascontiguousarray(value, "<i8").tobytes()
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
