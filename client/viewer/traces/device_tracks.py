"""Write the tracks of the device: its launches, what they have waited for, and arrows between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gputune.client.options.viewer import Features
from gputune.client.viewer.profile import GraphProfile
from gputune.client.viewer.schematic import GraphPlan, OperationPlan, Schematic
from gputune.client.viewer.traces.events import Event, FlowEnd, Label, Process, Slices, Track, Value
from gputune.client.viewer.traces.rows import Layout, Rows, layout_of
from gputune.client.viewer.traces.source import Shown, laid_out, row_tracks
from gputune.runtime.profiling.records import QUEUED, STARTED, SUBMITTED, LoggedLaunch, Times

INPUT_OUTPUT, SEQUENCER = "input-output", "sequencer"
TASK_CHARACTERS = 12
"""Of a task's digest; other commands know a task by them, and there are as many copies as launches."""
_KINDS = (INPUT_OUTPUT, SEQUENCER)


@dataclass(frozen=True, eq=False)
class _Drawn:
    """What the launches of a graph have in each inference: labels, and the ends of arrows with their numbers from 0."""

    labels: Sequence[Label]
    waits: Sequence[Label]
    flows: Sequence[FlowEnd]
    flow_count: int


class DeviceTracks:
    """A track with a slice for each launch, and one with what each has waited for alone at the head of the queue: from
    when it was queued, or the launch before it had ended, to when it started. What overlaps gets further tracks."""

    def __init__(self, log_number: int, schematic: Schematic | None, features: Features) -> None:
        self._schematic, self._features = schematic, features
        self._devices, self._queues = Rows(), Rows()
        self._placed: list[tuple[int, int]] = []
        self._device_tracks: list[Track] = []
        self._queue_tracks: list[Track] = []
        self._drawn: dict[GraphProfile, _Drawn] = {}
        self._next_flow = log_number << 32

    def place(self, shown: Shown) -> None:
        times = shown.launches_ns
        device = queue = -1
        if len(times):
            device = _placed(self._devices, times[:, -2], times[:, -1])
        if len(times) and times.shape[1] > 2:
            queue = _placed(self._queues, *_waits(times))
        self._placed.append((device, queue))

    def row_of(self, shown: Shown) -> int:
        """Return the first of the rows of an inference that was placed last, -1 without timestamps of launches."""
        return self._placed[shown.place][0]

    @property
    def rows(self) -> Rows:
        """Those of all inferences that were placed."""
        return self._devices

    def labels(self, graph: GraphProfile) -> Sequence[Label]:
        """Of the launches of a graph."""
        return self._of(graph).labels

    def declare(self, process: Process, numbers: Iterator[int]) -> Sequence[Track]:
        self._queue_tracks = row_tracks(process, numbers, "queue wait", self._queues)
        self._device_tracks = row_tracks(process, numbers, "device", self._devices)
        return [*self._queue_tracks, *self._device_tracks]

    def events(self, shown: Shown) -> Iterator[Event]:
        device, queue = self._placed[shown.place]
        if device < 0:
            return
        times, drawn = shown.launches_ns, self._of(shown.graph)
        if queue >= 0:
            tracks, (begun_ns, ended_ns) = self._queue_tracks[queue:], _waits(times)
            since = times - times[:, :1]
            numbers = {
                "queued_to_submitted_ns": since[:, SUBMITTED].tolist(),
                "queued_to_started_ns": since[:, STARTED].tolist(),
            }
            batch = Slices(tracks[0], drawn.waits, begun_ns, ended_ns, numbers)
            yield from laid_out(tracks, _layout(begun_ns, ended_ns), batch)
        tracks, begun_ns, ended_ns = self._device_tracks[device:], times[:, -2], times[:, -1]
        batch = Slices(tracks[0], drawn.labels, begun_ns, ended_ns, flows=self._flows(drawn))
        yield from laid_out(tracks, _layout(begun_ns, ended_ns), batch)

    def _of(self, graph: GraphProfile) -> _Drawn:
        if graph not in self._drawn:
            self._drawn[graph] = _drawn(graph, self._schematic, self._features)
        return self._drawn[graph]

    def _flows(self, drawn: _Drawn) -> Sequence[FlowEnd]:
        """Return the ends of arrows, with numbers that no other inference has. The last bit says the kind, so that one
        kind does not change the numbers of the other."""
        first, self._next_flow = self._next_flow, self._next_flow + drawn.flow_count
        return [end._replace(flow=2 * (first + end.flow) + (end.kind == SEQUENCER)) for end in drawn.flows]


class InsideTracks:
    """A track with a slice for each launch inside of a persistent kernel that has marks: from when the first group
    began to when the last one ended."""

    def __init__(self, device: DeviceTracks) -> None:
        self._device = device
        self._rows = Rows()
        self._placed: dict[int, int] = {}
        self._tracks: list[Track] = []

    def place(self, shown: Shown) -> None:
        if len(times := shown.inside_ns):
            height = _layout(times[:, 0], times[:, 1]).height
            self._placed[shown.place] = self._rows.place(int(times.min()), int(times.max()), height)

    def declare(self, process: Process, numbers: Iterator[int]) -> Sequence[Track]:
        self._tracks = row_tracks(process, numbers, "inside persistent kernels", self._rows)
        return self._tracks

    def events(self, shown: Shown) -> Iterator[Event]:
        if shown.place in self._placed:
            begun_ns, ended_ns = shown.inside_ns.T
            tracks = self._tracks[self._placed[shown.place] :]
            batch = Slices(tracks[0], self._device.labels(shown.graph), begun_ns, ended_ns)
            yield from laid_out(tracks, _layout(begun_ns, ended_ns), batch)


def _layout(begun_ns: Times, ended_ns: Times) -> Layout:
    return layout_of(begun_ns, ended_ns, nested=False)


def _placed(rows: Rows, begun_ns: Times, ended_ns: Times) -> int:
    return rows.place(int(begun_ns.min()), int(ended_ns.max()), _layout(begun_ns, ended_ns).height)


def _waits(times: Times) -> tuple[Times, Times]:
    """From when to when each launch waited for nothing but its own start."""
    started_ns = times[:, STARTED]
    begun_ns = times[:, QUEUED].copy()
    begun_ns[1:] = np.maximum(begun_ns[1:], times[:-1, -1])
    return np.minimum(begun_ns, started_ns), started_ns


def _drawn(graph: GraphProfile, schematic: Schematic | None, features: Features) -> _Drawn:
    owner = {} if graph.plan is None else {place: one for one in graph.plan.operations for place in one.launches}
    labels, waits = [], []
    for place, launch in enumerate(graph.graph.launches):
        plan = owner.get(place)
        arguments = {**_of_launch(place, launch), **({} if plan is None else _of_operation(plan))}
        if features.traceback and plan is not None and graph.plan is not None and schematic is not None:
            arguments |= _traceback(plan, graph.plan, schematic)
        labels.append(Label(launch.operation, "launch", arguments))
        waits.append(Label(f"wait of {launch.operation}", "queue", {"launch": place}))
    pairs: list[tuple[str, int, int]] = []
    if features.enable_input_output_flow_events and graph.plan is not None:
        pairs += [(INPUT_OUTPUT, *pair) for pair in _edges(graph.plan)]
    if features.enable_sequencer_flow_events:
        pairs += [(SEQUENCER, place, place + 1) for place in range(len(labels) - 1)]
    count = 0 if graph.plan is None else len(graph.plan.edges())
    return _Drawn(labels, waits, sorted(_ends(pairs)), max(count, len(labels)))


def _ends(pairs: Sequence[tuple[str, int, int]]) -> Iterator[FlowEnd]:
    for kind in _KINDS:
        for number, (_, before, after) in enumerate(pair for pair in pairs if pair[0] == kind):
            yield FlowEnd(before, number, kind, True)
            yield FlowEnd(after, number, kind, False)


def _edges(plan: GraphPlan) -> Iterator[tuple[int, int]]:
    """From the last launch of an operation to the first one of each that reads its output, once."""
    operations = plan.operations
    for before, after in dict.fromkeys((before, after) for before, after, _ in plan.edges()):
        if operations[before].launches and operations[after].launches:
            yield max(operations[before].launches), min(operations[after].launches)


def _of_launch(place: int, launch: LoggedLaunch) -> dict[str, Value]:
    return {
        "launch": place,
        "kernel": launch.entry,
        "task": launch.task[:TASK_CHARACTERS],
        "global_size": _sizes(launch.global_size),
        "local_size": _sizes(launch.local_size),
    }


def _of_operation(plan: OperationPlan) -> dict[str, Value]:
    found: dict[str, Value] = {
        "op": plan.op,
        "configuration": _configuration(plan.configuration),
        "flops": plan.flops,
        "bytes": plan.nbytes,
    }
    if plan.alone_ns is not None:
        found["alone_ns"] = plan.alone_ns
    if plan.default_ns is not None:
        found["default_ns"] = plan.default_ns
    return found


def _traceback(plan: OperationPlan, graph: GraphPlan, schematic: Schematic) -> dict[str, Value]:
    nodes = [f"{name} ({graph.nodes[name]})" if name in graph.nodes else name for name in plan.nodes]
    return {"onnx_nodes": ", ".join(nodes), "model": schematic.model}


def _sizes(sizes: Sequence[int]) -> str:
    return " x ".join(map(str, sizes))


def _configuration(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())
