"""A Gaussian process over encoded configurations: what each of them may cost, and how sure that is.

Matérn-3/2 with a length per parameter; see Rasmussen, Williams: Gaussian Processes for Machine Learning (2006). The
lengths and the noise are fitted by marginal likelihood times a prior, one after another over a few steps: with the few
dozen points of a search that takes milliseconds and needs no gradients. Written out in numpy because it is a page, and
a library with an optimiser behind it is a heavy dependency.
"""

import math

import numpy as np

from gputune.client.tuning.strategies.candidates import Floats

LENGTH = 0.3
"""Expected length of a parameter over the root of the number of parameters, in units of the range of a parameter."""

NOISE = 0.02
"""Expected share of the variance that no parameter explains."""

SPREAD = 1.0
"""Standard deviation of the logarithm of a length or of the noise around what is expected."""

STEPS = (-0.9, -0.45, 0.45, 0.9)
"""What is tried instead of the logarithm of a length or of the noise, to see whether that is more likely."""

FIRST_SWEEPS = 4
"""So often all lengths are gone through at the first fit; once at every later one, which starts from the one before."""

SAMPLES, WALK, STRIDE = 4, 4, 0.5
"""Beside the likeliest lengths so many others are kept, each so many steps of such a size away: few points leave
several explanations open, and one alone is too sure of itself."""

LEAST = 1e-8
"""Keeps covariances positive definite, and variances positive, where points are nearly equal."""


def _matern(squares: Floats) -> Floats:
    """The covariance at squared distances."""
    scaled = np.sqrt(3 * np.maximum(squares, 0))
    covariance: Floats = (1 + scaled) * np.exp(-scaled)
    return covariance


class GaussianProcess:
    """Values known at points of the unit cube. `fit` takes in all of them; `at` tells of other points."""

    def __init__(self, dimensions: int, random: np.random.Generator) -> None:
        self._random = random
        # Logarithms: a length for each dimension, then the noise.
        self._expected = np.log([LENGTH * dimensions**0.5] * dimensions + [NOISE])
        self._settings = self._expected
        self._fitted = False

    def fit(self, points: Floats, values: Floats) -> None:
        """Takes in all known values (at least one) at points of shape [values, dimensions].

        What is far from all of them is expected to be as bad as the worst, not as the mean: after a portfolio only good
        ones are known, and a model that expected the like everywhere would wander.
        """
        self._points, self._centre = points, float(values.max())
        self._scale = float(np.sqrt(((values - self._centre) ** 2).mean())) or 1.0
        standard = (values - self._centre) / self._scale
        gaps = (points[:, None, :] - points[None, :, :]) ** 2
        likelihood = self._likelihood(gaps, standard, self._settings)
        for _ in range(1 if self._fitted else FIRST_SWEEPS):
            for which in range(len(self._settings)):
                for tried in [self._stepped(which, step) for step in STEPS]:
                    if (found := self._likelihood(gaps, standard, tried)) > likelihood:
                        likelihood, self._settings = found, tried
        self._fitted = True
        self._standard, self._gaps = standard, gaps
        self._likely = [self._settings, *self._sampled(likelihood)]

    def at(self, points: Floats) -> list["Posterior"]:
        """What the fit says about other points, once for each of the likely settings."""
        return [self._posterior(settings, points) for settings in self._likely]

    def _sampled(self, likelihood: float) -> list[Floats]:
        """Settings drawn by their likelihood: a Metropolis walk that starts from the likeliest."""
        drawn, settings = [], self._settings
        for step in range(SAMPLES * WALK):
            tried = settings + STRIDE * self._random.standard_normal(len(settings))
            found = self._likelihood(self._gaps, self._standard, tried)
            if math.log(1 - self._random.random()) < found - likelihood:
                settings, likelihood = tried, found
            if step % WALK == WALK - 1:
                drawn.append(settings)
        return drawn

    def _posterior(self, settings: Floats, points: Floats) -> "Posterior":
        factor = np.linalg.cholesky(self._covariance(self._gaps, settings))
        scale = np.exp(-settings[:-1])
        known, wanted = self._points * scale, points * scale
        solved = np.linalg.solve(factor, _matern(_squares(known, wanted)))
        mean = self._centre + self._scale * (np.linalg.solve(factor, self._standard) @ solved)
        return Posterior(wanted, mean, self._scale, solved, float(np.exp(settings[-1])))

    def _stepped(self, which: int, step: float) -> Floats:
        settings = self._settings.copy()
        settings[which] += step
        return settings

    def _covariance(self, gaps: Floats, settings: Floats) -> Floats:
        covariance = _matern(gaps @ np.exp(-2 * settings[:-1]))
        covariance[np.diag_indices_from(covariance)] += np.exp(settings[-1]) + LEAST
        return covariance

    def _likelihood(self, gaps: Floats, standard: Floats, settings: Floats) -> float:
        """The logarithm of likelihood times prior, up to a constant."""
        factor = np.linalg.cholesky(self._covariance(gaps, settings))
        whitened = np.linalg.solve(factor, standard)
        prior = (((settings - self._expected) / SPREAD) ** 2).sum()
        return -0.5 * float(whitened @ whitened + prior) - float(np.log(np.diag(factor)).sum())


class Posterior:
    """Expected values at points, and how far they may be off."""

    def __init__(self, points: Floats, mean: Floats, scale: float, solved: Floats, noise: float) -> None:
        self.mean = mean
        self._points, self._scale, self._solved, self._noise = points, scale, solved, noise
        self._variance = 1 - (solved**2).sum(axis=0)

    @property
    def deviation(self) -> Floats:
        """Standard deviations of the values."""
        deviation: Floats = self._scale * np.sqrt(np.maximum(self._variance, LEAST))
        return deviation

    def believe(self, index: int) -> None:
        """Takes a point for known, with the value that is expected: means stay, and what is near becomes surer."""
        covariance = _matern(_squares(self._points[index : index + 1], self._points)[0])
        covariance -= self._solved[:, index] @ self._solved
        step = covariance / np.sqrt(max(float(self._variance[index]), LEAST) + self._noise)
        self._solved = np.vstack([self._solved, step])
        self._variance = self._variance - step**2


def _squares(ones: Floats, others: Floats) -> Floats:
    """Squared distances of all pairs."""
    squares: Floats = (ones**2).sum(1)[:, None] + (others**2).sum(1)[None, :] - 2 * ones @ others.T
    return squares
