"""Make profiles of inferences that never ran, with all that a log and a schematic can say."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from gputune.client.viewer.profile import Profile, profile_of
from gputune.client.viewer.schematic import GraphPlan, RooflinePeaks, Schematic
from gputune.runtime.profiling.log import Log, LogWriter, Record, read_log_of
from gputune.runtime.profiling.records import FINALIZE, INIT, LoggedGraph, LoggedInference, Span, StateSample
from tests.client.viewer.made_up_plans import plan, schematic
from tests.runtime.profiling import made_up
from tests.runtime.profiling.made_up import BEGUN_NS

NAMES = ("conv1", "relu", "conv2", "add")


def plan_of(graph: LoggedGraph) -> GraphPlan:
    """Operations one after the other; the last one reads what the first has written, too."""
    last = len({launch.operation for launch in graph.launches}) - 1
    made = plan(graph, [*pairwise(range(last + 1)), *([(0, last)] if last > 1 else [])], nbytes=50_000)
    values = {"MR": 4, "VW": 16}
    operations = (replace(one, nodes=(one.name, f"{one.name}/bias"), configuration=values) for one in made.operations)
    return replace(made, operations=tuple(operations))


def schematic_of(*graphs: LoggedGraph) -> Schematic:
    return schematic(*map(plan_of, graphs), peaks=RooflinePeaks(100.0, 10.0, "made up"))


def log_of(graphs: Sequence[LoggedGraph], records: Sequence[Record], name: str = "made-up.log") -> Log:
    stream = _Kept()
    with LogWriter(stream, made_up.header()) as log:
        for graph in graphs:
            log.add_graph(graph)
        for record in records:
            log.add(record)
    return read_log_of(io.BytesIO(stream.content), name)


def rich_records(kernels_ns: Sequence[Sequence[int]], gaps_ns: int = 5_000) -> list[Record]:
    """Inferences of the same launches one behind the other, with what else a log may hold: phases, of which two
    overlap, samples of the device's state, counters and preemptions."""
    found: list[Record] = [
        Span("init", INIT, BEGUN_NS - 9_000_000, BEGUN_NS - 8_000_000),
        Span("tune", FINALIZE, BEGUN_NS - 8_000_000, BEGUN_NS - 1_000),
        Span("tune/conv1", FINALIZE, BEGUN_NS - 8_000_000, BEGUN_NS - 4_000_000),
        Span("tune/conv2", FINALIZE, BEGUN_NS - 5_000_000, BEGUN_NS - 1_000),
    ]
    begun_ns = BEGUN_NS + 1_000
    for number, times_ns in enumerate(kernels_ns):
        one = made_up.inference(times_ns, gaps_ns, begun_ns=begun_ns, number=number)
        found.append(replace(one, preemptions={1: number, 7: 2}, observed={"joule": 0.25 + number}, profiler_ns=900))
        found.append(StateSample(one.ended_ns, {"gpu_mhz": 1000.0 + number, "temperature_c": 50.5}))
        begun_ns = one.ended_ns + 1_000
    return found


def rich_profile(kernels_ns: Sequence[Sequence[int]] | None = None, gaps_ns: int = 5_000) -> Profile:
    """With a schematic; of three inferences of the operations NAMES."""
    times_ns = [[40_000, 7_001, 90_000, 1], [41_000, 7_002, 91_003, 0], [39_500, 7_003, 89_999, 2]]
    graph = made_up.graph(NAMES)
    return profile_of([log_of([graph], rich_records(kernels_ns or times_ns, gaps_ns))], schematic_of(graph))


def overlapping_profile() -> Profile:
    """Two logs; in the first, two graphs of which one runs on a thread of its own while the other one does, and of
    which one has two launches for each operation that overlap."""
    first, second = made_up.graph(NAMES), made_up.graph(["a", "a", "b", "b"], "other")
    one = made_up.inference([40_000, 7_000, 90_000, 5])
    other = replace(made_up.inference([9_000, 9_000, 8_000, 0], -4_000, begun_ns=BEGUN_NS + 30_000, place=1), thread=2)
    third: LoggedInference = made_up.inference([1, 2, 3, 4], begun_ns=other.ended_ns, number=1)
    logs = [log_of([first, second], [one, other, third]), log_of([first], rich_records([[5, 6, 7, 8]]), "second.log")]
    return profile_of(logs, schematic_of(first, second))


class _Kept(io.BytesIO):
    """Keeps what was written when it is closed."""

    content = b""

    def close(self) -> None:
        self.content = self.getvalue()
        super().close()
