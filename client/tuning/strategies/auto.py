"""The default: a portfolio first, then down from the best, then anywhere else, led by a model of all that is known.

Configurations that won for near problems or on other devices come first. From the best of them it goes down by changing
one parameter at a time, in the order that the Gaussian process of `model_based` finds most promising, until no such
change is left. Then, and from the start where there is no portfolio, the model proposes by turns near the best (at most
NEAR parameters changed) and anywhere. Near steps are what trust regions do for Bayesian optimisation, as in Eriksson
et al.: Scalable Global Optimization via Local Bayesian Optimization (2019).
"""

from collections.abc import Sequence

import numpy as np

from gputune.client.tuning.strategies import Evaluation
from gputune.client.tuning.strategies.candidates import Rows
from gputune.client.tuning.strategies.model_based import ModelBased
from gputune.kernels.space import Configuration, TuningSpace

NEAR = 2
"""A near configuration differs from the best in so many parameters at most."""


class Auto:
    """The portfolio in its order, without what is not of this space; then down, then near and far by turns."""

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
        """The open candidates among which the model chooses now."""
        still: Rows = np.flatnonzero(self._candidates.open)
        best = self._candidates.best()
        if best is None:
            return still
        changed = (self._candidates.codes[still] != self._candidates.codes[best]).sum(axis=1)
        steps: Rows = still[changed == 1]
        if self._portfolio and len(steps):
            return steps
        near: Rows = still[changed <= NEAR]
        return near if self._near_next and len(near) else still
