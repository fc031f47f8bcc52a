"""Fit a Gaussian process over the configurations of a space: the expected cost of each, and its uncertainty.

A value is a sum: one part depends on all parameters together, and one part on each of the views of `views.py`, as in
Duvenaud, Nickisch, Rasmussen: Additive Gaussian Processes (2011). What a few points say about one number then holds
wherever that number occurs again. All parts are Matérn-3/2; see Rasmussen, Williams: Gaussian Processes for Machine
Learning (2006).

Lengths, weights and the noise maximise the marginal likelihood times a prior. The fit climbs by the signs of its slope,
as in Riedmiller, Braun: A Direct Adaptive Method for Faster Backpropagation Learning, the RPROP Algorithm (1993). The
slope in all settings costs little more than a likelihood, so a fit to the few dozen points of a search takes
milliseconds. The code is plain numpy because it is short, and a library with an optimiser is a heavy dependency.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from gputune.client.tuning.search.strategies.candidates import Floats, Rows
from gputune.client.tuning.search.strategies.views import View

LENGTH = 0.25
"""Expected length of a parameter over the root of the number of parameters, in units of the range of a parameter."""

VIEW_LENGTH = 0.3
"""The length of every view, in units of its range."""

NOISE = 0.05
"""Expected share of the variance that nothing explains."""

VIEWS = 1.0
"""Expected variance of all views together, over that of the part which follows all parameters."""

SPREAD = 0.4
"""Standard deviation of the logarithm of a length, a weight or the noise around what is expected. A search knows few
points, and there are more settings than that: with a wide prior they follow chance."""

CLIMBS, STEP = 6, 0.2
"""Steps of a fit, which starts from the last one's settings, and the size of the first in every logarithm."""

LONGER, SHORTER = 1.2, 0.5
"""What a setting's step is multiplied by where its slope kept its sign, and where it did not."""

FAR_AWAY = 0.8
"""What is far from all known values is expected to be like the value that so large a share of them stays below: as bad
as most, not as the mean. After a portfolio only good ones are known, and a model that expected the like everywhere
would wander; one that expected the worst would never leave the first good region for another.
"""

LEAST = 1e-8
"""Keeps covariances positive definite, and variances positive, where points are nearly equal."""


def _matern(squares: Floats) -> Floats:
    """Return the covariance at squared distances."""
    scaled = np.sqrt(3 * np.maximum(squares, 0))
    covariance: Floats = (1 + scaled) * np.exp(-scaled)
    return covariance


class GaussianProcess:
    """Values known of some rows of `points` (of the unit cube). `fit` takes them in; `at` tells of other rows."""

    def __init__(self, points: Floats, views: Sequence[View]) -> None:
        self._points, self._views = points, views
        self._tables = [_matern(((view.places[:, None] - view.places) / VIEW_LENGTH) ** 2) for view in views]
        # Logarithms: a length for each dimension, the noise, then a weight for each view.
        dimensions = points.shape[1]
        lengths = [LENGTH * dimensions**0.5] * dimensions
        self._cuts = (dimensions, dimensions + 1)
        self._expected = np.log([*lengths, NOISE, *[VIEWS / max(len(views), 1)] * len(views)])
        self._settings = self._expected

    def fit(self, rows: Rows, values: Floats) -> None:
        """Take in all known values (at least one) and the rows that have them."""
        centre = float(np.quantile(values, FAR_AWAY))
        scale = float(np.sqrt(((values - centre) ** 2).mean())) or 1.0
        self._known = _Known(rows, centre, scale, (values - centre) / scale)
        points = self._points[rows].T
        self._gaps = ((points[:, :, None] - points[:, None, :]) ** 2).reshape(len(points), -1)
        codes = [view.codes[rows] for view in self._views]
        seen = [table[code].take(code, axis=1) for table, code in zip(self._tables, codes, strict=True)]
        self._seen = np.array(seen).reshape(len(seen), -1)
        self._climb()

    def at(self, rows: Rows) -> "Posterior":
        """Return what the fit says about other rows."""
        covariance = self._of_known(self._settings).covariance
        noise = float(np.exp(self._settings[self._cuts[0]]))
        return Posterior(partial(self._between, others=rows), self._known, covariance, noise, rows)

    def expected_at(self, rows: Rows) -> Floats:
        """Values expected of other rows: the quick look, which needs no covariance of all parts with all rows."""
        known, (lengths, _, weights) = self._known, self._parted(self._settings)
        pulls = np.linalg.solve(self._of_known(self._settings).covariance, known.standard) / (1 + weights.sum())
        found: Floats = self._alike(lengths, rows, known.rows) @ pulls
        for view, table, weight in zip(self._views, self._tables, weights, strict=True):
            found += (weight * (table[:, view.codes[known.rows]] @ pulls))[view.codes[rows]]
        expected: Floats = known.centre + known.scale * found
        return expected

    def _climb(self) -> None:
        """Change the settings to likelier ones."""
        settings, likeliest = self._settings, -math.inf
        steps, last = np.full(len(settings), STEP), np.zeros(len(settings))
        for _ in range(CLIMBS):
            likelihood, slope = self._likelihood(settings)
            if likelihood > likeliest:
                likeliest, self._settings = likelihood, settings
            turned = slope * last < 0
            steps = steps * np.where(turned, SHORTER, np.where(slope * last > 0, LONGER, 1))
            last = np.where(turned, 0, slope)
            settings = settings + steps * np.sign(last)

    def _likelihood(self, settings: Floats) -> tuple[float, Floats]:
        """Return the logarithm of likelihood times prior, up to a constant, and its slope in each of the settings."""
        known, values = self._of_known(settings), self._known.standard
        lengths, noise, weights = self._parted(settings)
        inverse = np.linalg.inv(known.covariance)
        pulls = inverse @ values
        off = (settings - self._expected) / SPREAD
        half = float(np.log(np.linalg.cholesky(known.covariance).diagonal()).sum())  # of the determinant's logarithm
        likelihood = -0.5 * float(values @ pulls + off @ off) - half
        # By the chain rule: what an entry of the covariance is worth, times how it follows each setting.
        worth = 0.5 * (np.outer(pulls, pulls) - inverse)
        each = worth.reshape(-1)
        of_lengths = 3 * np.exp(-2 * lengths) * (self._gaps @ (each * known.decay))
        of_weights = weights * (self._seen @ each - known.smooth @ each)
        parts = 1 + weights.sum()
        slope: Floats = np.concatenate([of_lengths / parts, [noise * worth.trace()], of_weights / parts]) - off / SPREAD
        return likelihood, slope

    def _parted(self, settings: Floats) -> tuple[Floats, float, Floats]:
        """Return the logarithms of the lengths, the noise, and the weights of the views."""
        noise, first = self._cuts
        return settings[:noise], math.exp(settings[noise]), np.exp(settings[first:])

    def _of_known(self, settings: Floats) -> "_OfKnown":
        lengths, noise, weights = self._parted(settings)
        scaled = np.sqrt(3 * (np.exp(-2 * lengths) @ self._gaps))
        decay = np.exp(-scaled)
        smooth = ((1 + scaled) * decay + weights @ self._seen) / (1 + weights.sum())
        covariance = smooth.reshape(len(self._known.rows), -1).copy()
        covariance.flat[:: len(covariance) + 1] += noise + LEAST
        return _OfKnown(decay, smooth, covariance)

    def _alike(self, lengths: Floats, ones: Rows, others: Rows) -> Floats:
        """Return the part that follows all parameters: covariances of all pairs."""
        scale = np.exp(-lengths)
        return _matern(_squares(self._points[ones] * scale, self._points[others] * scale))

    def _between(self, ones: Rows, others: Rows) -> Floats:
        """Covariances of a few rows with many, of shape [ones, others]."""
        lengths, _, weights = self._parted(self._settings)
        found = self._alike(lengths, ones, others)
        for view, table, weight in zip(self._views, self._tables, weights, strict=True):
            found += (weight * table[view.codes[ones]]).take(view.codes[others], axis=1)
        found /= 1 + weights.sum()
        return found


@dataclass(frozen=True)
class _OfKnown:
    """Covariances of the known rows: the decay of the part of all parameters, all parts, and these with the noise. The
    first two are flat."""

    decay: Floats
    smooth: Floats
    covariance: Floats


@dataclass(frozen=True)
class _Known:
    """Rows with their values, which are centre + scale x standard."""

    rows: Rows
    centre: float
    scale: float
    standard: Floats


class Posterior:
    """Expected values of rows, and how far they may be off."""

    def __init__(
        self, between: Callable[[Rows], Floats], known: _Known, covariance: Floats, noise: float, rows: Rows
    ) -> None:
        inverse = np.linalg.inv(np.linalg.cholesky(covariance))
        self._between, self._scale, self._noise, self._rows = between, known.scale, noise, rows
        self._solved = inverse @ between(known.rows)
        self._variance = 1 - (self._solved**2).sum(axis=0)
        self.mean = known.centre + known.scale * ((inverse @ known.standard) @ self._solved)

    @property
    def deviation(self) -> Floats:
        """Standard deviations of the values."""
        deviation: Floats = self._scale * np.sqrt(np.maximum(self._variance, LEAST))
        return deviation

    def believe(self, index: int) -> None:
        """Take a value for known to be what is expected: means stay, and what is near becomes surer."""
        covariance = self._between(self._rows[index : index + 1])[0]
        covariance -= self._solved[:, index] @ self._solved
        step = covariance / np.sqrt(max(float(self._variance[index]), LEAST) + self._noise)
        self._solved = np.vstack([self._solved, step])
        self._variance = self._variance - step**2


def _squares(ones: Floats, others: Floats) -> Floats:
    """Squared distances of all pairs."""
    squares: Floats = (ones**2).sum(1)[:, None] + (others**2).sum(1)[None, :] - 2 * ones @ others.T
    return squares
