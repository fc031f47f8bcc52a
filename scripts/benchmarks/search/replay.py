"""Replay a strategy on a recorded space: which share of the optimum its best has reached after each evaluation."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from benchmarks.search.spaces import Recording
from gputune.client.tuning.search.seeding import FROM_ELSEWHERE
from gputune.client.tuning.search.strategies import Evaluation, Strategy
from gputune.client.tuning.search.strategies.catalogue import STRATEGIES
from gputune.client.tuning.search.strategies.portfolio import greedy_portfolio
from gputune.kernels.family import Estimate
from gputune.kernels.space import Configuration

Curves = npt.NDArray[np.float64]
"""[seeds, evaluations]: percent of the optimum, 100 x best / found; 0 as long as nothing worked."""

Floats = npt.NDArray[np.float64]


def curve(best_ns: float, costs_ns: Sequence[float | None], evaluations: int) -> list[float]:
    """Percent of the optimum after each of so many evaluations; a search that ended early keeps its last."""
    reached, found = [], 0.0
    for cost in costs_ns[:evaluations]:
        found = found if cost is None else max(found, 100 * best_ns / cost)
        reached.append(found)
    return reached + [found] * (evaluations - len(reached))


def search(
    recording: Recording, strategy: Strategy, evaluations: int, batch: int, noise: float = 0, seed: int = 0
) -> list[float | None]:
    """The costs of what a strategy asked for, in order. noise: the deviation of the logarithms of what it is told."""
    costs: list[float | None] = []
    chance = np.random.default_rng(seed)
    while len(costs) < evaluations and (asked := strategy.ask(min(batch, evaluations - len(costs)))):
        told = [recording.evaluate(configuration) for configuration in asked]
        costs += [evaluation.cost_ns for evaluation in told]
        strategy.tell([_heard(evaluation, noise * chance.standard_normal()) for evaluation in told])
    return costs


def _heard(evaluation: Evaluation, error: float) -> Evaluation:
    """A result as a strategy hears of it."""
    cost = evaluation.cost_ns
    return replace(evaluation, cost_ns=None if cost is None else cost * math.exp(error))


def replay(
    recording: Recording,
    name: str,
    seeds: int,
    evaluations: int,
    batch: int,
    portfolio: Sequence[Configuration] = (),
    strangers: Sequence[Configuration] = (),
    estimate: Estimate | None = None,
    noise: float = 0,
) -> Curves:
    """The curves of one of our strategies, one per seed."""
    make, space = STRATEGIES[name], recording.space
    searches = (
        search(
            recording, make(space, seed, portfolio, strangers, estimate, space.group), evaluations, batch, noise, seed
        )
        for seed in range(1, seeds + 1)
    )
    return np.array([curve(recording.best_ns, costs, evaluations) for costs in searches])


def winners_of(others: Sequence[Recording], recording: Recording) -> tuple[list[dict[str, int]], list[dict[str, int]]]:
    """The portfolio from other devices' recordings, and the strangers, from those of other vendors' devices."""
    akin = [one.records() for one in others if one.vendor == recording.vendor]
    strange = [one.records() for one in others if one.vendor != recording.vendor]
    return greedy_portfolio(akin, FROM_ELSEWHERE), greedy_portfolio(strange, FROM_ELSEWHERE)


def mean_over_seeds(devices: Sequence[Curves]) -> tuple[Floats, Floats]:
    """The mean over seeds and devices after each evaluation, and its standard error: how far chance, which the seeds
    stand for, may have moved it; 0 for a single seed."""
    mean = np.mean([curves.mean(axis=0) for curves in devices], axis=0)
    variances = [curves.var(axis=0, ddof=min(1, len(curves) - 1)) / len(curves) for curves in devices]
    error: Floats = np.sqrt(np.sum(variances, axis=0)) / len(devices)
    return mean, error
