"""Draw intervals: for each row one or more bars, with the line of what their values may be, on one scale from 0.

Pages show the drawing by page.js; `svg` writes it as a file of its own, without a browser.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from textwrap import wrap

from gputune.client.pages.blocks import Block
from gputune.client.pages.drawing import SIDE, Tick, box, dots, drawing, path
from gputune.client.pages.scales import Scale
from gputune.core.logs import printable

WORDS, ONE, SEVERAL, GAP = 20, 20, 10, 6
"""Heights in pixels: of a row's words, of its only bar, of one of several bars, and below them."""
WIDTH, EDGE, TOP = 720, 12, 52
TITLE_LINE, TITLE_CHARACTERS = 18, 80
"""The height of each line of a title beyond the first, in pixels, and how many characters a line holds."""
STYLE = """
svg { background: #ffffff; font: 13px system-ui, sans-serif; } text { fill: #1b1f27; }
.soft { fill: #5c6470; } .head { font-weight: 600; font-size: 15px; } path { vector-effect: non-scaling-stroke; }
.tuned { fill: #2563c9; } .default { fill: #8fb4ea; } .other { fill: #a9b4c4; } .second { fill: #c3cad5; }
.third { fill: #dadfe6; } .grid { fill: none; stroke: #dfe3e9; } .unknown { fill: none; stroke: #a9b4c4;
stroke-dasharray: 4 3; } .whisker { stroke: #1b1f27; fill: none; stroke-width: 1.5; }
@media (prefers-color-scheme: dark) { svg { background: #1b1e25; } text { fill: #e8eaef; } .soft { fill: #a0a8b5; }
.tuned { fill: #82aaff; } .default { fill: #4b66a0; } .other { fill: #7d889b; } .second { fill: #5f697b; }
.third { fill: #454d5c; } .grid { stroke: #2e333d; } .unknown { fill: none; } .whisker { stroke: #e8eaef; } }
"""


@dataclass(frozen=True)
class Bar:
    """Hold a value and the style of its bar. low, high: the ends of its interval; samples: measured values, as dots."""

    value: float
    style: str
    low: float | None = None
    high: float | None = None
    samples: Sequence[float] = ()


@dataclass(frozen=True)
class Row:
    """Hold words, and the bars below them."""

    words: str
    bars: Sequence[Bar]


def intervals(label: str, rows: Sequence[Row], end: float, across: Sequence[Tick] = ()) -> Block:
    """Draw the bars and intervals of each row. end: the value at the right edge, where longer bars end; across: values
    with their texts, ticks below the drawing."""
    heights = [WORDS + len(row.bars) * _thickness(row) + GAP for row in rows]
    scale, unit = Scale(0, end, 0, SIDE), SIDE / sum(heights)
    ticks = [(scale(value), text) for value, text in across]
    paths, labels = [path("".join(f"M{x:g} 0V{SIDE}" for x, _ in ticks) or "M0 0", "grid")], []
    for place, row in enumerate(rows):
        top = sum(heights[:place])
        labels.append((0.0, unit * (top + WORDS / 2), row.words, "strong"))
        for number, bar in enumerate(row.bars):
            upper = unit * (top + WORDS + number * _thickness(row))
            paths += _drawn(bar, scale, upper, unit * _thickness(row))
    return drawing(label, paths, across=ticks, labels=labels, height=sum(heights))


def _thickness(row: Row) -> int:
    return ONE if len(row.bars) == 1 else SEVERAL


def _drawn(bar: Bar, scale: Scale, top: float, height: float) -> Iterator[Block]:
    middle = top + height / 2
    yield path(box(0, top, scale(bar.value), top + height), f"box {bar.style}")
    if bar.low is not None and bar.high is not None:
        low, high = scale(bar.low), scale(bar.high)
        caps = "".join(f"M{x:g} {middle - height / 4:g}V{middle + height / 4:g}" for x in (low, high))
        yield path(f"M{low:g} {middle:g}H{high:g}{caps}", "whisker")
    if bar.samples:
        yield path(dots((scale(sample), middle) for sample in bar.samples), "dots")


def svg(block: Block, title: str, above: str, below: str, legend: Sequence[tuple[str, str]] = ()) -> str:
    """Return a drawing as a file of its own, with a title, and lines above and below. legend: styles and names, in the
    place of the line below."""
    inner, width, lines = block["height"], WIDTH - 2 * EDGE, wrap(title, TITLE_CHARACTERS) or [""]
    top = TOP + TITLE_LINE * (len(lines) - 1)
    height = top + inner + 44
    size = f'width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
    area = f'x="{EDGE}" y="{top}" width="{width}" height="{inner}" viewBox="0 0 {SIDE} {SIDE}"'
    paths = "".join(f'<path class="{_text(one["style"])}" d="{one["d"]}"/>' for one in block["paths"])
    entries = [(EDGE + place * width // len(legend), *entry) for place, entry in enumerate(legend)]
    texts = [(EDGE, 24 + TITLE_LINE * place, line, "head") for place, line in enumerate(lines)]
    texts += [(EDGE, top - 10, above, "soft"), (EDGE, height - 10, below, "soft")]
    texts += [(EDGE + width * x / SIDE, top + inner * y / SIDE + 5, said, "") for x, y, said, _ in block["labels"]]
    texts += [(EDGE + width * x / SIDE, top + inner + 15, said, "soft") for x, said in block.get("across", ())]
    texts += [(x + 16, height - 10, name, "soft") for x, _, name in entries]
    keys = [f'<path class="{style}" d="M{x} {height - 20}h11v11h-11z"/>' for x, style, _ in entries]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{_text(block["label"])}">'
        f'<style>{STYLE}</style><svg {area} preserveAspectRatio="none">{paths}</svg>{"".join(keys)}'
        + "".join(f'<text x="{x:g}" y="{y:g}" class="{style}">{_text(said)}</text>' for x, y, said, style in texts)
        + "</svg>\n"
    )


def _text(value: object) -> str:
    return escape(printable(value))
