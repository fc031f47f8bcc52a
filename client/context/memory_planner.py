"""Where every intermediate tensor lies: few arenas, shared by tensors that are never alive together.

Greedy by size, after Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference" (2020),
arXiv:2001.03288, section 5.2: tensors are placed from the largest to the smallest, each into the smallest gap that
those alive at the same time leave, else behind them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gputune.client.errors import MemoryPlanError


@dataclass(frozen=True)
class Lifetime:
    """A tensor that needs memory from the operation `first_use` to the operation `last_use`, both included."""

    name: str
    nbytes: int
    first_use: int
    last_use: int

    def overlaps(self, other: "Lifetime") -> bool:
        """Whether both are alive at some operation."""
        return self.first_use <= other.last_use and other.first_use <= self.last_use


@dataclass(frozen=True)
class Placement:
    """`arenas` holds the bytes of each arena, `offsets` the (arena, offset in bytes) of each tensor."""

    arenas: tuple[int, ...]
    offsets: Mapping[str, tuple[int, int]]


def plan_arenas(lifetimes: Iterable[Lifetime], alignment: int, max_allocation_bytes: int) -> Placement:
    """Offsets that are multiples of `alignment` in arenas no larger than `max_allocation_bytes`.

    The arenas together are never larger than all tensors, each rounded up to the alignment. Raises MemoryPlanError
    for a tensor that no arena can hold.
    """
    arenas: list[list[tuple[int, Lifetime]]] = []
    offsets: dict[str, tuple[int, int]] = {}
    for tensor in sorted(lifetimes, key=lambda each: (-each.nbytes, each.first_use, each.name)):
        if tensor.nbytes > max_allocation_bytes:
            raise MemoryPlanError(
                f"tensor {tensor.name!r} needs {tensor.nbytes} bytes; "
                f"the device allocates at most {max_allocation_bytes} bytes at once"
            )
        free = ((arena, _best_offset(placed, tensor, alignment)) for arena, placed in enumerate([*arenas, []]))
        arena, offset = next(place for place in free if place[1] + tensor.nbytes <= max_allocation_bytes)
        if arena == len(arenas):
            arenas.append([])
        arenas[arena].append((offset, tensor))
        offsets[tensor.name] = (arena, offset)
    return Placement(tuple(max(offset + each.nbytes for offset, each in placed) for placed in arenas), offsets)


def _best_offset(placed: list[tuple[int, Lifetime]], tensor: Lifetime, alignment: int) -> int:
    """The start of the smallest gap that fits, between those alive with `tensor`; else the place behind them."""
    free, best, smallest = 0, None, None
    for offset, other in sorted((item for item in placed if item[1].overlaps(tensor)), key=lambda item: item[0]):
        gap = offset - free
        if gap >= tensor.nbytes and (smallest is None or gap < smallest):
            best, smallest = free, gap
        free = max(free, -(-(offset + other.nbytes) // alignment) * alignment)
    return free if best is None else best
