"""Write the tracks of the host: inferences and their parts by thread, and the phases of a generation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from gputune.client.viewer.profile import GraphProfile
from gputune.client.viewer.traces.events import Event, Label, Numbers, Process, Slices, Track
from gputune.client.viewer.traces.rows import Layout, Rows, layout_of
from gputune.client.viewer.traces.source import Shown, laid_out, row_tracks
from gputune.runtime.profiling.records import (
    PART_BEGUN,
    PART_ENDED,
    PART_KIND,
    PART_TENSOR,
    HostPart,
    LoggedInference,
    MarkedInference,
    Span,
    Times,
)


class HostTracks:
    """A track for each thread; inferences of one that overlap get further ones."""

    def __init__(self) -> None:
        self._rows: dict[int, Rows] = {}
        self._placed: list[int] = []
        self._tracks: dict[int, list[Track]] = {}
        self._labels: dict[tuple[GraphProfile, str, int], Label] = {}

    def place(self, shown: Shown) -> None:
        one = shown.inference
        rows = self._rows.setdefault(one.thread, Rows())
        self._placed.append(rows.place(one.begun_ns, one.ended_ns, _layout(shown)[2].height))

    def declare(self, process: Process, numbers: Iterator[int]) -> Sequence[Track]:
        for thread, rows in sorted(self._rows.items()):
            self._tracks[thread] = row_tracks(process, numbers, f"host thread {thread}", rows)
        return [track for tracks in self._tracks.values() for track in tracks]

    def events(self, shown: Shown) -> Iterator[Event]:
        one = shown.inference
        begun_ns, ended_ns, layout = _layout(shown)
        labels = [self._label(shown.graph, "marked" if isinstance(one, MarkedInference) else one.form, -1)]
        for kind, tensor in one.parts[:, [PART_KIND, PART_TENSOR]].tolist():
            labels.append(self._label(shown.graph, HostPart(kind).name.lower(), tensor))
        tracks = self._tracks[one.thread][self._placed[shown.place] :]
        yield from laid_out(tracks, layout, Slices(tracks[0], labels, begun_ns, ended_ns, _numbers(one)))

    def _label(self, graph: GraphProfile, name: str, tensor: int) -> Label:
        key = (graph, name, tensor)
        if key not in self._labels:
            self._labels[key] = _label(graph, name, tensor)
        return self._labels[key]


class PhaseTracks:
    """The spans of a log, nested where they lie within each other."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self._spans = spans
        self._begun_ns = np.array([span.begun_ns for span in spans], np.int64)
        self._ended_ns = np.array([span.ended_ns for span in spans], np.int64)
        self._layout = layout_of(self._begun_ns, self._ended_ns, nested=True)
        self._tracks: list[Track] = []

    def declare(self, process: Process, numbers: Iterator[int]) -> Sequence[Track]:
        """Return the tracks that all spans need."""
        rows = Rows()
        if self._spans:
            rows.place(0, 0, self._layout.height)
        self._tracks = row_tracks(process, numbers, "phases", rows)
        return self._tracks

    def events(self) -> Iterator[Event]:
        """Of the whole log."""
        if self._spans:
            labels = [_span_label(span) for span in self._spans]
            batch = Slices(self._tracks[0], labels, self._begun_ns, self._ended_ns)
            yield from laid_out(self._tracks, self._layout, batch)


def _layout(shown: Shown) -> tuple[Times, Times, Layout]:
    """When an inference and its parts began and ended, and their rows."""
    one, parts = shown.inference, shown.inference.parts
    begun_ns = np.concatenate([[one.begun_ns], parts[:, PART_BEGUN]]).astype(np.int64)
    ended_ns = np.concatenate([[one.ended_ns], parts[:, PART_ENDED]]).astype(np.int64)
    return begun_ns, ended_ns, layout_of(begun_ns, ended_ns, nested=True)


def _label(graph: GraphProfile, name: str, tensor: int) -> Label:
    if tensor < 0 and name not in _KINDS:
        return Label(graph.graph.name, "inference", {"form": name, "context": graph.graph.context})
    tensors = {"write": graph.graph.inputs, "read": graph.graph.outputs}.get(name, {})
    if not 0 <= tensor < len(tensors):
        return Label(name, "host")
    which, nbytes = list(tensors.items())[tensor]
    return Label(f"{name} {which}", "host", {"bytes": nbytes})


_KINDS = {kind.name.lower() for kind in HostPart}


def _numbers(one: LoggedInference) -> Numbers:
    """Return the arguments of an inference's slice, which is the first one."""
    found: dict[str, float] = {"number": one.number, "profiler_ns": one.profiler_ns}
    if one.clock is not None:
        found["clock_bound_ns"] = one.clock.bound_ns
    return {name: [value] for name, value in {**one.observed, **one.counters, **found}.items()}


def _span_label(span: Span) -> Label:
    arguments: Mapping[str, str | int] = {"path": span.name, "identifier": span.identifier}
    return Label(span.name.rpartition("/")[2] or span.name, "phase", arguments)
