"""Assign rows to slices that may overlap: a track holds only nested or disjoint slices, so other slices need another
track.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gputune.core.errors import MalformedLog
from gputune.runtime.profiling.records import Times

MOST_ROWS = 1000
"""Tracks of a kind. A device has one or few queues, so that only logs that are wrong need more."""


class Rows:
    """Rows in which blocks of time are placed that must not overlap within a row."""

    def __init__(self) -> None:
        self._free_ns: list[int] = []

    def __len__(self) -> int:
        return len(self._free_ns)

    def place(self, begun_ns: int, ended_ns: int, height: int = 1) -> int:
        """Return the first of `height` rows in which nothing lies from this moment on; the block is placed there.
        Raises MalformedLog where it would need too many."""
        row = 0
        for place, free_ns in enumerate(self._free_ns):
            if place - row == height:
                break
            if free_ns > begun_ns:
                row = place + 1
        _check_room(row + height, begun_ns)
        missing = row + height - len(self._free_ns)
        self._free_ns += [ended_ns] * missing
        self._free_ns[row : row + height] = [ended_ns] * height
        return row


@dataclass(frozen=True, eq=False)
class Layout:
    """How slices lie in the rows of a block. order: in which they begin, outer ones first; rows: by place, None where
    all lie in the first one and are in order."""

    order: Times
    rows: Times | None

    @property
    def height(self) -> int:
        return 1 if self.rows is None else int(self.rows.max()) + 1

    def places(self) -> Iterator[Times]:
        """For each row, the places of its slices."""
        if self.rows is None:
            yield self.order
            return
        for row in range(self.height):
            yield self.order[self.rows[self.order] == row]


def disjoint(begun_ns: Times, ended_ns: Times) -> bool:
    """Return whether each of these ends before the next begins."""
    return bool((begun_ns[1:] >= ended_ns[:-1]).all())


def layout_of(begun_ns: Times, ended_ns: Times, nested: bool) -> Layout:
    """Rows for slices of which some may overlap. nested: whether one that lies within another may share its row. Raises
    MalformedLog where they need too many."""
    if disjoint(begun_ns, ended_ns):
        return Layout(np.arange(len(begun_ns)), None)
    order = np.lexsort((-ended_ns if nested else ended_ns, begun_ns))
    rows = np.zeros(len(order), np.int64)
    open_ns: list[list[int]] = []  # by row, the ends of those that surround what comes next
    for place in order.tolist():
        rows[place] = _row(open_ns, int(begun_ns[place]), int(ended_ns[place]), nested)
    return Layout(order, rows)


def _row(open_ns: list[list[int]], begun_ns: int, ended_ns: int, nested: bool) -> int:
    for row, ends in enumerate(open_ns):
        while ends and ends[-1] <= begun_ns:
            ends.pop()
        if not ends or (nested and ended_ns <= ends[-1]):
            ends.append(ended_ns)
            return row
    open_ns.append([ended_ns])
    _check_room(len(open_ns), begun_ns)
    return len(open_ns) - 1


def _check_room(rows: int, begun_ns: int) -> None:
    if rows > MOST_ROWS:
        raise MalformedLog(f"more than {MOST_ROWS} slices overlap at {begun_ns} ns, which is too many for a trace")
