"""Show what a reader looks for first: how long an inference takes, where most goes, and what profiling changes."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence

from gputune.client.pages.blocks import Block, Column, bar, table
from gputune.client.pages.blocks import tiles as tiles_of
from gputune.client.pages.drawing import dots, drawing, level, path, scale_across, scale_up, ticks
from gputune.client.pages.scales import counted, percent, time_range, time_text
from gputune.client.tuning.measuring.intervals import Ratio, median_interval
from gputune.client.viewer.analysis.findings import Finding
from gputune.client.viewer.analysis.forms import forms_of
from gputune.client.viewer.analysis.texts import signed_text
from gputune.client.viewer.profile import GraphProfile
from gputune.runtime.profiling.records import Form

FORM_NAMES: dict[Form, str] = {
    "launches": "launch by launch",
    "recorded": "as a recorded queue",
    "persistent": "by persistent kernels",
    "aborted": "started by persistent kernels, finished by launches",
}
MOST_DOTS = 1500


def tiles(graph: GraphProfile) -> Block:
    """Return the numbers on top of a graph."""
    elapsed_ns = [one.elapsed_ns for one in graph.inferences]
    interval = median_interval(elapsed_ns)
    held = f"{time_range(interval.low, interval.high)} with {percent(interval.confidence)} confidence; "
    count = counted(len(elapsed_ns), "inference")
    first = ("Median inference", time_text(statistics.median(elapsed_ns)), f"{held}{count}")
    return tiles_of(first, _kernels(graph), *_compared(graph))


def _kernels(graph: GraphProfile) -> tuple[str, str, str]:
    account, whole_ns = graph.account, graph.account.elapsed_ns or 1
    if not graph.timed:
        return "On the device", percent(account.device_ns / whole_ns), "kernels, and the time around them"
    other_ns = (account.elapsed_ns - account.kernels_ns) / len(graph.inferences)
    more = f"{time_text(other_ns)} of an inference are copies, queue, gaps and host"
    return "In kernels", percent(account.kernels_ns / whole_ns), more


def _compared(graph: GraphProfile) -> Iterator[tuple[str, str, str]]:
    """Yield what a context usually takes, and what profiling costs; nothing where they were not compared."""
    forms = forms_of(graph.comparisons)
    if forms is None:
        return
    usual, cost = forms.usual, forms.profiled
    more = f"{FORM_NAMES[forms.usual_form]}, without profiling"
    if usual is not None:
        more += f"; {_signed(usual.median)} compared with launches one by one, {_held(usual)}"
    yield "As it usually runs", time_text(forms.usual_ns), more
    more = f"to {time_text(forms.unprofiled_ns)} without a profiler; {_held(cost)}"
    yield "Recording adds", _signed(cost.median), more


def _held(ratio: Ratio) -> str:
    """Return the interval of a ratio, and what it leaves open."""
    return f"{_signed(ratio.low)} to {_signed(ratio.high)}" + ("" if ratio.certain else ": no certain difference")


def paths(graph: GraphProfile) -> str:
    """Return how what was profiled differs from how the context usually runs, in a sentence of text."""
    forms = Counter(one.form for one in graph.inferences)
    ran = ", ".join(f"{count:,} {FORM_NAMES[form]}" for form, count in forms.most_common())
    usual = next((one.usual_form for one in graph.comparisons), "persistent" if graph.graph.persistent else "launches")
    said = f"Inferences of this profile: {ran}."
    if usual == "persistent" and forms["launches"]:
        launches = counted(len(graph.graph.launches), "launch")
        said += (
            f" Usually, {counted(graph.graph.persistent, 'persistent kernel')} run these {launches}: the time that "
            "is between launches here is then inside the kernels."
        )
    return f"{said} {_inside(graph)}" if graph.marked or graph.unmarked else said


def _inside(graph: GraphProfile) -> str:
    if graph.unmarked:
        return f"{graph.unmarked[:1].upper()}{graph.unmarked[1:]}."
    inside_ns = sum(one.median_ns for one in graph.inside.values())
    tried = max(len(graph.marked), sum(len(one.profiled_ns) for one in graph.comparisons))
    return (
        f"Inside persistent kernels, all launches take {time_text(inside_ns)}: the sum of the operations' medians in "
        f"{len(graph.marked):,} inferences. {tried - len(graph.marked):,} other inferences with marks were given up."
    )


def finding_list(findings: Sequence[Finding]) -> Block | None:
    """Return the findings in their order, each with its share; None where there are none."""
    columns = (Column("Share", lambda one: [bar(one.share)], wide=True), Column("Finding", lambda one: one.text))
    return table(columns, findings) if findings else None


def every_inference(graph: GraphProfile) -> Block | None:
    """Draw what each inference took, in order, and the median as a line; None for a single one."""
    elapsed_ns = [one.elapsed_ns for one in graph.inferences]
    if len(elapsed_ns) < 2 or max(elapsed_ns) == 0:
        return None
    across, up = scale_across(0, len(elapsed_ns)), scale_up(0, 1.08 * max(elapsed_ns))
    points = dots((across(place), up(elapsed_ns[place])) for place in _thinned(elapsed_ns))
    return drawing(
        "What each inference took, in order",
        [path(points, "dots"), level(up(statistics.median(elapsed_ns)), "median")],
        up=ticks(up, time_text),
        across=ticks(across, "{:g}".format, 5, whole=True),
    )


def _thinned(elapsed_ns: Sequence[int]) -> list[int]:
    """Places of all inferences, or as many as can be told apart, the slowest ones among them."""
    count = len(elapsed_ns)
    if count <= MOST_DOTS:
        return list(range(count))
    slowest = sorted(range(count), key=lambda place: -elapsed_ns[place])[: MOST_DOTS // 10]
    return sorted({*slowest, *range(0, count, -(-count // MOST_DOTS))})


def _signed(ratio: float) -> str:
    """Return what a ratio is above 1, as pages show it."""
    return signed_text(ratio).replace(" ", "\u00a0").replace("-", "−")
