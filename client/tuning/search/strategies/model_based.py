"""Search by Bayesian optimisation: a Gaussian process learns the share of the best speed that a configuration loses.

It learns that share and not the cost. If costs differ a hundredfold, a model of costs sees little but how bad the bad
configurations are, and the few good ones lie close together.

The next configuration has the largest expected improvement, as in Jones, Schonlau, Welch: Efficient Global Optimization
of Expensive Black-Box Functions (1998). The target becomes more ambitious the longer nothing better is found. Modest
targets are expected near the best configuration, ambitious targets in unknown regions, as in Jones: A Taxonomy of
Global Optimization Methods Based on Response Surfaces (2001).

Several configurations are chosen at a time by believing the expected cost of those already chosen, as in Ginsbourger,
Le Riche, Carraro: Kriging Is Well-Suited to Parallelize Optimization (2010). The search starts from few configurations
that lie far apart and not at the border, where tiles and groups are too small or too large to be good. On GPUs their
work-groups have a likely size.

Of other models tried on recorded spaces none found more: losses by other powers, logarithms of costs, more views, a
quarter of the choices beside the best, trees, and tree Parzen estimators.
"""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from gputune.client.tuning.search.strategies import Evaluation
from gputune.client.tuning.search.strategies.candidates import Candidates, Floats, Rows
from gputune.client.tuning.search.strategies.surrogate import GaussianProcess
from gputune.client.tuning.search.strategies.views import views_of
from gputune.kernels.space import TuningSpace

FIRST, FIRST_IN_GROUPS = 4, 8
"""So many evaluations come before the model is asked; any few will do, so that they are soon over. With work-groups of
likely sizes more of them are worth it."""

LEAST_GROUP, MOST_GROUP, SUBGROUP = 64, 512, 32
"""The likely sizes of work-groups on GPUs, and what they are a multiple of. Kernels of public recordings were at 69 to
73 % of the best after 10 measurements that began so, and at 59 to 62 % without."""

FAILED_LIKE = 0.8
"""A failure counts like the cost that so large a share of the known ones stays below: not worth a visit, but no cliff
that hides the good configurations beside it."""

SPREAD_AMONG = 64
"""A starting configuration is, of so many random ones, the farthest from those before it."""

MOST_CANDIDATES = 2000
"""Of larger spaces the model looks at so many at a time, drawn at random, and at all that differ from the best in one
parameter: what is most promising of so many is hardly less so than of all, and asking takes milliseconds."""

GAIN = 0.05
"""A result is better than the best when it takes at least so much less, as a share of what known ones lose to the best:
the root of their mean squared losses."""

AMBITION, TARGETS = 0.15, 8
"""For each result in a row that was not better the target goes below the best by this share of the same; after so many
it begins again at the best itself, so that a batch has modest ones and ambitious ones. On a plateau a model expects
small gains beside the best for ever, and a better one elsewhere is never seen; what shall gain a lot has to be looked
for where the model is unsure."""

BEST_EXPECTED, DRAWN = 400, 200
"""Of more than both together the model judges closely those of which it expects most, and others drawn at random."""

MOST_KNOWN = 96
"""The model is told of so many results at most: half of them the best, half drawn from the rest. Where the bad ones are
is known well enough by then, and the time that a fit takes grows with the third power."""


class ModelBased:
    """Asks for what the model expects to improve most on the best known cost."""

    def __init__(self, space: TuningSpace, seed: int, group: Sequence[str] = ()) -> None:
        """group: the parameters whose product is the size of a work-group, where that matters from the first."""
        self.candidates = Candidates(space)
        self._likely = self._of_likely_size(group)
        self._random = np.random.default_rng(seed)
        self._best, self._fruitless = math.inf, 0
        self._places = (self.candidates.codes + 0.5) / np.array(self.candidates.levels, float)
        """The middle of each value's part of its range, so that none lies at the border."""
        self._process = GaussianProcess(self.candidates.points, views_of(self.candidates))

    def ask(self, count: int) -> list[dict[str, int]]:
        if started := self.spread(count):
            return started
        return self.promising(count, np.flatnonzero(self.candidates.open))

    def tell(self, evaluations: Sequence[Evaluation]) -> None:
        for row in self.candidates.tell(evaluations):
            self._fruitless += 1
            cost = float(self.candidates.costs[row])
            if cost < self._best - GAIN * self._lost():
                self._fruitless = 0
            self._best = min(self._best, cost)

    def spread(self, count: int) -> list[dict[str, int]]:
        """Up to `count` configurations far from all before them; empty when enough is known to ask the model.

        The model needs FIRST evaluations, or FIRST_IN_GROUPS, of which two worked and differ.
        """
        candidates = self.candidates
        worked = candidates.costs[np.isfinite(candidates.costs)]
        missing = (FIRST if self._likely is None else FIRST_IN_GROUPS) - len(candidates.known)
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
            drawn = self._random.choice(rows, MOST_CANDIDATES, replace=False)
            rows = np.union1d(drawn, np.intersect1d(self._beside_best(), rows))
        losses = self._losses(known)
        if len(known) > MOST_KNOWN:
            order = np.argsort(losses, kind="stable")
            drawn = self._random.choice(order[MOST_KNOWN // 2 :], MOST_KNOWN - MOST_KNOWN // 2, replace=False)
            kept = np.sort(np.concatenate([order[: MOST_KNOWN // 2], drawn]))
            known, losses = known[kept], losses[kept]
        self._process.fit(known, losses)
        rows = self._looked_at(rows)
        posterior = self._process.at(rows)
        chosen: list[int] = []
        while len(chosen) < min(count, len(rows)):
            if chosen:
                posterior.believe(chosen[-1])
            target = -AMBITION * self._lost() * ((self._fruitless + len(chosen) // 2) % TARGETS)
            gain = _expected_improvement(target, posterior.mean, posterior.deviation)
            gain[chosen] = -1
            chosen.append(int(np.argmax(gain)))
        return candidates.take(rows[chosen].tolist())

    def _looked_at(self, rows: Rows) -> Rows:
        """Return those of the rows that are judged closely."""
        if len(rows) <= BEST_EXPECTED + DRAWN:
            return rows
        expected = self._process.expected_at(rows)
        drawn = self._random.choice(rows, DRAWN, replace=False)
        return np.union1d(rows[np.argpartition(expected, BEST_EXPECTED)[:BEST_EXPECTED]], drawn)

    def _beside_best(self) -> list[int]:
        """Return what differs from the best in one parameter."""
        best = self.candidates.best()
        return [] if best is None else [row for _, line in self.candidates.lines(best) for row in line]

    def _lost(self) -> float:
        """Return how much of the best speed known configurations lose: the root mean square of those that worked, or
        0."""
        costs = self.candidates.costs[np.isfinite(self.candidates.costs)]
        return float(np.sqrt(np.mean((1 - np.exp(costs.min() - costs)) ** 2))) if len(costs) else 0.0

    def _losses(self, known: Rows) -> Floats:
        """Return the share of the best speed that known rows lack, 0 to 1, with something in place of those that
        failed."""
        costs = self.candidates.costs[known]
        losses: Floats = 1 - np.exp(np.nanmin(costs) - costs)
        worked = np.isfinite(costs)
        losses[~worked] = np.quantile(losses[worked], FAILED_LIKE)
        return losses

    def _of_likely_size(self, group: Sequence[str]) -> npt.NDArray[np.bool_] | None:
        """Return which candidates have a work-group of a likely size; None if that is not known or none has."""
        sizes = self.candidates.products(group)
        likely: npt.NDArray[np.bool_] = (sizes >= LEAST_GROUP) & (sizes <= MOST_GROUP) & (sizes % SUBGROUP == 0)
        return likely if likely.any() else None

    def _farthest(self) -> int:
        """Of a few random open candidates the one farthest from everything asked for so far and from the border, which
        counts like a configuration mirrored at it. The first is the one nearest to the middle. They are of a likely
        size as long as there are such."""
        taken, still = np.flatnonzero(~self.candidates.open), np.flatnonzero(self.candidates.open)
        if self._likely is not None and self._likely[still].any():
            still = still[self._likely[still]]
        drawn = self._random.choice(still, min(len(still), SPREAD_AMONG), replace=False)
        places = self._places[drawn]
        if not len(taken):
            return int(drawn[np.argmin(((places - 0.5) ** 2).sum(axis=1))])
        apart = places[:, None, :] - self._places[taken][None, :, :]
        mirrored = (2 * np.minimum(places, 1 - places)) ** 2
        nearest = np.minimum((apart**2).sum(axis=2).min(axis=1), mirrored.sum(axis=1))
        return int(drawn[np.argmax(nearest)])


def _expected_improvement(best: float, mean: Floats, deviation: Floats) -> Floats:
    """By how much a normal value is expected to fall below `best`, counting only when it does."""
    distance = (best - mean) / deviation
    density = np.exp(-(distance**2) / 2) / math.sqrt(2 * math.pi)
    improvement: Floats = deviation * (distance * _normal_share(distance) + density)
    return improvement


def _normal_share(values: Floats) -> Floats:
    """Return the normal distribution's share below values, to 1e-7: formula 26.2.17 of Abramowitz, Stegun."""
    t = 1 / (1 + 0.2316419 * np.abs(values))
    series = t * (0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
    above = series * np.exp(-(values**2) / 2) / math.sqrt(2 * math.pi)
    share: Floats = np.where(values > 0, 1 - above, above)
    return share
