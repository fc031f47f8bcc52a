"""Draw configurations of a problem, the same ones each time."""

import random
from typing import Any

from gputune.kernels.family import DeviceLimits, KernelFamily


def drawn(family: KernelFamily, problem: Any, limits: DeviceLimits, count: int) -> list[dict[str, int]]:
    """Return the legal ones of so many configurations that are drawn."""
    space, numbers = family.space(problem, limits), random.Random(repr(problem))
    tried = ({each.name: numbers.choice(each.values) for each in space.parameters} for _ in range(count))
    return [each for each in tried if not space.violations(each)]
