"""Which request the device serves next: one of the party that has used least device time lately, and within it, of
the client that has."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

Owner = TypeVar("Owner")
Item = TypeVar("Item")


class _Share(Protocol):
    """What has a share of the device's time, and since when it waits for more, by the number of an arrival."""

    used: float

    @property
    def since(self) -> int: ...


Shared = TypeVar("Shared", bound=_Share)


@dataclass
class _Line(Generic[Item]):
    """The waiting items of one owner with the numbers they arrived under, and what the owner has used."""

    used: float
    items: deque[tuple[int, Item]] = field(default_factory=deque)

    @property
    def since(self) -> int:
        return self.items[0][0]


@dataclass
class _Party(Generic[Owner, Item]):
    """The owners of one party. level: the least that an owner had used who waited when one was served last."""

    used: float
    since: int = 0
    level: float = 0.0
    lines: dict[Owner, _Line[Item]] = field(default_factory=dict)

    def waiting(self, held_back: Collection[Owner] = ()) -> list[_Line[Item]]:
        return [line for owner, line in self.lines.items() if line.items and owner not in held_back]


class FairQueue(Generic[Owner, Item]):
    """Items of one owner keep their order. Between parties, and between the owners of one, the one that has used least
    goes first; those who differ by less than `tolerance` seconds count as equal, and of equals the one that has waited
    longest goes first. So equal requests are served in turns whatever a stutter adds to one of them, and no party
    gains more than the tolerance, however many owners it has.

    A party that comes, or comes back, starts level with those that wait: an idle hour is no credit, and a busy hour
    without other parties is no debt. A party without owners is remembered until the others have used as much.
    """

    def __init__(self, tolerance: float = 0.5) -> None:
        self._tolerance = tolerance
        self._parties: dict[str, _Party[Owner, Item]] = {}
        self._party: dict[Owner, _Party[Owner, Item]] = {}
        self._level = 0.0  # the least that a party had used which waited when one was served last
        self._arrivals = itertools.count()

    def __len__(self) -> int:
        return sum(len(line.items) for party in self._parties.values() for line in party.lines.values())

    def add(self, owner: Owner, item: Item, party: str, first: bool = False) -> None:
        """The item waits behind the others of its owner, or as the first of them."""
        arrival = next(self._arrivals)
        joined = self._parties.setdefault(party, _Party(self._level))
        if not joined.waiting():
            joined.used, joined.since = max(joined.used, self._level), arrival
        self._party[owner] = joined
        line = joined.lines.setdefault(owner, _Line(joined.level))
        if not line.items:
            line.used = max(line.used, joined.level)
        if first:
            line.items.appendleft((arrival, item))
        else:
            line.items.append((arrival, item))

    def first(self, held_back: Collection[Owner] = ()) -> Item | None:
        """The item that is served next, which goes on waiting; none of an owner that is held back."""
        found = self._first(held_back)
        return None if found is None else found[1].items[0][1]

    def next(self, held_back: Collection[Owner] = ()) -> Item | None:
        """Takes the item that is served now; none of an owner that is held back."""
        found = self._first(held_back)
        if found is None:
            return None
        party, line = found
        self._level = min(each.used for each in self._waiting(held_back))
        party.level = min(each.used for each in party.waiting(held_back))
        party.since = next(self._arrivals)
        for name in [name for name, each in self._parties.items() if not each.lines and each.used <= self._level]:
            del self._parties[name]
        return line.items.popleft()[1]

    def before(self, owner: Owner, held_back: Collection[Owner] = ()) -> bool:
        """Whether something waits that is to be served before more of this owner: of another party that has used less,
        or of another owner of its own party that has. Never for an owner that has left."""
        if (party := self._party.get(owner)) is None:
            return False
        rivals: list[tuple[_Share, _Share]] = [
            *((each, party) for each in self._waiting(held_back)),
            *((each, party.lines[owner]) for each in party.waiting(held_back)),
        ]
        return any(each.used + self._tolerance < own.used for each, own in rivals)

    def _first(self, held_back: Collection[Owner]) -> tuple[_Party[Owner, Item], _Line[Item]] | None:
        party = self._least(self._waiting(held_back))
        line = None if party is None else self._least(party.waiting(held_back))
        return None if party is None or line is None else (party, line)

    def _least(self, shares: Collection[Shared]) -> Shared | None:
        level = min((share.used for share in shares), default=0.0)
        equals = (share for share in shares if share.used <= level + self._tolerance)
        return min(equals, key=lambda share: share.since, default=None)

    def _waiting(self, held_back: Collection[Owner]) -> list[_Party[Owner, Item]]:
        return [party for party in self._parties.values() if party.waiting(held_back)]

    def spent(self, owner: Owner, seconds: float) -> None:
        """The owner has used the device for so long; nothing for one that has left."""
        if party := self._party.get(owner):
            party.used += seconds
            party.lines[owner].used += seconds

    def order(self, held_back: Collection[Owner] = ()) -> list[Item]:
        """Everything that waits, without what is held back, roughly in the order in which it will be served:
        every party's first items, then every party's second ones, and the same within each."""
        parties = (_in_turns(line.items for line in party.waiting(held_back)) for party in self._waiting(held_back))
        return [item for _, item in _in_turns(parties)]

    def remove(self, owner: Owner, item: Item) -> bool:
        """Takes a waiting item out; False when it does not wait (any more)."""
        party = self._party.get(owner)
        for entry in party.lines[owner].items if party else ():
            if entry[1] is item:
                assert party is not None
                party.lines[owner].items.remove(entry)
                return True
        return False

    def leave(self, owner: Owner) -> None:
        """Forgets an owner and what waits for it."""
        if party := self._party.pop(owner, None):
            del party.lines[owner]


def _in_turns(lines: Iterable[Iterable[tuple[int, Item]]]) -> list[tuple[int, Item]]:
    """The first entries of all lines by their number, then the second ones, and so on."""
    places = [(place, entry) for line in lines for place, entry in enumerate(line)]
    return [entry for _, entry in sorted(places, key=lambda each: (each[0], each[1][0]))]
