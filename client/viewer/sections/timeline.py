"""Write the timeline: a few inferences with all parts and launches, as data that the page's script draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gputune.client.pages.blocks import Block
from gputune.client.pages.scales import time_text
from gputune.client.viewer.sections.shown import Shown
from gputune.runtime.profiling.records import PART_BEGUN, PART_ENDED, PART_KIND, PART_TENSOR, HostPart, LoggedInference

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


def timeline(shown: Shown, begun_ns: int) -> Block:
    """Return what page.js draws, in ns: moments of slices count from the beginning of their inference, those of
    inferences from begun_ns. parts: kind, tensor, beginning and duration; launches: the log's columns, with a duration
    in place of the end."""
    graph = shown.graph.graph
    return {
        "kind": "timeline",
        "timed": bool(shown.graph.timed),
        "operations": [
            [one.name, shown.group_of[one.name], shown.row(one.name), round(one.median_ns)]
            for one in shown.graph.operations
        ],
        "groups": [[group.colour, group.name] for group in shown.groups],
        "kinds": [[f"part-{part.name.lower()}", part.name.lower()] for part in HostPart],
        "launches": [shown.place_of[launch.operation] for launch in graph.launches],
        "inputs": list(graph.inputs),
        "outputs": list(graph.outputs),
        "inferences": [_inference(sample, begun_ns) for sample in samples(shown.graph.inferences)],
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
        "said": _said(sample),
        "number": one.number,
        "begun": one.begun_ns - begun_ns,
        "elapsed": one.elapsed_ns,
        "parts": parts[:, [PART_KIND, PART_TENSOR, PART_BEGUN, PART_ENDED]].tolist(),
        "launches": np.asarray(launches).tolist(),
    }


def _said(sample: Sample) -> str:
    why = f", {sample.why}" if sample.why else ""
    return f"inference {sample.inference.number}{why}: {time_text(sample.inference.elapsed_ns)}"
