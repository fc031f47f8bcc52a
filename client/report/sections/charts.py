"""Draw the charts of a report with client/pages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

from gputune.client.pages.blocks import Block
from gputune.client.pages.drawing import (
    SIDE,
    RooflinePoint,
    dots,
    drawing,
    level,
    path,
    scale_across,
    scale_up,
    steps,
    ticks,
)
from gputune.client.pages.drawing import roofline as roofline_drawing
from gputune.client.pages.intervals import Bar, Row, intervals
from gputune.client.pages.scales import digits, log_scale, percent, time_text
from gputune.client.report.data import DeviceView, Roofline, TaskView, Timed

SETTLED = 0.95
"""The share of the best at which a search counts as nearly there."""
BAND = 70
"""The height of a kind of failures above all times."""


def explored(task: TaskView) -> Block | None:
    """Draw every trial in order of arrival: its time, or how it failed; the best so far as a line."""
    if not task.attempts:
        return None
    statuses = [failure.status for failure in task.failures]
    costs = [attempt.cost_ns for attempt in task.attempts]
    found = [cost for cost in costs if cost is not None]
    across = scale_across(0.5, len(costs) + 0.5)
    rows = [(BAND * (row + 0.5), status) for row, status in enumerate(statuses)]
    paths = [path(dots((across(n), y) for n in _places(task, status)), "cross", status) for y, status in rows]
    heights = [(y, status.replace("_", " ").replace("device limits", "limits")) for y, status in rows]
    if found:
        default = [task.default.median_ns] if task.default else []
        up = log_scale([*found, *default], SIDE, BAND * len(statuses))
        heights += ticks(up, time_text)
        paths += [level(up(cost), "default") for cost in default]
        best = [(across(n), up(cost)) for n, cost in _best_so_far(costs)]
        paths.append(path(steps([*best, (across(len(costs)), best[-1][1])]), "best"))
        paths.append(path(dots((across(n), up(cost)) for n, cost in enumerate(costs, 1) if cost is not None), "dots"))
    return drawing(
        f"{task.title}: time of every trial, and failures by name",
        paths,
        up=heights,
        across=ticks(across, "{:g}".format, 5),
        axis="trial, in order of arrival",
    )


def best_so_far(task: TaskView) -> Block | None:
    """Draw what share of the best found was reached after how many trials, and after which time."""
    costs = [attempt.cost_ns for attempt in task.attempts]
    found = _best_so_far(costs)
    if not found:
        return None
    across, up = scale_across(0, len(costs)), scale_up(0, 1.05)
    final = found[-1][1]
    best = steps([*((across(n), up(final / cost)) for n, cost in found), (across(len(costs)), up(1))])
    near, cost = next((n, cost) for n, cost in found if final / cost >= SETTLED)
    spent = [0.0, *accumulate(attempt.spent_ns for attempt in task.attempts)]
    trials = [tick for tick in across.ticks(4) if tick == int(tick)]
    times = ["" if task.untold or not tick else f", {time_text(spent[int(tick)])}" for tick in trials]
    return drawing(
        f"{task.title}: share of the best time found, by trials",
        [
            path(f"{best}V{SIDE}H{across(found[0][0]):g}Z", "fill"),
            path(best, "best"),
            path(dots([(across(near), up(final / cost))]), "mark"),
        ],
        up=[(up(share), percent(share)) for share in (0, 0.25, 0.5, 0.75, 1)],
        across=[(across(tick), f"{tick:g}{time}") for tick, time in zip(trials, times, strict=True)],
        axis="trials" if task.untold else "trials, and the time they took",
    )


def nearly_there(task: TaskView) -> str:
    """When the search had come near the best it found, in words; empty without any."""
    found = _best_so_far([attempt.cost_ns for attempt in task.attempts])
    if not found:
        return ""
    near = next(n for n, best in found if found[-1][1] / best >= SETTLED)
    last, best_ns = found[-1]
    return (
        f"The fastest trial takes {time_text(best_ns)}. {percent(SETTLED)} of its speed was reached after {near} of "
        f"{len(task.attempts)} trials, all of it after {last}."
    )


def versus(task: TaskView) -> Block | None:
    """Draw default and tuned on one scale from 0: the median, its interval, and the samples."""
    both = [(name, timed) for name, timed in (("default", task.default), ("tuned", task.tuned)) if timed is not None]
    if not both:
        return None
    end = 1.06 * max(max(t.median_ns, t.interval.high if t.interval else 0, *_tame(t)) for _, t in both)
    rows = [Row(f"{name}: {time_text(timed.median_ns)}", [_bar(name, timed)]) for name, timed in both]
    values = scale_across(0, end).ticks(3)
    return intervals(f"{task.title}: default against tuned", rows, end, [(ns, time_text(ns)) for ns in values])


def _bar(name: str, timed: Timed) -> Bar:
    low, high = (timed.interval.low, timed.interval.high) if timed.interval else (None, None)
    return Bar(timed.median_ns, name, low, high, timed.samples_ns)


def roofline(place: DeviceView, only: TaskView | None = None) -> Block | None:
    """Draw operations per second by operations per byte, under the roof; one task among all, or each with a link. Tasks
    of other models are faint: they may have drawn the roof."""
    every = [*place.tasks, *place.others]
    roof = place.roof
    points = [_point(task, task.roofline, place, only) for task in every if task.roofline and task.roofline.flops]
    if roof is None or not points:
        return None
    return roofline_drawing("Roofline: GFLOP/s by operations per byte", roof.gflops, roof.gb_per_s, points)


def _point(task: TaskView, line: Roofline, place: DeviceView, only: TaskView | None) -> RooflinePoint:
    mine = task is only or (only is None and task in place.tasks)
    style = "point" if mine else "faint"
    if only is not None:
        return RooflinePoint(line.intensity, line.gflops, style)
    name = f"{task.title}: {digits(line.gflops)} GFLOP/s, {percent(line.share)} of the roofline"
    return RooflinePoint(line.intensity, line.gflops, style, name, anchor_of(task, place))


def anchor_of(task: TaskView, place: DeviceView) -> str:
    """Return where on the page a task is: digits only, and the same on every page of this cache."""
    return f"t{place.number}-{task.digest[:16]}"


def _tame(timed: Timed) -> list[float]:
    """Return the samples that the axis makes room for: an outlier must not squash the rest, and stands at the end."""
    return [sample for sample in timed.samples_ns if sample <= 1.5 * timed.median_ns]


def _places(task: TaskView, status: str) -> list[int]:
    return [n for n, attempt in enumerate(task.attempts, 1) if attempt.status == status]


def _best_so_far(costs: Sequence[float | None]) -> list[tuple[int, float]]:
    """Return (number of the trial, its cost) for each that was better than all before."""
    found: list[tuple[int, float]] = []
    for n, cost in enumerate(costs, 1):
        if cost is not None and cost < (found[-1][1] if found else math.inf):
            found.append((n, cost))
    return found
