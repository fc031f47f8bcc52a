"""List how a trial may end, for caches, recordings, protocol and backends, and how a context may fit a device."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal, TypeAlias, get_args

TrialStatus: TypeAlias = Literal[
    "ok", "constraints", "compile", "device_limits", "runtime", "correctness", "timeout", "crash"
]
STATUSES: tuple[TrialStatus, ...] = get_args(TrialStatus)
"""Everything but "ok" is a failure that keeps its name."""

OK: Final = "ok"
CORRECTNESS: Final = "correctness"


class ContextVerdict(StrEnum):
    """Say how a context binary fits a device.

    OPTIMAL: the device and the driver that it was made for; its programs load. PREFER_RECOMPILATION: it runs, its
    programs built from source and tuned for something else; made again it may run faster. UNSUPPORTED: it cannot run.
    """

    OPTIMAL = "optimal"
    PREFER_RECOMPILATION = "prefer_recompilation"
    UNSUPPORTED = "unsupported"


FARTHEST = 6
"""The distance of devices that have nothing in common, see ContextChoice."""
NEAR = 3
"""The distance of devices of one family."""


@dataclass(frozen=True)
class ContextChoice:
    """Name a context of a package, and how it fits a device.

    name, place: of the context in its package, which has `count` of them. distance: 0 for the very device and driver, 1
    for another driver, 2 for another number of compute units, 3 for another model of the family, 4 of the vendor, 5 for
    another device of the type, FARTHEST for any other. reason: why it is not optimal, else empty.
    """

    name: str
    place: int
    count: int
    verdict: ContextVerdict
    distance: int
    reason: str

    @property
    def fit(self) -> str:
        """Return how it fits: optimal; near, of the device's family; rebuilt, from source for a device that it was not
        tuned for; or unsupported."""
        if self.verdict is not ContextVerdict.PREFER_RECOMPILATION:
            return self.verdict.value
        return "near" if self.distance <= NEAR else "rebuilt"

    def __str__(self) -> str:
        """Return one phrase for people."""
        why = f", distance {self.distance} of {FARTHEST}: {self.reason}" if self.reason else ""
        return f"context {self.name!r}, of {self.count} in the package: {self.fit}{why}"
