"""Try every configuration of the space, in its own order."""

from collections.abc import Sequence
from itertools import islice

from gputune.client.tuning.search.strategies import Evaluation
from gputune.kernels.space import TuningSpace, configuration_key


class Exhaustive:
    """Proposes every configuration of the space once."""

    def __init__(self, space: TuningSpace) -> None:
        self._told: set[str] = set()
        self._remaining = (c for c in space.configurations() if configuration_key(c) not in self._told)

    def ask(self, count: int) -> list[dict[str, int]]:
        return list(islice(self._remaining, count))

    def tell(self, evaluations: Sequence[Evaluation]) -> None:
        self._told.update(configuration_key(evaluation.configuration) for evaluation in evaluations)
