"""Read traces back, each by its own rules: Chrome's JSON strictly, Perfetto's by a separate decoder.

Both become the same, so that they can be compared.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

Slice = tuple[str, str, int, int, tuple[tuple[str, Any], ...]]
"""Name, category, begun_ns, ended_ns and arguments."""


@dataclass
class Trace:
    """slices, counts: by (process, track), in the order of the file; flows: by number, the track, name and begin of the
    slice at which an arrow starts and of that at which it ends."""

    slices: dict[tuple[str, str], list[Slice]] = field(default_factory=dict)
    counts: dict[tuple[str, str], list[tuple[int, float]]] = field(default_factory=dict)
    flows: dict[int, tuple[tuple[str, str, int], tuple[str, str, int]]] = field(default_factory=dict)
    processes: list[str] = field(default_factory=list)

    def took_ns(self, category: str) -> int:
        """All slices of a category together."""
        return sum(one[3] - one[2] for rows in self.slices.values() for one in rows if one[1] == category)

    def count(self, category: str) -> int:
        return sum(one[1] == category for rows in self.slices.values() for one in rows)


def read_chrome(path: Path) -> Trace:
    """A trace in Chrome's format. Raises AssertionError for anything that a viewer could take in two ways."""
    content = json.loads(path.read_text(encoding="utf-8"), parse_float=Fraction)
    assert content["displayTimeUnit"] == "ns"
    events = content["traceEvents"]
    phases = [event["ph"] for event in events]
    assert set(phases) <= {"M", "X", "C", "s", "f"}
    assert "M" not in phases[phases.count("M") :], "metadata comes first"
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    processes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert len(set(names.values())) == len(names) or len(processes) > 1
    trace = Trace(processes=list(processes.values()))
    at: dict[tuple[int, int], Counter[int]] = {}
    for event in events:
        assert type(event["pid"]) is int and type(event["tid"]) is int
        if event["ph"] == "X":
            where = (event["pid"], event["tid"])
            begun_ns, took_ns = _ns(event["ts"]), _ns(event["dur"])
            assert took_ns >= 0
            row = (event["name"], event["cat"], begun_ns, begun_ns + took_ns, _arguments(event["args"]))
            trace.slices.setdefault((processes[where[0]], names[where]), []).append(row)
            at.setdefault(where, Counter())[begun_ns] += 1
        elif event["ph"] == "C":
            (value,) = event["args"].values()
            row_of_counts = trace.counts.setdefault((processes[event["pid"]], event["name"]), [])
            row_of_counts.append((_ns(event["ts"]), float(value)))
    for rows in trace.slices.values():
        check_nesting(rows)
    trace.flows = _flows(events, at, names)
    return trace


def check_nesting(rows: Sequence[Slice]) -> None:
    """That slices of a track are nested or disjoint."""
    open_ns: list[int] = []
    for _, _, begun_ns, ended_ns, _ in sorted(rows, key=lambda row: (row[2], -row[3])):
        while open_ns and open_ns[-1] <= begun_ns:
            open_ns.pop()
        assert not open_ns or ended_ns <= open_ns[-1], "a slice overlaps another"
        open_ns.append(ended_ns)


def _ns(microseconds: Fraction | int) -> int:
    found = Fraction(microseconds) * 1000
    assert found.denominator == 1, "not whole ns"
    return int(found)


def _arguments(found: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(
        sorted((name, float(value) if isinstance(value, Fraction) else value) for name, value in found.items())
    )


def _flows(
    events: Sequence[Mapping[str, Any]],
    at: Mapping[tuple[int, int], Counter[int]],
    names: Mapping[tuple[int, int], str],
) -> dict[int, tuple[tuple[str, str, int], tuple[str, str, int]]]:
    ends: dict[int, dict[str, tuple[str, str, int]]] = {}
    for event in events:
        if event["ph"] in "sf":
            assert type(event["id"]) is int and event["id"] < 1 << 53
            assert event["ph"] == "s" or event["bp"] == "e"
            where, ns = (event["pid"], event["tid"]), _ns(event["ts"])
            assert at[where][ns], "no slice begins where an arrow is bound"
            pair = ends.setdefault(event["id"], {})
            assert event["ph"] not in pair, "an arrow has two ends of a kind"
            pair[event["ph"]] = (names[where], event["name"], ns)
    for pair in ends.values():
        assert set(pair) == {"s", "f"}, "an arrow has one end only"
        assert pair["s"][1] == pair["f"][1]
        assert pair["s"][2] <= pair["f"][2], "an arrow goes back in time"
    return {number: (pair["s"], pair["f"]) for number, pair in ends.items()}


def read_perfetto(path: Path, decoder: Any) -> Trace:
    """A native trace; decoder: the module perfetto.protos.perfetto.trace.perfetto_trace_pb2. Kinds of arrows have no
    names there."""
    packets = decoder.Trace.FromString(path.read_bytes()).packet
    assert packets[0].sequence_flags == decoder.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
    assert packets[0].trace_packet_defaults.timestamp_clock_id == decoder.BUILTIN_CLOCK_MONOTONIC
    assert packets[1].clock_snapshot.primary_trace_clock == decoder.BUILTIN_CLOCK_MONOTONIC
    assert {packet.trusted_packet_sequence_id for packet in packets} == {1}
    return _Perfetto(decoder).read(packets[2:])


class _Perfetto:
    """Follows a sequence of packets as Perfetto's trace processor does."""

    def __init__(self, decoder: Any) -> None:
        self._event = decoder.TrackEvent
        self._needs_state = decoder.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
        self._interned: dict[tuple[str, int], str] = {}
        self._tracks: dict[int, tuple[str, str]] = {}
        self._processes: dict[int, str] = {}
        self._ends: dict[int, list[tuple[str, str, int]]] = {}
        self._trace = Trace()

    def read(self, packets: Sequence[Any]) -> Trace:
        for packet in packets:
            if packet.HasField("track_descriptor"):
                self._declare(packet.track_descriptor)
            for kind in ("event_categories", "event_names", "debug_annotation_names"):
                self._intern(kind, [(one.iid, one.name) for one in getattr(packet.interned_data, kind)])
            texts = packet.interned_data.debug_annotation_string_values
            self._intern("texts", [(one.iid, one.str.decode()) for one in texts])
        events = [packet for packet in packets if packet.HasField("track_event")]
        assert all(packet.sequence_flags == self._needs_state for packet in events)
        stacks: dict[int, list[tuple[str, str, int, tuple[tuple[str, Any], ...]]]] = {}
        for packet in sorted(events, key=lambda packet: packet.timestamp):
            self._take(packet.timestamp, packet.track_event, stacks.setdefault(packet.track_event.track_uuid, []))
        assert not any(stacks.values()), "a slice does not end"
        for number, (start, end) in self._ends.items():
            self._trace.flows[number] = (start, end)
        return self._trace

    def _declare(self, descriptor: Any) -> None:
        if descriptor.HasField("process"):
            self._processes[descriptor.uuid] = descriptor.process.process_name
            self._trace.processes.append(descriptor.process.process_name)
        else:
            assert descriptor.uuid not in self._tracks
            self._tracks[descriptor.uuid] = (self._processes[descriptor.parent_uuid], descriptor.name)

    def _intern(self, kind: str, pairs: Sequence[tuple[int, str]]) -> None:
        for number, text in pairs:
            assert (kind, number) not in self._interned
            self._interned[kind, number] = text

    def _take(self, at_ns: int, event: Any, stack: list[tuple[str, str, int, tuple[tuple[str, Any], ...]]]) -> None:
        track = self._tracks[event.track_uuid]
        if event.type == self._event.TYPE_SLICE_BEGIN:
            name, (category,) = self._interned["event_names", event.name_iid], event.category_iids
            arguments = tuple(sorted(map(self._argument, event.debug_annotations)))
            stack.append((name, self._interned["event_categories", category], at_ns, arguments))
            for number in [*event.flow_ids, *event.terminating_flow_ids]:
                self._ends.setdefault(number, []).append((track[1], "", at_ns))
        elif event.type == self._event.TYPE_SLICE_END:
            name, category, begun_ns, arguments = stack.pop()
            self._trace.slices.setdefault(track, []).append((name, category, begun_ns, at_ns, arguments))
        else:
            assert event.type == self._event.TYPE_COUNTER
            value = event.counter_value if event.HasField("counter_value") else event.double_counter_value
            self._trace.counts.setdefault(track, []).append((at_ns, float(value)))

    def _argument(self, annotation: Any) -> tuple[str, Any]:
        kind = annotation.WhichOneof("value")
        value = getattr(annotation, kind)
        text = self._interned["texts", value] if kind == "string_value_iid" else value
        return self._interned["debug_annotation_names", annotation.name_iid], text
