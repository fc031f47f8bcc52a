"""Draw charts over the operations of a graph.

The charts stretch to their column. The text around them is HTML and keeps its size on a phone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gputune.client.html.markup import text
from gputune.client.html.scales import Scale, bytes_text

HEIGHT = 1000
"""Units of a picture's height, whatever it is stretched to."""


def held_chart(title: str, alive_bytes: Sequence[int], total: int, bound: int | None) -> str:
    """Draw how many bytes are held while each operation runs; bound: a line across, where there is one."""
    steps = "".join(f"V{HEIGHT * (1 - alive / total):.2f}H{place}" for place, alive in enumerate(alive_bytes, start=1))
    parts = [f'<path class="held" d="M0 {HEIGHT}{steps}V{HEIGHT}Z"/>']
    parts += [] if bound is None else [bound_line(bound, total, len(alive_bytes))]
    return step_chart("load", title, len(alive_bytes), total, parts)


def bound_line(bound: int, total: int, count: int) -> str:
    """Return the bound across a picture."""
    return f'<path class="level" d="M0 {HEIGHT * (1 - bound / total):.2f}H{count}"><title>bound</title></path>'


def step_chart(kind: str, title: str, count: int, total: int, parts: Iterable[str]) -> str:
    """Return a picture with its scales: so many bytes in total at the left, so many operations below."""
    up, across = Scale(0, total, 0, 100), Scale(0, count, 0, 100)
    heights = _ticks("bottom", [(up(tick), bytes_text(tick)) for tick in up.ticks(4)])
    starts = [(across(tick), f"{tick:g}") for tick in across.ticks(5) if tick == int(tick) and tick < count]
    return (
        f'<div class="chart {kind}"><div class="heights">{heights}</div>'
        f'<svg viewBox="0 0 {count} {HEIGHT}" preserveAspectRatio="none" role="img" aria-label="{text(title)}">'
        f'{"".join(parts)}</svg><div class="starts">{_ticks("left", starts)}</div></div>'
    )


def _ticks(side: str, ticks: Sequence[tuple[float, str]]) -> str:
    """Words along a scale, each at a share of 100 from a side."""
    return "".join(f'<span style="{side}:{at:g}%">{text(words)}</span>' for at, words in ticks)
