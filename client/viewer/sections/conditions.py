"""Show under which conditions a profile was taken: the clock, the profiler's cost, counters, the device's state."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

from gputune.client.pages.blocks import Block, Cell, Column, Text, facts, run, table
from gputune.client.pages.scales import bytes_text, counted, digits, time_text
from gputune.client.viewer.profile import GraphProfile, states_of
from gputune.runtime.profiling.log import Log
from gputune.runtime.profiling.records import LoggedInference


def conditions(graph: GraphProfile) -> Iterator[Block]:
    """Yield names and values, and the counters."""
    log = graph.log
    lines = {
        "Log": f"{log.path}, level {log.header.level}, by {log.header.software}",
        "Started": begun(log),
        "Device": _device(log),
        "Loading": f"{time_text(graph.graph.load_ns)} for {graph.graph.context}",
        "Memory of a state": bytes_text(graph.graph.state_bytes) if graph.graph.state_bytes else "",
        "Clock": _clock(graph.inferences),
        "Profiler": _profiler(graph.inferences),
        "Threads": _threads(graph),
        "State": _states(log),
        "Environment": ", ".join(f"{name}={value}" for name, value in log.header.settings.items()),
    }
    yield facts(lines)
    yield from _counters(graph)


def begun(log: Log) -> str:
    """When a log begins, by the calendar; empty for a moment that no calendar has."""
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=log.header.begun_unix_ns // 1000)
    except OverflowError:
        return ""
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def device_name(log: Log) -> str:
    """Return what the device calls itself."""
    return str(log.header.device.get("name") or "unknown device")


def _device(log: Log) -> str:
    known = [log.header.device.get(name) for name in ("platform", "driver_version", "device_version")]
    return ", ".join([device_name(log), *(str(value) for value in known if value)])


def _clock(inferences: Sequence[LoggedInference]) -> str:
    fits = [one.clock for one in inferences if one.clock is not None]
    if not fits:
        return "the host's clock only"
    methods = ", ".join(dict.fromkeys(fit.method for fit in fits))
    bound_ns = max(fit.bound_ns for fit in fits)
    return f"device times are on the host's clock ({methods}), off by at most {time_text(bound_ns)}"


def _profiler(inferences: Sequence[LoggedInference]) -> str:
    after_ns = [one.profiler_ns for one in inferences]
    return f"writes for {time_text(statistics.median(after_ns))} after the end of an inference" if after_ns else ""


def _threads(graph: GraphProfile) -> str:
    """Return how many there were, and how often one lost its processor."""
    said = f"inferences ran on {counted(len({one.thread for one in graph.inferences}), 'thread')}"
    taken = [f"thread {thread} {counted(count, 'time')}" for thread, count in graph.preemptions.items()]
    return f"{said}; the system preempted {', '.join(taken[:40])}" if taken else said


def _states(log: Log) -> str:
    """Return what clocks, load and temperatures were."""
    values = {name: list(filter(math.isfinite, found)) for name, found in sorted(states_of(log).items())}
    return "; ".join(f"{name} {_range(found)}" for name, found in values.items() if found)


def _range(values: Sequence[float]) -> str:
    low, high = digits(min(values)), digits(max(values))
    return low if low == high else f"{low} to {high}"


def _counters(graph: GraphProfile) -> Iterator[Block]:
    """Yield what was counted, and what cannot be here and why."""
    medians = {name: statistics.median(found) for name, found in sorted(graph.counters.items())}
    rows = [*medians.items(), *sorted(graph.log.header.unavailable.items())]
    if rows:
        yield table((Column("Counter", _counter), Column("Median per inference", _median, number=True)), rows)


def _counter(row: tuple[str, float | str]) -> Text:
    """Return what a counter is called, and why it cannot be here."""
    name, found = row
    return [name, run(found, "sub")] if isinstance(found, str) else name.removesuffix("_ns")


def _median(row: tuple[str, float | str]) -> Cell:
    name, found = row
    if isinstance(found, str):
        return Cell([run("unavailable", "soft")])
    return Cell(time_text(found) if name.endswith("_ns") else digits(found), found)
