"""Draw the charts of a report with client/html/axes.py."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

from gputune.client.html.axes import (
    LEFT,
    RIGHT,
    WIDTH,
    RooflinePoint,
    anchor_at,
    columns,
    level,
    picture,
    roofline_chart,
    rows,
    words,
)
from gputune.client.html.scales import Scale, digits, log_scale, percent, time_text
from gputune.client.report.data import Place, Roofline, TaskView, Timed

SETTLED = 0.95
"""The share of the best at which a search counts as nearly there."""


def explored(task: TaskView) -> str:
    """Draw every trial in order of arrival: its time, or how it failed; the best so far as a line."""
    if not task.attempts:
        return ""
    statuses = [failure.status for failure in task.failures]
    top, bottom = 10 + 15 * len(statuses), 196
    costs = [attempt.cost_ns for attempt in task.attempts]
    found = [cost for cost in costs if cost is not None]
    across = Scale(0.5, len(costs) + 0.5, LEFT, WIDTH - RIGHT)
    parts = []
    for row, status in enumerate(statuses):
        y = 12 + 15 * row
        crosses = (f"M{across(n) - 2.5:g} {y - 2.5}l5 5m0 -5l-5 5" for n in _places(task, status))
        parts.append(f'<rect class="band" x="{LEFT}" y="{y - 6}" width="{WIDTH - LEFT - RIGHT}" height="12"/>')
        parts.append(words(LEFT - 4, y + 3.5, status.replace("_", " ").replace("device limits", "limits"), "end"))
        parts.append(f'<path class="cross" d="{"".join(crosses)}"/>')
    if found:
        default = [task.default.median_ns] if task.default else []
        up = log_scale([*found, *default], bottom, top + 4)
        parts.append(rows(up, [(tick, time_text(tick)) for tick in up.ticks(4)]))
        if default:
            parts.append(level(up(default[0]), "default"))
        line = [(across(n), up(best)) for n, best in _best_so_far(costs)]
        parts.append(f'<path class="best" d="{_steps([*line, (across(len(costs)), line[-1][1])])}"/>')
        dots = (f"M{across(n):g} {up(cost):g}h0" for n, cost in enumerate(costs, 1) if cost is not None)
        parts.append(f'<path class="dots" d="{"".join(dots)}"/>')
    parts.append(columns(across, [(tick, f"{tick:g}") for tick in across.ticks(5)], bottom))
    parts.append(words((LEFT + WIDTH) / 2, 226, "trial, in order of arrival", "middle"))
    return picture(f"{task.title}: time of every trial, and failures by name", 230, parts)


def best_so_far(task: TaskView) -> str:
    """Draw what share of the best found was reached after how many trials, and after which time."""
    costs = [attempt.cost_ns for attempt in task.attempts]
    steps = list(_best_so_far(costs))
    if not steps:
        return ""
    bottom = 190
    across, up = Scale(0, len(costs), LEFT, WIDTH - RIGHT), Scale(0, 1, bottom, 12)
    final = steps[-1][1]
    line = [(across(n), up(final / best)) for n, best in steps] + [(across(len(costs)), up(1))]
    d = _steps(line)
    spent = [0.0, *accumulate(attempt.spent_ns for attempt in task.attempts)]
    ticks = [tick for tick in across.ticks(5) if tick == int(tick)]
    near = next(n for n, best in steps if final / best >= SETTLED)
    parts = [
        rows(up, [(share, percent(share)) for share in (0, 0.25, 0.5, 0.75, 1)]),
        f'<path class="area" d="{d}V{bottom}H{line[0][0]:g}Z"/><path class="best" d="{d}"/>',
        f'<circle class="mark" cx="{across(near):g}" cy="{up(final / dict(steps)[near]):g}" r="4"/>',
        columns(across, [(tick, f"{tick:g}") for tick in ticks], bottom),
    ]
    if not task.untold:
        times = [(across(tick), time_text(spent[int(tick)])) for tick in ticks[1:]]
        parts += [words(x, bottom + 27, time, anchor_at(x)) for x, time in times]
    parts.append(
        words((LEFT + WIDTH) / 2, 232, "trials" if task.untold else "trials, and the time they took", "middle")
    )
    return picture(f"{task.title}: share of the best time found, by trials", 236, parts)


def nearly_there(task: TaskView) -> str:
    """When the search had come near the best it found, in words; empty without any."""
    steps = list(_best_so_far([attempt.cost_ns for attempt in task.attempts]))
    if not steps:
        return ""
    near = next(n for n, best in steps if steps[-1][1] / best >= SETTLED)
    last, best_ns = steps[-1]
    return (
        f"The fastest trial takes {time_text(best_ns)}. {percent(SETTLED)} of its speed was reached after {near} of "
        f"{len(task.attempts)} trials, all of it after {last}."
    )


def versus(task: TaskView) -> str:
    """Default and tuned on one axis from 0: samples, the median, and where it lies."""
    both = [(name, timed) for name, timed in (("default", task.default), ("tuned", task.tuned)) if timed is not None]
    if not both:
        return ""
    ends = [max(t.median_ns, t.interval.high if t.interval else 0, *_tame(t)) for _, t in both]
    bottom = 20 + 46 * len(both)
    across = Scale(0, 1.06 * max(ends), LEFT, WIDTH - RIGHT)
    parts = [columns(across, [(tick, time_text(tick)) for tick in across.ticks(4)], bottom, grid=True)]
    for row, (name, timed) in enumerate(both):
        y = 34 + 46 * row
        parts.append(words(LEFT - 4, y + 4, name, "end"))
        if timed.interval:
            low, high = across(timed.interval.low), across(timed.interval.high)
            parts.append(
                f'<rect class="span {name}" x="{low:g}" y="{y - 9}" width="{max(2, high - low):g}" height="18"/>'
            )
        dots = "".join(f"M{across(sample):g} {y}h0" for sample in timed.samples_ns)
        parts.append(f'<path class="dots" d="{dots}"/>')
        middle = across(timed.median_ns)
        parts.append(f'<path class="median {name}" d="M{middle:g} {y - 12}v24"/>')
        anchor = "end" if middle > 0.8 * WIDTH else "start" if middle < LEFT + 30 else "middle"
        parts.append(words(middle, y - 15, time_text(timed.median_ns), anchor, "strong"))
    return picture(f"{task.title}: default against tuned", bottom + 18, parts)


def roofline(place: Place, only: TaskView | None = None) -> str:
    """Operations per second by operations per byte, under the roof; one task among all, or each with a link. Tasks of
    other models are faint: they may have drawn the roof."""
    every = [*place.tasks, *place.others]
    roof = place.roof
    points = [_point(task, task.roofline, place, only) for task in every if task.roofline and task.roofline.flops]
    if roof is None or not points:
        return ""
    return roofline_chart("Roofline: GFLOP/s by operations per byte", roof.gflops, roof.gb_per_s, points)


def _point(task: TaskView, line: Roofline, place: Place, only: TaskView | None) -> RooflinePoint:
    mine = task is only or (only is None and task in place.tasks)
    style = "point" if mine else "faint"
    if only is not None:
        return RooflinePoint(line.intensity, line.gflops, style)
    name = f"{task.title}: {digits(line.gflops)} GFLOP/s, {percent(line.share)} of the roofline"
    return RooflinePoint(line.intensity, line.gflops, style, name, anchor_of(task, place))


def anchor_of(task: TaskView, place: Place) -> str:
    """Return where on the page a task is: digits only, and the same on every page of this cache."""
    return f"t{place.number}-{task.digest[:16]}"


def _tame(timed: Timed) -> list[float]:
    """Return the samples that the axis makes room for: an outlier must not squash the rest, and stands at the end."""
    return [sample for sample in timed.samples_ns if sample <= 1.5 * timed.median_ns]


def _places(task: TaskView, status: str) -> list[int]:
    return [n for n, attempt in enumerate(task.attempts, 1) if attempt.status == status]


def _best_so_far(costs: Sequence[float | None]) -> list[tuple[int, float]]:
    """Return (number of the trial, its cost) for each that was better than all before."""
    steps: list[tuple[int, float]] = []
    for n, cost in enumerate(costs, 1):
        if cost is not None and cost < (steps[-1][1] if steps else math.inf):
            steps.append((n, cost))
    return steps


def _steps(points: Sequence[tuple[float, float]]) -> str:
    (x, y), *rest = points
    return f"M{x:g} {y:g}" + "".join(f"H{x:g}V{y:g}" for x, y in rest)
