"""The default: a portfolio first, then down from the best, then anywhere else, led by a model of all that is known.

Configurations that won for near problems or on other devices come first. From the best of them it goes down by changing
one parameter at a time, in the order that the Gaussian process of `model_based` finds most promising, until no such
change is left. Then, and from the start where there is no portfolio, the model proposes from the whole space: it finds
the way down by itself as soon as it has seen what a parameter and a product of parameters do.
"""

from collections.abc import Sequence

import numpy as np

from gputune.client.tuning.search.strategies import Evaluation
from gputune.client.tuning.search.strategies.candidates import Rows
from gputune.client.tuning.search.strategies.model_based import ModelBased
from gputune.kernels.space import Configuration, TuningSpace


class Auto:
    """The portfolio in its order, without what is not of this space; then steps from the best; then the model."""

    def __init__(self, space: TuningSpace, seed: int, portfolio: Sequence[Configuration] = ()) -> None:
        self._model = ModelBased(space, seed)
        self._candidates = self._model.candidates
        rows = (self._candidates.row(configuration) for configuration in portfolio)
        self._portfolio = [row for row in dict.fromkeys(rows) if row is not None]

    def ask(self, count: int) -> list[dict[str, int]]:
        waiting = [row for row in self._portfolio if self._candidates.open[row]]
        found = self._candidates.take(waiting[:count]) or self._model.spread(count)
        if found:
            return found
        found = self._model.promising(count, self._steps())
        return found + self._model.promising(count - len(found), np.flatnonzero(self._candidates.open))

    def tell(self, evaluations: Sequence[Evaluation]) -> None:
        self._model.tell(evaluations)

    def _steps(self) -> Rows:
        """Open candidates that differ from the best in one parameter; none without a portfolio to go down from."""
        still, best = np.flatnonzero(self._candidates.open), self._candidates.best()
        if best is None or not self._portfolio:
            return still[:0]
        changed = (self._candidates.codes[still] != self._candidates.codes[best]).sum(axis=1)
        steps: Rows = still[changed == 1]
        return steps
