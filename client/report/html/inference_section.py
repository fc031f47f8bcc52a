"""Write a report's section on whole inferences: end-to-end measurements, and how kernels share the time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gputune.client.html.markup import text
from gputune.client.html.scales import counted, digits, percent, time_text
from gputune.client.report.data import Inferences, Place, Report, WholeContext
from gputune.client.report.html.charts import anchor_of
from gputune.client.tuning.measuring.end_to_end import KEPT, OPEN, RULE

COLOURS = 8
"""Ops with a colour of their own in the bar of all operations; the style has as many."""
LAYERS_AT_MOST = 2000
"""More operations than pixels of a wide screen cannot be told apart."""
UNFOLDED_AT_MOST = 24
"""With more operations than this, their bars are folded away."""


def inferences(report: Report) -> str:
    """Return the gain of whole inferences, or that it was not measured; nothing without a context."""
    if report.context is None:
        return ""
    if not report.end_to_end:
        return (
            '<p class="note">Whole inferences of this context were not measured. The sum of its kernel times below '
            "is an estimate of the gain.</p>"
        )
    return f'<div class="card">{"".join(_measured(one, len(report.graphs) > 1) for one in report.end_to_end)}</div>'


def _measured(one: Inferences, several: bool) -> str:
    name, found = f"Graph {one.graph}: " if several else "", one.end_to_end
    gain = found.gain
    style = "soft" if gain is None or not gain.certain else "good" if gain.low > 1 else "bad"
    times = f"untuned {time_text(found.untuned_ns)}"
    said = "tuning has led to no other context"
    if gain is not None:
        times = f"{'best tuned' if found.kept == 'untuned' else 'tuned'} {time_text(found.tuned_ns)}, {times}"
        said = gain.words
    widest = max(map(_reach, one.contexts))
    bars = "".join(_context_row(context, widest) for context in one.contexts)
    notes = [
        f"{KEPT[found.kept][0].upper()}{KEPT[found.kept][1:]}.",
        f"{OPEN[0].upper()}{OPEN[1:]}." * found.open,
        RULE,
    ]
    return (
        f'<p class="headline">{text(name)}inference, measured end to end: {times}: <b class="{style}">{said}</b></p>'
        f'<div class="bars">{bars}</div><p class="sub">{_BARS} {" ".join(filter(None, notes))}</p>'
    )


_BARS = (
    "Bars: speedup over the untuned context; longer is faster, and the thin line is the confidence interval. Whole "
    "contexts took turns; a context that was certainly slower left early."
)


def _reach(context: WholeContext) -> float:
    """Return how far a bar with its interval reaches; a wide interval ends at the edge, so that bars can still be
    compared."""
    return 1.0 if context.gain is None else min(context.gain.high, 1.5 * context.gain.median)


def _context_row(context: WholeContext, widest: float) -> str:
    """Return a whole context's row: what it is, and how many times as fast as untuned, as a bar from 0 and in words."""
    name, facts = _name(context), ""
    if context.operations is not None:
        form = "persistent kernels" if context.persistent else "launches one by one"
        fused = f"{counted(context.fused, 'group')} fused" if context.fused else "nothing fused"
        chosen = "this context: " if context.chosen else ""
        facts = f"{chosen}{counted(context.operations, 'operation')}, {fused}, {form}"
    style = "default" if context.untuned else "tuned" if context.chosen else "other"
    bar, said = _track(style, 1.0, widest), "1"
    if (gain := context.gain) is not None:
        bar = _track(style, gain.median, widest)
        if math.isfinite(gain.high):
            low, high = (100 * min(end / widest, 1.0) for end in (gain.low, gain.high))
            bar += f'<span class="whisker" style="left:{low:.2f}%;width:{high - low:.2f}%"></span>'
        said = gain.words
    return _row(f"<b>{name}</b>" if context.chosen else name, facts, f'<div class="spread">{bar}</div>', said)


def _name(context: WholeContext) -> str:
    """Such as fused, persistent."""
    if context.untuned:
        return "untuned"
    if context.operations is None:
        return "tuned"
    ways = ["fused"] * bool(context.fused) + ["persistent"] * bool(context.persistent)
    return ", ".join(ways) if context.fused else ", ".join(["tuned alone", *ways])


def _track(style: str, time_ns: float, longest_ns: float) -> str:
    return f'<i class="{style}" style="width:{100 * time_ns / longest_ns:.2f}%"></i>'


def _row(name: str, below: str, bars: str, said: str) -> str:
    """Return a row of bars; name, bars and said are HTML."""
    more = f'<span class="sub">{text(below)}</span>' if below else ""
    return (
        f'<div class="row"><div>{name}{more}</div><div class="tracks">{bars}</div><div class="end">{said}</div></div>'
    )


@dataclass(frozen=True)
class _Part:
    """An operation in the bar."""

    operation: str
    op: str
    anchor: str
    default_ns: float | None
    time_ns: float


def layers(place: Place) -> str:
    """Return the operations of each graph in the order in which they run: their tuned times as parts of one bar, and
    default and tuned time of each in a row of its own."""
    tasks = {task.digest: task for task in place.tasks}
    graphs: dict[str, list[_Part]] = {}
    totals: dict[str, float] = {}
    for run in place.runs[:LAYERS_AT_MOST]:
        task = tasks[run.task]
        if task.tuned is not None:
            default_ns = task.default.median_ns if task.default else None
            part = _Part(run.operation, task.op, anchor_of(task, place), default_ns, task.tuned.median_ns)
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
        f'<div class="card"><h3>Operations in the order in which they run</h3>{bars}<p class="sub">{legend}</p>'
        f"{''.join(_rows(graph if len(graphs) > 1 else '', parts) for graph, parts in graphs.items())}</div>"
    )


def _rows(graph: str, parts: Sequence[_Part]) -> str:
    """Return a bar for each operation, all on one scale; folded away where there are many."""
    longest = max(max(part.time_ns, part.default_ns or 0.0) for part in parts)
    rows = "".join(_layer_row(part, longest) for part in parts)
    of_graph = f" of {text(graph)}" if graph else ""
    title = f"{counted(len(parts), 'operation')}{of_graph}: default above, tuned below; each kernel was measured alone"
    return (
        f'<details class="rows"{" open" if len(parts) <= UNFOLDED_AT_MOST else ""}><summary>'
        f"{title}</summary>"
        f'<div class="bars">{rows}</div></details>'
    )


def _layer_row(part: _Part, longest_ns: float) -> str:
    name = f'<a href="#{part.anchor}">{text(part.operation)}</a>'
    tuned = _track("tuned", part.time_ns, longest_ns)
    if part.default_ns is None:
        return _row(name, part.op, tuned, time_text(part.time_ns))
    said = (
        f"{time_text(part.default_ns)} → {time_text(part.time_ns)} "
        f'<span class="soft">{digits(part.default_ns / part.time_ns)}×</span>'
    )
    return _row(name, part.op, _track("default", part.default_ns, longest_ns) + tuned, said)


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
