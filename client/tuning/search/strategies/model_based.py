"""Bayesian optimisation: a Gaussian process learns the logarithm of the cost, and what promises most is asked for.

Expected improvement as in Jones, Schonlau, Welch: Efficient Global Optimization of Expensive Black-Box Functions
(1998); several at a time by believing what is expected of those already chosen, as in Ginsbourger, Le Riche, Carraro:
Kriging Is Well-Suited to Parallelize Optimization (2010). Starts from few configurations that lie far apart.
"""

import math
from collections.abc import Sequence

import numpy as np

from gputune.client.tuning.search.strategies import Evaluation
from gputune.client.tuning.search.strategies.candidates import Candidates, Floats, Rows
from gputune.client.tuning.search.strategies.surrogate import GaussianProcess
from gputune.client.tuning.search.strategies.views import views_of
from gputune.kernels.space import TuningSpace

FIRST = 4
"""So many evaluations come before the model is asked; any few will do, so that they are soon over."""

FAILED_LIKE = 0.75
"""A failure counts like the cost that so large a share of the known ones stays below: not worth a visit, but no cliff
that hides the good configurations beside it."""

SPREAD_AMONG = 64
"""A starting configuration is, of so many random ones, the farthest from those before it."""

MOST_CANDIDATES = 10_000
"""Of larger spaces the model looks at so many at a time, drawn at random, so that asking stays below 0.3 s."""

LOOKED_AT_TWICE = 1000
"""So many of them, which the likeliest explanation finds most promising, are judged by the other explanations too."""

MOST_KNOWN = 96
"""The model is told of so many results at most: half of them the best, half drawn from the rest. Where the bad ones are
is known well enough by then, and the time that a fit takes grows with the third power."""


class ModelBased:
    """Asks for what the model expects to improve most on the best known cost."""

    def __init__(self, space: TuningSpace, seed: int) -> None:
        self.candidates = Candidates(space)
        self._random = np.random.default_rng(seed)
        self._process = GaussianProcess(self.candidates.points, views_of(self.candidates), self._random)

    def ask(self, count: int) -> list[dict[str, int]]:
        return self.spread(count) or self.promising(count, np.flatnonzero(self.candidates.open))

    def tell(self, evaluations: Sequence[Evaluation]) -> None:
        self.candidates.tell(evaluations)

    def spread(self, count: int) -> list[dict[str, int]]:
        """Up to `count` configurations far from all before them; empty when enough is known to ask the model.

        The model needs FIRST evaluations, of which two worked and differ.
        """
        candidates = self.candidates
        worked = candidates.costs[np.isfinite(candidates.costs)]
        missing = FIRST - len(candidates.known)
        if len(set(worked.tolist())) < 2:
            missing = max(missing, 1)
        found: list[dict[str, int]] = []
        while len(found) < min(count, missing) and candidates.open.any():
            found += candidates.take([self._farthest()])
        return found

    def promising(self, count: int, rows: Rows) -> list[dict[str, int]]:
        """Up to `count` of the open candidates `rows`, most promising first. `spread` has nothing left to ask for."""
        candidates, known = self.candidates, self.candidates.known
        if not len(rows) or not count:
            return []
        if len(rows) > MOST_CANDIDATES:
            rows = np.sort(self._random.choice(rows, MOST_CANDIDATES, replace=False))
        costs = self._costs(known)
        if len(known) > MOST_KNOWN:
            order = np.argsort(costs, kind="stable")
            drawn = self._random.choice(order[MOST_KNOWN // 2 :], MOST_KNOWN - MOST_KNOWN // 2, replace=False)
            kept = np.sort(np.concatenate([order[: MOST_KNOWN // 2], drawn]))
            known, costs = known[kept], costs[kept]
        self._process.fit(known, costs)
        best = float(costs.min())
        if len(rows) > LOOKED_AT_TWICE:
            first = self._process.likeliest_at(rows)
            gain = _expected_improvement(best, first.mean, first.deviation)
            rows = rows[np.argsort(-gain, kind="stable")[:LOOKED_AT_TWICE]]
        posteriors = self._process.at(rows)
        chosen: list[int] = []
        for _ in range(min(count, len(rows))):
            gain = np.zeros(len(rows))
            for posterior in posteriors:
                gain += _expected_improvement(best, posterior.mean, posterior.deviation)
            gain[chosen] = -1
            chosen.append(int(np.argmax(gain)))
            for posterior in posteriors:
                posterior.believe(chosen[-1])
        return candidates.take(rows[chosen].tolist())

    def _costs(self, known: Rows) -> Floats:
        """Logarithms of the costs of known rows, with something in place of those that failed."""
        costs: Floats = self.candidates.costs[known]
        worked = np.isfinite(costs)
        costs[~worked] = np.quantile(costs[worked], FAILED_LIKE)
        return costs

    def _farthest(self) -> int:
        """Of a few random open candidates the one farthest from everything asked for so far."""
        candidates = self.candidates
        taken, still = np.flatnonzero(~candidates.open), np.flatnonzero(candidates.open)
        drawn = self._random.choice(still, min(len(still), SPREAD_AMONG), replace=False)
        if not len(taken):
            return int(drawn[0])
        apart = candidates.points[drawn][:, None, :] - candidates.points[taken][None, :, :]
        return int(drawn[np.argmax((apart**2).sum(axis=2).min(axis=1))])


def _expected_improvement(best: float, mean: Floats, deviation: Floats) -> Floats:
    """By how much a normal value is expected to fall below `best`, counting only when it does."""
    distance = (best - mean) / deviation
    density = np.exp(-(distance**2) / 2) / math.sqrt(2 * math.pi)
    improvement: Floats = deviation * (distance * _normal_share(distance) + density)
    return improvement


def _normal_share(values: Floats) -> Floats:
    """The normal distribution's share below values, to 1e-7: formula 26.2.17 of Abramowitz, Stegun."""
    t = 1 / (1 + 0.2316419 * np.abs(values))
    series = t * (0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
    above = series * np.exp(-(values**2) / 2) / math.sqrt(2 * math.pi)
    share: Floats = np.where(values > 0, 1 - above, above)
    return share
