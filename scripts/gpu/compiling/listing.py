"""Read the loops of a kernel out of what a disassembler wrote, and count what its hottest loop does.

A loop is a natural one: a jump back to an instruction that comes before it on every way, and all between the two. An
instruction weighs LOOP_WEIGHT for each loop around it, because nothing tells how often a loop runs. The hottest loop is
the one whose multiply-adds weigh most; those of loops in it are not its own.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

LOOP_WEIGHT = 8
WIDE_BYTES = 8
"""The least of a wide access."""


@dataclass(frozen=True)
class Facts:
    """What a compiler made of one kernel; None for what it does not say.

    spills: bytes of registers that went to memory, or for Intel how many did. widths: weighed bytes of accesses to
    global memory, by the bytes of one access. instructions: how many of each name the kernel has. slots: instructions
    of the hottest loop. load_cycles: cycles of a kernel's loads and stores, for each one of arithmetic.
    """

    registers: int | None = None
    spills: int | None = None
    stack_bytes: int | None = None
    local_bytes: int | None = None
    widths: Mapping[str, int] = field(default_factory=dict)
    multiply_adds: int = 0
    loads: int = 0
    instructions: Mapping[str, int] = field(default_factory=dict)
    slots: int = 0
    load_cycles: float | None = None

    @property
    def wide_share(self) -> float | None:
        """The share of global memory's bytes that wide accesses move; None if there are no accesses."""
        moved = sum(self.widths.values())
        return sum(moves for width, moves in self.widths.items() if int(width) >= WIDE_BYTES) / moved if moved else None

    @property
    def ratio(self) -> float | None:
        """Multiply-adds for each load in the hottest loop; None if it has no multiply-adds or no loads."""
        return self.multiply_adds / self.loads if self.loads and self.multiply_adds else None

    def plain(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class Line:
    """An instruction. jump: the label that it may go to, empty if it has none; goes_on: whether the next one may
    follow."""

    name: str
    jump: str = ""
    goes_on: bool = True


@dataclass(frozen=True)
class Dialect:
    """How an architecture names what is counted: multiply-adds of an instruction, whether it loads from global or local
    memory, and the bytes that it moves to or from global memory."""

    multiply_adds: Callable[[str], int]
    loads: Callable[[str], bool]
    global_bytes: Callable[[str], int]


def listed(
    text: str, label: re.Pattern[str], instruction: re.Pattern[str], line_of: Callable[[re.Match[str]], Line]
) -> tuple[list[Line], dict[str, int]]:
    """Return the instructions of a text, and the places of its labels. Lines that are neither are skipped."""
    lines: list[Line] = []
    labels: dict[str, int] = {}
    for line in text.splitlines():
        if named := label.match(line):
            labels[named[1]] = len(lines)
        elif found := instruction.match(line):
            lines.append(line_of(found))
    return lines, labels


def counted(lines: Sequence[Line], labels: Mapping[str, int], dialect: Dialect) -> dict[str, Any]:
    """Return the fields of Facts that follow from a kernel's instructions. labels: the places of those they name."""
    depths, owners = [0] * len(lines), [-1] * len(lines)
    for number, loop in enumerate(_loops(lines, labels)):  # outer ones come first
        for place in loop:
            depths[place] += 1
            owners[place] = number
    widths: Counter[str] = Counter()
    heat: Counter[int] = Counter()
    for line, depth, owner in zip(lines, depths, owners, strict=True):
        weight = LOOP_WEIGHT**depth
        if moved := dialect.global_bytes(line.name):
            widths[str(moved)] += moved * weight
        heat[owner] += dialect.multiply_adds(line.name) * weight
    hottest = max(heat, key=lambda owner: heat[owner], default=-1)
    hot = [line.name for line, owner in zip(lines, owners, strict=True) if owner == hottest]
    return {
        "widths": dict(widths),
        "multiply_adds": sum(map(dialect.multiply_adds, hot)),
        "loads": sum(map(dialect.loads, hot)),
        "slots": len(hot),
        "instructions": dict(Counter(line.name for line in lines)),
    }


def _loops(lines: Sequence[Line], labels: Mapping[str, int]) -> list[set[int]]:
    """The instructions of each loop, those of outer loops first."""
    if not lines:
        return []
    starts = {0, len(lines), *labels.values(), *(place + 1 for place, line in enumerate(lines) if line.jump)}
    starts |= {place + 1 for place, line in enumerate(lines) if not line.goes_on}
    blocks = list(pairwise(sorted(start for start in starts if start <= len(lines))))
    block_at = {first: number for number, (first, _) in enumerate(blocks)}
    follow: list[list[int]] = []
    for number, (_, end) in enumerate(blocks):
        last = lines[end - 1]
        target = block_at.get(labels.get(last.jump, -1))
        following = [number + 1] if last.goes_on and number + 1 < len(blocks) else []
        follow.append(following + ([] if target is None else [target]))
    bodies: dict[int, set[int]] = {}
    before = _before(follow)
    for number, others in _dominators(follow, before).items():
        for head in set(follow[number]) & others:
            bodies.setdefault(head, {head}).update(_between(head, number, before))
    loops = ({place for number in body for place in range(*blocks[number])} for body in bodies.values())
    return sorted(loops, key=len, reverse=True)


def _before(follow: Sequence[Sequence[int]]) -> list[list[int]]:
    """The blocks before each block."""
    before: list[list[int]] = [[] for _ in follow]
    for number, others in enumerate(follow):
        for other in others:
            before[other].append(number)
    return before


def _dominators(follow: Sequence[Sequence[int]], before: Sequence[Sequence[int]]) -> dict[int, set[int]]:
    """The blocks that every way to a block passes, itself among them, for each one that can be reached."""
    order, waiting = [0], [0]
    while waiting:
        for other in follow[waiting.pop()]:
            if other not in order:
                order.append(other)
                waiting.append(other)
    found = {number: set(order) for number in order} | {0: {0}}
    changed = True
    while changed:
        changed = False
        for number in order[1:]:
            ways = [found[other] for other in before[number] if other in found]
            new = {number} | set.intersection(*ways)
            changed |= new != found[number]
            found[number] = new
    return found


def _between(head: int, last: int, before: Sequence[Sequence[int]]) -> set[int]:
    """The blocks of the loop that goes back from `last` to `head`."""
    found, waiting = {head, last}, [last] if last != head else []
    while waiting:
        for other in before[waiting.pop()]:
            if other not in found:
                found.add(other)
                waiting.append(other)
    return found
