"""Draw a comparison as stand-alone SVG.

Each contender has a bar and a confidence interval for its time relative to the tuned context.
"""

from __future__ import annotations

from gputune.client.compare.comparing import TUNED, Comparison, Measured
from gputune.client.html.axes import words
from gputune.client.html.markup import text
from gputune.client.html.scales import Scale, time_text
from gputune.client.tuning.measuring.sequential import SURE, Gain

WIDTH, LEFT, RIGHT = 720, 110, 430
TOP, ROW, BAR = 56, 34, 20
STYLE = """
svg { background: #ffffff; font: 13px system-ui, sans-serif; } text { fill: #1b1f27; }
.soft { fill: #5c6470; } .head { font-weight: 600; font-size: 15px; }
.bar { fill: #a9b4c4; stroke: #a9b4c4; } .tuned { fill: #2563c9; }
.unknown { fill: none; stroke-dasharray: 4 3; } .range { stroke: #1b1f27; fill: none; }
@media (prefers-color-scheme: dark) { svg { background: #1b1e25; } text { fill: #e8eaef; } .soft { fill: #a0a8b5; }
.bar { fill: #59647a; stroke: #59647a; } .tuned { fill: #82aaff; } .unknown { fill: none; }
.range { stroke: #e8eaef; } }
"""


def chart(comparison: Comparison) -> str:
    """Draw how many times as long an inference of each contender takes as the context's. A whisker is the interval of
    that ratio, and there is none while too little is known. The bar of a ratio that is not known closely is hollow."""
    ratios = [1.0, *(end for each in comparison.others for end in _ends(each))]
    across = Scale(0, max(ratios), LEFT, RIGHT)
    height = TOP + ROW * len(comparison.contenders) + 30
    title = f"{comparison.model} on {comparison.device}"
    against = f"time of an inference relative to the {comparison.context.name} context"
    known = [each.gain is not None and each.gain.low > 0 for each in comparison.others]
    hollow = [each.gain is not None and not (each.gain.certain or each.gain.settled) for each in comparison.others]
    said = [against, "less is better"]
    said += [f"{SURE:.1%} intervals"] if any(known) else []
    said += ["hollow: not known"] if any(hollow) else []
    threads = f"{comparison.threads} thread{'s' if comparison.threads > 1 else ''}"
    parts = [
        f"<style>{STYLE}</style>",
        words(12, 24, title, "start", "head"),
        words(12, 42, "; ".join(said), "start", "soft"),
        *(_row(comparison, place, across) for place in range(len(comparison.contenders))),
        words(12, height - 10, f"other engines run on the CPU with {threads}", "start", "soft"),
    ]
    size = f'width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
    label = text(f"{against.capitalize()}: {title}")
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{label}">'
    return f"{opening}{''.join(parts)}</svg>\n"


def _ends(one: Measured) -> tuple[float, ...]:
    """Return the numbers of a contender's ratio that the picture has to hold."""
    assert one.gain is not None
    return (one.gain.median, one.gain.high) if one.gain.low else (one.gain.median,)


def _row(comparison: Comparison, place: int, across: Scale) -> str:
    one, top = comparison.contenders[place], TOP + ROW * place
    middle = top + BAR / 2
    style = "tuned" if one.name == TUNED else "bar"
    ratio, said, end, whisker = 1.0, time_text(one.time_ns), across(1.0), ""
    if one.gain is not None:
        ratio, said = one.gain.median, f"{said}, {_words(one.gain)}"
        style = "bar" if one.gain.certain or one.gain.settled else "bar unknown"
        end = across(max(_ends(one)))
        if one.gain.low:
            low, high = across(one.gain.low), across(one.gain.high)
            whisker = (
                f'<path class="range" d="M{low:g} {middle}H{high:g}M{low:g} {middle - 4}v8M{high:g} {middle - 4}v8"/>'
            )
    return (
        words(LEFT - 8, middle + 4, one.name, "end")
        + f'<rect class="{style}" x="{LEFT}" y="{top}" width="{across(ratio) - LEFT:g}" height="{BAR}"/>'
        + whisker
        + words(end + 8, middle + 4, said, "start")
    )


def _words(gain: Gain) -> str:
    return f"{gain.median:.2f} x the time" if gain.certain else gain.words
