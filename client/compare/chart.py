"""A comparison as a picture: a bar for each contender, with its interval, as SVG that stands alone."""

from __future__ import annotations

from gputune.client.compare.comparing import Comparison, Measured
from gputune.client.html.axes import words
from gputune.client.html.markup import text
from gputune.client.html.scales import Scale, time_text

WIDTH, LEFT, RIGHT = 640, 110, 440
TOP, ROW, BAR = 56, 34, 20
STYLE = """
svg { background: #ffffff; font: 13px system-ui, sans-serif; } text { fill: #1b1f27; }
.soft { fill: #5c6470; } .head { font-weight: 600; font-size: 15px; }
.bar { fill: #a9b4c4; } .tuned { fill: #2563c9; } .range { stroke: #1b1f27; fill: none; }
@media (prefers-color-scheme: dark) { svg { background: #1b1e25; } text { fill: #e8eaef; } .soft { fill: #a0a8b5; }
.bar { fill: #59647a; } .tuned { fill: #82aaff; } .range { stroke: #e8eaef; } }
"""


def chart(comparison: Comparison) -> str:
    """The time of an inference by contender; a whisker is the 95 % interval of the median."""
    most = max(max(each.median_ns, each.interval_ns.high) for each in comparison.contenders)
    across = Scale(0, most, LEFT, RIGHT)
    height = TOP + ROW * len(comparison.contenders) + 30
    title = f"{comparison.model} on {comparison.device}"
    threads = f"{comparison.threads} thread{'s' if comparison.threads > 1 else ''}"
    parts = [
        f"<style>{STYLE}</style>",
        words(12, 24, title, "start", "head"),
        words(12, 42, "time of an inference, less is better; whiskers: 95 % interval", "start", "soft"),
        *(_row(comparison, place, across) for place in range(len(comparison.contenders))),
        words(12, height - 10, f"other engines run on the CPU with {threads}", "start", "soft"),
    ]
    size = f'width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
    label = text(f"Time of an inference: {title}")
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{label}">'
    return f"{opening}{''.join(parts)}</svg>\n"


def _row(comparison: Comparison, place: int, across: Scale) -> str:
    one, top = comparison.contenders[place], TOP + ROW * place
    middle = top + BAR / 2
    low, high = across(one.interval_ns.low), across(one.interval_ns.high)
    style = "tuned" if one is comparison.tuned else "bar"
    length = across(one.median_ns) - LEFT
    return (
        words(LEFT - 8, middle + 4, one.name, "end")
        + f'<rect class="{style}" x="{LEFT}" y="{top}" width="{length:g}" height="{BAR}"/>'
        + f'<path class="range" d="M{low} {middle}H{high}M{low} {middle - 4}v8M{high} {middle - 4}v8"/>'
        + words(max(high, LEFT + length) + 8, middle + 4, _text(comparison, one), "start")
    )


def _text(comparison: Comparison, one: Measured) -> str:
    if one is comparison.tuned:
        return time_text(one.median_ns)
    return f"{time_text(one.median_ns)}, {comparison.speed(one).median:.2f} x the time"
