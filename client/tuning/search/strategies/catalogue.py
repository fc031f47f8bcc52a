"""List the strategies by name, and make them."""

from collections.abc import Sequence
from typing import Protocol

from gputune.client.options.tuning import STRATEGY_NAMES
from gputune.client.tuning.search.strategies import Strategy
from gputune.client.tuning.search.strategies.auto import Auto
from gputune.client.tuning.search.strategies.descent import CoordinateDescent
from gputune.client.tuning.search.strategies.evolution import Evolution
from gputune.client.tuning.search.strategies.in_order import InOrder
from gputune.client.tuning.search.strategies.model_based import ModelBased
from gputune.kernels.family import Estimate
from gputune.kernels.space import Configuration, TuningSpace


class Maker(Protocol):
    """Makes a fresh strategy for a space from a seed. What is known before anything is measured, as of `Auto`, only
    `auto` uses, and `group` also `model_based`."""

    def __call__(
        self,
        space: TuningSpace,
        seed: int,
        portfolio: Sequence[Configuration] = (),
        strangers: Sequence[Configuration] = (),
        estimate: Estimate | None = None,
        group: Sequence[str] = (),
        /,
    ) -> Strategy: ...


_MAKERS: Sequence[Maker] = (
    Auto,
    lambda space, seed, *known: ModelBased(space, seed, *known[3:]),
    lambda space, seed, *_: Evolution(space, seed),
    lambda space, seed, *_: CoordinateDescent(space, seed),
    lambda space, seed, *_: InOrder(space, seed),
    lambda space, seed, *_: InOrder(space),
)
STRATEGIES: dict[str, Maker] = dict(zip(STRATEGY_NAMES, _MAKERS, strict=True))
