"""Draw a comparison: for each contender a bar and an interval of its time relative to the context."""

from __future__ import annotations

from gputune.client.compare.comparing import TUNED, Comparison, Measured
from gputune.client.pages.intervals import Interval, intervals, svg
from gputune.client.pages.scales import time_text
from gputune.client.tuning.measuring.sequential import SURE, Gain


def chart(comparison: Comparison) -> str:
    """Return an SVG of how many times as long an inference of each contender takes as the context's. There is no
    interval while too little is known. The bar of a ratio that is not known closely is hollow."""
    rows = [_row(one) for one in comparison.contenders]
    against = f"time of an inference relative to the {comparison.context.name} context"
    said = [against, "less is better"]
    said += [f"{SURE:.1%} intervals"] if any(row.low is not None for row in rows) else []
    said += ["hollow: not known"] if any("unknown" in row.style for row in rows) else []
    threads = f"{comparison.threads} thread{'s' if comparison.threads > 1 else ''}"
    title = f"{comparison.model} on {comparison.device}"
    end = max(end for row in rows for end in (row.value, row.high or 0.0))
    drawn = intervals(f"{against.capitalize()}: {title}", rows, end)
    return svg(drawn, title, "; ".join(said), f"other engines run on the CPU with {threads}")


def _row(one: Measured) -> Interval:
    style = "tuned" if one.name == TUNED else "other"
    if (gain := one.gain) is None:
        return Interval(one.name, 1.0, time_text(one.time_ns), style)
    style = "other" if gain.certain or gain.settled else "other unknown"
    ends = (gain.low, gain.high) if gain.low else (None, None)
    return Interval(one.name, gain.median, f"{time_text(one.time_ns)}, {_words(gain)}", style, *ends)


def _words(gain: Gain) -> str:
    return f"{gain.median:.2f} x the time" if gain.certain else gain.words
