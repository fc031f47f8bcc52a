"""Write Perfetto's native trace, a stream of TracePackets with TrackEvents, without its library.

The fields are defined in protos/perfetto/trace in Perfetto's sources. Names, categories and texts are interned: sent
once and then referred to by number. Each packet ends with its timestamp as a padded varint; the bytes before it are the
same for all slices with a label. Timestamps are of CLOCK_MONOTONIC, which a clock snapshot ties to the calendar.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, zip_longest
from pathlib import Path
from typing import BinaryIO

from gputune.client.outputs import whole
from gputune.client.progress import SILENT, Progress
from gputune.client.viewer.traces.events import CounterTrack, Counts, Label, Numbers, Slices, Track, Value
from gputune.client.viewer.traces.protobuf import (
    LENGTH,
    double,
    fixed64,
    message,
    number,
    tag,
    text,
    varint,
    wide_bytes,
    wide_numbers,
)
from gputune.client.viewer.traces.rows import disjoint
from gputune.client.viewer.traces.source import followed
from gputune.client.viewer.traces.timeline import Timeline

_PACKET = 1
_SNAPSHOT, _TIMESTAMP, _SEQUENCE, _EVENT, _INTERNED, _FLAGS, _DESCRIPTOR, _DEFAULTS = 6, 8, 10, 11, 12, 13, 60, 59
_CLOCK_ID = 58
_STATE_CLEARED, _NEEDS_STATE = 1, 2
_REALTIME, _MONOTONIC = 1, 3
_EVENT_CATEGORY, _EVENT_ARGUMENT, _EVENT_TYPE, _EVENT_NAME, _EVENT_TRACK = 3, 4, 9, 10, 11
_EVENT_COUNT, _EVENT_DOUBLE, _FLOW_STARTS, _FLOW_ENDS = 30, 44, 47, 48
_BEGIN, _END, _COUNT = 1, 2, 4
_CATEGORIES, _NAMES, _ARGUMENTS, _STRINGS = 1, 2, 3, 29
_SIZE_BYTES = 3
_THIS = number(_SEQUENCE, 1)
_PROCESS_UUIDS = 1 << 32
"""From where on the tracks that stand for processes are numbered."""


def write_perfetto(timeline: Timeline, path: Path, progress: Progress = SILENT) -> None:
    """Write the file. Raises OutputError."""
    with whole(path) as unfinished, unfinished.open("wb", buffering=1 << 20) as file:
        _write(timeline, file, progress)


def _write(timeline: Timeline, file: BinaryIO, progress: Progress) -> None:
    file.write(_beginning(*timeline.clock))
    for packet in _descriptors(timeline):
        file.write(packet)
    encoder = _Encoder()
    for batch in followed(timeline.batches(), timeline.inferences, progress):
        for event in batch:
            packets = encoder.counts(event) if isinstance(event, Counts) else encoder.slices(event)
            file.write(encoder.told())
            file.write(packets)


def _beginning(host_ns: int, unix_ns: int) -> bytes:
    """Return the packets that declare the clock of all others, and that names are told from here on."""
    clocks = [
        message(1, number(1, clock), number(2, at_ns)) for clock, at_ns in ((_MONOTONIC, host_ns), (_REALTIME, unix_ns))
    ]
    snapshot = message(_SNAPSHOT, *clocks, number(2, _MONOTONIC))
    defaults = message(_DEFAULTS, number(_CLOCK_ID, _MONOTONIC))
    first = message(_PACKET, _THIS, number(_FLAGS, _STATE_CLEARED), defaults)
    return first + message(_PACKET, _THIS, snapshot)


def _descriptors(timeline: Timeline) -> Iterator[bytes]:
    for process in timeline.processes:
        named = message(3, number(1, process.number), text(6, process.name))
        about = [text(2, process.name), named, number(11, 3), number(12, process.number)]
        yield message(_PACKET, _THIS, message(_DESCRIPTOR, number(1, _PROCESS_UUIDS + process.number), *about))
    for track in timeline.tracks:
        about = [text(2, track.name), number(5, _PROCESS_UUIDS + track.process.number), number(12, track.number)]
        if isinstance(track, CounterTrack):
            unit = number(3, _SIZE_BYTES) if track.unit == "bytes" else text(6, track.unit)
            about.append(message(8, unit))
        yield message(_PACKET, _THIS, message(_DESCRIPTOR, number(1, track.number), *about))


class _Encoder:
    """Turns events into packets, and remembers what was told."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, str], int] = {}
        self._new: list[bytes] = []
        self._contents: dict[tuple[Label, Track], bytes] = {}
        self._heads: dict[tuple[Label, Track, int], bytes] = {}

    def told(self) -> bytes:
        """Return the packet with the names that the last events need and that were not told before; it stands before
        them."""
        told, self._new = self._new, []
        return message(_PACKET, _THIS, number(_FLAGS, _NEEDS_STATE), message(_INTERNED, *told)) if told else b""

    def counts(self, event: Counts) -> bytes:
        """Packets of a counter's values."""
        about = number(_EVENT_TYPE, _COUNT) + number(_EVENT_TRACK, event.track.number)
        stamps = wide_numbers(_TIMESTAMP, event.at_ns)
        if all(type(value) is int for value in event.values):
            head = _unstamped(about, wide_bytes(_EVENT_COUNT))
            values = wide_numbers(_EVENT_COUNT, event.values)  # type: ignore[arg-type]
        else:
            head = _unstamped(about, len(double(_EVENT_DOUBLE, 0.0)))
            values = [double(_EVENT_DOUBLE, value) for value in event.values]
        return _in_turns([head] * len(values), values, stamps)

    def slices(self, event: Slices) -> bytes:
        """Packets of slices: a begin and an end for each, in the order of time."""
        heads = [self._head(label, event.track, 0) for label in event.labels]
        more = dict(enumerate(self._arguments(event.numbers)))
        for place, flow, _, starts in event.flows:
            more[place] = more.get(place, b"") + fixed64(_FLOW_STARTS if starts else _FLOW_ENDS, flow)
        for place, content in more.items():
            heads[place] = self._head(event.labels[place], event.track, len(content)) + content
        end = _unstamped(number(_EVENT_TYPE, _END) + number(_EVENT_TRACK, event.track.number))
        begun, ended = wide_numbers(_TIMESTAMP, event.begun_ns), wide_numbers(_TIMESTAMP, event.ended_ns)
        if disjoint(event.begun_ns, event.ended_ns):
            return _in_turns(heads, begun, [end] * len(heads), ended)
        begins = list(map(bytes.__add__, heads, begun))
        return b"".join(_nested(event, begins, [end + stamp for stamp in ended]))

    def _head(self, label: Label, track: Track, missing: int) -> bytes:
        """Return a slice's begin up to so many bytes of its own and its timestamp."""
        key = (label, track, missing)
        if (found := self._heads.get(key)) is None:
            found = self._heads[key] = _unstamped(self._content(label, track), missing)
        return found

    def _content(self, label: Label, track: Track) -> bytes:
        """Return the TrackEvent of a slice's begin without what differs from slice to slice."""
        if (label, track) not in self._contents:
            arguments = [self._argument(name, value) for name, value in label.arguments.items()]
            category = number(_EVENT_CATEGORY, self._number(_CATEGORIES, label.category))
            name = number(_EVENT_NAME, self._number(_NAMES, label.name))
            about = number(_EVENT_TYPE, _BEGIN) + number(_EVENT_TRACK, track.number)
            self._contents[label, track] = b"".join([about, category, name, *arguments])
        return self._contents[label, track]

    def _arguments(self, numbers: Numbers) -> list[bytes]:
        """Return the arguments that differ, of one slice after the other."""
        columns = [self._column(name, values) for name, values in numbers.items()]
        return [b"".join(row) for row in zip_longest(*columns, fillvalue=b"")]

    def _column(self, name: str, values: Sequence[int] | Sequence[float]) -> list[bytes]:
        if not all(type(value) is int and value >= 0 for value in values):
            return [self._argument(name, value) for value in values]
        key = number(1, self._number(_ARGUMENTS, name))
        head = tag(_EVENT_ARGUMENT, LENGTH) + varint(len(key) + wide_bytes(4)) + key
        return [head + value for value in wide_numbers(4, values)]  # type: ignore[arg-type]

    def _argument(self, name: str, value: Value) -> bytes:
        """Return a DebugAnnotation."""
        key = number(1, self._number(_ARGUMENTS, name))
        if isinstance(value, str):
            return message(_EVENT_ARGUMENT, key, number(17, self._number(_STRINGS, value)))
        return message(_EVENT_ARGUMENT, key, number(4, value) if isinstance(value, int) else double(5, value))

    def _number(self, kind: int, name: str) -> int:
        """By which a name is known; one that is new is told."""
        key = (kind, name)
        if key not in self._numbers:
            self._numbers[key] = len(self._numbers) + 1
            self._new.append(message(kind, number(1, self._numbers[key]), text(2, name)))
        return self._numbers[key]


def _unstamped(event: bytes, missing: int = 0) -> bytes:
    """Return a packet up to its timestamp, which comes last. missing: bytes of the event that come behind this."""
    inner = _THIS + number(_FLAGS, _NEEDS_STATE) + tag(_EVENT, LENGTH) + varint(len(event) + missing) + event
    return tag(_PACKET, LENGTH) + varint(len(inner) + missing + wide_bytes(_TIMESTAMP)) + inner


def _in_turns(*pieces: Sequence[bytes]) -> bytes:
    """Return the first of all, then the second of all, and so on."""
    return b"".join(chain.from_iterable(zip(*pieces, strict=True)))


def _nested(event: Slices, begins: Sequence[bytes], ends: Sequence[bytes]) -> Iterator[bytes]:
    """Slices that may lie within each other: inner ones end before outer ones."""
    times_ns = event.ended_ns.tolist()
    inside: list[int] = []
    for place, begun_ns in enumerate(event.begun_ns.tolist()):
        while inside and times_ns[inside[-1]] <= begun_ns:
            yield ends[inside.pop()]
        yield begins[place]
        inside.append(place)
    yield from (ends[place] for place in reversed(inside))
