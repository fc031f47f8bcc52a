"""List the strategies by name, and make them."""

from collections.abc import Callable, Sequence

from gputune.client.tuning.search.strategies import Strategy
from gputune.client.tuning.search.strategies.auto import Auto
from gputune.client.tuning.search.strategies.descent import CoordinateDescent
from gputune.client.tuning.search.strategies.evolution import Evolution
from gputune.client.tuning.search.strategies.exhaustive import Exhaustive
from gputune.client.tuning.search.strategies.model_based import ModelBased
from gputune.client.tuning.search.strategies.random import RandomSearch
from gputune.kernels.space import Configuration, TuningSpace

Portfolio = Sequence[Configuration]

STRATEGIES: dict[str, Callable[[TuningSpace, int, Portfolio], Strategy]] = {
    "auto": Auto,
    "model_based": lambda space, seed, _: ModelBased(space, seed),
    "evolution": lambda space, seed, _: Evolution(space, seed),
    "descent": lambda space, seed, _: CoordinateDescent(space, seed),
    "random": lambda space, seed, _: RandomSearch(space, seed),
    "exhaustive": lambda space, seed, _: Exhaustive(space),
}
"""From a space, a seed and a portfolio (which only `auto` uses) to a fresh strategy."""
