"""Say a report's section on whole inferences: end-to-end measurements, and how kernels share the time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gputune.client.options.tuning import RULE
from gputune.client.pages.blocks import Block, Cell, Column, Run, bar, card, fold, run, shares, table, text
from gputune.client.pages.scales import counted, digits, percent, time_text
from gputune.client.report.data import DeviceView, Inferences, Report, WholeContext
from gputune.client.report.sections.charts import anchor_of
from gputune.client.tuning.measuring.end_to_end import KEPT, OPEN

COLOURS = 8
"""Ops with a colour of their own in the bar of all operations; the style has as many."""
LAYERS_AT_MOST = 2000
"""More operations than pixels of a wide screen cannot be told apart."""
UNFOLDED_AT_MOST = 24
"""With more operations than this, their bars are folded away."""


def inferences(report: Report) -> Block | None:
    """Return the gain of whole inferences, or that it was not measured; None without a context."""
    if report.context is None:
        return None
    if not report.end_to_end:
        said = (
            "Whole inferences of this context were not measured. The sum of its kernel times below is an estimate of "
        )
        return text(f"{said}the gain.", "note")
    several = len(report.graphs) > 1
    return card("", *(block for one in report.end_to_end for block in _measured(one, several)))


def _measured(one: Inferences, several: bool) -> Iterator[Block]:
    name, found = f"Graph {one.graph}: " if several else "", one.end_to_end
    gain = found.gain
    style = "soft" if gain is None or not gain.certain else "good" if gain.low > 1 else "bad"
    times = f"untuned {time_text(found.untuned_ns)}"
    said = "tuning has led to no other context"
    if gain is not None:
        times = f"{'best tuned' if found.kept == 'untuned' else 'tuned'} {time_text(found.tuned_ns)}, {times}"
        said = gain.words
    yield text([f"{name}inference, measured end to end: {times}: ", run(said, style)], "headline")
    widest = max(map(_reach, one.contexts))
    columns = (
        Column("Context", _named),
        Column("Times as fast as untuned", lambda context: _gained(context, widest)),
    )
    yield table(columns, one.contexts)
    notes = [
        _BARS,
        f"{KEPT[found.kept][0].upper()}{KEPT[found.kept][1:]}.",
        f"{OPEN[0].upper()}{OPEN[1:]}." * found.open,
        RULE,
    ]
    yield text(" ".join(filter(None, notes)), "sub")


_BARS = (
    "Longer bars are faster, and the thin line is the confidence interval. Whole contexts took turns; a context that "
    "was certainly slower left early."
)


def _reach(context: WholeContext) -> float:
    """Return how far a bar with its interval reaches; a wide interval ends at the edge, so that bars can still be
    compared."""
    return 1.0 if context.gain is None else min(context.gain.high, 1.5 * context.gain.median)


def _named(context: WholeContext) -> Cell:
    """Return what a whole context is."""
    named: list[Run] = [run(_name(context), "strong" if context.chosen else "")]
    if context.operations is not None:
        form = "persistent kernels" if context.persistent else "launches one by one"
        fused = f"{counted(context.fused, 'group')} fused" if context.fused else "nothing fused"
        chosen = "this context: " if context.chosen else ""
        named.append(run(f"{chosen}{counted(context.operations, 'operation')}, {fused}, {form}", "sub"))
    return Cell(named, _name(context))


def _gained(context: WholeContext, widest: float) -> Cell:
    """Return how many times as fast as untuned a whole context is, as a bar from 0 and in words."""
    style = "default" if context.untuned else "tuned" if context.chosen else "other"
    if (gain := context.gain) is None:
        return Cell([bar(1 / widest, style), run("1", "sub")], 1.0)
    ends = (gain.low / widest, gain.high / widest) if math.isfinite(gain.high) else (None, None)
    return Cell([bar(gain.median / widest, style, *ends), run(gain.words, "sub")], gain.median)


def _name(context: WholeContext) -> str:
    """Such as fused, persistent."""
    if context.untuned:
        return "untuned"
    if context.operations is None:
        return "tuned"
    ways = ["fused"] * bool(context.fused) + ["persistent"] * bool(context.persistent)
    return ", ".join(ways) if context.fused else ", ".join(["tuned alone", *ways])


@dataclass(frozen=True)
class _Part:
    """An operation in the bar."""

    operation: str
    op: str
    anchor: str
    default_ns: float | None
    time_ns: float


def layers(place: DeviceView) -> Block | None:
    """Return the operations of each graph in the order in which they run: their tuned times as parts of one bar, and
    default and tuned time of each in a row of its own."""
    tasks = {task.digest: task for task in place.tasks}
    graphs: dict[str, list[_Part]] = {}
    totals: dict[str, float] = {}
    for one in place.runs[:LAYERS_AT_MOST]:
        task = tasks[one.task]
        if task.tuned is not None:
            default_ns = task.default.median_ns if task.default else None
            part = _Part(one.operation, task.op, anchor_of(task, place), default_ns, task.tuned.median_ns)
            graphs.setdefault(one.graph, []).append(part)
            totals[task.op] = totals.get(task.op, 0.0) + part.time_ns
    ops, whole = sorted(totals, key=lambda op: -totals[op]), sum(totals.values())
    colours = {op: f"o{number}" if number < COLOURS else "rest" for number, op in enumerate(ops)}
    named = [(colours[op], op, totals[op]) for op in ops[:COLOURS]]
    if rest := sum(totals[op] for op in ops[COLOURS:]):
        named.append(("rest", "others", rest))
    legend = [(colour, f"{name} {percent(time_ns / whole)}") for colour, name, time_ns in named]
    blocks: list[Block] = []
    for graph, parts in graphs.items():
        total = sum(part.time_ns for part in parts)
        pieces = [(one.time_ns / total, colours[one.op], _said(one, total), one.anchor) for one in parts]
        blocks += [text(f"{graph}, {time_text(total)}", "sub")] if len(graphs) > 1 else []
        blocks.append(shares(pieces, legend if graph == next(reversed(graphs)) else ()))
    blocks += [_rows(graph if len(graphs) > 1 else "", parts) for graph, parts in graphs.items()]
    return card("Operations in the order in which they run", *blocks) if blocks else None


def _rows(graph: str, parts: Sequence[_Part]) -> Block:
    """Return a row for each operation, its bars on one scale; folded away where there are many."""
    longest = max(max(part.time_ns, part.default_ns or 0.0) for part in parts)
    title = f"{counted(len(parts), 'operation')}{f' of {graph}' if graph else ''}; each kernel was measured alone"
    columns = (
        Column("Operation", lambda part: [run(part.operation, link=part.anchor), run(part.op, "sub")]),
        Column("Default above, tuned below", lambda part: Cell(_bars(part, longest), part.time_ns)),
        Column("Default → tuned", _gain, number=True),
    )
    return fold(title, [table(columns, parts)], opened=len(parts) <= UNFOLDED_AT_MOST)


def _bars(part: _Part, longest_ns: float) -> list[Run]:
    default = [] if part.default_ns is None else [bar(part.default_ns / longest_ns, "default")]
    return [*default, bar(part.time_ns / longest_ns, "tuned")]


def _gain(part: _Part) -> Cell:
    if part.default_ns is None:
        return Cell(time_text(part.time_ns))
    gain = part.default_ns / part.time_ns
    said = f"{time_text(part.default_ns)} → {time_text(part.time_ns)} "
    return Cell([said, run(f"{digits(gain)}×", "soft")], gain)


def _said(part: _Part, total: float) -> str:
    return f"{part.operation}: {part.op}, {time_text(part.time_ns)}, {percent(part.time_ns / total)}"
