"""Draw configurations of a problem, the same ones each time."""

import random
from typing import Any

from gputune.kernels.family import DeviceLimits, KernelFamily
from gputune.kernels.space import ChoiceSpace, TuningSpace

LEGAL = 30
"""Of about so many configurations of a tuning space one is legal."""


def drawn(family: KernelFamily, problem: Any, limits: DeviceLimits, count: int) -> list[dict[str, int]]:
    """Return the legal ones of so many configurations that are drawn; of each algorithm, if there are several."""
    return _drawn(family.space(problem, limits), count, random.Random(repr(problem)))


def sampled(space: TuningSpace, count: int, numbers: random.Random) -> list[dict[str, int]]:
    """Return at most so many legal configurations of a space; of each algorithm, if there are several."""
    if isinstance(space, ChoiceSpace):
        of_each = {number: sampled(own, count, numbers) for number, own in space.spaces.items()}
        return [space.filled(number, one) for number, own in of_each.items() for one in own]
    legal = list(space.configurations())
    return numbers.sample(legal, min(count, len(legal)))


def _drawn(space: TuningSpace, count: int, numbers: random.Random) -> list[dict[str, int]]:
    if isinstance(space, ChoiceSpace):  # hardly any that is drawn would be legal
        return sampled(space, max(1, count // LEGAL), numbers)
    tried = ({each.name: numbers.choice(each.values) for each in space.parameters} for _ in range(count))
    return [each for each in tried if not space.violations(each)]
