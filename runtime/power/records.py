"""Define what an instance can ask of a device: voltage corners of its bus and core, and how deep it may sleep."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from enum import IntEnum, StrEnum


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


PLACES = {"bus": 0, "core": 3, "dcvs": 6, "sleep_latency_us": 9, "power_mode": 8, "high_performance": 7}
"""Where the fields of a vote begin in gputune_vote of gputune.h."""
ANY_LATENCY = (1 << 31) - 1
"""The place of a latency in gputune_vote, without a wish."""


@dataclass(frozen=True)
class Vote:
    """What one instance asks of a device at a time. dcvs: whether a governor may scale the clocks between the corners;
    False holds them at the target. sleep_latency_us: how long waking up may take at most, None without a wish."""

    bus: Corners = Corners()
    core: Corners = Corners()
    dcvs: bool = True
    sleep_latency_us: int | None = None
    power_mode: PowerMode = PowerMode.ADJUST_UP_DOWN
    high_performance: bool = False

    @property
    def empty(self) -> bool:
        """Whether it asks for nothing."""
        return self == NOTHING

    @property
    def places(self) -> tuple[int, ...]:
        """Return the numbers that gputune_vote of gputune.h has, in its order."""
        ends = [end for rail in (self.bus, self.core) for end in (rail.least, rail.target, rail.most)]
        latency = ANY_LATENCY if self.sleep_latency_us is None else self.sleep_latency_us
        return (*map(int, ends), int(not self.dcvs), int(self.high_performance), MODES.index(self.power_mode), latency)


NOTHING = Vote()


def ignored_by(vote: Vote, honoured: Container[int]) -> list[str]:
    """Return the fields of a vote that ask for something and at whose places no control makes anything of it."""
    asked = [name for name in PLACES if getattr(vote, name) != getattr(NOTHING, name)]
    only_dsp = vote.power_mode is PowerMode.DUTY_CYCLE
    return [name for name in asked if PLACES[name] not in honoured or (name == "power_mode" and only_dsp)]


MODES = (
    PowerMode.POWER_SAVER_AGGRESSIVE,
    PowerMode.POWER_SAVER,
    PowerMode.DUTY_CYCLE,
    PowerMode.ADJUST_UP_DOWN,
    PowerMode.ADJUST_ONLY_UP,
    PowerMode.PERFORMANCE,
)
"""The weakest first."""
