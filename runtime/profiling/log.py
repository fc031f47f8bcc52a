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
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgpack
import numpy as np

from gputune.core.decoder import record_of
from gputune.core.errors import MalformedLog, shortened
from gputune.core.files import open_file
from gputune.core.opened import Closing
from gputune.runtime.profiling.clocks import ClockFit
from gputune.runtime.profiling.records import (
    END_NS,
    PART_BEGUN,
    PART_ENDED,
    PART_KIND,
    Comparison,
    HostPart,
    LoggedGraph,
    LoggedInference,
    LogHeader,
    MarkedInference,
    Span,
    StateSample,
    Times,
)

KIND = "gputune-profile"
VERSION = 1
LARGEST_RECORD_BYTES = 1 << 28
LONGEST_NS = 1 << 50
"""Of an inference and of its launches together, which is 13 days: sums of thousands fit into 64 bits."""
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
        """Write the header. Raises OSError."""
        self._stream = stream
        self._lock = threading.Lock()
        self._graphs = 0
        self._ended = False
        self._write(KIND, {"version": VERSION, **_plain(header)})

    def add_graph(self, graph: LoggedGraph) -> int:
        """Describe a graph, and return its place, which its inferences name. Raises OSError; ValueError for a log that
        has ended."""
        with self._lock:
            if self._ended:
                raise ValueError("the profile log has ended; a new profiler writes a new one")
            self._write("graph", _plain(graph))
            self._graphs += 1
            return self._graphs - 1

    def add(self, record: Record) -> None:
        """Write a record, unless the log has ended meanwhile. Raises OSError."""
        content = _plain(record)
        with self._lock:
            if not self._ended:
                self._write(_RECORDS[type(record)], content)

    def end(self) -> None:
        """Say that nothing is missing. Doing so again does nothing. Raises OSError."""
        with self._lock:
            if not self._ended:
                self._ended = True
                self._write("end", {})

    def close(self) -> None:
        """End the log and close the stream. Raises OSError."""
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
    """Return a log with all of its whole records. Raises MalformedLog for a file that is none, or has a record that
    cannot be; OSError."""
    with open_file(path) as stream:
        return read_log_of(stream, str(path))


def read_log_of(stream: BinaryIO, name: str) -> Log:
    """Return the same from a stream; name: in messages."""
    reader = LogReader(name, stream)
    reader.read()
    if reader.log is None:
        raise MalformedLog(f"{name} is no profile log, or was cut off in its first record")
    return reader.log


class LogReader:
    """Read a log record by record, from a stream or as its bytes come.

    Attributes:
        log: what was read so far; None before the first record.
    """

    def __init__(self, name: str, stream: BinaryIO | None = None) -> None:
        """name: in messages."""
        self.log: Log | None = None
        self._name, self._number = name, 0
        self._unpacker = msgpack.Unpacker(stream, max_buffer_size=LARGEST_RECORD_BYTES)

    def feed(self, data: bytes) -> None:
        """Read more bytes. Raises MalformedLog."""
        self._unpacker.feed(data)
        self.read()

    def read(self) -> None:
        """Read the records that are there as a whole. Raises MalformedLog."""
        while True:
            place = f"{self._name}: record {self._number}"
            what = f"{place} is no record of a profile log" if self._number else f"{self._name} is no profile log"
            try:
                record = self._unpacker.unpack()
            except msgpack.OutOfData:
                return
            except (ValueError, msgpack.UnpackException) as error:  # no MsgPack, or a record that is too large
                raise MalformedLog(f"{what}: {error or type(error).__name__}") from None
            if not isinstance(record, list) or len(record) != 2 or not isinstance(record[0], str):
                raise MalformedLog(what)
            if self.log is None:
                self.log = Log(self._name, _header(record[0], record[1], self._name))
            else:
                _take(self.log, record[0], record[1], place)
            self._number += 1


def _header(kind: str, content: object, name: str) -> LogHeader:
    if kind != KIND:
        raise MalformedLog(f"{name} is no profile log: it begins with {kind[:40]!r}")
    version = content.get("version") if isinstance(content, dict) else None
    if version != VERSION:
        raise MalformedLog(f"{name} is a profile log of version {version!r:.40}, this gputune reads version {VERSION}")
    header = record_of(LogHeader, content, name, MalformedLog)
    if not isinstance(header.device.get("name", ""), str):
        raise MalformedLog(f"{name}: the device's name is no text")
    return header


def _take(log: Log, kind: str, content: object, place: str) -> None:
    """Add a record to the log."""
    if log.complete:
        raise MalformedLog(f"{place} is after the end of the log")
    if kind == "end":
        log.complete = True
        return
    made = next((made for made, name in _RECORDS.items() if name == kind), None)
    if made is None:
        raise MalformedLog(f"{place} is of the unknown kind {kind[:40]!r}")
    record: Record = record_of(made, content, place, MalformedLog)
    match record:
        case LoggedInference():
            _check_moments(record, place)
            whole = _with_launches(record, _graph_of(record, log, place), place)
            (log.marked if isinstance(whole, MarkedInference) else log.inferences).append(whole)  # type: ignore[arg-type]
        case LoggedGraph():
            log.graphs.append(record)
        case Span():
            _check_moments(record, place)
            log.spans.append(record)
        case StateSample():
            log.states.append(record)
        case Comparison():
            _graph_of(record, log, place)
            log.comparisons.append(record)


def _with_launches(inference: Inference, graph: LoggedGraph, place: str) -> Inference:
    """Return an inference whose launches are rows; what ties its fields together is checked. Raises MalformedLog."""
    if inference.elapsed_ns > LONGEST_NS:
        raise MalformedLog(f"{place}: an inference of {inference.elapsed_ns} ns")
    launches, parts, count = inference.launches, inference.parts, len(graph.launches)
    if launches.size not in ((2 * count,) if isinstance(inference, MarkedInference) else (0, 2 * count, 4 * count)):
        raise MalformedLog(f"{place}: {launches.size} timestamps of {count} launches")
    if len(parts) and not (
        parts[:, PART_KIND].min() >= 0
        and parts[:, PART_KIND].max() < len(HostPart)
        and (parts[:, PART_BEGUN] <= parts[:, PART_ENDED]).all()
        and inference.begun_ns <= parts[:, PART_BEGUN].min()
        and parts[:, PART_ENDED].max() <= inference.ended_ns
    ):
        raise MalformedLog(f"{place}: a part of the inference is of no known kind, or does not lie within it")
    rows = launches.reshape(count, -1) if launches.size else np.zeros((0, 4), np.int64)
    _check_launches(rows, inference.clock, place)
    return replace(inference, launches=rows)


def _check_launches(launches: Times, clock: ClockFit | None, place: str) -> None:
    """Check that each launch's timestamps are in order, and are moments of the host's clock. Raises MalformedLog."""
    if not launches.size:
        return
    if (launches[:, :-1] > launches[:, 1:]).any():
        raise MalformedLog(f"{place}: a launch whose timestamps are not in order")
    ends = [int(launches.min()), int(launches.max())]
    first_ns, last_ns = ends if clock is None else map(clock.to_host, ends)
    if not 0 <= first_ns <= last_ns < min(first_ns + LONGEST_NS, END_NS):
        raise MalformedLog(f"{place}: launches from {first_ns} to {last_ns} ns by the host's clock")


def _check_moments(record: Span | LoggedInference, place: str) -> None:
    if record.begun_ns > record.ended_ns:
        raise MalformedLog(f"{place} ends before it begins")


def _graph_of(record: LoggedInference | Comparison, log: Log, place: str) -> LoggedGraph:
    if record.graph >= len(log.graphs):
        names = shortened([each.name for each in log.graphs])
        raise MalformedLog(f"{place} is of graph {record.graph}, which was not described; there are {names}")
    return log.graphs[record.graph]


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
