"""Prepare each kind of track from the inferences, one after the other: placed first and written afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol, TypeVar

from gputune.client.progress import Progress
from gputune.client.viewer.profile import GraphProfile
from gputune.client.viewer.traces.events import Event, Process, Slices, Track
from gputune.client.viewer.traces.rows import Layout, Rows
from gputune.runtime.profiling.records import LoggedInference, MarkedInference, Times

_Item = TypeVar("_Item")
_STEPS = 100


@dataclass(frozen=True, eq=False)
class Shown:
    """An inference that is shown. place: among those of its log, in the order in which they begin."""

    place: int
    graph: GraphProfile
    inference: LoggedInference

    @property
    def launches_ns(self) -> Times:
        """The timestamps of launches one by one by the host's clock."""
        return self._times[:0] if isinstance(self.inference, MarkedInference) else self._times

    @property
    def inside_ns(self) -> Times:
        """The same of launches inside persistent kernels."""
        return self._times if isinstance(self.inference, MarkedInference) else self._times[:0]

    @cached_property
    def _times(self) -> Times:
        return self.inference.launches_ns()


class Source(Protocol):
    """Some tracks of a log. All inferences are placed, then tracks are declared, then events asked for, in order."""

    def place(self, shown: Shown) -> None:
        """Make room for an inference."""

    def declare(self, process: Process, numbers: Iterator[int]) -> Sequence[Track]:
        """Return the tracks that all inferences need, numbered."""

    def events(self, shown: Shown) -> Iterator[Event]:
        """Of an inference."""


def followed(items: Iterable[_Item], total: int, progress: Progress) -> Iterator[_Item]:
    """Yield the same items; how many of them are done is told in steps that cost nothing."""
    step = max(1, total // _STEPS)
    with progress.running("inferences", total):
        for number, item in enumerate(items, 1):
            yield item
            if number % step == 0:
                progress.advance(step, "")


def row_tracks(process: Process, numbers: Iterator[int], name: str, rows: Rows) -> list[Track]:
    """Return a track for each row; the first one has the name."""
    titles = [name if row == 0 else f"{name} ({row + 1})" for row in range(len(rows))]
    return [Track(next(numbers), process, title) for title in titles]


def laid_out(tracks: Sequence[Track], layout: Layout, batch: Slices) -> Iterator[Slices]:
    """Yield a batch on the tracks of its rows, which begin with the first of `tracks`; its own track does not count."""
    if layout.rows is None:
        yield replace(batch, track=tracks[0])
        return
    for track, places in zip(tracks, layout.places(), strict=False):
        own = places.tolist()
        there = {place: new for new, place in enumerate(own)}
        yield Slices(
            track=track,
            labels=[batch.labels[place] for place in own],
            begun_ns=batch.begun_ns[places],
            ended_ns=batch.ended_ns[places],
            numbers={name: _chosen(values, own) for name, values in batch.numbers.items()},
            flows=sorted(end._replace(place=there[end.place]) for end in batch.flows if end.place in there),
        )


def _chosen(values: Sequence[int] | Sequence[float], places: Sequence[int]) -> Sequence[float]:
    return [values[place] for place in places if place < len(values)]
