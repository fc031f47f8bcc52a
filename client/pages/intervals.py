"""Draw intervals: a bar for each value, with the line of what it may be, on one scale from 0.

Pages show the drawing by page.js; `svg` writes it as a file of its own, without a browser.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from gputune.client.pages.blocks import Block
from gputune.client.pages.drawing import SIDE, Tick, box, dots, drawing, path, scale_across
from gputune.core.logs import printable

ROW = 46
"""The height of a row in pixels: its words, and its bar below them."""
WIDTH, EDGE, TOP = 720, 12, 52
STYLE = """
svg { background: #ffffff; font: 13px system-ui, sans-serif; } text { fill: #1b1f27; }
.soft { fill: #5c6470; } .head { font-weight: 600; font-size: 15px; } path { vector-effect: non-scaling-stroke; }
.other { fill: #a9b4c4; stroke: #a9b4c4; } .tuned { fill: #2563c9; } .grid { fill: none; }
.unknown { fill: none; stroke-dasharray: 4 3; } .whisker { stroke: #1b1f27; fill: none; stroke-width: 2; }
@media (prefers-color-scheme: dark) { svg { background: #1b1e25; } text { fill: #e8eaef; } .soft { fill: #a0a8b5; }
.other { fill: #59647a; stroke: #59647a; } .tuned { fill: #82aaff; } .unknown { fill: none; }
.whisker { stroke: #e8eaef; } }
"""


@dataclass(frozen=True)
class Interval:
    """A row: what it is called, how long its bar is, and what the row says of it. low, high: the ends of its interval;
    samples: what was measured, as dots."""

    name: str
    value: float
    said: str
    style: str
    low: float | None = None
    high: float | None = None
    samples: Sequence[float] = ()


def intervals(label: str, rows: Sequence[Interval], end: float, across: Sequence[Tick] = ()) -> Block:
    """Draw a bar and an interval for each row. end: the value at the right edge, where longer bars end; across: ticks
    below, by their place in the drawing."""
    scale, step = scale_across(0, end), SIDE / len(rows)
    paths, labels = [path("".join(f"M{x:g} 0V{SIDE}" for x, _ in across) or "M0 0", "grid")], []
    for place, row in enumerate(rows):
        top, bottom = step * (place + 0.5), step * (place + 0.92)
        middle = (top + bottom) / 2
        paths.append(path(box(0, top, scale(row.value), bottom), f"box {row.style}"))
        if row.low is not None and row.high is not None:
            low, high = scale(row.low), scale(row.high)
            caps = "".join(f"M{x:g} {middle - 0.1 * step:g}V{middle + 0.1 * step:g}" for x in (low, high))
            paths.append(path(f"M{low:g} {middle:g}H{high:g}{caps}", "whisker"))
        if row.samples:
            paths.append(path(dots((scale(sample), middle) for sample in row.samples), "dots"))
        labels.append((0.0, step * (place + 0.28), f"{row.name}: {row.said}", "strong"))
    return drawing(label, paths, across=across, labels=labels, height=ROW * len(rows))


def svg(block: Block, title: str, above: str, below: str) -> str:
    """Return a drawing as a file of its own, with a title, and lines above and below."""
    inner = block["height"]
    height = TOP + inner + 34
    size = f'width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
    area = f'x="{EDGE}" y="{TOP}" width="{WIDTH - 2 * EDGE}" height="{inner}" viewBox="0 0 {SIDE} {SIDE}"'
    paths = "".join(f'<path class="{_text(one["style"])}" d="{one["d"]}"/>' for one in block["paths"])
    texts = [(EDGE, 24, title, "head"), (EDGE, 42, above, "soft"), (EDGE, height - 10, below, "soft")]
    width = WIDTH - 2 * EDGE
    texts += [(EDGE + width * x / SIDE, TOP + inner * y / SIDE + 5, said, "") for x, y, said, _ in block["labels"]]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{_text(block["label"])}">'
        f'<style>{STYLE}</style><svg {area} preserveAspectRatio="none">{paths}</svg>'
        + "".join(f'<text x="{x:g}" y="{y:g}" class="{style}">{_text(said)}</text>' for x, y, said, style in texts)
        + "</svg>\n"
    )


def _text(value: object) -> str:
    return escape(printable(value))
