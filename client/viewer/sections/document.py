"""Say what the page of a profile holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gputune.client.pages.blocks import Block, Column, card, figure, filter_field, group, table, text
from gputune.client.pages.document import page
from gputune.client.pages.scales import counted
from gputune.client.viewer.profile import GraphProfile, Profile
from gputune.client.viewer.sections.account import account
from gputune.client.viewer.sections.charts import critical_path, memory, roofline
from gputune.client.viewer.sections.conditions import begun, conditions, device_name
from gputune.client.viewer.sections.headline import every_inference, finding_list, paths, tiles
from gputune.client.viewer.sections.operations import by_op, one_by_one
from gputune.client.viewer.sections.shown import Shown, shown
from gputune.client.viewer.sections.timeline import timeline


def page_of(profile: Profile) -> str:
    """Return the whole document of a profile, which needs nothing else and asks for nothing."""
    model = profile.schematic.model if profile.schematic else ""
    named = model or ", ".join(dict.fromkeys(graph.graph.name for graph in profile.graphs)) or "a generation"
    heading = f"Profile of {named}"
    return page(heading, heading, ", ".join(_facts(profile)), sections(profile), _EXPLAINED)


def sections(profile: Profile) -> list[Block | None]:
    """Return all that the page holds."""
    graphs = [graph for graph in profile.graphs if graph.inferences]
    notes = [text(said, "note") for said in _notes(profile)]
    several = len(graphs) > 1
    return [
        *notes,
        None if graphs else text("This profile has no inferences.", "note"),
        *(_graph(shown(profile, graph, f"g{place}"), profile, several) for place, graph in enumerate(graphs)),
        card("Phases", _spans(profile)),
    ]


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


def _notes(profile: Profile) -> Iterator[str]:
    """Yield what is missing, and how to get it."""
    yield from (f"{log.path} was cut off; the part before that is shown." for log in profile.logs if not log.complete)
    if profile.schematic is None and any(graph.timed for graph in profile.graphs):
        yield (
            "Operations have the names that the log gives them, and are grouped by kernel. For ops, configurations, "
            "roofline, critical path and memory, give --schematic MODEL_schematic.bin, which context-binary-generator "
            "--profiling_level qhas writes next to the context."
        )
    if any(graph.inferences and not graph.timed for graph in profile.graphs):
        yield (
            "A graph is shown as a whole if its launches have no timestamps: level basic runs inferences as usual. "
            "Profile with --profiling_level detailed or qhas to see the operations."
        )
    if profile.zoom is not None:
        yield "Only a part of the log is shown: --zoom_start and --zoom_end left out other inferences."
    if any(graph.inferences and not graph.graph.computes for graph in profile.graphs):
        yield "This device computes nothing; its times come from a model."


def _graph(own: Shown, profile: Profile, several: bool) -> Block | None:
    """Return everything about one graph."""
    graph = own.graph
    named = " of ".join(filter(None, (graph.graph.name, graph.graph.context)))
    operations: Sequence[Block | None] = ()
    if graph.timed:
        operations = (
            card("By op" if own.graph.plans else "By kernel", by_op(own)),
            group("pair", card("Roofline", *roofline(own)), card("Critical path", *critical_path(own))),
            card("Operations", filter_field("Filter operations, nodes, tensors"), *one_by_one(own)),
        )
    return group(
        "section",
        tiles(graph),
        text(paths(graph), "sub"),
        card("What stands out", finding_list(own.findings)),
        card("Where the time goes", *account(graph)),
        card("Timeline", timeline(own, profile.begun_ns)),
        *operations,
        _pictures(graph),
        card("How it was measured", *conditions(graph)),
        title=named if several else "",
    )


def _pictures(graph: GraphProfile) -> Block | None:
    """Return charts side by side where there is room."""
    ran = figure("Every inference", every_inference(graph), "In the order in which they ran. Dashed: the median.")
    return group("pair", card("", ran), card("", memory(graph.plan) if graph.plan else None))


def _spans(profile: Profile) -> Block | None:
    """Return the phases that logs have, such as those of a generation."""
    columns = (
        Column("Phase", lambda span: span.name),
        Column("Start", lambda span: span.begun_ns - profile.begun_ns, "time", hint="after the first event"),
        Column("Duration", lambda span: span.ended_ns - span.begun_ns, "time"),
    )
    spans = [span for log in profile.logs for span in log.spans]
    return table(columns, spans[:1000]) if spans else None
