"""Show where the time of an inference goes, in parts that add up to the whole: a bar and rows."""

from __future__ import annotations

from gputune.client.html.markup import text
from gputune.client.html.scales import counted, micros, percent, tenths
from gputune.client.viewer.account import Account, account_of
from gputune.client.viewer.page.timeline import samples
from gputune.client.viewer.profile import GraphProfile

EXPLAINED = {
    "host": "checks and bookkeeping",
    "write": "copies of inputs to the memory that launches read",
    "queue": "from the first enqueue to the start of the first launch",
    "kernels": "launches on the device",
    "gaps": "between launches, while the device has nothing to do",
    "device": "from enqueue to end; not divided, because launches have no timestamps",
    "wake-up": "from the end of the last launch until the host notices it",
    "read": "copies of outputs to the application",
    "profiler": "timestamps read in the middle of an inference",
    "rest": "time without timestamps of its own",
}


def account(graph: GraphProfile) -> str:
    """Return the bar and its rows: means, because medians of parts do not add up, beside the median inference."""
    count = len(graph.inferences)
    whole, median = graph.account, account_of(samples(graph.inferences)[0].inference)
    rows = "".join(
        f'<tr><td><i class="key is-{name}"></i>{name}</td><td class="soft wide">{EXPLAINED[name]}</td>'
        f'<td class="number">{micros(ns / count)}</td><td class="number">{_share(ns, whole)}</td>'
        f'<td class="number">{micros(median_ns)}</td></tr>'
        for (name, ns), (_, median_ns) in zip(whole.rows(), median.rows(), strict=True)
        if ns or median_ns or name == "rest"
    )
    foot = "".join(f'<td class="number">{value}</td>' for value in (micros(whole.elapsed_ns / count), tenths(1)))
    last = f'<td class="number">{micros(median.elapsed_ns)}</td>'
    return (
        f'<div class="layers tall">{_bar(whole)}</div><div class="scroll"><table class="account"><thead><tr>'
        '<th scope="col">Part</th><th class="wide" scope="col"></th><th class="number" scope="col">Mean µs</th>'
        '<th class="number" scope="col">Share</th><th class="number" scope="col">Median µs</th></tr></thead>'
        f'<tbody>{rows}</tbody><tfoot><tr><td>whole</td><td class="wide"></td>{foot}{last}</tr></tfoot></table></div>'
        f'<p class="sub">Means of {counted(count, "inference")} add up to the whole. The last column is the median '
        "inference, which the timeline shows first.</p>"
    )


def _bar(whole: Account) -> str:
    return "".join(
        f'<i class="is-{name}" style="width:{100 * ns / whole.elapsed_ns:.3f}%" '
        f'title="{text(f"{name}: {percent(ns / whole.elapsed_ns)}")}"></i>'
        for name, ns in whole.rows()
        if ns > 0
    )


def _share(ns: int, whole: Account) -> str:
    return tenths(ns / whole.elapsed_ns) if whole.elapsed_ns else "–"
