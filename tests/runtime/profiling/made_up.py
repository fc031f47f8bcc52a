"""Make logs of inferences that never ran, for tests of their readers."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

import numpy as np

from gputune.core.identity import DeviceIdentity
from gputune.runtime.devices.discovery import NULL_REPORT
from gputune.runtime.profiling.clocks import ClockFit
from gputune.runtime.profiling.log import Log, LogWriter, read_log_of
from gputune.runtime.profiling.records import (
    STARTED,
    HostPart,
    LoggedGraph,
    LoggedInference,
    LoggedLaunch,
    LogHeader,
    MarkedInference,
    Times,
    digest_of,
)

CLOCK = ClockFit(at_ns=0, offset_ns=1_000_000_000, rate_ppb=0, bound_ns=2_000, method="bracketed")
BEGUN_NS = 5_000_000_000


def device() -> DeviceIdentity:
    assert NULL_REPORT.identity is not None
    return NULL_REPORT.identity


def header() -> LogHeader:
    return LogHeader("qhas", "gputune 0", device().to_dict(), BEGUN_NS, 1_700_000_000_000_000_000)


def graph(operations: Sequence[str], name: str = "net") -> LoggedGraph:
    """A graph with a launch for each operation, an input of 4 kB and an output of 400 bytes."""
    launches = tuple(LoggedLaunch(each, f"task of {each}", "run", (64,), (8,)) for each in operations)
    return LoggedGraph(name, "net.bin", digest_of(launches), True, launches, {"x": 4000}, {"y": 400}, (8192,), 0, 10**6)


def inference(
    kernels_ns: Sequence[int],
    gaps_ns: Sequence[int] | int = 5_000,
    *,
    begun_ns: int = BEGUN_NS + 1000,
    number: int = 0,
    write_ns: int = 20_000,
    queue_ns: int = 30_000,
    wake_up_ns: int = 10_000,
    read_ns: int = 15_000,
    place: int = 0,
) -> LoggedInference:
    """An inference of launches of these times with these gaps between them, whose parts leave nothing out but for
    100 ns behind each."""
    gaps = [gaps_ns] * (len(kernels_ns) - 1) if isinstance(gaps_ns, int) else list(gaps_ns)
    parts: list[tuple[int, int, int, int]] = []
    now = begun_ns

    def part(kind: HostPart, tensor: int, took_ns: int) -> None:
        nonlocal now
        parts.append((kind, tensor, now, now + took_ns))
        now += took_ns + 100

    part(HostPart.HOST, -1, 3_000)
    part(HostPart.WRITE, 0, write_ns)
    launched = now
    part(HostPart.ENQUEUE, -1, queue_ns // 2)
    waited = now
    rows: list[tuple[int, int, int, int]] = []
    start = launched + queue_ns
    for place_of_launch, took_ns in enumerate(kernels_ns):
        queued = launched + (place_of_launch + 1) * queue_ns // (2 * len(kernels_ns))
        rows.append((min(queued, start), min(queued + 500, start), start, start + took_ns))
        start += took_ns + (gaps[place_of_launch] if place_of_launch < len(gaps) else 0)
    now = waited
    part(HostPart.WAIT, -1, rows[-1][3] + wake_up_ns - waited)
    part(HostPart.READ, 0, read_ns)
    part(HostPart.HOST, -1, 2_000)
    launches: Times = np.array(rows, np.int64) - CLOCK.offset_ns
    return LoggedInference(
        place, number, 1, "launches", begun_ns, now, np.array(parts, np.int64), launches, CLOCK, {"task_clock_ns": 7}
    )


def inferences(count: int, kernels_ns: Sequence[int], gaps_ns: Sequence[int] | int = 5_000) -> list[LoggedInference]:
    """One behind the other, a microsecond apart."""
    found: list[LoggedInference] = []
    begun_ns = BEGUN_NS + 1000
    for number in range(count):
        found.append(inference(kernels_ns, gaps_ns, begun_ns=begun_ns, number=number))
        begun_ns = found[-1].ended_ns + 1000
    return found


def marked(kernels_ns: Sequence[int], gaps_ns: Sequence[int] | int = 200, **more: int) -> MarkedInference:
    """One by a persistent kernel, with marks of these launches."""
    one = inference(kernels_ns, gaps_ns, **more)
    values = {each.name: getattr(one, each.name) for each in fields(one)}
    return MarkedInference(**values | {"form": "persistent", "launches": one.launches[:, STARTED:]})


def written(graphs: Sequence[LoggedGraph], records: Sequence[LoggedInference]) -> bytes:
    """The bytes of a log that was closed."""
    stream = _Kept()
    with LogWriter(stream, header()) as log:
        for each in graphs:
            log.add_graph(each)
        for record in records:
            log.add(record)
    return stream.content


def write_log(path: Path, graphs: Sequence[LoggedGraph], records: Sequence[LoggedInference]) -> Path:
    path.write_bytes(written(graphs, records))
    return path


def read(content: bytes) -> Log:
    return read_log_of(io.BytesIO(content), "made-up.log")


class _Kept(io.BytesIO):
    """Keeps what was written when it is closed."""

    content = b""

    def close(self) -> None:
        self.content = self.getvalue()
        super().close()
