"""Read traces in Chrome's format back, strictly."""

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
