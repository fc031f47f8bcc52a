"""Whose request the device serves next: the client's that has used least of the device's time lately."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Owner = TypeVar("Owner")
Item = TypeVar("Item")


@dataclass
class _Line(Generic[Item]):
    """The waiting items of one owner with the numbers they arrived under, and what the owner has used."""

    used: float
    items: deque[tuple[int, Item]] = field(default_factory=deque)


class Turns(Generic[Owner, Item]):
    """Items of one owner keep their order. Between owners, the one that has used least goes first; those who differ
    by less than `tolerance` seconds count as equal, and of equals the one that has waited longest goes first. So equal
    requests are served in turns whatever a stutter adds to one of them, and nobody gains more than the tolerance.

    Whoever comes, or comes back, starts level with those who wait: an idle hour is no credit, and a busy hour
    while nobody else was there is no debt.
    """

    def __init__(self, tolerance: float = 0.5) -> None:
        self._tolerance = tolerance
        self._lines: dict[Owner, _Line[Item]] = {}
        self._level = 0.0  # the least that anybody had used who waited when somebody was served last
        self._arrivals = itertools.count()

    def __len__(self) -> int:
        return sum(len(line.items) for line in self._lines.values())

    def add(self, owner: Owner, item: Item) -> None:
        """The item waits behind the others of its owner."""
        line = self._lines.setdefault(owner, _Line(self._level))
        if not line.items:
            line.used = max(line.used, self._level)
        line.items.append((next(self._arrivals), item))

    def first(self, held_back: Collection[Owner] = ()) -> Item | None:
        """The item that is served next, which goes on waiting; none of an owner that is held back."""
        line = self._first_line(held_back)
        return None if line is None else line.items[0][1]

    def next(self, held_back: Collection[Owner] = ()) -> Item | None:
        """Takes the item that is served now; none of an owner that is held back."""
        line = self._first_line(held_back)
        if line is None:
            return None
        self._level = min(each.used for each in self._waiting(held_back))
        return line.items.popleft()[1]

    def _first_line(self, held_back: Collection[Owner]) -> _Line[Item] | None:
        waiting = self._waiting(held_back)
        level = min((line.used for line in waiting), default=0.0)
        equals = (line for line in waiting if line.used <= level + self._tolerance)
        return min(equals, key=lambda line: line.items[0][0], default=None)

    def _waiting(self, held_back: Collection[Owner]) -> list[_Line[Item]]:
        return [line for owner, line in self._lines.items() if line.items and owner not in held_back]

    def spent(self, owner: Owner, seconds: float) -> None:
        """The owner has used the device for so long; nothing for one that has left."""
        if line := self._lines.get(owner):
            line.used += seconds

    def order(self, held_back: Collection[Owner] = ()) -> list[Item]:
        """Everything that waits, without what is held back, roughly in the order in which it will be served:
        everybody's first items, then everybody's second ones."""
        places = [
            (place, arrival, item)
            for owner, line in self._lines.items()
            if owner not in held_back
            for place, (arrival, item) in enumerate(line.items)
        ]
        return [entry[2] for entry in sorted(places, key=lambda entry: entry[:2])]

    def remove(self, owner: Owner, item: Item) -> bool:
        """Takes a waiting item out; False when it does not wait (any more)."""
        line = self._lines.get(owner)
        for entry in line.items if line else ():
            if entry[1] is item:
                assert line is not None
                line.items.remove(entry)
                return True
        return False

    def leave(self, owner: Owner) -> None:
        """Forgets an owner and what waits for it."""
        self._lines.pop(owner, None)
