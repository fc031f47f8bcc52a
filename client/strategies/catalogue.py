"""The strategies by name, and how each is made."""

from collections.abc import Callable, Sequence

from gputune.client.strategies import Strategy
from gputune.client.strategies.auto import Auto
from gputune.client.strategies.descent import CoordinateDescent
from gputune.client.strategies.evolution import Evolution
from gputune.client.strategies.exhaustive import Exhaustive
from gputune.client.strategies.model_based import ModelBased
from gputune.client.strategies.random import RandomSearch
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
