"""Try uniformly random configurations, without repetition."""

import random
from collections.abc import Sequence
from itertools import islice

from gputune.client.tuning.search.strategies import Evaluation
from gputune.kernels.space import TuningSpace, configuration_key


class RandomSearch:
    """The valid configurations in a random order that the seed decides."""

    def __init__(self, space: TuningSpace, seed: int) -> None:
        self._told: set[str] = set()
        order = list(space.configurations())
        random.Random(seed).shuffle(order)
        self._remaining = (c for c in order if configuration_key(c) not in self._told)

    def ask(self, count: int) -> list[dict[str, int]]:
        return list(islice(self._remaining, count))

    def tell(self, evaluations: Sequence[Evaluation]) -> None:
        self._told.update(configuration_key(evaluation.configuration) for evaluation in evaluations)
