"""Draw what is known of a graph's operations besides their times: the roofline, the critical path, the memory they
hold.
"""

from __future__ import annotations

from gputune.client.html.axes import RooflinePoint, roofline_chart
from gputune.client.html.markup import figure, text
from gputune.client.html.scales import bytes_text, counted, digits, micros, percent, tenths, time_text
from gputune.client.html.steps import held_chart
from gputune.client.viewer.analysis.critical_path import CriticalPath
from gputune.client.viewer.page.groups import COLOURS, Shown
from gputune.client.viewer.page.insights import Insights
from gputune.client.viewer.schematic import GraphPlan

MOST_POINTS = 2000
MOST_STEPS = 1000
LONGEST = 6


def roofline(shown: Shown, insights: Insights) -> str:
    """Draw each operation's place under the roof, with a link to its row; empty without peaks."""
    points = _points(shown, insights)
    if insights.roofline is None or not points:
        return ""
    peaks = insights.roofline.peaks
    label = "Roofline: GFLOP/s by operations per byte, each operation's place"
    return roofline_chart(label, peaks.flops_per_ns, peaks.bytes_per_ns, points)


def roofline_note(shown: Shown, insights: Insights) -> str:
    """Return where the peaks come from, and what is not in the picture; HTML."""
    if insights.roofline is None:
        return ""
    peaks = insights.roofline.peaks
    said = f"{digits(peaks.flops_per_ns)} GFLOP/s and {digits(peaks.bytes_per_ns)} GB/s: {peaks.origin}."
    bare = len(shown.place_of) - len(_points(shown, insights))
    said += f" Not shown: {counted(bare, 'operation')} without arithmetic or time." if bare else ""
    return f'{text(said)}<br><span class="legend">{_legend(shown)}</span>'


def critical_path(shown: Shown, insights: Insights) -> str:
    """Draw the longest chain of operations that read each other, as a bar whose pieces lead to their rows."""
    path, plan = insights.path, shown.graph.plan
    if path is None or plan is None or path.length_ns <= 0:
        return ""
    times = {one.name: one.median_ns for one in shown.graph.operations}
    names = [name for name in (plan.operations[place].name for place in path.places) if name in times]
    pieces = "".join(
        f'<a tabindex="-1" class="{shown.colour(name)}" href="#{shown.row(name)}" '
        f'style="width:{100 * times[name] / path.length_ns:.3f}%" '
        f'title="{text(f"{name}: {_of_path(times[name], path)}")}"></a>'
        for name in names[:MOST_STEPS]
    )
    longest = sorted(names, key=lambda name: -times[name])[:LONGEST]
    rows = "".join(
        f'<tr><td><a href="#{shown.row(name)}">{text(name)}</a></td><td class="number">{micros(times[name])}</td>'
        f'<td class="number">{tenths(times[name] / path.length_ns)}</td></tr>'
        for name in longest
    )
    heads = '<th scope="col">Longest on the path</th><th class="number" scope="col">µs</th>'
    heads += '<th class="number" scope="col">Share</th>'
    table = f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'
    return f'<div class="layers">{pieces}</div><p>{text(path.note)}</p>{table}'


def _of_path(median_ns: float, path: CriticalPath) -> str:
    return f"{time_text(median_ns)}, {percent(median_ns / path.length_ns)} of the path"


def memory(plan: GraphPlan) -> str:
    """Bytes of the arenas that are held while each operation runs; empty where none are."""
    total, count = sum(plan.arena_bytes), len(plan.operations)
    if not total or not count:
        return ""
    alive = plan.held_bytes()
    arenas = counted(len(plan.arena_bytes), "arena")
    note = (
        f"At most {bytes_text(max(alive))} of {bytes_text(total)} in {arenas} are held. Dashed: the bound, "
        f"{bytes_text(plan.arena_bound_bytes)}; no plan is smaller. Operations run from left to right."
    )
    title = "Bytes of arenas held while each operation runs"
    chart = held_chart(title, alive, max([total, *alive, plan.arena_bound_bytes]), plan.arena_bound_bytes)
    return figure("Memory", chart, text(note))


def _points(shown: Shown, insights: Insights) -> list[RooflinePoint]:
    """Of operations that compute something and take time."""
    rows = [row for row in insights.placed.values() if row.flops and row.nbytes and row.name in shown.place_of]
    return [
        RooflinePoint(
            row.flops / row.nbytes,
            row.gflops_per_s,
            f"op {shown.colour(row.name)}",
            f"{row.name}: {digits(row.gflops_per_s)} GFLOP/s, {percent(row.share)} of the roof",
            shown.row(row.name),
        )
        for row in rows[:MOST_POINTS]
    ]


def _legend(shown: Shown) -> str:
    """Return the colours of groups."""
    return "".join(
        f'<span class="entry"><i class="key {group.colour}"></i>{text(group.name)}</span> '
        for group in shown.groups[: COLOURS + 1]
    )
