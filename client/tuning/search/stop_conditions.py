"""Decide when a search is over. Conditions look at the costs so far, combine with & and |, and report how close they
are.
"""

from collections.abc import Sequence
from typing import Protocol

Costs = Sequence[float | None]
"""Cost of each trial in order of arrival, in nanoseconds; None is a failed trial."""


class StopCondition(Protocol):
    """Decides from the costs so far whether to stop."""

    def progress(self, costs: Costs) -> float:
        """Return how close the end is, 0 to 1; at 1 the search stops."""


class _Composable:
    def __and__(self, other: StopCondition) -> "StopCondition":
        return All(self, other)  # type: ignore[arg-type]

    def __or__(self, other: StopCondition) -> "StopCondition":
        return Any(self, other)  # type: ignore[arg-type]


class Trials(_Composable):
    """Stops after so many trials, failed ones included."""

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def progress(self, costs: Costs) -> float:
        return 1.0 if self.limit <= 0 else min(1.0, len(costs) / self.limit)


class NoImprovement(_Composable):
    """Stops when the last `patience` trials did not beat the best before them by more than `fraction`."""

    def __init__(self, patience: int, fraction: float = 0.01) -> None:
        self.patience = patience
        self.fraction = fraction

    def progress(self, costs: Costs) -> float:
        best: float | None = None
        last_gain = -1
        for index, cost in enumerate(costs):
            if cost is not None and (best is None or cost < best * (1 - self.fraction)):
                best, last_gain = cost, index
        if best is None:
            return 0.0
        return min(1.0, (len(costs) - 1 - last_gain) / self.patience)


class Any(_Composable):
    """Stops when one of the conditions does."""

    def __init__(self, *conditions: StopCondition) -> None:
        self.conditions = conditions

    def progress(self, costs: Costs) -> float:
        return max(condition.progress(costs) for condition in self.conditions)


class All(_Composable):
    """Stops when all of the conditions do."""

    def __init__(self, *conditions: StopCondition) -> None:
        self.conditions = conditions

    def progress(self, costs: Costs) -> float:
        return min(condition.progress(costs) for condition in self.conditions)
