"""A report's part about whole inferences: what was measured end to end, and where the kernels' time goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gputune.client.html.markup import text
from gputune.client.html.scales import percent, time_text
from gputune.client.report.data import EndToEnd, Place, Report
from gputune.client.report.html.charts import anchor_of, end_to_end

COLOURS = 8
"""Ops with a colour of their own in the bar of all operations; the style has as many."""
LAYERS_AT_MOST = 2000
"""More operations than pixels of a wide screen cannot be told apart."""


def inferences(report: Report) -> str:
    """The gain of whole inferences, or that it was not measured; nothing without a context."""
    if report.context is None:
        return ""
    if not report.end_to_end:
        return (
            '<p class="note">Whole inferences of this context were not measured: the sum of its kernels\' times '
            "below is an estimate of what tuning gains.</p>"
        )
    return f'<div class="card">{"".join(_measured(one, len(report.graphs) > 1) for one in report.end_to_end)}</div>'


def _measured(one: EndToEnd, several: bool) -> str:
    name = f"Graph {one.graph}: " if several else ""
    gain, interval = one.gain, one.gain_interval
    style = "good" if interval.low > 1 else "bad" if interval.high < 1 else "soft"
    said = (
        f"{text(name)}inference {time_text(one.tuned_ns)}, untuned {time_text(one.untuned_ns)}: "
        f'<b class="{style}">{gain:.2f}×</b> ({interval.low:.2f}–{interval.high:.2f}), measured end to end'
    )
    return f'<p class="headline">{said}</p><figure>{end_to_end(one)}</figure>'


@dataclass(frozen=True)
class _Part:
    """An operation in the bar."""

    operation: str
    op: str
    anchor: str
    time_ns: float


def layers(place: Place) -> str:
    """The tuned time of each operation as a part of one bar, in the order in which they run; one bar per graph."""
    tasks = {task.digest: task for task in place.tasks}
    graphs: dict[str, list[_Part]] = {}
    totals: dict[str, float] = {}
    for run in place.runs[:LAYERS_AT_MOST]:
        task = tasks[run.task]
        if task.tuned is not None:
            part = _Part(run.operation, task.op, anchor_of(task, place), task.tuned.median_ns)
            graphs.setdefault(run.graph, []).append(part)
            totals[task.op] = totals.get(task.op, 0.0) + part.time_ns
    if not graphs:
        return ""
    ops = sorted(totals, key=lambda op: -totals[op])
    colours = {op: f"o{number}" for number, op in enumerate(ops[:COLOURS])}
    shares = {colours[op]: (op, totals[op]) for op in ops[:COLOURS]}
    if rest := sum(totals[op] for op in ops[COLOURS:]):
        shares["rest"] = ("others", rest)
    whole = sum(totals.values())
    legend = " ".join(
        f'<span class="entry"><span class="key {colour}"></span>{text(op)} {percent(time_ns / whole)}</span>'
        for colour, (op, time_ns) in shares.items()
    )
    bars = "".join(_bar(graph if len(graphs) > 1 else "", parts, colours) for graph, parts in graphs.items())
    return (
        f'<div class="card"><h3>Operations in the order in which they run</h3>{bars}<p class="sub">{legend}</p></div>'
    )


def _bar(graph: str, parts: Sequence[_Part], colours: Mapping[str, str]) -> str:
    total = sum(part.time_ns for part in parts)
    pieces = "".join(
        f'<a tabindex="-1" class="{colours.get(part.op, "rest")}" href="#{part.anchor}" '
        f'style="width:{100 * part.time_ns / total:.3f}%" title="{text(_said(part, total))}"></a>'
        for part in parts
    )
    name = f'<p class="sub">{text(graph)}, {time_text(total)}</p>' if graph else ""
    return f'{name}<div class="layers">{pieces}</div>'


def _said(part: _Part, total: float) -> str:
    return f"{part.operation}: {part.op}, {time_text(part.time_ns)}, {percent(part.time_ns / total)}"
