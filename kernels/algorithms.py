"""Choose among several ways to compute a problem: a parameter of one tuning space, such as ALG.

Each way has a space of its own. Parameters that mean the same have the same name in all of them, so that what a search
learns of one way says something about the others. The estimate compares all configurations, whatever their way.
"""

import contextlib
import itertools
import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from gputune.core.dtypes import FLOAT, HALF, HALF_EXTENSION
from gputune.core.launches import pragmas_for
from gputune.kernels.family import (
    ALONE,
    DeviceLimits,
    Estimate,
    HasSpace,
    Instance,
    Launch,
    Needs,
    Stage,
    TiledFamily,
)
from gputune.kernels.space import ChoiceSpace, Configuration, TuningSpace, choice
from gputune.kernels.tiling.estimate import Card

ALG = "ALG"
FACTORS = "HALF"
FACTORS_MEANING = "factors of products: 0 float, 1 half; sums of 8 products are half then, too"
IN_HALF = Needs(extensions=(HALF_EXTENSION,))
HALF_COST = 0.5
"""The estimate of what is multiplied in half: devices do that twice as fast, and it takes half the local memory."""


class Way(HasSpace, Protocol):
    """Compute a problem in one way."""

    def estimate(self, limits: DeviceLimits) -> Estimate:
        """As of a family, of its own configurations."""


@dataclass(frozen=True)
class Algorithms:
    """The ways to compute a problem by their numbers; `meaning` says which is which. Ways in `beyond_cpus` are not for
    CPUs, those `in_local_memory` are no default where that does not pay, and those in `needs` are for devices that have
    everything named there. A single way is its own space, without a parameter that chooses. `parameter` is the name of
    that, `cost` a factor of all estimates."""

    ways: Mapping[int, Way]
    meaning: str
    beyond_cpus: frozenset[int] = frozenset()
    in_local_memory: frozenset[int] = frozenset()
    needs: Mapping[int, Needs] = field(default_factory=dict)
    parameter: str = ALG
    cost: float = 1.0

    def space(self, limits: DeviceLimits) -> TuningSpace:
        """Return all configurations of all ways."""
        spaces = {number: way.space(limits) for number, way in self._of(limits).items()}
        return choice(self.parameter, self.meaning, spaces) if len(spaces) > 1 else next(iter(spaces.values()))

    def default(self, limits: DeviceLimits) -> dict[str, int]:
        """Return the fastest default of the ways by the estimate. ValueError if no way is possible."""
        defaults, fill = [], self.fill(limits)
        passed_over = () if Card.of(limits).local_pays else self.in_local_memory
        for number, way in self._of(limits).items():
            if number in passed_over:
                continue
            with contextlib.suppress(ValueError):
                defaults.append(fill(number, way.default(limits)))
        return min(defaults, key=self.estimate(limits), default=None) or self.space(limits).first()

    def guesses(self, limits: DeviceLimits) -> list[dict[str, int]]:
        """Return the ways' guesses in turns, and beyond CPUs their defaults in front. The last way is first, as it is
        the most special."""
        each: list[list[dict[str, int]]] = []
        fill = self.fill(limits)
        for number, way in reversed(self._of(limits).items()):
            own = way.guesses(limits)
            if limits.device_type != "cpu":
                with contextlib.suppress(ValueError):
                    own = [way.default(limits), *own]
            each.append([fill(number, one) for one in own])
        return [one for turn in itertools.zip_longest(*each) for one in turn if one is not None]

    def estimate(self, limits: DeviceLimits) -> Estimate:
        """Return what estimates the clocks of a configuration of any way."""
        each = {number: way.estimate(limits) for number, way in self._of(limits).items()}
        only = next(iter(each.values())) if len(each) == 1 else None
        return lambda one: self.cost * (only or each[one[self.parameter]])(one)

    def fill(self, limits: DeviceLimits) -> Callable[[int, Configuration], dict[str, int]]:
        """Return what makes a configuration of the whole space of a way's number and configuration."""
        if len(self._of(limits)) == 1:
            return lambda number, configuration: dict(configuration)
        space = self.space(limits)
        assert isinstance(space, ChoiceSpace), "several ways are a choice"
        return space.filled

    def _of(self, limits: DeviceLimits) -> dict[int, Way]:
        beyond = self.beyond_cpus if limits.device_type == "cpu" else ()
        possible = (each for each in self.ways if each not in beyond and not limits.lack(self.needs.get(each, ALONE)))
        return {number: self.ways[number] for number in possible}


def way_of(configuration: Configuration) -> tuple[int | None, int | None]:
    """Return what names the way to compute that a configuration chooses: its algorithm, and the type of factors."""
    return configuration.get(ALG), configuration.get(FACTORS)


def unknown(configuration: Configuration) -> float:
    """Estimate nothing: the clocks of a way of which nothing is known."""
    return math.inf


class ProductFamily(TiledFamily):
    """A family of products that can be multiplied in half.

    Its problems have `factors`, the type in which their products may be multiplied. Where that is float16, as `dtype`
    has to be, a parameter chooses between float and half.
    """

    @abstractmethod
    def ways(self, problem: Any, factors: str) -> Algorithms:
        """Return the algorithms that multiply in a type; for float16 there may be none."""

    @abstractmethod
    def multiplied(self, problem: Any, configuration: Configuration, factors: str) -> Instance:
        """As render, with products that are multiplied in a type."""

    def tiling(self, problem: Any) -> Algorithms:
        ways, halves = self.ways(problem, FLOAT), self.ways(problem, problem.factors)
        if problem.factors == FLOAT or not halves.ways:
            return ways
        both = {0: ways, 1: replace(halves, cost=HALF_COST)}
        return Algorithms(both, FACTORS_MEANING, needs={1: IN_HALF}, parameter=FACTORS)

    def default(self, problem: Any, limits: DeviceLimits) -> dict[str, int]:
        """On a CPU in float: there, half is faster on a few of those that offer it."""
        if limits.device_type != "cpu" or problem.factors == FLOAT:
            return super().default(problem, limits)
        default = self.default(replace(problem, factors=FLOAT), limits)
        return self.tiling(problem).fill(limits)(0, default)

    def estimate(self, problem: Any, limits: DeviceLimits) -> Estimate | None:
        return None if limits.device_type == "cpu" else self.tiling(problem).estimate(limits)

    def computing(self, problem: Any, dtype: str) -> Any:
        return replace(problem, factors=dtype)

    def render(self, problem: Any, configuration: Configuration) -> Instance:
        if not configuration.get(FACTORS):
            return self.multiplied(problem, configuration, FLOAT)
        instance = self.multiplied(problem, configuration, HALF)
        return replace(instance, main=_in_half(instance.main))


def check_factors(op: str, dtype: str, factors: str) -> None:
    """Raise a ValueError for a problem whose products cannot be multiplied in a type."""
    if factors not in (FLOAT, dtype):
        raise ValueError(f"{op} on {dtype} is multiplied in {FLOAT}, not in {factors}")


def _in_half(launch: Launch) -> Launch:
    """Return a launch whose kernels compute in half, and whose text enables that."""

    def needs(kernel: Stage | Launch) -> Needs:
        return replace(kernel.needs or ALONE, extensions=IN_HALF.extensions)

    source = pragmas_for(IN_HALF.extensions) + launch.source
    stages = tuple(replace(stage, needs=needs(stage)) for stage in launch.stages)
    return replace(launch, source=source, source_sha256="", needs=needs(launch), stages=stages)
