"""Draw configurations of a problem, the same ones each time."""

import random
from typing import Any

from gputune.kernels.family import DeviceLimits, KernelFamily
from gputune.kernels.space import ChoiceSpace

LEGAL = 30
"""Of about so many configurations of a tuning space one is legal."""


def drawn(family: KernelFamily, problem: Any, limits: DeviceLimits, count: int) -> list[dict[str, int]]:
    """Return the legal ones of so many configurations that are drawn; of each algorithm, if there are several."""
    space, numbers = family.space(problem, limits), random.Random(repr(problem))
    if isinstance(space, ChoiceSpace):  # hardly any that is drawn would be legal
        every = {number: list(own.configurations()) for number, own in space.spaces.items()}
        some = max(1, count // LEGAL)
        return [
            space.filled(number, one)
            for number, legal in every.items()
            for one in numbers.sample(legal, min(some, len(legal)))
        ]
    tried = ({each.name: numbers.choice(each.values) for each in space.parameters} for _ in range(count))
    return [each for each in tried if not space.violations(each)]
