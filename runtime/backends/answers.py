"""Define what a backend answers: the times of launches, and what it finds in a buffer and its guards.

A verification reads much and needs little of it. So a device that is far away counts where the memory is, and only
numbers travel. Limits are given: a backend knows no rule for them (measuring/verification.py does).
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from gputune.core.dtypes import is_float
from gputune.runtime.arrays import numbers

POISON = 0xFF  # as every byte of a float of any type: a NaN

Bytes = npt.NDArray[np.uint8]
Times = npt.NDArray[np.int64]
NO_TIMES: Times = np.empty((0, 4), np.int64)
Values = npt.NDArray[Any]


@dataclass(frozen=True)
class Timing:
    """Launches that ran one after the other: their total on the device's clock and on the host's.

    event_ns is 0 when the device's clock ran backwards in one of them. quartile_ns is the lower quartile of single
    launches on the device's clock, 0 where they cannot be told apart. times: as of enqueue_timed and as the driver says
    them, but a row for each kernel of a launch; no row where only sums are known.
    """

    launches: int
    event_ns: int
    wall_ns: int
    quartile_ns: int = 0
    times: Times = field(default_factory=NO_TIMES.copy, compare=False, repr=False)

    @property
    def launch_ns(self) -> float:
        """Return what a launch takes on the device's clock while nothing else has the device. If other programs run on
        a CPU, some launches take a time slice of the scheduler more, which says nothing about the kernel."""
        return self.quartile_ns or self.event_ns / self.launches


@dataclass(frozen=True)
class Bounds:
    """How far elements may be off: `limit` where |reference| <= ordinary, else absolute + relative * |reference|.
    Whole numbers and bools must be equal, whatever these say."""

    limit: float
    ordinary: float
    relative: float
    absolute: float


@dataclass(frozen=True, eq=False)
class Reference:
    """Hold what an output should be, with its bounds and its element type: the array's unless it is named. It is made
    once for many outputs, so that a backend may keep a copy of `values` next to the device as long as this lives."""

    values: Values
    bounds: Bounds
    named: str = ""

    @property
    def dtype(self) -> str:
        """Return the element type, by the name that contexts have for it."""
        return self.named or self.values.dtype.name


@dataclass(frozen=True)
class Guards:
    """How many bytes before and after a buffer are no poison, and how far from it the nearest of each is (0: next to
    it, or none is changed)."""

    before: int = 0
    before_distance: int = 0
    after: int = 0
    after_distance: int = 0


@dataclass(frozen=True)
class Compared:
    """How many elements are wrong, and how many are poison: never written, or read from beyond a buffer.

    first: the place of the first wrong one; found: its bytes. Without a wrong one these are 0 and empty. maximum: the
    largest error of all that are finite; None if none is, or for whole numbers.
    """

    wrong: int
    poisoned: int = 0
    first: int = 0
    found: bytes = b""
    maximum: float | None = None
    guards: Guards = Guards()


@dataclass(frozen=True)
class Checked:
    """The CRC-32 of a buffer (0 if it was not asked for) and its guards."""

    crc32: int
    guards: Guards


def compared(got: Values, reference: Reference, guards: Guards = Guards()) -> Compared:
    """Return what is wrong with got, of the shape of the reference. An infinity is right where the reference is the
    same one; a NaN where that is one and got's was computed, which the poison was not, unless it is in half."""
    want, bounds = reference.values, reference.bounds
    if not is_float(reference.dtype):
        if want.dtype.kind == "b":  # one byte that is 0 or 1, and nothing else is true
            got, want = got.view(np.uint8), want.view(np.uint8)
        return _summary(got, got != want, 0, None, guards)
    bits, got, want = got, numbers(got, reference.dtype), numbers(want, reference.dtype)
    sizes = np.where(np.isfinite(want), np.abs(want.astype(np.float64)), 0.0)
    allowed = np.where(sizes <= bounds.ordinary, bounds.limit, bounds.absolute + bounds.relative * sizes)
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(got.astype(np.float64) - want)
        wrong = ~((error <= allowed) | (got == want))
    poisoned = bits.view(f"u{bits.itemsize}") == np.iinfo(f"u{bits.itemsize}").max
    telling = bits.itemsize > 2  # some drivers store these very bits for each NaN in half
    wrong &= ~(np.isnan(want) & np.isnan(got)) | (poisoned & telling)
    if not wrong.any():
        return Compared(0, guards=guards)
    known = error[np.isfinite(error)]
    maximum = float(known.max()) if known.size else None
    return _summary(bits, wrong, int(np.count_nonzero(poisoned)), maximum, guards)


def _summary(got: Values, wrong: Values, poisoned: int, maximum: float | None, guards: Guards) -> Compared:
    count = int(np.count_nonzero(wrong))
    if not count:
        return Compared(0, guards=guards)
    first = int(np.argmax(wrong))
    return Compared(count, poisoned, first, got.reshape(-1)[first].tobytes(), maximum, guards)


def checked(content: Bytes, guard_bytes: int, end: int, summed: bool) -> Checked:
    """Return the checksum of content[guard_bytes:end], if it is asked for, and what is around it."""
    guards = guards_of(content, guard_bytes, end)
    return Checked(zlib.crc32(content[guard_bytes:end].data) if summed else 0, guards)


def guards_of(content: Bytes, guard_bytes: int, end: int) -> Guards:
    """Return what has changed before guard_bytes and from `end` on."""
    return Guards(*_changed(content[:guard_bytes][::-1]), *_changed(content[end:]))


def _changed(guard: Bytes) -> tuple[int, int]:
    """Return how many bytes have changed, and the first of them: the guard begins next to the buffer."""
    if guard.min(initial=POISON) == POISON:  # the largest byte: an intact guard is read once and nothing is made
        return 0, 0
    changed = np.flatnonzero(guard != POISON)
    return int(changed.size), int(changed[0])


def timing_of(times: Times, launches: int, wall_ns: int) -> Timing:
    """Return the timing of launches whose kernels have these timestamps."""
    kernels_ns = times[:, 3] - times[:, 2]
    if kernels_ns.min() < 0:
        return Timing(launches, 0, wall_ns, times=times)
    each_ns = np.sort(kernels_ns.reshape(launches, -1).sum(axis=1))
    return Timing(launches, int(kernels_ns.sum()), wall_ns, int(each_ns[launches // 4]), times)


def in_order_of_time(times: Times) -> Times:
    """Timestamps of which none is before the one in front of it: what a driver stamps later than the start was before
    it, and nothing ends before it starts."""
    times[:, :3] = np.minimum.accumulate(times[:, 2::-1], axis=1)[:, ::-1]
    times[:, 3] = np.maximum(times[:, 2], times[:, 3])
    return times
