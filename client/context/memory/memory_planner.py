"""Plan where every intermediate tensor lies: few arenas, shared by tensors that are never alive together.

Offsets are multiples of the device's base address alignment, and no arena is larger than the device's largest
allocation. No plan is smaller than the most that is alive at once; a context states this bound.

The quick plan is greedy by size, after Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference"
(2020), arXiv:2001.03288, section 5.2. Tensors are placed from the largest to the smallest, each into the smallest gap
that the tensors alive at the same time leave, else after them. It is enough for contexts that are only compared. For
the context that is written, `arena_search.py` looks for a better plan in a number of steps, so that no clock decides.
"""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gputune.client.errors import MemoryPlanError


@dataclass(frozen=True)
class Lifetime:
    """A tensor that needs memory from the operation `first_use` to the operation `last_use`, both included."""

    name: str
    nbytes: int
    first_use: int
    last_use: int

    def overlaps(self, other: "Lifetime") -> bool:
        """Return whether both are alive at some operation."""
        return self.first_use <= other.last_use and other.first_use <= self.last_use


@dataclass(frozen=True)
class Placement:
    """`arenas` holds the bytes of each arena, `offsets` the (arena, offset in bytes) of each tensor.

    bound_bytes: what as many arenas cannot do without, see `least_bytes`; never more than the arenas together."""

    arenas: tuple[int, ...]
    offsets: Mapping[str, tuple[int, int]]
    bound_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        """Of all arenas."""
        return sum(self.arenas)


def plan_arenas(lifetimes: Iterable[Lifetime], alignment: int, max_allocation_bytes: int) -> Placement:
    """Offsets that are multiples of `alignment` in arenas no larger than `max_allocation_bytes`.

    The arenas together are never larger than all tensors, each rounded up to the alignment. Raises MemoryPlanError
    for a tensor that no arena can hold.
    """
    tensors = _by_size(lifetimes, max_allocation_bytes)
    return placed_in_order(tensors, alignment, max_allocation_bytes)


def plan_shared_buffers(lifetimes: Iterable[Lifetime], alignment: int, max_allocation_bytes: int) -> Placement:
    """Arenas in which every tensor begins at offset 0, so that each arena is a buffer that tensors use in turns.

    Greedy by size, after Pisarchyk and Lee, section 4.3: from the largest to the smallest, each tensor takes the
    smallest buffer that no tensor alive at the same time has, else a new one. Raises MemoryPlanError as plan_arenas
    does.
    """
    buffers: list[list[Lifetime]] = []
    offsets: dict[str, tuple[int, int]] = {}
    tensors = _by_size(lifetimes, max_allocation_bytes)
    for tensor in tensors:
        free = (place for place, own in enumerate(buffers) if not any(tensor.overlaps(other) for other in own))
        place = max(free, default=len(buffers))  # the last one that is free is the smallest
        if place == len(buffers):
            buffers.append([])
        buffers[place].append(tensor)
        offsets[tensor.name] = place, 0
    return placement(tensors, offsets, alignment)


def _by_size(lifetimes: Iterable[Lifetime], max_allocation_bytes: int) -> list[Lifetime]:
    """Tensors from the largest to the smallest. Raises MemoryPlanError."""
    tensors = sorted(lifetimes, key=lambda each: (-each.nbytes, each.first_use, each.name))
    for tensor in tensors:
        if tensor.nbytes > max_allocation_bytes:
            raise MemoryPlanError(
                f"tensor {tensor.name!r} needs {tensor.nbytes} bytes; "
                f"the device allocates at most {max_allocation_bytes} bytes at once"
            )
    return tensors


def placed_in_order(
    tensors: Sequence[Lifetime], alignment: int, max_allocation_bytes: int, lowest: bool = False
) -> Placement:
    """Return the tensors, each of them no larger than an arena, placed one after the other: into the smallest gap that
    holds it, or into the lowest one."""
    arenas: list[_Arena] = []
    offsets: dict[str, tuple[int, int]] = {}
    for tensor in tensors:
        units = -(-tensor.nbytes // alignment)
        most = (max_allocation_bytes - tensor.nbytes) // alignment
        for arena in range(len(arenas) + 1):
            if arena == len(arenas):
                arenas.append(_Arena(len(tensors)))
            place = arenas[arena].gap(tensor, units, lowest)
            if place <= most:
                break
        arenas[arena].add(tensor, place, units)
        offsets[tensor.name] = (arena, place * alignment)
    return placement(tensors, offsets, alignment)


def placement(tensors: Iterable[Lifetime], offsets: Mapping[str, tuple[int, int]], alignment: int) -> Placement:
    """Return the plan that these offsets are. Arenas are numbered from 0, and none of them is without a tensor."""
    sizes: dict[int, int] = {}
    tensors = list(tensors)
    for tensor in tensors:
        arena, offset = offsets[tensor.name]
        sizes[arena] = max(sizes.get(arena, 0), offset + tensor.nbytes)
    arenas = tuple(sizes[arena] for arena in range(len(sizes)))
    return Placement(arenas, offsets, least_bytes(tensors, alignment, len(arenas)))


def least_bytes(lifetimes: Sequence[Lifetime], alignment: int, arenas: int) -> int:
    """Return a lower bound of every plan in so many arenas: the most that is alive at once, each tensor rounded up to
    the alignment but for the topmost of each arena, behind which nothing has to be aligned."""
    if not lifetimes:
        return 0
    starts = np.unique([each.first_use for each in lifetimes])  # more is alive at some of these than anywhere else
    changes = np.zeros(len(starts) + 1, np.int64)
    units = np.array([-(-each.nbytes // alignment) for each in lifetimes], np.int64)
    np.add.at(changes, np.searchsorted(starts, [each.first_use for each in lifetimes]), units)
    np.subtract.at(changes, np.searchsorted(starts, [each.last_use for each in lifetimes], "right"), units)
    alive = np.cumsum(changes[:-1])
    least = 0
    for place in np.flatnonzero(alive > int(alive.max()) - arenas):  # elsewhere less is alive however much is unused
        start = int(starts[place])
        live = [each.nbytes for each in lifetimes if each.first_use <= start <= each.last_use]
        unused = heapq.nlargest(arenas, (-nbytes % alignment for nbytes in live))
        least = max(least, int(alive[place]) * alignment - sum(unused))
    return least


class _Arena:
    """The tensors of an arena from the lowest to the highest, in units of the alignment."""

    def __init__(self, most: int) -> None:
        """most: how many tensors there may be."""
        self._count = 0
        self._rows = np.zeros((4, most), np.int64)  # start, end, first use, last use

    def gap(self, tensor: Lifetime, units: int, lowest: bool) -> int:
        """Return the start of the smallest or the lowest gap of so many units between those alive with `tensor`; else
        the place behind them."""
        starts, ends, first, last = self._rows[:, : self._count]
        together = (first <= tensor.last_use) & (last >= tensor.first_use)
        starts, ends = starts[together], ends[together]
        if not len(starts):
            return 0
        free = np.zeros(len(ends) + 1, np.int64)
        np.maximum.accumulate(ends, out=free[1:])
        gaps = starts - free[:-1]
        fits = np.flatnonzero(gaps >= units)
        if not len(fits):
            return int(free[-1])
        return int(free[fits[0] if lowest else fits[np.argmin(gaps[fits])]])

    def add(self, tensor: Lifetime, start: int, units: int) -> None:
        """Places a tensor."""
        place = int(np.searchsorted(self._rows[0, : self._count], start, "right"))
        self._rows[:, place + 1 : self._count + 1] = self._rows[:, place : self._count].copy()
        self._rows[:, place] = start, start + units, tensor.first_use, tensor.last_use
        self._count += 1
