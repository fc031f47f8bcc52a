"""Search by default: try a portfolio as long as it keeps its promise, and a model of all that is known.

Configurations that won for near problems or on other devices come first: at least DOUBTED_AFTER of them, then each in
turn with a configuration that the model chooses. When something else is better than all of them so far, winners from
elsewhere say little about this device, and the model decides about the rest. It proposes from the whole space and
treats the portfolio's results like any other: it descends from there or looks elsewhere, as it expects.
"""

from collections.abc import Sequence

import numpy as np

from gputune.client.tuning.search.strategies import Evaluation
from gputune.client.tuning.search.strategies.model_based import ModelBased
from gputune.kernels.space import Configuration, TuningSpace

DOUBTED_AFTER = 2
"""So many of the portfolio are measured before anything is compared with them."""


class Auto:
    """The portfolio in its order, without what is not of this space, and in between and after it the model."""

    def __init__(self, space: TuningSpace, seed: int, portfolio: Sequence[Configuration] = ()) -> None:
        self._model = ModelBased(space, seed)
        self._candidates = self._model.candidates
        rows = (self._candidates.row(configuration) for configuration in portfolio)
        self._portfolio = [row for row in dict.fromkeys(rows) if row is not None]
        self._asked = 0

    def ask(self, count: int) -> list[dict[str, int]]:
        found: list[dict[str, int]] = []
        while len(found) < count and (waiting := self._waiting()):
            self._asked += 1
            alone = self._asked <= DOUBTED_AFTER or (self._asked - DOUBTED_AFTER) % 2 == 0
            found += self._candidates.take(waiting[:1]) if alone else self._model.ask(1)
        return found + self._model.ask(count - len(found))

    def tell(self, evaluations: Sequence[Evaluation]) -> None:
        self._model.tell(evaluations)

    def _waiting(self) -> list[int]:
        """Rows of the portfolio that are still to be measured; none when others are better than what was."""
        costs, portfolio = self._candidates.costs, np.array(self._portfolio, int)
        known = portfolio[~np.isnan(costs[portfolio])]
        others = np.delete(costs, portfolio)
        if len(known) >= DOUBTED_AFTER and np.fmin.reduce(others, initial=np.inf) < costs[known].min():
            return []
        return [row for row in self._portfolio if self._candidates.open[row]]
