"""Write a profile as one HTML page with style, pictures, data and script inside; its policy forbids any request."""

from __future__ import annotations

from collections.abc import Sequence

from gputune.client.html.document import document
from gputune.client.html.markup import Cell, Column, figure, table, text
from gputune.client.html.scales import counted, time_text
from gputune.client.viewer.page.account_section import account
from gputune.client.viewer.page.charts import critical_path, memory, roofline, roofline_note
from gputune.client.viewer.page.conditions import begun, conditions, device_name
from gputune.client.viewer.page.groups import Shown, shown
from gputune.client.viewer.page.headline import every_inference, finding_list, paths, tiles
from gputune.client.viewer.page.insights import Insights, insights_of
from gputune.client.viewer.page.operations import by_op, one_by_one
from gputune.client.viewer.page.script import PROFILE_SCRIPT
from gputune.client.viewer.page.style import PROFILE_STYLE
from gputune.client.viewer.page.timeline import timeline
from gputune.client.viewer.profile import Profile


def page_of(profile: Profile) -> str:
    """Return the whole document of a profile, which needs nothing else and asks for nothing."""
    graphs = [graph for graph in profile.graphs if graph.inferences]
    model = profile.schematic.model if profile.schematic else ""
    named = model or ", ".join(dict.fromkeys(graph.graph.name for graph in profile.graphs)) or "a generation"
    sections = "".join(
        _graph(shown(graph, f"g{place}"), profile, len(graphs) > 1) for place, graph in enumerate(graphs)
    )
    empty = "" if graphs else _note("This profile has no inferences.")
    content = f"{_notes(profile)}{empty}{sections}{_spans(profile)}"
    heading, facts = f"Profile of {named}", ", ".join(_facts(profile))
    return document(heading, heading, facts, content, _EXPLAINED, style=PROFILE_STYLE, script=PROFILE_SCRIPT)


_EXPLAINED = (
    "All times are on the host's clock; launch times were converted from the device's clock. Medians and their "
    "confidence intervals, from order statistics, are of all inferences of the profile. Means add up to the whole, "
    "medians do not. A share is a mean, divided by the mean inference. The roofline is the speed that the measured "
    "peaks allow an operation that moves each of its tensors once. The time to gain is the time above the roofline: a "
    "bound, not a promise."
)


def _facts(profile: Profile) -> list[str]:
    devices = dict.fromkeys(device_name(log) for log in profile.logs)
    levels = dict.fromkeys(f"level {log.header.level}" for log in profile.logs)
    count = sum(len(graph.inferences) for graph in profile.graphs)
    return [*devices, *levels, counted(count, "inference"), *filter(None, dict.fromkeys(map(begun, profile.logs)))]


def _notes(profile: Profile) -> str:
    """Return what is missing, and how to get it."""
    notes = [f"{log.path} was cut off; the part before that is shown." for log in profile.logs if not log.complete]
    if profile.schematic is None and any(graph.timed for graph in profile.graphs):
        notes.append(
            "Operations have the names that the log gives them, and are grouped by kernel. For ops, configurations, "
            "roofline, critical path and memory, give --schematic MODEL_schematic.bin, which context-binary-generator "
            "--profiling_level qhas writes next to the context."
        )
    if any(graph.inferences and not graph.timed for graph in profile.graphs):
        notes.append(
            "A graph is shown as a whole if its launches have no timestamps: level basic runs inferences as usual. "
            "Profile with --profiling_level detailed or qhas to see the operations."
        )
    if profile.zoom is not None:
        notes.append("Only a part of the log is shown: --zoom_start and --zoom_end left out other inferences.")
    if any(graph.inferences and not graph.graph.computes for graph in profile.graphs):
        notes.append("This device computes nothing; its times come from a model.")
    return "".join(map(_note, notes))


def _note(said: str) -> str:
    return f'<p class="note">{text(said)}</p>'


def _graph(own: Shown, profile: Profile, several: bool) -> str:
    """Everything about one graph."""
    graph, insights = own.graph, insights_of(profile, own.graph)
    named = " of ".join(filter(None, (graph.graph.name, graph.graph.context)))
    head = f"<h2>{text(named)}</h2>" if several else ""
    parts = [
        f'{head}{tiles(graph)}<p class="sub">{text(paths(graph))}</p>',
        _card("What stands out", finding_list(insights.findings)),
        _card("Where the time goes", account(graph)),
        _card("Timeline", timeline(own, profile.begun_ns)),
        _operations(own, insights) if graph.timed else "",
        _pictures(own),
        _card("How it was measured", conditions(graph)),
    ]
    return f'<section class="graph" data-filter="Filter operations, nodes, tensors">{"".join(parts)}</section>'


def _operations(own: Shown, insights: Insights) -> str:
    points = figure("Roofline", roofline(own, insights), roofline_note(own, insights))
    path = figure("Critical path", critical_path(own, insights))
    pair = "".join(f'<div class="card">{chart}</div>' for chart in (points, path) if chart)
    return (
        _card("By op" if own.plans else "By kernel", by_op(own, insights))
        + (f'<div class="pair">{pair}</div>' if pair else "")
        + _card("Operations", one_by_one(own, insights))
    )


def _pictures(own: Shown) -> str:
    """Charts side by side where there is room."""
    ran = figure("Every inference", every_inference(own.graph), "In the order in which they ran. Dashed: the median.")
    charts: Sequence[str] = [ran, memory(own.graph.plan) if own.graph.plan else ""]
    cards = "".join(f'<div class="card">{chart}</div>' for chart in charts if chart)
    return f'<div class="pair">{cards}</div>' if cards else ""


def _card(title: str, content: str) -> str:
    return f'<h3 class="part">{title}</h3><div class="card">{content}</div>' if content else ""


def _spans(profile: Profile) -> str:
    """Return the phases that logs have, such as those of a generation."""
    spans = [span for log in profile.logs for span in log.spans]
    columns = (Column("Phase"), Column("Start", "number", hint="after the first event"), Column("Duration", "number"))
    rows = [
        (
            Cell(text(span.name), span.name),
            Cell(time_text(span.begun_ns - profile.begun_ns), span.begun_ns),
            Cell(time_text(span.ended_ns - span.begun_ns), span.ended_ns - span.begun_ns),
        )
        for span in spans[:1000]
    ]
    return _card("Phases", table(columns, rows)) if rows else ""
