"""Draw a comparison: how many times as fast each contender is as the best engine, network by network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.comparison import DEFAULTS, ENGINES, TUNED, Measured, is_settled
from gputune.client.pages.intervals import Bar, Row, intervals, svg
from gputune.client.pages.scales import Scale

STYLES = dict(zip((TUNED, DEFAULTS, *ENGINES), ("tuned", "default", "other", "second", "third"), strict=True))
SAID = "times as fast as the best of the other engines; more is better; 95 % intervals"


def draw(measured: Sequence[Measured], file: Path, title: str) -> None:
    """Write an SVG. What has not settled has no bar."""
    rows = [Row(one.name, _bars(one)) for one in measured]
    end = max([1.0, *(bar.high or bar.value for row in rows for bar in row.bars)])
    ticks = [(tick, f"{tick:g}") for tick in Scale(0, end, 0, 1).ticks(8)]
    kept = [(style, name) for name, style in STYLES.items() if any(name in one.rounds for one in measured)]
    file.write_text(svg(intervals(SAID, rows, end, ticks), title, SAID, "", kept), encoding="utf-8")


def _bars(one: Measured) -> list[Bar]:
    speeds = {style: one.speed(name, one.best) for name, style in STYLES.items()}
    known = {style: speed for style, speed in speeds.items() if speed is not None and is_settled(speed)}
    return [Bar(speed.median, style, speed.low, speed.high) for style, speed in known.items()]
