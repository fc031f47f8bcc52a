"""Format numbers for an axis and for text: scales with round ticks, and units for people."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

UNITS = (("h", 3600e9), ("min", 60e9), ("s", 1e9), ("ms", 1e6), ("µs", 1e3), ("ns", 1.0))
BYTE_UNITS = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0))
JOINED = "\u00a0"
"""Between a number and its unit, which stay in one line."""


def time_text(nanoseconds: float | None) -> str:
    """Return a time in its best unit with three digits; a dash for none."""
    if not nanoseconds:
        return "–" if nanoseconds is None else "0"
    unit, factor = unit_of(nanoseconds)
    return f"{digits(nanoseconds / factor)}{JOINED}{unit}"


def time_words(nanoseconds: float | None) -> str:
    """Return the same with a blank that terminals show."""
    return time_text(nanoseconds).replace(JOINED, " ")


def micros(nanoseconds: float) -> str:
    """Return a time in µs without its unit, for columns in which digits stand below each other."""
    return f"{nanoseconds / 1e3:,.1f}".replace("-", "\u2212")


def time_range(low_ns: float, high_ns: float) -> str:
    """Return two times, with their unit once where it is the same."""
    unit, factor = unit_of(low_ns)
    low = digits(low_ns / factor) if unit == unit_of(high_ns)[0] else time_text(low_ns)
    return f"{low}–{time_text(high_ns)}"


def bytes_text(nbytes: float) -> str:
    """Return an amount of memory in its best unit with three digits: kB, MB and GB are powers of 1000."""
    unit, factor = next((one for one in BYTE_UNITS if nbytes >= 0.9995 * one[1]), BYTE_UNITS[-1])
    return f"{digits(nbytes / factor)}{JOINED}{unit}"


def counted(count: int, noun: str) -> str:
    """Such as 1 task, 2 tasks, 3 batches."""
    ending = "" if count == 1 else "es" if noun.endswith("ch") else "s"
    return f"{count:,} {noun}{ending}"


def unit_of(nanoseconds: float) -> tuple[str, float]:
    """Return the unit in which a time is read most easily, and its ns."""
    return next((one for one in UNITS if nanoseconds >= 0.9995 * one[1]), UNITS[-1])


def digits(value: float) -> str:
    """Return three digits, and never 1e+03."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else "–"
    if abs(value) >= 1e7:
        return f"{value:.2e}"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) >= 1e-3 else f"{value:.1e}"


def percent(share: float) -> str:
    """Return a share of 1 in whole percent, with a decimal where that would be nothing."""
    if 0 < share < 5e-4:
        return f"<0.1{JOINED}%"
    return f"{100 * share:.{0 if abs(share) >= 0.0095 or share == 0 else 1}f}{JOINED}%"


def tenths(share: float) -> str:
    """Return a share of 1 in percent with one decimal, for columns."""
    return f"{100 * share:.1f}{JOINED}%".replace("-", "\u2212")


@dataclass(frozen=True)
class Scale:
    """Maps values from low to high onto pixels, by their logarithm where that is asked for; others are cut to the
    ends."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, at = (math.log(x) if self.log else x for x in (self.low, self.high, self._cut(value)))
        return round(self.start + (self.end - self.start) * (at - low) / (high - low), 1)

    def _cut(self, value: float) -> float:
        return min(max(value, self.low), self.high)

    def ticks(self, count: int = 5) -> list[float]:
        """About so many round values between the ends."""
        if self.log:
            return _thinned([t for t in _round_logs(self.low, self.high) if self.low <= t <= self.high], count)
        step = _round_step((self.high - self.low) / count)
        first = math.ceil(self.low / step - 1e-9)
        return [step * n for n in range(first, math.floor(self.high / step + 1e-9) + 1)]


def log_scale(values: Iterable[float], start: float, end: float, room: float = 1.15) -> Scale:
    """Return a logarithmic scale that holds these values, all above 0, and a factor of room around them."""
    found = list(values)
    return Scale(min(found) / room, max(found) * room, start, end, log=True)


def _round_step(rough: float) -> float:
    power: float = 10.0 ** math.floor(math.log10(rough))
    return next((n * power for n in (1, 2, 5) if n * power >= rough), 10 * power)


def _round_logs(low: float, high: float) -> list[float]:
    """Powers of ten, with their 2 and 5 where there are few; evenly spaced values where even those are few."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    tens = [10.0**power for power in powers if low <= 10.0**power <= high]
    if len(tens) >= 3:
        return tens
    fine = [n * 10.0**power for power in powers for n in (1, 2, 5)]
    if sum(low <= tick <= high for tick in fine) >= 3:
        return fine
    return Scale(low, high, 0, 1).ticks(4)


def _thinned(ticks: Sequence[float], count: int) -> list[float]:
    every = max(1, math.ceil(len(ticks) / (count + 1)))
    return list(ticks[::every])
