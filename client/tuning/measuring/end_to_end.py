"""Record what tuning gains end to end: one record that log, summary, report, context and applications read.

Only the untuned time and the gain are measured. The tuned time follows from these two, so that no quotient of two times
ever contradicts the gain.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gputune.client.tuning.measuring.sequential import Gain
from gputune.core.json_text import finite_number

Kept = Literal["tuned", "last", "untuned"]

KEPT: Mapping[Kept, str] = {
    "tuned": "the tuned context ships: it is faster than the untuned context for certain",
    "last": "the last certain choice stays: no other context is faster than it for certain",
    "untuned": "the untuned context ships: no tuned context is faster for certain",
}
"""RULE, as far as it has decided."""

ONLY = "the untuned context ships: tuning has led to no other"
"""The one reason where there is nothing to compare."""

OPEN = "this choice is open: the next generation that may measure compares the same contexts for longer"

SHORTEST_NS, LONGEST_NS = 1e-3, 1e18
"""Times beyond these are no inference's, and would spoil every scale."""


@dataclass(frozen=True)
class EndToEnd:
    """The time of an untuned inference, a median; how many times as fast a tuned one is; which context ships.

    The gain is that of the tuned context that ships, or of the best one if the untuned context is kept, and None if
    tuning has led to no other context than the untuned one. A gain of 0 rounds comes from a version that did not know
    how certain it was.
    """

    untuned_ns: float
    gain: Gain | None
    kept: Kept

    @property
    def tuned_ns(self) -> float | None:
        """The time of a tuned inference: the quotient of the two times is the gain."""
        return None if self.gain is None else self.untuned_ns / self.gain.median

    @property
    def shipped(self) -> float:
        """How many times as fast as untuned the context is that ships, by the median: 1 if it is the untuned one."""
        return 1.0 if self.kept == "untuned" or self.gain is None else self.gain.median

    @property
    def open(self) -> bool:
        """Whether more rounds may change the choice: the interval holds 1 and is not narrow."""
        gain = self.gain
        return gain is not None and (gain.rounds == 0 or not (gain.certain or gain.settled))

    @property
    def line(self) -> str:
        """The record in one line for people."""
        untuned = _milliseconds(self.untuned_ns)
        if self.gain is None or self.tuned_ns is None:
            return f"inference {untuned}: {ONLY}"
        tuned, said = _milliseconds(self.tuned_ns), self.gain.words
        if self.kept == "untuned":
            return f"inference {untuned}; best tuned {tuned}: {said}; {KEPT[self.kept]}"
        return f"inference {tuned}, untuned {untuned}: {said}" + f"; {KEPT['last']}" * (self.kept == "last")

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values; an end of an interval that is not known is null."""
        return {
            "untuned_ns": self.untuned_ns,
            "tuned_ns": self.tuned_ns,
            "gain": None if self.gain is None else self.gain.to_dict(),
            "kept": self.kept,
            "open": self.open,
        }

    @classmethod
    def from_dict(cls, value: object) -> EndToEnd | None:
        """Return the record of plain JSON values from anywhere, also as earlier versions wrote it; None for what cannot
        be a measurement."""
        if not isinstance(value, Mapping):
            return None
        untuned_ns, gain = finite_number(value.get("untuned_ns")), gain_from_dict(value.get("gain"))
        if untuned_ns is None or not SHORTEST_NS <= untuned_ns <= LONGEST_NS:
            return None
        if "kept" not in value:
            return None if gain is None else _earlier(untuned_ns, gain)
        for kept in KEPT:
            if kept == value["kept"] and (gain is not None or (kept == "untuned" and value.get("gain") is None)):
                return cls(untuned_ns, gain, kept)
        return None


def gain_from_dict(value: object) -> Gain | None:
    """Return the gain of plain JSON values from anywhere; None for what cannot be one."""
    if not isinstance(value, Mapping):
        return None
    median, rounds = finite_number(value.get("median")), value.get("rounds", 0)
    if not median or type(rounds) is not int or rounds < 0:
        return None
    if "low" in value and value["low"] is None and value.get("high") is None:
        return Gain(median, 0.0, math.inf, rounds)
    low, high = finite_number(value.get("low")), finite_number(value.get("high"))
    return Gain(median, low, high, rounds) if low and high and low <= median <= high else None


def _earlier(untuned_ns: float, gain: Gain) -> EndToEnd:
    """Return what a version says that did not know how certain it was: a gain of the untuned context by itself is no
    gain."""
    if gain.low == gain.high == 1:
        return EndToEnd(untuned_ns, Gain(1.0, 0.0, math.inf, 0), "untuned")
    return EndToEnd(untuned_ns, Gain(gain.median, gain.low, gain.high, 0), "tuned" if gain.low > 1 else "last")


def _milliseconds(time_ns: float) -> str:
    """Return a time with four digits, or all before the point."""
    digits = max(0, 3 - math.floor(math.log10(time_ns / 1e6)))
    return f"{time_ns / 1e6:.{digits}f} ms"
