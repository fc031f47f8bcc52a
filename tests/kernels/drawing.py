"""Draw configurations of a problem, the same ones each time, and share configurations out among problems."""

import itertools
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gputune.kernels.algorithms import way_of
from gputune.kernels.family import DeviceLimits, KernelFamily
from gputune.kernels.space import ChoiceSpace, TuningSpace

LEGAL = 30
"""Of about so many configurations of a tuning space one is legal."""
POOL = 40
"""From so many configurations few are chosen, beside one with each value that they lack."""

Pool = tuple[str, str, tuple[int | None, int | None]]
"""A problem, a kind of devices and a way to compute."""


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


def shared_out(
    family: KernelFamily, problems: Mapping[str, Any], kinds: Mapping[str, Sequence[DeviceLimits]]
) -> dict[str, list[tuple[str, dict[str, int]]]]:
    """Return configurations of each problem with their kinds of devices, few in all.

    Each problem has one of every way to compute for one kind, the next problem for the next kind. Each value of each
    parameter occurs, for each kind and each way, in one of the problems.
    """
    pools: dict[Pool, list[dict[str, int]]] = {}
    for name, problem in problems.items():
        for kind, devices in kinds.items():
            for limits in devices:
                space = family.space(problem, limits)
                choice = space if isinstance(space, ChoiceSpace) else None
                for number, own in (choice.spaces if choice else {0: space}).items():
                    for each in _few(own, f"{name} {kind} {number if choice else None}"):
                        one = choice.filled(number, each) if choice else each
                        pools.setdefault((name, kind, way_of(one)), []).append(one)
    chosen: dict[str, list[tuple[str, dict[str, int]]]] = {name: [] for name in problems}
    missing = {value for pool, every in pools.items() for one in every for value in _values(pool, one)}

    def take(among: Iterable[Pool]) -> None:
        candidates = ((pool, one) for pool in among for one in pools[pool])
        pool, one = max(candidates, key=lambda each: len(_values(*each) & missing))
        missing.difference_update(_values(pool, one))
        chosen[pool[0]].append((pool[1], one))

    turns = dict(zip(problems, itertools.cycle(kinds)))
    for pool in pools:
        if turns[pool[0]] == pool[1]:
            take([pool])
    while missing:
        wanted = {value[:2] for value in missing}
        take(pool for pool in pools if pool[1:] in wanted)
    return chosen


def _values(pool: Pool, configuration: Mapping[str, int]) -> set[tuple[Any, ...]]:
    """The values of parameters, of a kind of devices and a way."""
    return {(*pool[1:], *value) for value in configuration.items()}


def _few(space: TuningSpace, name: str) -> list[dict[str, int]]:
    """Some of the legal configurations, in which all values of all occur."""
    legal = list(space.configurations())
    few = random.Random(name).sample(legal, min(POOL, len(legal)))
    for each in (parameter.name for parameter in space.parameters):
        lacking = {one[each] for one in legal} - {one[each] for one in few}
        few += [next(one for one in legal if one[each] == value) for value in sorted(lacking)]
    return few
