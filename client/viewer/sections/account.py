"""Show where the time of an inference goes, in parts that add up to the whole: a bar and rows."""

from __future__ import annotations

from collections.abc import Iterator

from gputune.client.pages.blocks import Block, Column, key, shares, table, text
from gputune.client.pages.scales import counted, percent
from gputune.client.viewer.account import account_of
from gputune.client.viewer.profile import GraphProfile
from gputune.client.viewer.sections.timeline import samples

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


def account(graph: GraphProfile) -> Iterator[Block]:
    """Yield the bar and its rows: means, because medians of parts do not add up, beside the median inference."""
    count = len(graph.inferences)
    whole, median = graph.account, account_of(samples(graph.inferences)[0].inference)
    columns = (
        Column("Part", lambda row: [key(f"part-{row[0]}"), row[0]]),
        Column("", lambda row: EXPLAINED[row[0]], wide=True),
        Column("Mean µs", lambda row: row[1] / count, "micros"),
        Column("Share", lambda row: row[1] / (whole.elapsed_ns or 1), "share"),
        Column("Median µs", lambda row: row[2], "micros"),
    )
    parts = [(name, ns, alone) for (name, ns), (_, alone) in zip(whole.rows(), median.rows(), strict=True)]
    divided = [(name, ns / (whole.elapsed_ns or 1)) for name, ns, _ in parts]
    yield shares((share, f"part-{name}", f"{name}: {percent(share)}", "") for name, share in divided)
    rows = [row for row in parts if row[1] or row[2] or row[0] == "rest"]
    yield table(columns, rows, foot=["whole", "", whole.elapsed_ns / count, 1.0, median.elapsed_ns])
    said = f"Means of {counted(count, 'inference')} add up to the whole. The last column is the median inference, "
    yield text(f"{said}which the timeline shows first.", "sub")
