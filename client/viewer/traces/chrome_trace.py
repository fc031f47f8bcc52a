"""Write Chrome's trace event format, one JSON file that chrome://tracing and Perfetto open.

Moments and durations are microseconds with three decimals, so that every ns is kept; they are written as text from
integers and never rounded. The format is described in "Trace Event Format", Nat Duca and Dan Sinclair.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import zip_longest
from pathlib import Path
from typing import BinaryIO

import numpy as np

from gputune.client.outputs import whole
from gputune.client.progress import SILENT, Progress
from gputune.client.viewer.traces.events import CounterTrack, Counts, Event, FlowEnd, Label, Numbers, Slices, Track
from gputune.client.viewer.traces.source import followed
from gputune.client.viewer.traces.timeline import Timeline
from gputune.core.json_text import json_text
from gputune.runtime.profiling.records import Times


def write_chrome_trace(timeline: Timeline, path: Path, progress: Progress = SILENT) -> None:
    """Write the file, an event a line. Raises OutputError."""
    with whole(path) as unfinished, unfinished.open("wb", buffering=1 << 20) as file:
        _write(timeline, file, progress)


def _write(timeline: Timeline, file: BinaryIO, progress: Progress) -> None:
    about = json_text({process.name: process.origin for process in timeline.processes})
    file.write(f'{{"displayTimeUnit":"ns","otherData":{about},"traceEvents":[\n'.encode())
    file.write(",\n".join(_metadata(timeline)).encode())
    for batch in followed(timeline.batches(), timeline.inferences, progress):
        for event in batch:
            for line in _lines(event):
                file.write(b",\n")
                file.write(line.encode())
    file.write(b"\n]}\n")


def microseconds(times_ns: Times) -> list[str]:
    """Moments or durations as text, each with three decimals."""
    whole, rest = np.divmod(np.abs(times_ns), 1000)
    if len(times_ns) and times_ns.min() < 0:
        signs = ["-" if each < 0 else "" for each in times_ns.tolist()]
        return [f"{sign}{us}.{ns:03d}" for sign, us, ns in zip(signs, whole.tolist(), rest.tolist(), strict=True)]
    return [f"{us}.{ns:03d}" for us, ns in zip(whole.tolist(), rest.tolist(), strict=True)]


def _metadata(timeline: Timeline) -> Iterator[str]:
    for process in timeline.processes:
        yield _named("process_name", process.number, 0, "name", process.name)
        yield _named("process_sort_index", process.number, 0, "sort_index", process.number)
    for track in timeline.tracks:
        if not isinstance(track, CounterTrack):
            yield _named("thread_name", track.process.number, track.number, "name", track.name)
            yield _named("thread_sort_index", track.process.number, track.number, "sort_index", track.number)


def _named(what: str, process: int, track: int, name: str, value: str | int) -> str:
    return json_text({"ph": "M", "pid": process, "tid": track, "name": what, "args": {name: value}})


def _lines(event: Event) -> Iterator[str]:
    """Events, several in a text of lines."""
    if isinstance(event, Counts):
        if len(event.at_ns):
            yield ",\n".join(_counts(event))
        return
    if len(event.labels):
        yield ",\n".join(_slices(event))
    if event.flows:
        yield ",\n".join(_flows(event.track, microseconds(event.begun_ns), event.flows))


def _slices(event: Slices) -> list[str]:
    moments = microseconds(event.begun_ns)
    took = microseconds(event.ended_ns - event.begun_ns)
    texts = [_texts(label, event.track) for label in event.labels]
    lines = [f'{begin}{at},"dur":{long}{end}' for (begin, end, _), at, long in zip(texts, moments, took, strict=True)]
    for place, numbers in enumerate(_numbers(event.numbers)):
        begin, _, arguments = texts[place]
        inner = ",".join(filter(None, (arguments, numbers)))
        lines[place] = f'{begin}{moments[place]},"dur":{took[place]},"args":{{{inner}}}}}'
    return lines


@lru_cache(maxsize=1 << 16)
def _texts(label: Label, track: Track) -> tuple[str, str, str]:
    """Return what stands before a slice's moment and behind its duration, and its arguments without braces."""
    name, category = json_text(label.name), json_text(label.category)
    arguments = json_text(label.arguments)[1:-1]
    begin = f'{{"ph":"X","pid":{track.process.number},"tid":{track.number},"name":{name},"cat":{category},"ts":'
    return begin, f',"args":{{{arguments}}}}}', arguments


def _numbers(numbers: Numbers) -> Iterator[str]:
    """Yield the arguments that differ, of one slice after the other."""
    columns = []
    for name, values in numbers.items():
        key = json_text(name)
        columns.append([f"{key}:{value if type(value) is int else json_text(value)}" for value in values])
    for row in zip_longest(*columns):
        yield ",".join(filter(None, row))


def _flows(track: Track, moments: Sequence[str], flows: Sequence[FlowEnd]) -> Iterator[str]:
    """Arrows begin and end at the beginnings of slices, to which viewers bind them."""
    where = f'"pid":{track.process.number},"tid":{track.number}'
    for place, flow, kind, starts in flows:
        phase = '"ph":"s"' if starts else '"ph":"f","bp":"e"'
        yield f'{{{phase},"id":{flow},{where},"name":"{kind}","cat":"flow","ts":{moments[place]}}}'


def _counts(event: Counts) -> Iterator[str]:
    track = event.track
    name, unit = json_text(track.name), json_text(track.unit)
    begin = f'{{"ph":"C","pid":{track.process.number},"tid":{track.number},"name":{name},"ts":'
    for at, value in zip(microseconds(event.at_ns), event.values, strict=True):
        yield f'{begin}{at},"args":{{{unit}:{value if type(value) is int else json_text(value)}}}}}'
