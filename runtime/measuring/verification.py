"""Verify that a variant's output is right, and that it stayed inside its buffers.

Every buffer of a kernel lies between two guard regions of one allocation, filled with one byte pattern that reads as
NaN. Bytes of an output that stay NaN were never written. A changed guard was written out of bounds. A read beyond an
input makes the output NaN.

The size of the guards decides how far a stray write is noticed. Kernels write through outputs and scratch, so these
have wide guards: an index that is wrong by a row or a plane writes far away. To check both guards of one buffer costs 2
ms, a hundredth of the time to compile a variant. Guards of four times the size would cost ten times as long, because
they do not fit into a CPU's caches.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gputune.runtime.backends import Backend, Buffer, Bytes

POISON = 0xFF  # as every byte of a float of any type: a NaN
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

Values = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class GuardedBuffer:
    """`inner` is what a kernel gets; `whole` is guard, inner, guard."""

    whole: Buffer
    inner: Buffer
    guard_bytes: int

    def poison(self, backend: Backend) -> None:
        backend.fill(self.whole, POISON)

    def read(self, backend: Backend) -> tuple[Bytes, str]:
        """The inner bytes, and what is wrong with the guards (nothing when they are intact)."""
        content = backend.read(self.whole)
        end = self.guard_bytes + self.inner.nbytes
        return content[self.guard_bytes : end], _damage(content[: self.guard_bytes], content[end:])


def guarded(backend: Backend, nbytes: int, wide: bool = False) -> GuardedBuffer:
    """A poisoned buffer of nbytes between two guard regions of GUARD_BYTES; `wide` ones have WIDE_GUARD_BYTES as far
    as the device allocates so much, and where launches write at all. Raises LimitExceeded when that is too large."""
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


class KeptBuffers:
    """Guarded buffers that kernels read and must not change; `fill` writes their contents.

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
        """Fills the buffers; says what that wrote outside of them (nothing when all is well)."""
        for buffer in self._guarded.values():
            buffer.poison(self._backend)
        self._fill(self.buffers)
        self._backend.finish()
        found = []
        for name, buffer in self._guarded.items():
            content, damage = buffer.read(self._backend)
            self.checksums[name] = zlib.crc32(content.data)
            found += [f"{name!r}: {damage}"] if damage else []
        return "; ".join(found)

    def check(self) -> str:
        """What has changed since the buffers were filled (nothing when they are intact); fills them again then."""
        found = []
        for name, buffer in self._guarded.items():
            content, damage = buffer.read(self._backend)
            if zlib.crc32(content.data) != self.checksums[name]:
                found.append(f"{name!r}: wrote to a buffer that is only to be read")
            found += [f"{name!r}: {damage}"] if damage else []
        if found:
            self.fill()
        return "; ".join(found)


def mismatch(got: Values, want: Values, relative: float, absolute: float) -> str:
    """What is wrong with got, with numbers; nothing when |got - want| <= absolute + relative * max|want| everywhere,
    and for whole numbers and bools when both are equal. What is far larger than most of want is no measure for these,
    and is held against itself. An infinity is right where want is the same one; a NaN where want is one and got's was
    computed, which the poison was not, unless it is in half."""
    if got.shape != want.shape:
        return f"the output has shape {got.shape}, the reference {want.shape}"
    if want.dtype.kind != "f":
        return _different(got, want)
    sizes = np.where(np.isfinite(want), np.abs(want.astype(np.float64)), 0.0)
    ordinary = sizes <= _largest_ordinary(sizes, relative)
    limit = absolute + relative * float(sizes.max(initial=0.0, where=ordinary))
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(got.astype(np.float64) - want)
        wrong = ~((error <= np.where(ordinary, limit, absolute + relative * sizes)) | (got == want))
    poisoned = got.view(f"u{got.itemsize}") == np.iinfo(f"u{got.itemsize}").max
    telling = got.itemsize > 2  # some drivers store these very bits for each NaN in half
    wrong &= ~(np.isnan(want) & np.isnan(got)) | (poisoned & telling)
    count = int(np.count_nonzero(wrong))
    if not count:
        return ""
    first = int(np.argmax(wrong))
    unwritten = int(np.count_nonzero(poisoned))
    known = error[np.isfinite(error)]
    text = f"{count} of {got.size} elements are wrong"
    text += f", first at {first}: {got.flat[first]:.9g} instead of {want.flat[first]:.9g}"
    text += f"; maximum error {known.max() if known.size else np.nan:.3g}, allowed {limit:.3g}"
    return text + (f"; {unwritten} were never written or are from beyond a buffer" if unwritten else "")


def _largest_ordinary(sizes: Values, relative: float) -> float:
    """A multiple of the median size of what is not zero."""
    some = sizes.reshape(-1)[:: max(sizes.size // SAMPLED, 1)]
    some = some[some > 0]
    most = min(OUTLIER, MOST_ALLOWED / relative) if relative else OUTLIER
    return most * float(np.median(some)) if some.size else np.inf


def _different(got: Values, want: Values) -> str:
    """Whole numbers have no tolerance. A bool is one byte that is 0 or 1, and nothing else is true."""
    if want.dtype.kind == "b":
        got, want = got.view(np.uint8), want.view(np.uint8)
    wrong = got != want
    count = int(np.count_nonzero(wrong))
    first = int(np.argmax(wrong))
    found = f"first at {first}: {got.flat[first]} instead of {want.flat[first]}" if count else ""
    return f"{count} of {got.size} elements are wrong, {found}" if count else ""


def _damage(before: Bytes, after: Bytes) -> str:
    places = []
    for name, guard, nearest in (("before", before[::-1], "last"), ("after", after, "first")):
        if guard.min() != POISON:  # the largest byte: an intact guard is read once and nothing is made
            changed = np.flatnonzero(guard != POISON)
            places.append(f"{changed.size} bytes {name} the buffer, the {nearest} one at distance {changed[0]}")
    return f"wrote outside its buffer: {' and '.join(places)}" if places else ""
