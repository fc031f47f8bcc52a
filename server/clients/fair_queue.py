"""Choose the request that the device serves next: of the tenant that has used least device time lately, and within it,
of the client that has used least.

A batch yields the device between two variants when it has had it for two seconds while others wait that have used less
(pool.py). Clients are charged equal shares of the time of requests that run side by side.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

Owner = TypeVar("Owner")
Item = TypeVar("Item")


class _Share(Protocol):
    """Hold what has a share of the device's time, and since when it waits for more, by the number of an arrival."""

    used: float

    @property
    def since(self) -> int: ...


Shared = TypeVar("Shared", bound=_Share)


@dataclass
class _Line(Generic[Item]):
    """Hold the waiting items of one owner with the numbers they arrived under, and what the owner has used."""

    used: float
    items: deque[tuple[int, Item]] = field(default_factory=deque)

    @property
    def since(self) -> int:
        return self.items[0][0]


@dataclass
class _Tenant(Generic[Owner, Item]):
    """Hold the owners of one tenant. level: the least that an owner had used which waited when one was served last."""

    used: float
    since: int = 0
    level: float = 0.0
    lines: dict[Owner, _Line[Item]] = field(default_factory=dict)

    def waiting(self, held_back: Collection[Owner] = ()) -> list[_Line[Item]]:
        return [line for owner, line in self.lines.items() if line.items and owner not in held_back]


class FairQueue(Generic[Owner, Item]):
    """Keep the items of one owner in their order. Between tenants, and between the owners of one, the one that has used
    least goes first; those that differ by less than `tolerance` seconds count as equal, and of equals the one that has
    waited longest goes first. So equal requests are served in turns whatever a stutter adds to one of them, and no
    tenant gains more than the tolerance, however many owners it has.

    A tenant that comes, or comes back, starts level with those that wait: an idle hour is no credit, and a busy hour
    without other tenants is no debt. A tenant without owners is remembered until the others have used as much.
    """

    def __init__(self, tolerance: float = 0.5) -> None:
        self._tolerance = tolerance
        self._tenants: dict[str, _Tenant[Owner, Item]] = {}
        self._tenant: dict[Owner, _Tenant[Owner, Item]] = {}
        self._level = 0.0  # the least that a tenant had used which waited when one was served last
        self._arrivals = itertools.count()

    def __len__(self) -> int:
        return sum(len(line.items) for tenant in self._tenants.values() for line in tenant.lines.values())

    def add(self, owner: Owner, item: Item, tenant: str, first: bool = False) -> None:
        """Let the item wait behind the others of its owner, or as the first of them."""
        arrival = next(self._arrivals)
        joined = self._tenants.setdefault(tenant, _Tenant(self._level))
        if not joined.waiting():
            joined.used, joined.since = max(joined.used, self._level), arrival
        self._tenant[owner] = joined
        line = joined.lines.setdefault(owner, _Line(joined.level))
        if not line.items:
            line.used = max(line.used, joined.level)
        if first:
            line.items.appendleft((arrival, item))
        else:
            line.items.append((arrival, item))

    def first(self, held_back: Collection[Owner] = ()) -> Item | None:
        """Return the item that is served next, which goes on waiting; none of an owner that is held back."""
        found = self._first(held_back)
        return None if found is None else found[1].items[0][1]

    def next(self, held_back: Collection[Owner] = ()) -> Item | None:
        """Take the item that is served now; none of an owner that is held back."""
        found = self._first(held_back)
        if found is None:
            return None
        tenant, line = found
        self._level = min(each.used for each in self._waiting(held_back))
        tenant.level = min(each.used for each in tenant.waiting(held_back))
        tenant.since = next(self._arrivals)
        for name in [name for name, each in self._tenants.items() if not each.lines and each.used <= self._level]:
            del self._tenants[name]
        return line.items.popleft()[1]

    def before(self, owner: Owner, held_back: Collection[Owner] = ()) -> bool:
        """Return whether something waits that is to be served before more of this owner: of another tenant that has
        used less, or of another owner of its own tenant that has. Never for an owner that has left."""
        if (tenant := self._tenant.get(owner)) is None:
            return False
        rivals: list[tuple[_Share, _Share]] = [
            *((each, tenant) for each in self._waiting(held_back)),
            *((each, tenant.lines[owner]) for each in tenant.waiting(held_back)),
        ]
        return any(each.used + self._tolerance < own.used for each, own in rivals)

    def _first(self, held_back: Collection[Owner]) -> tuple[_Tenant[Owner, Item], _Line[Item]] | None:
        tenant = self._least(self._waiting(held_back))
        line = None if tenant is None else self._least(tenant.waiting(held_back))
        return None if tenant is None or line is None else (tenant, line)

    def _least(self, shares: Collection[Shared]) -> Shared | None:
        level = min((share.used for share in shares), default=0.0)
        equals = (share for share in shares if share.used <= level + self._tolerance)
        return min(equals, key=lambda share: share.since, default=None)

    def _waiting(self, held_back: Collection[Owner]) -> list[_Tenant[Owner, Item]]:
        return [tenant for tenant in self._tenants.values() if tenant.waiting(held_back)]

    def spent(self, owner: Owner, seconds: float) -> None:
        """Note how long the owner has used the device; nothing for one that has left."""
        if tenant := self._tenant.get(owner):
            tenant.used += seconds
            tenant.lines[owner].used += seconds

    def order(self, held_back: Collection[Owner] = ()) -> list[Item]:
        """Return everything that waits, without what is held back, roughly in the order in which it will be served:
        every tenant's first items, then every tenant's second ones, and the same within each."""
        tenants = (_in_turns(line.items for line in tenant.waiting(held_back)) for tenant in self._waiting(held_back))
        return [item for _, item in _in_turns(tenants)]

    def remove(self, owner: Owner, item: Item) -> bool:
        """Take a waiting item out; False when it does not wait (any more)."""
        tenant = self._tenant.get(owner)
        for entry in tenant.lines[owner].items if tenant else ():
            if entry[1] is item:
                assert tenant is not None
                tenant.lines[owner].items.remove(entry)
                return True
        return False

    def leave(self, owner: Owner) -> None:
        """Forget an owner and what waits for it."""
        if tenant := self._tenant.pop(owner, None):
            del tenant.lines[owner]


def _in_turns(lines: Iterable[Iterable[tuple[int, Item]]]) -> list[tuple[int, Item]]:
    """Return the first entries of all lines by their number, then the second ones, and so on."""
    places = [(place, entry) for line in lines for place, entry in enumerate(line)]
    return [entry for _, entry in sorted(places, key=lambda each: (each[0], each[1][0]))]
