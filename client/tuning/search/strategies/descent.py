"""Search by coordinate descent with restarts: change one parameter at a time, from random starts.

This is first-improvement hill climbing, as in the classic autotuners. From a random start, it tries neighbours that
differ in one parameter, parameters in random order and near values first, and moves on as soon as something is better.
If nothing is better, it starts again elsewhere. It is cheap and needs no model, but is blind to parameters that only
help together.
"""

import random
from collections.abc import Sequence

import numpy as np

from gputune.client.tuning.search.strategies import Evaluation
from gputune.client.tuning.search.strategies.candidates import Candidates
from gputune.kernels.space import TuningSpace


class CoordinateDescent:
    """Descends from the best of what it was told, and then from random starts."""

    def __init__(self, space: TuningSpace, seed: int) -> None:
        self._candidates = Candidates(space)
        self._random = random.Random(seed)
        self._centre: int | None = None
        self._near: list[int] = []

    def ask(self, count: int) -> list[dict[str, int]]:
        found: list[dict[str, int]] = []
        while len(found) < count and self._candidates.open.any():
            self._near = [row for row in self._near if self._candidates.open[row]]
            if self._near:
                found += self._candidates.take(self._near[: count - len(found)])
                continue
            if not found:  # else the end of the descent is not known yet, and a start waits for its turn
                self._centre = None
            found += self._candidates.take([self._random.choice(np.flatnonzero(self._candidates.open).tolist())])
        return found

    def tell(self, evaluations: Sequence[Evaluation]) -> None:
        costs = self._candidates.costs
        before = self._centre
        for row in self._candidates.tell(evaluations):
            if np.isfinite(costs[row]) and (self._centre is None or costs[row] < costs[self._centre]):
                self._centre = row
        if self._centre is not None and self._centre != before:
            lines = list(self._candidates.lines(self._centre))
            self._random.shuffle(lines)
            self._near = [row for _, rows in lines for row in rows]
