"""Propose configurations and learn their costs: the search strategies. They use no clock, socket or cache."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from gputune.kernels.space import Configuration


@dataclass(frozen=True)
class Evaluation:
    """What a configuration turned out to cost; None when it failed."""

    configuration: Configuration
    cost_ns: float | None


class Strategy(Protocol):
    """Proposes configurations of one tuning space; the same seed and answers give the same proposals."""

    def ask(self, count: int) -> list[dict[str, int]]:
        """Up to `count` configurations not asked for and not told before; an empty list ends the search."""

    def tell(self, evaluations: Sequence[Evaluation]) -> None:
        """Results, also of configurations that were never asked for (a resumed search, a portfolio)."""
