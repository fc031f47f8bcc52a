"""Draw what is known of a graph's operations besides their times: the roofline, the critical path, the memory they
hold.
"""

from __future__ import annotations

from collections.abc import Iterator

from gputune.client.pages.blocks import Block, Column, figure, run, shares, table, text
from gputune.client.pages.drawing import RooflinePoint, held
from gputune.client.pages.drawing import roofline as roofline_drawing
from gputune.client.pages.scales import bytes_text, counted, digits, percent, time_text
from gputune.client.viewer.analysis.critical_path import CriticalPath
from gputune.client.viewer.schematic import GraphPlan
from gputune.client.viewer.sections.shown import Shown

MOST_POINTS = 2000
MOST_STEPS = 1000
LONGEST = 6


def roofline(shown: Shown) -> Iterator[Block]:
    """Yield each operation's place under the roof, with a link to its row, and where the peaks come from; nothing
    without peaks."""
    points = _points(shown)
    if shown.roofline is None or not points:
        return
    peaks = shown.roofline.peaks
    label = "Roofline: GFLOP/s by operations per byte, each operation's place"
    yield roofline_drawing(label, peaks.flops_per_ns, peaks.bytes_per_ns, points)
    said = f"{digits(peaks.flops_per_ns)} GFLOP/s and {digits(peaks.bytes_per_ns)} GB/s: {peaks.origin}."
    bare = len(shown.place_of) - len(points)
    said += f" Not shown: {counted(bare, 'operation')} without arithmetic or time." if bare else ""
    yield text(said, "sub")
    yield shares((), shown.legend())


def critical_path(shown: Shown) -> Iterator[Block]:
    """Yield the longest chain of operations that read each other, as a bar whose pieces lead to their rows."""
    path, plan = shown.path, shown.graph.plan
    if path is None or plan is None or path.length_ns <= 0:
        return
    times = {one.name: one.median_ns for one in shown.graph.operations}
    names = [name for name in (plan.operations[place].name for place in path.places) if name in times]
    yield shares(
        (times[name] / path.length_ns, shown.colour(name), _of_path(name, times[name], path), shown.row(name))
        for name in names[:MOST_STEPS]
    )
    yield text(path.note)
    columns = (
        Column("Longest on the path", lambda name: [run(name, link=shown.row(name))]),
        Column("µs", lambda name: times[name], "micros"),
        Column("Share", lambda name: times[name] / path.length_ns, "share"),
    )
    yield table(columns, sorted(names, key=lambda name: -times[name])[:LONGEST])


def _of_path(name: str, median_ns: float, path: CriticalPath) -> str:
    return f"{name}: {time_text(median_ns)}, {percent(median_ns / path.length_ns)} of the path"


def memory(plan: GraphPlan) -> Block | None:
    """Return how many bytes of the arenas are held while each operation runs; None where none are."""
    total, count = sum(plan.arena_bytes), len(plan.operations)
    if not total or not count:
        return None
    alive = plan.held_bytes()
    arenas = counted(len(plan.arena_bytes), "arena")
    note = (
        f"At most {bytes_text(max(alive))} of {bytes_text(total)} in {arenas} are held. Dashed: the bound, "
        f"{bytes_text(plan.arena_bound_bytes)}; no plan is smaller. Operations run from left to right."
    )
    title = "Bytes of arenas held while each operation runs"
    most = max([total, *alive, plan.arena_bound_bytes])
    return figure("Memory", held(title, alive, most, plan.arena_bound_bytes, bytes_text), note)


def _points(shown: Shown) -> list[RooflinePoint]:
    """Return the places of operations that compute something and take time."""
    rows = [row for row in shown.placed.values() if row.flops and row.nbytes and row.name in shown.place_of]
    return [
        RooflinePoint(
            row.flops / row.nbytes,
            row.gflops_per_s,
            f"point {shown.colour(row.name)}",
            f"{row.name}: {digits(row.gflops_per_s)} GFLOP/s, {percent(row.share)} of the roof",
            shown.row(row.name),
        )
        for row in rows[:MOST_POINTS]
    ]
