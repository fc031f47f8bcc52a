"""Is a variant's output right, and did it stay inside its buffer?

A buffer that a kernel writes lies between two guard regions of one allocation, all of it filled with one byte
pattern that reads as NaN: what stays NaN was never written, and a changed guard was written out of bounds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gputune.runtime.backends import Backend, Buffer, Bytes

POISON = 0xFF  # as every byte of a float: a NaN
GUARD_BYTES = 64 << 10

Floats = npt.NDArray[np.float32]


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


def guarded(backend: Backend, nbytes: int) -> GuardedBuffer:
    """A poisoned buffer of nbytes between two guard regions. Raises LimitExceeded when that is too large."""
    alignment = backend.identity.base_address_alignment_bytes
    guard_bytes = -(-GUARD_BYTES // alignment) * alignment
    whole = backend.allocate(nbytes + 2 * guard_bytes)
    buffer = GuardedBuffer(whole, backend.part(whole, guard_bytes, nbytes), guard_bytes)
    buffer.poison(backend)
    return buffer


def mismatch(got: Floats, want: Floats, relative: float, absolute: float) -> str:
    """What is wrong with got, with numbers; nothing when |got - want| <= absolute + relative * max|want|
    everywhere (a NaN is wrong everywhere, an infinity only where want is not the same one)."""
    if got.shape != want.shape:
        return f"the output has shape {got.shape}, the reference {want.shape}"
    finite = want[np.isfinite(want)]
    largest = float(np.abs(finite).max()) if finite.size else 0.0
    limit = absolute + relative * largest
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(got.astype(np.float64) - want)
        wrong = ~((error <= limit) | (got == want))
    count = int(np.count_nonzero(wrong))
    if not count:
        return ""
    first = int(np.argmax(wrong))
    unwritten = int(np.count_nonzero(got.view(np.uint32) == 0xFFFFFFFF))
    known = error[np.isfinite(error)]
    text = f"{count} of {got.size} elements are wrong"
    text += f", first at {first}: {got.flat[first]:.9g} instead of {want.flat[first]:.9g}"
    text += f"; maximum error {known.max() if known.size else np.nan:.3g}, allowed {limit:.3g}"
    return text + (f"; {unwritten} were never written" if unwritten else "")


def _damage(before: Bytes, after: Bytes) -> str:
    places = []
    for name, guard, nearest in (("before", before[::-1], "last"), ("after", after, "first")):
        changed = np.flatnonzero(guard != POISON)
        if changed.size:
            places.append(f"{changed.size} bytes {name} the buffer, the {nearest} one at distance {changed[0]}")
    return f"wrote outside its buffer: {' and '.join(places)}" if places else ""
