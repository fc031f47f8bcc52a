"""Verify that a variant's output is right, and that it stayed inside its buffers.

Every buffer of a kernel lies between two guard regions of one allocation, filled with one byte pattern that reads as
NaN. Bytes of an output that stay NaN were never written. A changed guard was written out of bounds. A read beyond an
input makes the output NaN.

Whole numbers have no NaN: the pattern is 255 or -1, which may be right. So each byte is the complement of what it has
to become. One that is not written is wrong in any case, which a second launch with another pattern would show.

The size of the guards decides how far a stray write is noticed. Kernels write through outputs and scratch, so these
have wide guards: an index that is wrong by a row or a plane writes far away. To check both guards of one buffer costs 2
ms, a hundredth of the time to compile a variant. Guards of four times the size would cost ten times as long, because
they do not fit into a CPU's caches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gputune.core.dtypes import is_float
from gputune.runtime.arrays import numbers
from gputune.runtime.backends import Backend, Bounds, Buffer, Bytes, Checked, Compared, Guards, Reference, Zone
from gputune.runtime.backends.answers import POISON, Values, compared, guards_of

GUARD_BYTES = 64 << 10
OUTLIER = 1e6
MOST_ALLOWED = 10
"""Times the median: what is larger than OUTLIER comes from a large input and not from a sum, so it says nothing of the
others. Nor does what would allow the others an error of MOST_ALLOWED, as it may where tolerances are coarse."""
SAMPLED = 4096
"""Elements of which the median is taken."""
WIDE_GUARD_BYTES = 4 << 20
"""Or half of what is left of the device's largest allocation, if that is less. A write further away is noticed if it
meets a buffer of the same variant, or no memory at all; otherwise it may go unnoticed."""


@dataclass(frozen=True, eq=False)
class GuardedBuffer:
    """Guard a buffer: `inner` is what a kernel gets; `whole` is guard, inner, guard."""

    whole: Buffer
    inner: Buffer
    guard_bytes: int

    def poison(self, backend: Backend) -> None:
        backend.fill(self.whole, POISON)

    def read(self, backend: Backend) -> tuple[Bytes, str]:
        """Return the inner bytes, and what is wrong with the guards (nothing when they are intact)."""
        content = backend.read(self.whole)
        end = self.guard_bytes + self.inner.nbytes
        return content[self.guard_bytes : end], damage(guards_of(content, self.guard_bytes, end))

    def zone(self, summed: bool = True) -> Zone:
        """Return what a backend is asked about."""
        return Zone(self.whole, self.guard_bytes, self.inner.nbytes, summed)


def guarded(backend: Backend, nbytes: int, wide: bool = False) -> GuardedBuffer:
    """Return a poisoned buffer of nbytes between two guard regions of GUARD_BYTES; `wide` ones have WIDE_GUARD_BYTES as
    far as the device allocates so much, and where launches write at all. Raises LimitExceeded when that is too
    large."""
    alignment = backend.identity.base_address_alignment_bytes
    wanted = GUARD_BYTES
    if wide and backend.computes:
        room = (backend.identity.max_allocation_bytes - nbytes) // 2 - alignment
        wanted = max(GUARD_BYTES, min(WIDE_GUARD_BYTES, room))
    guard_bytes = -(-wanted // alignment) * alignment
    whole = backend.allocate(nbytes + 2 * guard_bytes)
    buffer = GuardedBuffer(whole, backend.part(whole, guard_bytes, nbytes), guard_bytes)
    buffer.poison(backend)
    return buffer


def unlike(backend: Backend, reference: Reference) -> Buffer | None:
    """Return a buffer in which each byte differs from the reference; None for floats, which poison tells apart."""
    if is_float(reference.dtype):
        return None
    buffer = backend.allocate(reference.values.nbytes)
    backend.write(buffer, ~np.ascontiguousarray(reference.values).view(np.uint8))
    return buffer


class KeptBuffers:
    """Keep guarded buffers that kernels read and must not change; `fill` writes their contents.

    A checksum tells whether they have changed, and then they are filled again, so that what one variant
    damages does not fail the next. checksums: those of what was filled in, by name.
    """

    def __init__(
        self, backend: Backend, sizes: Mapping[str, int], fill: Callable[[Mapping[str, Buffer]], None]
    ) -> None:
        self._backend = backend
        self._fill = fill
        self._guarded = {name: guarded(backend, nbytes) for name, nbytes in sizes.items()}
        self.checksums: dict[str, int] = {}
        self.buffers = {name: buffer.inner for name, buffer in self._guarded.items()}

    def fill(self) -> str:
        """Fill the buffers, and say what that wrote outside of them (nothing when all is well)."""
        for buffer in self._guarded.values():
            buffer.poison(self._backend)
        self._fill(self.buffers)
        found = []
        for name, one in zip(self._guarded, self._backend.checksum(self.zones), strict=True):
            self.checksums[name] = one.crc32
            wrong = damage(one.guards)
            found += [f"{name!r}: {wrong}"] if wrong else []
        return "; ".join(found)

    def check(self) -> str:
        """Return what has changed since the buffers were filled (nothing when they are intact), and fill them again
        then."""
        return self.judge(self._backend.checksum(self.zones))

    def judge(self, seen: Sequence[Checked]) -> str:
        """Return the same as check, of what the backend has just said about the zones."""
        found = []
        for name, one in zip(self._guarded, seen, strict=True):
            if one.crc32 != self.checksums[name]:
                found.append(f"{name!r}: wrote to a buffer that is only to be read")
            wrong = damage(one.guards)
            found += [f"{name!r}: {wrong}"] if wrong else []
        if found:
            self.fill()
        return "; ".join(found)

    @property
    def zones(self) -> list[Zone]:
        """Return what a backend is asked about."""
        return [buffer.zone() for buffer in self._guarded.values()]


def mismatch(got: Values, want: Values, relative: float, absolute: float) -> str:
    """Return what is wrong with got, with numbers; nothing when |got - want| <= absolute + relative * max|want|
    everywhere, and for whole numbers and bools when both are equal. What is far larger than most of want is no measure
    for these, and is held against itself. Infinities, NaN and poison are as in answers.compared."""
    if got.shape != want.shape:
        return f"the output has shape {got.shape}, the reference {want.shape}"
    reference = reference_of(want, relative, absolute)
    return what_is_wrong(compared(got, reference), reference)


def reference_of(want: Values, relative: float, absolute: float, dtype: str = "") -> Reference:
    """Return what outputs are compared with: the bounds as mismatch says, which are found out only once. dtype: of the
    elements, if they are not of the array's type."""
    dtype = dtype or want.dtype.name
    if not is_float(dtype):
        return Reference(want, Bounds(0.0, 0.0, 0.0, 0.0), dtype)
    values = numbers(want, dtype)
    sizes = np.where(np.isfinite(values), np.abs(values.astype(np.float64)), 0.0)
    most = _largest_ordinary(sizes, relative)
    limit = absolute + relative * float(sizes.max(initial=0.0, where=sizes <= most))
    return Reference(want, Bounds(limit, most, relative, absolute), dtype)


def what_is_wrong(seen: Compared, reference: Reference) -> str:
    """Return what a backend has found in words; nothing when all is right."""
    if not seen.wrong:
        return ""
    want, floats = reference.values, is_float(reference.dtype)
    want = want.view(np.uint8) if want.dtype.kind == "b" else want
    one = slice(seen.first, seen.first + 1)
    found, right = np.frombuffer(seen.found, want.dtype), np.ravel(want)[one]
    got, wanted = (numbers(each, reference.dtype)[0] for each in (found, right))
    text = f"{seen.wrong} of {want.size} elements are wrong, first at {seen.first}: "
    if not floats:
        return f"{text}{got} instead of {wanted}"
    error = np.nan if seen.maximum is None else seen.maximum
    text += f"{got:.9g} instead of {wanted:.9g}; maximum error {error:.3g}, allowed {reference.bounds.limit:.3g}"
    return text + (f"; {seen.poisoned} were never written or are from beyond a buffer" if seen.poisoned else "")


def _largest_ordinary(sizes: Values, relative: float) -> float:
    """Return a multiple of the median size of what is not zero; the largest number without one."""
    some = sizes.reshape(-1)[:: max(sizes.size // SAMPLED, 1)]
    some = some[some > 0]
    most = min(OUTLIER, MOST_ALLOWED / relative) if relative else OUTLIER
    largest = float(np.finfo(np.float64).max)  # and no infinity, which records cannot hold
    return min(most * float(np.median(some)), largest) if some.size else largest


def damage(guards: Guards) -> str:
    """Return what was written outside of a buffer, in words; nothing when its guards are intact."""
    places = []
    for name, changed, nearest, distance in (
        ("before", guards.before, "last", guards.before_distance),
        ("after", guards.after, "first", guards.after_distance),
    ):
        if changed:
            places.append(f"{changed} bytes {name} the buffer, the {nearest} one at distance {distance}")
    return f"wrote outside its buffer: {' and '.join(places)}" if places else ""
