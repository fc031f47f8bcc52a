"""A Gaussian process over the configurations of a space: what each of them may cost, and how sure that is.

A value is a sum: one part follows all parameters together, and one more each of the views of
`views.py`, as in Duvenaud, Nickisch, Rasmussen: Additive Gaussian Processes (2011). What few points say of one number
then holds wherever that number comes up again. All parts are Matérn-3/2; see Rasmussen, Williams: Gaussian Processes
for Machine Learning (2006). Lengths, weights and the noise are fitted by marginal likelihood times a prior, one after
another over a few steps: with the few dozen points of a search that takes milliseconds and needs no gradients. Written
out in numpy because it is a page, and a library with an optimiser behind it is a heavy dependency.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from gputune.client.tuning.search.strategies.candidates import Floats, Rows
from gputune.client.tuning.search.strategies.views import View

LENGTH = 0.3
"""Expected length of a parameter over the root of the number of parameters, in units of the range of a parameter."""

VIEW_LENGTH = 0.3
"""The length of every view, in units of its range."""

NOISE = 0.02
"""Expected share of the variance that nothing explains."""

VIEWS = 1.0
"""Expected variance of all views together, over that of the part which follows all parameters."""

SPREAD = 1.0
"""Standard deviation of the logarithm of a length, a weight or the noise around what is expected."""

STEPS, WEIGHT_STEPS = (-0.9, -0.45, 0.45, 0.9), (-1.2, 1.2)
"""What is added to a logarithm, to see whether that is more likely."""

FIRST_SWEEPS = 4
"""So often all settings are gone through at the first fit, with all steps. Later fits start from the last one and go
through them once, with one random step each: that follows the slow change of what is likely at a quarter of the time.
"""

FAR_AWAY = 0.8
"""What is far from all known values is expected to be like the value that so large a share of them stays below: as bad
as most, not as the mean. After a portfolio only good ones are known, and a model that expected the like everywhere
would wander; one that expected the worst would never leave the first good region for another.
"""

SAMPLES, WALK, STRIDE = 4, 4, 0.3
"""Beside the likeliest settings so many others are kept, each so many steps of such a size away: few points leave
several explanations open, and one alone is too sure of itself."""

LEAST = 1e-8
"""Keeps covariances positive definite, and variances positive, where points are nearly equal."""


def _matern(squares: Floats) -> Floats:
    """The covariance at squared distances."""
    scaled = np.sqrt(3 * np.maximum(squares, 0))
    covariance: Floats = (1 + scaled) * np.exp(-scaled)
    return covariance


class GaussianProcess:
    """Values known of some rows of `points` (of the unit cube). `fit` takes them in; `at` tells of other rows."""

    def __init__(self, points: Floats, views: Sequence[View], random: np.random.Generator) -> None:
        self._points, self._views, self._random = points, views, random
        self._tables = [_matern(((view.places[:, None] - view.places) / VIEW_LENGTH) ** 2) for view in views]
        # Logarithms: a length for each dimension, the noise, then a weight for each view.
        self._dimensions = points.shape[1]
        lengths = [LENGTH * self._dimensions**0.5] * self._dimensions
        self._expected = np.log([*lengths, NOISE, *[VIEWS / max(len(views), 1)] * len(views)])
        self._settings = self._expected
        self._fitted = False

    def fit(self, rows: Rows, values: Floats) -> None:
        """Takes in all known values (at least one) and the rows that have them."""
        centre = float(np.quantile(values, FAR_AWAY))
        scale = float(np.sqrt(((values - centre) ** 2).mean())) or 1.0
        self._known = _Known(rows, centre, scale, (values - centre) / scale)
        self._gaps = (self._points[rows][:, None, :] - self._points[rows][None, :, :]) ** 2
        codes = [view.codes[rows] for view in self._views]
        seen = [table[np.ix_(code, code)] for table, code in zip(self._tables, codes, strict=True)]
        self._seen = np.array(seen).reshape(len(seen), len(rows) ** 2)
        likelihood = self._likelihood(self._settings)
        for _ in range(1 if self._fitted else FIRST_SWEEPS):
            for which in range(len(self._settings)):
                for tried in self._stepped(which):
                    if (found := self._likelihood(tried)) > likelihood:
                        likelihood, self._settings = found, tried
        self._fitted = True
        self._likely = [self._settings, *self._sampled(likelihood)]

    def at(self, rows: Rows) -> list["Posterior"]:
        """What the fit says about other rows, once for each of the likely settings."""
        return [self._posterior(settings, rows) for settings in self._likely]

    def expected_at(self, rows: Rows) -> Floats:
        """Values expected of other rows with the likeliest settings alone: the quick look, which needs no covariance of
        all parts with all rows."""
        known, scale = self._known, np.exp(-self._settings[: self._dimensions])
        weights = np.exp(self._settings[self._dimensions + 1 :])
        pulls = np.linalg.solve(self._covariance(self._settings), known.standard) / (1 + weights.sum())
        found: Floats = _matern(_squares(self._points[rows] * scale, self._points[known.rows] * scale)) @ pulls
        for view, table, weight in zip(self._views, self._tables, weights, strict=True):
            found += (weight * (table[:, view.codes[known.rows]] @ pulls))[view.codes[rows]]
        expected: Floats = known.centre + known.scale * found
        return expected

    def _posterior(self, settings: Floats, rows: Rows) -> "Posterior":
        between = partial(self._between, settings, others=rows)
        noise = float(np.exp(settings[self._dimensions]))
        return Posterior(between, self._known, self._covariance(settings), noise, rows)

    def _stepped(self, which: int) -> list[Floats]:
        steps = np.array(STEPS if which <= self._dimensions else WEIGHT_STEPS)
        if self._fitted:
            steps = self._random.choice(steps, 1)
        tried = np.repeat(self._settings[None, :], len(steps), axis=0)
        tried[:, which] += steps
        return list(tried)

    def _sampled(self, likelihood: float) -> list[Floats]:
        """Settings drawn by their likelihood: a Metropolis walk that starts from the likeliest."""
        drawn, settings = [], self._settings
        for step in range(SAMPLES * WALK):
            tried = settings + STRIDE * self._random.standard_normal(len(settings))
            found = self._likelihood(tried)
            if math.log(1 - self._random.random()) < found - likelihood:
                settings, likelihood = tried, found
            if step % WALK == WALK - 1:
                drawn.append(settings)
        return drawn

    def _between(self, settings: Floats, ones: Rows, others: Rows) -> Floats:
        """Covariances of a few rows with many, of shape [ones, others]."""
        scale, weights = np.exp(-settings[: self._dimensions]), np.exp(settings[self._dimensions + 1 :])
        found = _matern(_squares(self._points[ones] * scale, self._points[others] * scale))
        for view, table, weight in zip(self._views, self._tables, weights, strict=True):
            found += (weight * table[view.codes[ones]])[:, view.codes[others]]
        found /= 1 + weights.sum()
        return found

    def _covariance(self, settings: Floats) -> Floats:
        """Covariances of the known values, noise included."""
        weights = np.exp(settings[self._dimensions + 1 :])
        covariance = _matern(self._gaps @ np.exp(-2 * settings[: self._dimensions]))
        covariance += (weights @ self._seen).reshape(covariance.shape)
        covariance /= 1 + weights.sum()
        covariance[np.diag_indices_from(covariance)] += np.exp(settings[self._dimensions]) + LEAST
        return covariance

    def _likelihood(self, settings: Floats) -> float:
        """The logarithm of likelihood times prior, up to a constant."""
        factor = np.linalg.cholesky(self._covariance(settings))
        whitened = np.linalg.solve(factor, self._known.standard)
        prior = (((settings - self._expected) / SPREAD) ** 2).sum()
        return -0.5 * float(whitened @ whitened + prior) - float(np.log(np.diag(factor)).sum())


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
        """Takes a value for known to be what is expected: means stay, and what is near becomes surer."""
        covariance = self._between(self._rows[index : index + 1])[0]
        covariance -= self._solved[:, index] @ self._solved
        step = covariance / np.sqrt(max(float(self._variance[index]), LEAST) + self._noise)
        self._solved = np.vstack([self._solved, step])
        self._variance = self._variance - step**2


def _squares(ones: Floats, others: Floats) -> Floats:
    """Squared distances of all pairs."""
    squares: Floats = (ones**2).sum(1)[:, None] + (others**2).sum(1)[None, :] - 2 * ones @ others.T
    return squares
