"""Provide a bounded number of slots for newcomers, shared evenly between the addresses from which they come."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

Newcomer = TypeVar("Newcomer", bound=Hashable)


class Slots(Generic[Newcomer]):
    """Admit at most so many newcomers. When all slots are taken, the next newcomer gets that of the one which has been
    there longest, among those of the address that has most slots: an address has to share its slots only with itself as
    long as others have fewer."""

    def __init__(self, at_most: int) -> None:
        self._at_most = at_most
        self._addresses: dict[str, dict[Newcomer, None]] = {}  # the oldest first
        self._address: dict[Newcomer, str] = {}

    def __len__(self) -> int:
        return len(self._address)

    def __iter__(self) -> Iterator[Newcomer]:
        """Return all newcomers, in the order in which they came."""
        return iter(self._address)

    def take(self, newcomer: Newcomer, address: str) -> Newcomer | None:
        """Give a slot to a newcomer, and return the one that has lost its slot to it, if any."""
        self._addresses.setdefault(address, {})[newcomer] = None
        self._address[newcomer] = address
        if len(self._address) <= self._at_most:
            return None
        crowd = max(self._addresses.values(), key=len)
        leaves = next(iter(crowd))
        self.leave(leaves)
        return leaves

    def leave(self, newcomer: Newcomer) -> None:
        """Free the slot of a newcomer, if it has one."""
        address = self._address.pop(newcomer, None)
        if address is not None:
            crowd = self._addresses[address]
            del crowd[newcomer]
            if not crowd:
                del self._addresses[address]
