"""Search longer for a memory plan of intermediate tensors: try several greedy orders, then a beam search.

Time is cut into sections in which the set of live tensors does not change. A section is omitted if all its tensors are
also alive in a neighbour. A plan is built upwards: each step adds one tensor to each plan of the beam, on top of what
its sections already hold.

Three facts are from Moffitt, "MiniMalloc: A Lightweight Memory Allocator for Hardware-Accelerated Machine Learning"
(ASPLOS 2023). Every plan can be built from the lowest tensor to the highest. A tensor that fits below another goes
first. The tensors that a section still lacks cannot lie below the lowest free place of any of them.

MiniMalloc's search is exact and depth-first. This search has a fixed number of steps, so it limits the breadth: of all
plans that are one tensor longer, it keeps the plans whose sections promise to end lowest. A section reaches at least
its height plus the size of all tensors that it lacks.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from gputune.client.context.memory.memory_planner import Lifetime, Placement, placed_in_order, placement, plan_arenas
from gputune.client.options.config import SEARCH_STEPS

BEAM = 12
"""Plans that are continued at a time. More restarts find more than wider beams do."""
CHILDREN = 8
"""Tensors that are tried next in each of them."""
LOOKED_INTO = 3
"""Times as many plans as are continued are compared by where all that they lack would go."""
JUMP = 32.0
"""What it costs a tensor in being tried next that it lies higher than another could, as a share of the bound."""
POWERS = (8, 7)
"""How sharply the highest sections decide: the power of two to which their heights are raised."""
TOO_HIGH = 2.0
"""Times the bound; what is higher is not told apart."""
LARGE_STEP = 40_000
"""Numbers that a step may handle; steps that handle more count as several."""
FAR = 1 << 60

Counts = npt.NDArray[np.int64]
Shares = npt.NDArray[np.float64]
Rows = npt.NDArray[np.intp]


def search_arenas(
    lifetimes: Iterable[Lifetime], alignment: int, max_allocation_bytes: int, steps: int = SEARCH_STEPS
) -> Placement:
    """Return the best plan found: offsets that are multiples of `alignment` in arenas no larger than
    `max_allocation_bytes`.

    It never has more bytes than that of `plan_arenas`, and is the same for the same tensors in any order. `steps` is
    how many the beam search has, which ends at the bound. Raises MemoryPlanError for a tensor that no arena can hold.
    """
    tensors = sorted(lifetimes, key=lambda each: (each.first_use, each.last_use, each.nbytes, each.name))
    best = plan_arenas(tensors, alignment, max_allocation_bytes)
    if not tensors:
        return best
    sections = Sections.of(tensors, alignment)
    for order, lowest in itertools.product(_orders(sections), (False, True)):
        if _units(best, alignment) <= sections.bound:
            return best
        ordered = [tensors[place] for place in order]
        best = min(best, placed_in_order(ordered, alignment, max_allocation_bytes, lowest), key=_size)
    several = len(best.arenas) > 1
    wall, limit = (max_allocation_bytes // alignment, FAR) if several else (FAR, _units(best, alignment))
    if int(sections.sizes.max()) > wall:
        return best  # the largest tensor fits into an arena only because its end needs no alignment
    for heights in _beams(sections, wall, limit, steps):
        places = [(height // wall, height % wall * alignment) for height in heights]
        offsets = {tensor.name: place for tensor, place in zip(tensors, places, strict=True)}
        best = min(best, placement(tensors, offsets, alignment), key=_size)
        if _units(best, alignment) <= sections.bound:
            break
    return best


def _size(plan: Placement) -> tuple[int, int]:
    """Return a plan's bytes and arenas: fewer bytes are better, and among as many bytes fewer arenas."""
    return plan.total_bytes, len(plan.arenas)


def _units(plan: Placement, alignment: int) -> int:
    """Return the units of all arenas together, each arena rounded up to the alignment."""
    return sum(-(-nbytes // alignment) for nbytes in plan.arenas)


def _orders(sections: Sections) -> Iterator[list[int]]:
    """In which orders tensors are placed greedily: the largest first (TensorFlow Lite), those alive when most is alive
    and of them the longest (TelaMalloc tells such phases of contention), those alive together with most others, those
    of the largest area of bytes by time."""
    peaks, lengths, sizes = sections.peaks, sections.lengths, sections.sizes
    begins, ends = np.sort(sections.begins), np.sort(sections.ends)
    beside = np.searchsorted(begins, sections.ends) - np.searchsorted(ends, sections.begins, "right")
    for keys in ((sizes, lengths), (peaks, lengths, sizes), (beside, sizes), (sizes * lengths, sizes)):
        yield [int(place) for place in np.lexsort([-key for key in reversed(keys)])]


@dataclass(frozen=True)
class Sections:
    """Tensors by the sections of time in which they are alive: from `begins` on, and not any more from `ends` on. Sizes
    and loads are in units of the alignment.

    ranges, lefts, rights: each tensor's sections are the two overlapping ranges of a power of two of sections, 1 <<
    ranges of them, that begin at `lefts` and at `rights`.
    """

    sizes: Counts
    begins: Rows
    ends: Rows
    loads: Counts
    """By section."""
    ranges: Rows = field(init=False)
    lefts: Rows = field(init=False)
    rights: Rows = field(init=False)

    def __post_init__(self) -> None:
        ranges = np.frexp(self.lengths)[1].astype(np.intp) - 1
        count = len(self.loads)
        object.__setattr__(self, "ranges", ranges)
        object.__setattr__(self, "lefts", ranges * count + self.begins)
        object.__setattr__(self, "rights", ranges * count + self.ends - (1 << ranges))

    @classmethod
    def of(cls, tensors: Sequence[Lifetime], alignment: int) -> Sections:
        """Return the sections of some tensors, at least one."""
        first = np.array([each.first_use for each in tensors])
        last = np.array([each.last_use for each in tensors])
        starts = np.unique(first)
        ended = np.searchsorted(np.sort(last), starts)
        starts = starts[np.append(ended[1:] > ended[:-1], True)]  # until one ends, all of a section go on in the next
        sizes = np.array([-(-each.nbytes // alignment) for each in tensors], np.int64)
        begins, ends = np.searchsorted(starts, first), np.searchsorted(starts, last, "right")
        changes = np.zeros(len(starts) + 1, np.int64)
        np.add.at(changes, begins, sizes)
        np.subtract.at(changes, ends, sizes)
        return cls(sizes, begins, ends, np.cumsum(changes[:-1]))

    @property
    def bound(self) -> int:
        """The most that is alive at once."""
        return int(self.loads.max())

    @property
    def lengths(self) -> Rows:
        """How many sections each tensor is alive in."""
        return self.ends - self.begins

    @property
    def peaks(self) -> Counts:
        """By tensor, the most that is alive in any of its sections."""
        return self.highest(self.loads[np.newaxis]).reshape(-1)

    def highest(self, heights: Counts) -> Counts:
        """By row and tensor, the highest of each row's heights over its sections."""
        tables = [heights]
        for power in range(int(self.ranges.max())):
            table = tables[-1].copy()
            np.maximum(table[:, : -(1 << power)], table[:, 1 << power :], out=table[:, : -(1 << power)])
            tables.append(table)
        every = np.concatenate(tables, axis=1)
        return np.maximum(every[:, self.lefts], every[:, self.rights])


class _Floors:
    """Of each section the lowest place that a tensor has in it: the other direction of Sections.highest."""

    def __init__(self, sections: Sections) -> None:
        keys = np.concatenate([sections.lefts, sections.rights])
        order = np.argsort(keys, kind="stable")
        self._tensors = order % len(sections.sizes)
        self._places, self._starts = np.unique(keys[order], return_index=True)
        self._tables = int(sections.ranges.max()) + 1
        self._count = len(sections.loads)

    def of(self, places: Counts) -> Counts:
        """By row and section, from places by row and tensor."""
        flat = np.full((len(places), self._tables * self._count), FAR, np.int64)
        flat[:, self._places] = np.minimum.reduceat(places[:, self._tensors], self._starts, axis=1)
        tables = flat.reshape(len(places), self._tables, self._count)
        for power in range(self._tables - 2, -1, -1):
            wide, narrow, half = tables[:, power + 1], tables[:, power], 1 << power
            np.minimum(narrow, wide, out=narrow)
            np.minimum(narrow[:, half:], wide[:, :-half], out=narrow[:, half:])
        return tables[:, 0]


@dataclass(frozen=True)
class _Beam:
    """Plans that are continued, one in each row."""

    heights: Counts
    """By section, below which nothing of what is missing can lie."""
    missing: Counts
    """By section, how much of its load is not placed yet."""
    places: Counts
    """By tensor, the lowest place that it has left; FAR for those that are placed."""
    tops: Counts
    """The highest end of a tensor."""
    marks: Counts
    """What tells sets of placed tensors apart."""

    def of(self, rows: Rows) -> _Beam:
        """Return some of the plans."""
        return _Beam(self.heights[rows], self.missing[rows], self.places[rows], self.tops[rows], self.marks[rows])

    @property
    def reached(self) -> Counts:
        """By section, what it reaches at least; 0 where nothing is missing."""
        return np.where(self.missing > 0, self.heights + self.missing, 0)

    @property
    def least(self) -> Counts:
        """What each plan reaches at least."""
        least: Counts = np.maximum(self.reached.max(axis=1), self.tops)
        return least


class _Search:
    """Beam searches over the same tensors. wall: where an arena ends and the next one begins."""

    def __init__(self, sections: Sections, wall: int) -> None:
        self._sections = sections
        self._floors = _Floors(sections)
        self._wall = wall
        tensors, count = len(sections.sizes), len(sections.loads)
        places = np.arange(count)
        self._alive = (sections.begins[:, np.newaxis] <= places) & (places < sections.ends[:, np.newaxis])
        chance = random.Random(0)
        self._marks = np.array([chance.getrandbits(62) for _ in range(tensors)], np.int64)
        self._section_marks = np.array([chance.getrandbits(62) for _ in range(count)], np.int64)

    def run(self, width: int, prefers: Shares, weight: float, squarings: int, limit: int) -> Counts | None:
        """Return the heights of the tensors in the lowest plan found that is lower than `limit`. prefers: by tensor,
        how much it is wished that it comes next; weight: how much that counts in choosing among plans."""
        sections = self._sections
        beam = _Beam(
            np.zeros((1, len(sections.loads)), np.int64),
            sections.loads[np.newaxis],
            self._behind_walls(sections.highest(np.zeros((1, len(sections.loads)), np.int64))),
            np.zeros(1, np.int64),
            np.zeros(1, np.int64),
        )
        steps: list[tuple[Rows, Rows, Counts]] = []
        for _ in range(len(sections.sizes)):
            rows, tensors = self._next(beam, prefers)
            lies = beam.places[rows, tensors]
            longer = self._placed(beam, rows, tensors)
            bonus = weight * prefers[tensors]
            kept = self._distinct(longer)
            kept = self._lowest(longer, kept, bonus, squarings, limit, width * LOOKED_INTO)
            looked = self._looked_into(longer.of(kept), beam.places[rows[kept]], tensors[kept], lies[kept])
            best = self._lowest(looked, np.arange(len(kept)), bonus[kept], squarings, limit, width)
            if not len(best):
                return None
            beam, kept = looked.of(best), kept[best]
            steps.append((rows[kept], tensors[kept], lies[kept]))
        return self._heights(steps, int(np.argmin(beam.tops)))

    def _next(self, beam: _Beam, prefers: Shares) -> tuple[Rows, Rows]:
        """Rows of the beam, and tensors that may be placed next in them: none below which another one has room."""
        sections = self._sections
        lowest_end = (beam.places + sections.sizes).min(axis=1)
        rows, tensors = np.nonzero(beam.places < lowest_end[:, np.newaxis])
        jumps = beam.places[rows, tensors] - beam.places.min(axis=1)[rows]
        order = np.lexsort((jumps / sections.bound * JUMP - prefers[tensors], rows))
        rows, tensors = rows[order], tensors[order]
        rank = np.arange(len(rows)) - np.searchsorted(rows, rows)
        return rows[rank < CHILDREN], tensors[rank < CHILDREN]

    def _placed(self, beam: _Beam, rows: Rows, tensors: Rows) -> _Beam:
        """Return these rows with one more tensor each, below which nothing lies that comes later; without places."""
        lies, sizes, alive = beam.places[rows, tensors], self._sections.sizes[tensors], self._alive[tensors]
        heights = np.where(alive, (lies + sizes)[:, np.newaxis], np.maximum(beam.heights[rows], lies[:, np.newaxis]))
        missing = beam.missing[rows] - np.where(alive, sizes[:, np.newaxis], 0)
        tops = np.maximum(beam.tops[rows], lies + sizes)
        no_places = np.empty((len(rows), 0), np.int64)
        return _Beam(heights, missing, no_places, tops, beam.marks[rows] ^ self._marks[tensors])

    def _distinct(self, beam: _Beam) -> Rows:
        """Return one of the rows for each plan that other orders of placing lead to as well."""
        marks = beam.marks + (np.where(beam.missing > 0, beam.heights, 0) * self._section_marks).sum(axis=1)
        return np.unique(marks, return_index=True)[1]

    def _lowest(self, beam: _Beam, rows: Rows, bonus: Shares, squarings: int, limit: int, most: int) -> Rows:
        """Return those of the rows that promise most, of what can become lower than the limit."""
        rows = rows[beam.least[rows] < limit]
        if len(rows) <= most:
            return rows
        score = np.minimum(beam.reached[rows] / self._sections.bound, TOO_HIGH)
        for _ in range(squarings):
            np.square(score, out=score)
        # rounded, so that the last bits of a sum, which depend on the processor, decide nothing
        return rows[np.argsort(np.round(score.mean(axis=1) - bonus[rows], 9), kind="stable")[:most]]

    def _looked_into(self, beam: _Beam, before: Counts, tensors: Rows, lies: Counts) -> _Beam:
        """Return plans to which a tensor was added, with the places of all that they lack, and the heights that follow
        from these. before: the places as they were."""
        places = np.maximum(self._sections.highest(beam.heights), lies[:, np.newaxis])
        places = np.where(before == FAR, FAR, self._behind_walls(places))
        places[np.arange(len(tensors)), tensors] = FAR
        heights = np.where(beam.missing > 0, np.maximum(beam.heights, self._floors.of(places)), beam.heights)
        return replace(beam, heights=heights, places=places)

    def _behind_walls(self, places: Counts) -> Counts:
        """Return the places, those that a wall would cut through behind it."""
        if self._wall == FAR:
            return places
        return np.where(
            places % self._wall + self._sections.sizes > self._wall, -(-places // self._wall) * self._wall, places
        )

    def _heights(self, steps: Sequence[tuple[Rows, Rows, Counts]], row: int) -> Counts:
        """Return where the tensors lie in a row of the last step."""
        heights = np.zeros(len(steps), np.int64)
        for rows, tensors, lies in reversed(steps):
            heights[tensors[row]] = lies[row]
            row = int(rows[row])
        return heights


def _beams(sections: Sections, wall: int, limit: int, steps: int) -> Iterator[list[int]]:
    """Yield the heights of plans, each lower than `limit` and than those before, as long as there are steps left."""
    tensors, count = len(sections.sizes), len(sections.loads)
    numbers = tensors + count * (int(sections.ranges.max()) + 1)  # that a step handles for a plan
    width = max(1, min(BEAM, steps * LARGE_STEP // (2 * tensors * numbers)))
    runs = steps // (tensors * (1 + width * numbers // LARGE_STEP))
    if not runs:
        return
    search = _Search(sections, wall)
    for prefers, weight, squarings in itertools.islice(_preferences(sections), runs):
        heights = search.run(width, prefers, weight, squarings, limit)
        if heights is not None:
            limit = int((heights + sections.sizes).max())
            yield [int(height) for height in heights]


def _preferences(sections: Sections) -> Iterator[tuple[Shares, float, int]]:
    """Yield what tensors a search prefers and how much, and how sharply the highest sections decide: first by what
    tensors are, then by chance as well."""
    sizes, lengths, peaks = (values / values.max() for values in (sections.sizes, sections.lengths, sections.peaks))
    areas = sizes * lengths / (sizes * lengths).max()
    kinds = (
        (areas, 1e-3),
        (np.sqrt(areas), 1e-3),
        (sizes, 0.03),
        (lengths, 0.03),
        (0 * sizes, 0.0),
        (peaks + lengths, 0.03),
    )
    chance = random.Random(1)
    for number in itertools.count():
        prefers, weight = kinds[number % len(kinds)]
        if number >= len(kinds) * len(POWERS):
            prefers = prefers * [0.5 + chance.random() for _ in prefers] + [0.1 * chance.random() for _ in prefers]
        yield prefers, weight, POWERS[number // len(kinds) % len(POWERS)]
