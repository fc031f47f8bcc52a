"""Try every configuration of the space once: in its own order, or in a random one."""

import random
from collections.abc import Iterable, Sequence
from itertools import islice

from gputune.client.tuning.search.strategies import Evaluation
from gputune.kernels.space import TuningSpace, configuration_key


class InOrder:
    """Propose every configuration of the space: with a seed in a random order, which the seed decides."""

    def __init__(self, space: TuningSpace, seed: int | None = None) -> None:
        self._told: set[str] = set()
        self._remaining = (c for c in _ordered(space, seed) if configuration_key(c) not in self._told)

    def ask(self, count: int) -> list[dict[str, int]]:
        return list(islice(self._remaining, count))

    def tell(self, evaluations: Sequence[Evaluation]) -> None:
        self._told.update(configuration_key(evaluation.configuration) for evaluation in evaluations)


def _ordered(space: TuningSpace, seed: int | None) -> Iterable[dict[str, int]]:
    if seed is None:
        return space.configurations()
    order = list(space.configurations())
    random.Random(seed).shuffle(order)
    return order
