"""Choose among several ways to compute a problem: the parameter ALG of one tuning space.

Each way has a space of its own. Parameters that mean the same have the same name in all of them, so that what a search
learns of one way says something about the others. The estimate compares all configurations, whatever their way.
"""

import contextlib
import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from gputune.kernels.family import DeviceLimits, Estimate, HasSpace
from gputune.kernels.space import ChoiceSpace, Configuration, TuningSpace, choice

ALG = "ALG"


class Way(HasSpace, Protocol):
    """Compute a problem in one way."""

    def estimate(self, limits: DeviceLimits) -> Estimate:
        """As of a family, of its own configurations."""


@dataclass(frozen=True)
class Algorithms:
    """The ways to compute a problem by their numbers; `meaning` says which is which. Ways in `beyond_cpus` are not for
    CPUs. A single way is its own space, without a parameter that chooses."""

    ways: Mapping[int, Way]
    meaning: str
    beyond_cpus: frozenset[int] = frozenset()

    def space(self, limits: DeviceLimits) -> TuningSpace:
        """All configurations of all ways."""
        spaces = {number: way.space(limits) for number, way in self._of(limits).items()}
        return choice(ALG, self.meaning, spaces) if len(spaces) > 1 else next(iter(spaces.values()))

    def default(self, limits: DeviceLimits) -> dict[str, int]:
        """Return the fastest default of the ways by the estimate. ValueError if no way is possible."""
        defaults, fill = [], self.fill(limits)
        for number, way in self._of(limits).items():
            with contextlib.suppress(ValueError):
                defaults.append(fill(number, way.default(limits)))
        return min(defaults, key=self.estimate(limits), default=None) or self.space(limits).first()

    def guesses(self, limits: DeviceLimits) -> list[dict[str, int]]:
        """The ways' guesses in turns, and beyond CPUs their defaults in front. The last way is first, as it is the
        most special."""
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
        if len(each) == 1:
            return next(iter(each.values()))
        return lambda configuration: each[configuration[ALG]](configuration)

    def fill(self, limits: DeviceLimits) -> Callable[[int, Configuration], dict[str, int]]:
        """Return what makes a configuration of the whole space of a way's number and configuration."""
        if len(self._of(limits)) == 1:
            return lambda number, configuration: dict(configuration)
        space = self.space(limits)
        assert isinstance(space, ChoiceSpace), "several ways are a choice"
        return space.filled

    def _of(self, limits: DeviceLimits) -> dict[int, Way]:
        cpu = limits.device_type == "cpu"
        return {number: way for number, way in self.ways.items() if not (cpu and number in self.beyond_cpus)}


def unknown(configuration: Configuration) -> float:
    """Estimate nothing: the clocks of a way of which nothing is known."""
    return math.inf
