"""Define what an instance can ask of a device: voltage corners of its bus and core, and how deep it may sleep."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Annotated

from gputune.core.bounds import Stored, Within, in_files


class Corner(IntEnum):
    """A voltage corner, the slowest first; DISABLE is no vote at all."""

    DISABLE = 0
    MIN = 1
    SVS2 = 2
    SVS = 3
    SVS_PLUS = 4
    NOM = 5
    NOM_PLUS = 6
    TURBO = 7
    TURBO_PLUS = 8
    MAX = 9

    @property
    def share(self) -> float:
        """Where it lies between a device's lowest frequency (0) and its highest (1)."""
        return _SHARES[self]


_SHARES = {
    Corner.DISABLE: 0.0,
    Corner.MIN: 0.0,
    Corner.SVS2: 0.15,
    Corner.SVS: 0.3,
    Corner.SVS_PLUS: 0.4,
    Corner.NOM: 0.55,
    Corner.NOM_PLUS: 0.65,
    Corner.TURBO: 0.85,
    Corner.TURBO_PLUS: 0.95,
    Corner.MAX: 1.0,
}


class PowerMode(StrEnum):
    """In which direction a governor may move the clocks while a vote is in force."""

    ADJUST_UP_DOWN = "ADJUST_UP_DOWN"
    ADJUST_ONLY_UP = "ADJUST_ONLY_UP"
    POWER_SAVER = "POWER_SAVER_MODE"
    POWER_SAVER_AGGRESSIVE = "POWER_SAVER_AGGRESSIVE_MODE"
    PERFORMANCE = "PERFORMANCE_MODE"
    DUTY_CYCLE = "DUTY_CYCLE_MODE"


@dataclass(frozen=True)
class Corners:
    """From which corner to which a clock may go, and where it shall be; DISABLE leaves that end alone."""

    least: Corner = Corner.DISABLE
    target: Corner = Corner.DISABLE
    most: Corner = Corner.DISABLE


def _corners(values: Iterable[int]) -> Corners:
    return Corners(*map(Corner, values))


InFile = Annotated[Corners, Stored(tuple[int, int, int], _corners)]
Latency = Annotated[int, Within(0, (1 << 31) - 1)]


@in_files(closed=True)
@dataclass(frozen=True)
class Vote:
    """What one instance asks of a device at a time. dcvs: whether a governor may scale the clocks between the corners;
    False holds them at the target. sleep_latency_us: how long waking up may take at most, None without a wish."""

    bus: InFile = Corners()
    core: InFile = Corners()
    dcvs: bool = True
    sleep_latency_us: Latency | None = None
    power_mode: Annotated[PowerMode, Stored(str, PowerMode)] = PowerMode.ADJUST_UP_DOWN
    high_performance: bool = False

    @property
    def empty(self) -> bool:
        """Whether it asks for nothing."""
        return self == NOTHING


NOTHING = Vote()


def strongest(votes: Iterable[Vote]) -> Vote:
    """Return what is in force while these votes are: for each field the strongest; of sleep latencies the smallest. A
    governor is held as soon as one vote holds it."""
    live = [vote for vote in votes if not vote.empty]
    latencies = [vote.sleep_latency_us for vote in live if vote.sleep_latency_us is not None]
    return Vote(
        bus=_strongest(vote.bus for vote in live),
        core=_strongest(vote.core for vote in live),
        dcvs=all(vote.dcvs for vote in live),
        sleep_latency_us=min(latencies, default=None),
        power_mode=max((vote.power_mode for vote in live), key=_MODES.index, default=PowerMode.ADJUST_UP_DOWN),
        high_performance=any(vote.high_performance for vote in live),
    )


_MODES = (
    PowerMode.POWER_SAVER_AGGRESSIVE,
    PowerMode.POWER_SAVER,
    PowerMode.DUTY_CYCLE,
    PowerMode.ADJUST_UP_DOWN,
    PowerMode.ADJUST_ONLY_UP,
    PowerMode.PERFORMANCE,
)
"""The weakest first."""


def _strongest(corners: Iterable[Corners]) -> Corners:
    rows = [(each.least, each.target, each.most) for each in corners]
    return Corners(*(max(column) for column in zip(*rows, strict=True))) if rows else Corners()
