"""List the phases of the day, in order, and how long each may take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Phase:
    """A part of the day. seconds: its box; elastic: it also takes a share of what earlier phases left; module: what
    runs, by default the one of gpu.phases with its name."""

    name: str
    seconds: float
    elastic: bool = False
    module: str = ""

    @property
    def command(self) -> str:
        """Name the module that runs."""
        return self.module or f"gpu.phases.{self.name}"


PHASES = (
    Phase("facts", 10),
    Phase("baselines", 50),
    Phase("clblast", 25),
    Phase("kernel_tests", 65),
    Phase("recordings", 110, elastic=True),
    Phase("models", 100, elastic=True),
    Phase("chains", 50),
)


def box(phases: Sequence[Phase], place: int, left: float) -> float:
    """Return the seconds that the phase at `place` may take when so many are left: its own, cut to what is left, and
    for an elastic phase its share of what no later phase needs."""
    phase, later = phases[place], phases[place + 1 :]
    own = min(phase.seconds, left)
    if not phase.elastic:
        return max(own, 0.0)
    spare = left - own - sum(one.seconds for one in later)
    sharing = 1 + sum(one.elastic for one in later)
    return max(own + max(spare, 0.0) / sharing, 0.0)


REHEARSED_TIMES = 3
"""A rehearsal's boxes are so much larger, since its machine may be busy with other work."""


def rehearsed(phases: Sequence[Phase]) -> tuple[Phase, ...]:
    """Return the phases with the boxes of a rehearsal."""
    return tuple(replace(phase, seconds=REHEARSED_TIMES * phase.seconds, elastic=False) for phase in phases)


def chosen(wanted: str | None) -> tuple[Phase, ...]:
    """Return the phases that are asked for by name, all without names. Raises ValueError for a name that is none."""
    if not wanted:
        return PHASES
    names = wanted.split(",")
    if unknown := set(names) - {phase.name for phase in PHASES}:
        known = ", ".join(phase.name for phase in PHASES)
        raise ValueError(f"there is no phase {', '.join(sorted(unknown))}; there are {known}")
    return tuple(phase for phase in PHASES if phase.name in names)
