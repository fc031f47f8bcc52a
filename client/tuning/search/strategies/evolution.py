"""Search by evolution: the best configurations so far have children, which mix two parents and change a little.

This is a steady-state genetic algorithm with tournament selection, uniform crossover and mutation of single genes, as
in Goldberg, Deb: A Comparative Analysis of Selection Schemes Used in Genetic Algorithms (1991). Children that break a
constraint or are known are discarded before they cost anything. Failures never become parents.
"""

import random
from collections.abc import Sequence

import numpy as np

from gputune.client.tuning.search.strategies import Evaluation
from gputune.client.tuning.search.strategies.candidates import Candidates
from gputune.kernels.space import TuningSpace

FOUNDERS = 8
"""Random configurations that must have worked before there are children."""

PARENTS = 8
"""The best so many are parents."""

TOURNAMENT = 2
ATTEMPTS = 50
"""Children that are thrown away in a row before a random configuration takes the place of one."""


class Evolution:
    """Asks for random configurations first, then for children of the best."""

    def __init__(self, space: TuningSpace, seed: int) -> None:
        self._candidates = Candidates(space)
        self._random = random.Random(seed)

    def ask(self, count: int) -> list[dict[str, int]]:
        candidates = self._candidates
        found: list[dict[str, int]] = []
        worked = np.flatnonzero(np.isfinite(candidates.costs))
        parents = worked[np.argsort(candidates.costs[worked], kind="stable")][:PARENTS].tolist()
        while len(found) < count and candidates.open.any():
            row = self._child(parents) if len(worked) >= FOUNDERS else None
            if row is None:
                row = self._random.choice(np.flatnonzero(candidates.open).tolist())
            found += candidates.take([row])
        return found

    def tell(self, evaluations: Sequence[Evaluation]) -> None:
        self._candidates.tell(evaluations)

    def _child(self, parents: Sequence[int]) -> int | None:
        """Return an open child of two parents; None when chance gives none. `parents` are sorted, best first."""
        candidates, chance = self._candidates, self._random
        for _ in range(ATTEMPTS):
            pair = [min(chance.choices(range(len(parents)), k=TOURNAMENT)) for _ in range(2)]
            genes = [candidates.codes[parents[place]].tolist() for place in pair]
            child = [chance.choice(both) for both in zip(*genes, strict=True)]
            for gene, levels in enumerate(candidates.levels):
                if chance.random() < 1 / len(child):
                    child[gene] = chance.randrange(levels)
            row = candidates.row_of_codes(child)
            if row is not None and candidates.open[row]:
                return row
        return None
