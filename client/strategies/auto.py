"""The default: a portfolio first, then down from the best, then anywhere else, led by a model of all that is known.

Configurations that won for near problems or on other devices come first. After them the Gaussian process of
`model_based` proposes by turns near the best configuration (at most NEAR parameters changed: a descent that tries the
most promising direction first) and anywhere (exploration, which a descent lacks). Near steps are what trust regions do
for Bayesian optimisation, as in Eriksson et al.: Scalable Global Optimization via Local Bayesian Optimization (2019).
"""

from collections.abc import Sequence

import numpy as np

from gputune.client.strategies import Evaluation
from gputune.client.strategies.candidates import Rows
from gputune.client.strategies.model_based import ModelBased
from gputune.kernels.space import Configuration, TuningSpace

NEAR = 2
"""A near configuration differs from the best in so many parameters at most."""


class Auto:
    """The portfolio in its order, less what is no configuration of this space; then near and far by turns."""

    def __init__(self, space: TuningSpace, seed: int, portfolio: Sequence[Configuration] = ()) -> None:
        self._model = ModelBased(space, seed)
        self._candidates = self._model.candidates
        rows = (self._candidates.row(configuration) for configuration in portfolio)
        self._portfolio = [row for row in dict.fromkeys(rows) if row is not None]
        self._near_next = True

    def ask(self, count: int) -> list[dict[str, int]]:
        waiting = [row for row in self._portfolio if self._candidates.open[row]]
        found = self._candidates.take(waiting[:count]) or self._model.spread(count)
        if found:
            return found
        while len(found) < count and self._candidates.open.any():
            # Half a batch each; one at a time they take turns.
            share = -(-(count - len(found)) // 2) if count > 1 else 1
            found += self._model.promising(share, self._rows())
            self._near_next = not self._near_next
        return found

    def tell(self, evaluations: Sequence[Evaluation]) -> None:
        self._model.tell(evaluations)

    def _rows(self) -> Rows:
        """Open candidates near the best when it is their turn and there are any, else all that are open."""
        still: Rows = np.flatnonzero(self._candidates.open)
        best = self._candidates.best()
        if not self._near_next or best is None:
            return still
        codes = self._candidates.codes
        near: Rows = still[(codes[still] != codes[best]).sum(axis=1) <= NEAR]
        return near if len(near) else still
