"""Search by default: try what is known before anything is measured, in turns with a model of all that was measured.

* If a kernel has an estimate, the best configurations by the estimate, no two alike, come before the model.
* Winners for near problems and of devices of the same vendor wait for LEAD results, then take turns with the rest.
  When DOUBTED_AFTER are known and something else is better than all of them, they say little about this device, and no
  more are tried.
* Strangers won on devices of other vendors. They come last, one at a time, and each must be better than all that is
  known. If a stranger is not, no more are tried, and the model does not learn of it: the search goes on as it would
  have without strangers, one measurement later. Else the model would look for long near what suits other devices.

The model proposes from the whole space. It descends from a winner or looks elsewhere, as it expects.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from gputune.client.tuning.search.strategies import Evaluation
from gputune.client.tuning.search.strategies.model_based import ModelBased
from gputune.client.tuning.search.strategies.portfolio import unlike_best
from gputune.kernels.family import Estimate
from gputune.kernels.space import Configuration, TuningSpace

LEAD = 3
"""So many configurations are known or asked for before a winner from elsewhere, so that there is something to compare
it with. The winner is then the last of those that the model needs to begin."""

DOUBTED_AFTER = 2
"""So many winners are measured before others are compared with them."""

ESTIMATED = 8
"""So many configurations are chosen by the estimate."""


class Auto:
    """Try the portfolio, then strangers, in turns with the estimate's best and then with the model."""

    def __init__(
        self,
        space: TuningSpace,
        seed: int,
        portfolio: Sequence[Configuration] = (),
        strangers: Sequence[Configuration] = (),
        estimate: Estimate | None = None,
        group: Sequence[str] = (),
    ) -> None:
        """group: as of ModelBased."""
        self._model = ModelBased(space, seed, group)
        self._candidates = self._model.candidates
        self._estimated = [] if estimate is None else unlike_best(self._candidates, estimate, ESTIMATED)
        self._portfolio = self._rows(portfolio)
        known = {*self._estimated, *self._portfolio}
        self._strangers = [row for row in self._rows(strangers) if row not in known]
        """The strangers that no result has judged, the next first."""
        self._winners_turn = True

    def ask(self, count: int) -> list[dict[str, int]]:
        found: list[dict[str, int]] = []
        while len(found) < count and (winner := self._winner()) is not None:
            if self._winners_turn and np.count_nonzero(~self._candidates.open) >= LEAD:
                found += self._candidates.take([winner])
                self._winners_turn = False
            else:
                found += self._others(1)
                self._winners_turn = True
        return found + self._others(count - len(found))

    def tell(self, evaluations: Sequence[Evaluation]) -> None:
        rows = [self._candidates.row(evaluation.configuration) for evaluation in evaluations]
        strange = [row in self._strangers for row in rows]
        self._model.tell([one for one, is_strange in zip(evaluations, strange, strict=True) if not is_strange])
        for row, one, is_strange in zip(rows, evaluations, strange, strict=True):
            if is_strange and row is not None:
                self._judge(row, one)

    def _judge(self, row: int, stranger: Evaluation) -> None:
        """Let the model learn of a stranger that is better than all; else pass it over, and the others after it."""
        best, cost = self._candidates.best(), stranger.cost_ns
        if cost is not None and (best is None or np.log(cost) < self._candidates.costs[best]):
            self._strangers = [one for one in self._strangers if one != row]
            self._model.tell([stranger])
        else:
            self._strangers = []
            self._candidates.take([row])

    def _winner(self) -> int | None:
        """Return the next winner from elsewhere; None if there is none, or if a stranger's result has to be known
        first."""
        waiting = self._waiting() or self._strangers[:1]
        return waiting[0] if waiting and self._candidates.open[waiting[0]] else None

    def _waiting(self) -> list[int]:
        """Rows of the portfolio that are still to be measured; none when others are better than what was."""
        costs, portfolio = self._candidates.costs, np.array(self._portfolio, int)
        known = portfolio[~np.isnan(costs[portfolio])]
        others = np.delete(costs, portfolio)
        if len(known) >= DOUBTED_AFTER and np.fmin.reduce(others, initial=np.inf) < costs[known].min():
            return []
        return [row for row in self._portfolio if self._candidates.open[row]]

    def _others(self, count: int) -> list[dict[str, int]]:
        """Ask for the estimate's best, then for the model's choice."""
        estimated = [row for row in self._estimated if self._candidates.open[row]][:count]
        return self._candidates.take(estimated) + self._model.ask(count - len(estimated))

    def _rows(self, configurations: Iterable[Configuration]) -> list[int]:
        """Return the rows of those that are of this space, each once."""
        rows = (self._candidates.row(configuration) for configuration in configurations)
        return [row for row in dict.fromkeys(rows) if row is not None]
