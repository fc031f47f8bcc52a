"""Convert moments of the device's clock to the host's clock, which is time.perf_counter_ns.

Each device timestamp is bounded by host times before and after it: readings of both clocks, if the driver has them,
otherwise the calls that enqueue and wait. Nothing is assumed about how long a call takes on its way, as halving round
trips would assume. Each bound leaves a half-plane of the lines host = device + offset + rate * device, and all bounds
leave a convex polygon. Newton's method finds its extreme rates in a few steps, because the width of the polygon at a
rate is concave and made of straight pieces. A fit is a line inside. The rest of the polygon says how far off a moment
can be, and the log has that with each inference.

One short inference cannot show at which rate the clocks run apart; the inferences of a minute can. No two clocks run
apart by more than MOST_PPB. A contradiction means that a clock was set, and the rate is learned again.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, overload

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Method = Literal["device_and_host_timer", "bracketed"]
BRACKETED: Method = "bracketed"
"""By the host's times around calls that enqueue and finish."""
TIMER: Method = "device_and_host_timer"
"""By readings of the device's clock."""

MOST_PPB = 500_000
"""How far apart two clocks run at most, in ns a second; what disciplines a host's clock adds no more than that."""
TOLD_PPB = 50_000
"""Bounds that leave a wider range of rates than this say nothing about the rate."""
_ALL_PPB = -MOST_PPB, MOST_PPB
_GIGA = 1_000_000_000
_ROUNDING_NS = 2
_ENOUGH_NS = 0.5  # a line that breaks a bound by less than this breaks none: moments are whole ns
_MOST_STEPS = 64


@dataclass(frozen=True)
class ClockFit:
    """host = device + offset_ns + (device - at_ns) * rate_ppb / 10^9, rounded to whole ns, halves up.

    at_ns: the device's time around which it was fitted. rate_ppb: by how many ns a second the device's clock is slow;
    negative where it is fast. bound_ns: no moment between those that it was fitted on is farther off, as long as the
    device's clock runs evenly. method: how it was found.
    """

    at_ns: int
    offset_ns: int
    rate_ppb: int
    bound_ns: int
    method: str

    @overload
    def to_host(self, device_ns: int) -> int: ...

    @overload
    def to_host(self, device_ns: Times) -> Times: ...

    def to_host(self, device_ns: int | Times) -> int | Times:
        """Return the same moments by the host's clock; whole numbers only, so that every reader gets the same."""
        since = device_ns - self.at_ns
        seconds = since // _GIGA
        rest = (since - seconds * _GIGA) * self.rate_ppb
        return device_ns + self.offset_ns + seconds * self.rate_ppb + (rest + _GIGA // 2) // _GIGA


def timer_constraints(reads: Times) -> tuple[Times, Times]:
    """Return what readings of the device's clock say, for `fit`: rows of the host's time in front of each, what it was,
    and the host's time behind it."""
    rows = _rows(reads, 3)
    return rows[:, [1, 0]], rows[:, [1, 2]]


def fit(
    not_before: Times,
    not_after: Times,
    rate_ppb: int | None = None,
    method: Method = BRACKETED,
    rates_ppb: tuple[int, int] = _ALL_PPB,
) -> ClockFit:
    """Return the line in the middle of what bounds leave.

    not_before, not_after: rows of a moment by the device's clock and a time of the host's that it is not before, or not
    after. rate_ppb: the rate where it is known already, which is used as far as the bounds allow it; by default the
    middle of the rates that they leave, or 0 where that says nothing. rates_ppb: the least and the greatest there can
    be.

    Bounds that contradict each other get the line that breaks them by least, with a bound_ns that covers what they say.
    Raises ValueError without any bound from below or from above.
    """
    return _Bounds(not_before, not_after).fitted(rates_ppb, rate_ppb, method)


class ClockTracker:
    """Fits the clock of one open device anew for each run, with the rate that the runs before have told.

    Of one run a second for a minute it keeps the two bounds that were closest. Lines through these leave few rates,
    which one short run cannot tell. When a run contradicts them, a clock was set or runs differently now, and what is
    known is forgotten. Not for several threads at once.
    """

    def __init__(self) -> None:
        self.fits = 0
        """How many runs were fitted."""
        self._lower: deque[Sequence[int]] = deque(maxlen=_ANCHORS)
        self._upper: deque[Sequence[int]] = deque(maxlen=_ANCHORS)
        self._rates_ppb = _ALL_PPB

    @property
    def rate_ppb(self) -> int | None:
        """The rate that the runs so far have told; None when they have not."""
        low, high = self._rates_ppb
        return (low + high) // 2 if high - low <= TOLD_PPB else None

    def fit(self, not_before: Times, not_after: Times, method: Method = BRACKETED) -> ClockFit:
        """Return the line for one run; bounds as `fit` takes them. Raises ValueError as that does."""
        bounds = _Bounds(not_before, not_after)
        self.fits += 1
        if bounds.fulfilled(self._rates_ppb):
            found = bounds.fitted(self._rates_ppb, self.rate_ppb, method)
        elif bounds.fulfilled(_ALL_PPB):
            self._lower.clear()
            self._upper.clear()
            found = bounds.fitted(_ALL_PPB, None, method)
        else:  # the run contradicts itself, which says nothing about those before
            return bounds.fitted(self._rates_ppb, None, method)
        self._learn(bounds, found.rate_ppb)
        return found

    def _learn(self, bounds: _Bounds, rate_ppb: int) -> None:
        lower, upper = bounds.closest(rate_ppb / _GIGA)
        if self._lower and abs(lower[1] - self._lower[-1][1]) < _ANCHORS_APART_NS:
            return
        self._lower.append(lower)
        self._upper.append(upper)
        while (rates := self._rates_of_anchors()) is None:
            self._lower.popleft()
            self._upper.popleft()
        self._rates_ppb = rates

    def _rates_of_anchors(self) -> tuple[int, int] | None:
        """Return the rates of the lines through all that is kept; None where there are none."""
        anchors = _Bounds(np.array(self._lower, np.int64), np.array(self._upper, np.int64))
        first, last = anchors.extremes(_ALL_PPB)
        if first is None or last is None:
            return None if len(self._lower) > 1 else _ALL_PPB
        return math.floor(first.rate * _GIGA), math.ceil(last.rate * _GIGA)


_ANCHORS = 60
_ANCHORS_APART_NS = 1_000_000_000


@dataclass(frozen=True)
class _Cut:
    """What bounds leave at one rate, in ns beyond their base: offsets from `lowest` to `highest`, none where that is
    less. slope: how that range grows with the rate. lower, upper: the places of the bounds that end it."""

    rate: float
    lowest: float
    highest: float
    slope: float
    lower: int
    upper: int

    @property
    def width(self) -> float:
        return self.highest - self.lowest

    @property
    def middle(self) -> float:
        return (self.lowest + self.highest) / 2


class _Bounds:
    """Bounds on lines, as floats that are small: moments count from `at`, offsets from `base`."""

    def __init__(self, not_before: Times, not_after: Times) -> None:
        self._before, self._after = _rows(not_before, 2), _rows(not_after, 2)
        if not len(self._before) or not len(self._after):
            raise ValueError("a clock cannot be fitted without bounds from below and from above")
        least = min(int(self._before[:, 0].min()), int(self._after[:, 0].min()))
        greatest = max(int(self._before[:, 0].max()), int(self._after[:, 0].max()))
        self.at = least + (greatest - least) // 2
        self.base = int(self._before[0, 1] - self._before[0, 0])
        self._first, self._last = float(least - self.at), float(greatest - self.at)
        self._lower_x, self._lower_y = self._floats(self._before)
        self._upper_x, self._upper_y = self._floats(self._after)

    def _floats(self, rows: Times) -> tuple[Floats, Floats]:
        device, host = rows[:, 0], rows[:, 1]
        return (device - self.at).astype(np.float64), (host - device - self.base).astype(np.float64)

    def cut(self, rate: float) -> _Cut:
        lowest, highest = self._lower_y - rate * self._lower_x, self._upper_y - rate * self._upper_x
        i, j = int(lowest.argmax()), int(highest.argmin())
        slope = float(self._lower_x[i] - self._upper_x[j])
        return _Cut(rate, float(lowest[i]), float(highest[j]), slope, i, j)

    def fitted(self, rates_ppb: tuple[int, int], known_ppb: int | None, method: Method) -> ClockFit:
        """As `fit` says."""
        first, last = self.extremes(rates_ppb)
        if first is None or last is None:
            low, high = rates_ppb
            return self.contradicting(self.widest(low / _GIGA, high / _GIGA), rates_ppb, method)
        return self.within(first, last, _chosen(first.rate * _GIGA, last.rate * _GIGA, known_ppb), method)

    def fulfilled(self, rates_ppb: tuple[int, int]) -> bool:
        """Return whether a line with one of these rates breaks no bound."""
        low, high = rates_ppb
        return self.nearest(low / _GIGA, high / _GIGA) is not None

    def extremes(self, rates_ppb: tuple[int, int]) -> tuple[_Cut | None, _Cut | None]:
        """Return the least and the greatest rate between two at which lines are left."""
        low, high = (rate / _GIGA for rate in rates_ppb)
        return self.nearest(low, high), self.nearest(high, low)

    def nearest(self, start: float, stop: float) -> _Cut | None:
        """Return where on the way between two rates the first lines are left; None where none are."""
        rate, toward = start, 1.0 if stop > start else -1.0
        for _ in range(_MOST_STEPS):
            found = self.cut(rate)
            if found.width >= -_ENOUGH_NS:
                return found
            if found.slope * toward <= 0:
                return None
            rate -= found.width / found.slope
            if (stop - rate) * toward < 0:
                return None
        return None

    def widest(self, low: float, high: float) -> _Cut:
        """Return where between two rates most is left, or the least is missing: by Kelley's cutting planes, here
        tangents."""
        left, right = self.cut(low), self.cut(high)
        if left.slope <= 0:
            return left
        if right.slope >= 0:
            return right
        found = left
        for _ in range(_MOST_STEPS):
            above = (right.width - left.width + left.slope * left.rate - right.slope * right.rate) / (
                left.slope - right.slope
            )
            found = self.cut(min(max(above, left.rate), right.rate))
            if found.width >= left.width + left.slope * (found.rate - left.rate) - _ENOUGH_NS or not found.slope:
                break
            left, right = (found, right) if found.slope > 0 else (left, found)
        return found

    def closest(self, rate: float) -> tuple[list[int], list[int]]:
        """Return the rows of the two bounds that matter at a rate."""
        found = self.cut(rate)
        return self._before[found.lower].tolist(), self._after[found.upper].tolist()

    def within(self, first: _Cut, last: _Cut, rate_ppb: int, method: Method) -> ClockFit:
        """Return the line at a rate between two cuts, and how far others between them are from it where they are
        farthest: at the first or at the last moment, and at one of the extreme rates, since no bound lies outside of
        these."""
        offset, rate = round(self.cut(rate_ppb / _GIGA).middle), rate_ppb / _GIGA
        at_first, at_last = offset + rate * self._first, offset + rate * self._last
        off = max(
            first.highest + first.rate * self._first - at_first,
            at_first - last.lowest - last.rate * self._first,
            last.highest + last.rate * self._last - at_last,
            at_last - first.lowest - first.rate * self._last,
        )
        return ClockFit(self.at, self.base + offset, rate_ppb, _bound(off), method)

    def contradicting(self, found: _Cut, rates_ppb: tuple[int, int], method: Method) -> ClockFit:
        """Return the line of a cut that breaks bounds. It is as far off as from the bounds of moments that have both,
        and before the first and after the last of these as far as any rate leads away from its own."""
        rate_ppb = round(found.rate * _GIGA)
        line = self.cut(rate_ppb / _GIGA)
        offset = round(line.middle)
        both = np.intersect1d(self._before[:, 0], self._after[:, 0])
        lower, upper = np.isin(self._before[:, 0], both), np.isin(self._after[:, 0], both)
        if not len(both):
            lower[:], upper[:] = True, True
        below = self._lower_y[lower] - line.rate * self._lower_x[lower] - offset
        above = self._upper_y[upper] - line.rate * self._upper_x[upper] - offset
        xs = np.concatenate([self._lower_x[lower], self._upper_x[upper]])
        beyond = max(float(xs.min()) - self._first, self._last - float(xs.max()))
        farthest = max(abs(line.rate - rate / _GIGA) for rate in (*rates_ppb, *_ALL_PPB))
        off = max(float(abs(below).max()), float(abs(above).max())) + beyond * farthest
        return ClockFit(self.at, self.base + offset, rate_ppb, _bound(off), method)


def _chosen(low_ppb: float, high_ppb: float, known_ppb: int | None) -> int:
    """Return a rate between two, a whole number of ppb."""
    if known_ppb is None and high_ppb - low_ppb <= TOLD_PPB:
        return round((low_ppb + high_ppb) / 2)
    return round(min(max(known_ppb or 0, low_ppb), high_ppb))


def _bound(off: float) -> int:
    """At least what a line is off, whatever was rounded."""
    whole = math.ceil(max(off, 0.0))
    return whole + (whole >> 48) + _ROUNDING_NS


def _rows(rows: Times, columns: int) -> Times:
    return np.asarray(rows, np.int64).reshape(-1, columns)
