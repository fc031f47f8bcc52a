"""The actuator of a device that nothing steers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from gputune.runtime.power.actuators.base import Problem, Write
from gputune.runtime.power.records import Vote


class NoActuator:
    """Steers nothing, and honours no field of a vote."""

    name = "none"
    paths: tuple[Path, ...] = ()
    honours: frozenset[str] = frozenset()
    of_this_process = True
    at: Path | None = None

    def read(self) -> dict[str, str]:
        return {}

    def adopt(self, originals: Mapping[str, str]) -> None:
        """Nothing to keep."""

    def plan(self, vote: Vote) -> list[Write]:
        return []

    def plan_back(self, originals: Mapping[str, str]) -> list[Write]:
        return []

    def write(self, writes: Sequence[Write]) -> list[Problem]:
        return []

    def requested(self, vote: Vote) -> dict[str, float]:
        return {}

    def effective(self) -> dict[str, float]:
        return {}

    def close(self) -> None:
        """Nothing is held."""
