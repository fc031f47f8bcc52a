"""Write the timeline: a few inferences with all parts and launches, as data that the page's script draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gputune.client.html.markup import text
from gputune.client.html.scales import time_text
from gputune.client.viewer.page.groups import COLOURS, Shown
from gputune.core.json_text import json_text
from gputune.runtime.profiling.records import PART_BEGUN, PART_ENDED, PART_KIND, PART_TENSOR, LoggedInference, Part

MOST_INFERENCES = 12
MOST_SLICES = 20_000
"""Of all inferences that are shown together; the first of them is cut to as many."""


@dataclass(frozen=True)
class Sample:
    """An inference that is shown, and why."""

    inference: LoggedInference
    why: str


def samples(inferences: Sequence[LoggedInference]) -> list[Sample]:
    """Return the median one first, then the fastest, the slowest, the first, the last, and some evenly between."""
    by_time = sorted(inferences, key=lambda one: one.elapsed_ns)
    if not by_time:
        return []
    every = max(1, len(inferences) // MOST_INFERENCES)
    wanted = [
        Sample(by_time[(len(by_time) - 1) // 2], "median"),
        Sample(by_time[0], "fastest"),
        Sample(by_time[-1], "slowest"),
        Sample(inferences[0], "first"),
        Sample(inferences[-1], "last"),
        *(Sample(one, "") for one in inferences[every::every]),
    ]
    slices = max(len(wanted[0].inference.launches) + len(wanted[0].inference.parts), 1)
    found: dict[int, Sample] = {}
    for one in wanted:
        found.setdefault(id(one.inference), one)
    return list(found.values())[: max(1, min(MOST_INFERENCES, MOST_SLICES // slices))]


def timeline(shown: Shown, begun_ns: int) -> str:
    """Return the picture with its buttons; begun_ns: the moment from which beginnings of inferences count."""
    chosen = samples(shown.graph.inferences)
    options = "".join(f'<option value="{place}">{text(_said(one))}</option>' for place, one in enumerate(chosen))
    buttons = "".join(
        f'<button type="button" data-do="{do}" aria-label="{name}" title="{name}">{sign}</button>'
        for do, name, sign in (
            ("back", "previous slice", "‹"),
            ("on", "next slice", "›"),
            ("out", "zoom out", "−"),
            ("in", "zoom in", "+"),
            ("fit", "whole inference", "Fit"),
        )
    )
    legend = "".join(
        f'<span class="entry"><i class="key {group.colour}"></i>{text(group.name)}</span>'
        for group in shown.groups[: COLOURS + 1]
    )
    device = f'<p class="sub legend"><b>Device</b> {legend}</p>' if shown.graph.timed else ""
    hosts = "".join(
        f'<span class="entry"><i class="key part-{part.name.lower()}"></i>{_PART_NAMES[part]}</span>' for part in Part
    )
    return (
        f'<div class="timeline" data-of="{shown.anchor}-data"><div class="controls"><select '
        f'aria-label="Inference to show">{options}</select><span class="buttons">{buttons}</span></div>'
        f'<canvas tabindex="0" role="img" aria-label="Timeline of an inference; arrow keys go from slice to slice, '
        f'plus and minus zoom"></canvas><div class="facts" aria-live="polite"></div>'
        f'{device}<p class="sub legend"><b>Host</b> {hosts}</p></div>'
        f"{data_block(f'{shown.anchor}-data', timeline_data(shown, chosen, begun_ns))}"
    )


def timeline_data(shown: Shown, chosen: Sequence[Sample], begun_ns: int) -> dict[str, Any]:
    """Return what the script draws, in ns: moments of slices count from the beginning of their inference, those of
    inferences from begun_ns. parts: kind, tensor, beginning and duration; launches: the log's columns, with a duration
    in place of the end."""
    graph = shown.graph.graph
    return {
        "operations": [
            [one.name, shown.group_of[one.name], shown.row(one.name), round(one.median_ns)]
            for one in shown.graph.operations
        ],
        "groups": [[group.name, group.colour] for group in shown.groups],
        "kinds": [[_PART_NAMES[part], f"part-{part.name.lower()}"] for part in Part],
        "launches": [shown.place_of[launch.operation] for launch in graph.launches],
        "inputs": list(graph.inputs),
        "outputs": list(graph.outputs),
        "inferences": [_inference(sample, begun_ns) for sample in chosen],
    }


def data_block(identifier: str, data: Any) -> str:
    """Return data that a script reads and no browser runs, whatever texts are in it."""
    content = json_text(data).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return f'<script type="application/json" id="{identifier}">{content}</script>'


_PART_NAMES = {
    Part.HOST: "host",
    Part.WRITE: "write",
    Part.ENQUEUE: "enqueue",
    Part.WAIT: "wait",
    Part.READ: "read",
    Part.PROFILER: "profiler",
}


def _inference(sample: Sample, begun_ns: int) -> dict[str, Any]:
    one = sample.inference
    parts, launches = one.parts[:MOST_SLICES].copy(), one.launches_ns()[:MOST_SLICES].copy()
    parts[:, PART_ENDED] -= parts[:, PART_BEGUN]
    parts[:, PART_BEGUN] -= one.begun_ns
    if launches.size:
        launches[:, -1] -= launches[:, -2]
        launches[:, :-1] -= one.begun_ns
    return {
        "number": one.number,
        "begun": one.begun_ns - begun_ns,
        "elapsed": one.elapsed_ns,
        "parts": parts[:, [PART_KIND, PART_TENSOR, PART_BEGUN, PART_ENDED]].tolist(),
        "launches": np.asarray(launches).tolist(),
    }


def _said(sample: Sample) -> str:
    why = f", {sample.why}" if sample.why else ""
    return f"inference {sample.inference.number}{why}: {time_text(sample.inference.elapsed_ns)}"
