"""Write a profile as a table with the columns of the original tools, which their readers also accept.

Each whole inference has a row (EXECUTE, ROOT), followed by rows that say where its time goes, and a row for each launch
(NODE). The rows of an inference add up to it without the rows of its launches, which add up to its row "kernels".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

from gputune.client.outputs import whole
from gputune.client.pages.escaping import csv_cell
from gputune.client.progress import SILENT, Progress
from gputune.client.viewer.account import account_of
from gputune.client.viewer.profile import GraphProfile, Profile
from gputune.client.viewer.traces.chrome_trace import microseconds
from gputune.client.viewer.traces.source import Shown, followed
from gputune.runtime.profiling.records import (
    DEINIT,
    DEVICE,
    EXECUTE,
    FINALIZE,
    INIT,
    NODE,
    POSTPROCESS,
    PREPROCESS,
    QUEUE_WAIT,
    Span,
)

COLUMNS = (
    "Msg Timestamp",
    "Message",
    "Time",
    "Unit of Measurement",
    "Timing Source",
    "Event Level",
    "Event Identifier",
)
MESSAGES: Mapping[int, str] = {
    INIT: "INIT",
    FINALIZE: "FINALIZE",
    EXECUTE: "EXECUTE",
    NODE: "NODE",
    QUEUE_WAIT: "EXECUTE QUEUE WAIT",
    PREPROCESS: "EXECUTE PREPROCESS",
    DEVICE: "EXECUTE DEVICE",
    POSTPROCESS: "EXECUTE POSTPROCESS",
    DEINIT: "DE-INIT",
}
"""What the column Message says for an event identifier, in the original's words; its column Event Identifier has the
name of what was measured."""
_ROWS = {"queue": QUEUE_WAIT, "write": PREPROCESS, "kernels": DEVICE, "device": DEVICE, "read": POSTPROCESS}
_ON_DEVICE = ("queue", "kernels", "gaps", "device", "wake-up")


def write_csv(profile: Profile, path: Path, progress: Progress = SILENT) -> None:
    """Write the file. Times are US with three decimals, moments are of the host's clock. Raises OutputError."""
    with whole(path) as unfinished, unfinished.open("w", encoding="utf-8", buffering=1 << 20) as file:
        file.writelines(_lines(profile, progress))


def _lines(profile: Profile, progress: Progress) -> Iterator[str]:
    yield ",".join(COLUMNS) + "\n"
    for log in profile.logs:
        yield from map(_span, sorted(profile.spans_of(log), key=lambda span: span.begun_ns))
    total = sum(len(graph.inferences) for graph in profile.graphs)
    yield from chain.from_iterable(followed(_inferences(profile.graphs), total, progress))


def _inferences(graphs: Sequence[GraphProfile]) -> Iterator[Iterator[str]]:
    for graph in graphs:
        names = [f"{launch.operation}:OpId_{place}" for place, launch in enumerate(graph.graph.launches)]
        ends = [f",US,DEVICE,SUB-EVENT,{csv_cell(name)}\n" for name in names]
        for place, inference in enumerate(graph.inferences):
            yield _inference(Shown(place, graph, inference), ends)


def _span(span: Span) -> str:
    level = "SUB-EVENT" if "/" in span.name else "ROOT"
    message = MESSAGES.get(span.identifier, "BACKEND")
    return _row(span.begun_ns, message, span.ended_ns - span.begun_ns, "HOST", level, span.name)


def _inference(shown: Shown, ends: Sequence[str]) -> Iterator[str]:
    """Yield the lines of an inference. ends: what stands behind the time of each launch."""
    one = shown.inference
    name = shown.graph.graph.name
    yield _row(one.begun_ns, MESSAGES[EXECUTE], one.elapsed_ns, "HOST", "ROOT", f"{name} {one.number} ({one.form})")
    for row, took_ns in account_of(one).rows():
        if took_ns or row == "rest":
            source = "DEVICE" if row in _ON_DEVICE else "HOST"
            yield _row(one.begun_ns, MESSAGES[_ROWS.get(row, EXECUTE)], took_ns, source, "SUB-EVENT", row)
    if len(times := shown.launches_ns):
        moments, took = microseconds(times[:, -2]), microseconds(times[:, -1] - times[:, -2])
        yield "".join([f"{at},NODE,{long}{end}" for at, long, end in zip(moments, took, ends, strict=True)])


def _row(at_ns: int, message: str, took_ns: int, source: str, level: str, name: str) -> str:
    return f"{_us(at_ns)},{message},{_us(took_ns)},US,{source},{level},{csv_cell(name)}\n"


def _us(ns: int) -> str:
    """Microseconds as text, with three decimals."""
    return f"{'-' if ns < 0 else ''}{abs(ns) // 1000}.{abs(ns) % 1000:03d}"
