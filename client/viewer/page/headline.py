"""Show what a reader looks for first: how long an inference takes, where most goes, and what profiling changes."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence

from gputune.client.html.axes import LEFT, RIGHT, WIDTH, columns, picture, rows
from gputune.client.html.markup import text, tile
from gputune.client.html.scales import Scale, counted, percent, time_range, time_text
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


def tiles(graph: GraphProfile) -> str:
    """Return the numbers on top of a graph."""
    elapsed_ns = [one.elapsed_ns for one in graph.inferences]
    interval = median_interval(elapsed_ns)
    held = f"{time_range(interval.low, interval.high)} with {percent(interval.confidence)} confidence; "
    count = counted(len(elapsed_ns), "inference")
    first = tile("Median inference", time_text(statistics.median(elapsed_ns)), text(f"{held}{count}"))
    return f'<dl class="tiles">{first}{_kernels(graph)}{_compared(graph)}</dl>'


def _kernels(graph: GraphProfile) -> str:
    account, whole_ns = graph.account, graph.account.elapsed_ns or 1
    if not graph.timed:
        return tile("On the device", percent(account.device_ns / whole_ns), "kernels, and the time around them")
    other_ns = (account.elapsed_ns - account.kernels_ns) / len(graph.inferences)
    more = f"{time_text(other_ns)} of an inference are copies, queue, gaps and host"
    return tile("In kernels", percent(account.kernels_ns / whole_ns), text(more))


def _compared(graph: GraphProfile) -> str:
    """Return what a context usually takes, and what profiling costs; nothing where they were not compared."""
    forms = forms_of(graph.comparisons)
    if forms is None:
        return ""
    usual, cost = forms.usual, forms.profiled
    more = f"{FORM_NAMES[forms.usual_form]}, without profiling"
    if usual is not None:
        more += f"; {_signed(usual.median)} compared with launches one by one, {_held(usual)}"
    first = tile("As it usually runs", time_text(forms.usual_ns), text(more))
    more = f"to {time_text(forms.unprofiled_ns)} without a profiler; {_held(cost)}"
    return first + tile("Recording adds", _signed(cost.median), text(more))


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


def finding_list(findings: Sequence[Finding]) -> str:
    """Return the findings in their order, each with its share."""
    items = "".join(
        f'<li><span class="meter"><i style="width:{100 * min(1.0, max(0.0, one.share)):.1f}%"></i></span>'
        f"<span>{text(one.text)}</span></li>"
        for one in findings
    )
    return f'<ol class="findings">{items}</ol>' if items else ""


def every_inference(graph: GraphProfile) -> str:
    """Draw what each inference took, in order, and the median as a line; empty for a single one."""
    elapsed_ns = [one.elapsed_ns for one in graph.inferences]
    if len(elapsed_ns) < 2 or max(elapsed_ns) == 0:
        return ""
    bottom = 196
    across, up = (
        Scale(0, len(elapsed_ns), LEFT + 4, WIDTH - RIGHT),
        Scale(0, 1.08 * max(elapsed_ns), bottom, 12),
    )
    dots = "".join(f"M{across(place):g} {up(elapsed_ns[place]):g}h0" for place in _thinned(elapsed_ns))
    ticks = [tick for tick in across.ticks(5) if tick == int(tick)]
    parts = [
        rows(up, [(tick, time_text(tick)) for tick in up.ticks(4)]),
        f'<path class="dots" d="{dots}"/>',
        f'<path class="level" d="M{LEFT} {up(statistics.median(elapsed_ns)):g}H{WIDTH - RIGHT}"/>',
        columns(across, [(tick, f"{tick:g}") for tick in ticks], bottom),
    ]
    return picture("What each inference took, in order", 216, parts)


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
