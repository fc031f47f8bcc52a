"""Find the launch from which an inference resumes after a persistent kernel gave up.

All launches before that launch have run to their end, and some after it, perhaps in part. To run these again gives the
same results if none has overwritten what any of them reads from before. Tensors that are never alive together share
memory, and plain launches after an abandoned kernel run on whatever their tensors hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gputune.core.launches import Launch, Needs, Stage
from gputune.runtime.context.records import BufferRef


@dataclass(frozen=True)
class Access:
    """Say which buffers of other launches a launch reads, and which it writes. needs: as of Launch."""

    reads: tuple[BufferRef, ...]
    writes: tuple[BufferRef, ...]
    needs: Needs | None = None


def accesses_of(
    kernels: Sequence[Stage | Launch], inputs: Mapping[str, BufferRef], own: Mapping[str, BufferRef]
) -> Iterator[Access]:
    """Return those of the kernels of an operation. A kernel whose family declares nothing may write its output and its
    scratch. Each may read of these what an earlier one may have written."""
    touched: set[str] = set()
    for kernel in kernels:
        names = [argument for argument in kernel.arguments if isinstance(argument, str)]
        writes = [name for name in names if name in own and (kernel.writes is None or name in kernel.writes)]
        reads = [inputs[name] for name in names if name in inputs] + [own[name] for name in names if name in touched]
        touched.update(writes)
        yield Access(tuple(reads), tuple(own[name] for name in writes), kernel.needs)


class Resuming:
    """The launches of a graph by what they read and write, in order."""

    def __init__(self, accesses: Sequence[Access]) -> None:
        self._accesses = accesses
        self._sources = [
            [(self._source(place, ref), ref) for ref in access.reads] for place, access in enumerate(accesses)
        ]

    def place(self, begun: int, behind: Sequence[int]) -> int:
        """Return the last launch from which all may run again, when those before `begun` have run to their end, it may
        have begun, and those `behind` have run, whatever they found. The first launch always is one: nothing writes
        inputs and weights."""
        return next(
            first for first in range(begun, -1, -1) if self._is_safe(first, [*range(first, begun + 1), *behind])
        )

    def _source(self, place: int, ref: BufferRef) -> int:
        """Return the last launch before this one that writes all of a buffer; -1 where there is none."""
        writers = range(place - 1, -1, -1)
        return next((each for each in writers if any(_covers(one, ref) for one in self._accesses[each].writes)), -1)

    def _is_safe(self, first: int, ran: Sequence[int]) -> bool:
        """Return whether those from the first on read from before it nothing that one of those that ran has written."""
        written = [ref for launch in ran for ref in self._accesses[launch].writes]
        kept = {ref for sources in self._sources[first:] for source, ref in sources if source < first}
        return first == 0 or not any(_overlap(one, other) for one in kept for other in written)


def _covers(one: BufferRef, other: BufferRef) -> bool:
    begins = one.offset <= other.offset
    return (one.kind, one.index) == (other.kind, other.index) and begins and _end(other) <= _end(one)


def _overlap(one: BufferRef, other: BufferRef) -> bool:
    return (one.kind, one.index) == (other.kind, other.index) and one.offset < _end(other) and other.offset < _end(one)


def _end(ref: BufferRef) -> int:
    return ref.offset + ref.nbytes
