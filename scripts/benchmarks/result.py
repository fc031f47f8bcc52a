"""Hold what a benchmark has found, and how it tells ratios."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gputune.client.tuning.measuring.intervals import Ratio

Table = tuple[Sequence[str], Sequence[Sequence[str]]]
"""Its head and its rows."""


@dataclass(frozen=True)
class Result:
    """Figures for JSON, tables for people, lines below them, and the promises that the figures break."""

    figures: Any
    tables: Sequence[Table]
    lines: Sequence[str] = ()
    broken: Sequence[str] = ()


class NotTimed(Exception):
    """Report that a contender does not work, or no longer does."""


def told(ratio: Ratio, digits: int = 3) -> str:
    """Return a ratio with its interval in words."""
    return "{:.{d}f} ({:.{d}f} to {:.{d}f})".format(ratio.median, ratio.low, ratio.high, d=digits)
