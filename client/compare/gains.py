"""Draw a comparison: for each contender a bar and an interval of its time relative to the context."""

from __future__ import annotations

from gputune.client.compare.comparing import TUNED, Comparison, Measured
from gputune.client.pages.intervals import Bar, Row, intervals, svg
from gputune.client.pages.scales import time_text
from gputune.client.tuning.measuring.sequential import SURE, Gain


def chart(comparison: Comparison) -> str:
    """Return an SVG of how many times as long an inference of each contender takes as the context's. There is no
    interval while too little is known. The bar of a ratio that is not known closely is hollow."""
    rows = [_row(one) for one in comparison.contenders]
    bars = [bar for row in rows for bar in row.bars]
    against = f"time of an inference relative to the {comparison.context.name} context"
    said = [against, "less is better"]
    said += [f"{SURE:.1%} intervals"] if any(bar.low is not None for bar in bars) else []
    said += ["hollow: not known"] if any("unknown" in bar.style for bar in bars) else []
    threads = f"{comparison.threads} thread{'s' if comparison.threads > 1 else ''}"
    title = f"{comparison.model} on {comparison.device}"
    end = max(end for bar in bars for end in (bar.value, bar.high or 0.0))
    drawn = intervals(f"{against.capitalize()}: {title}", rows, end)
    return svg(drawn, title, "; ".join(said), f"other engines run on the CPU with {threads}")


def _row(one: Measured) -> Row:
    said = f"{one.name}: {time_text(one.time_ns)}"
    if (gain := one.gain) is None:
        return Row(said, [Bar(1.0, "tuned" if one.name == TUNED else "other")])
    style = "other" if gain.certain or gain.settled else "other unknown"
    ends = (gain.low, gain.high) if gain.low else (None, None)
    return Row(f"{said}, {_words(gain)}", [Bar(gain.median, style, *ends)])


def _words(gain: Gain) -> str:
    return f"{gain.median:.2f} x the time" if gain.certain else gain.words
