"""Define the settings of a perf profile, as in the original's YAML files: sections, keys and legal values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from gputune.runtime.power.profiles.corner_names import (
    corner_name,
    corner_of,
    nearest,
    power_mode_name,
    power_mode_of,
    shown,
)
from gputune.runtime.power.records import Corner, PowerMode

Phase: TypeAlias = Literal["init", "execute", "deinit"]
Moment: TypeAlias = Literal["start", "done"]
Value: TypeAlias = bool | int | Corner | PowerMode
Plain: TypeAlias = bool | int | str

PHASES: tuple[Phase, ...] = get_args(Phase)
MOMENTS: tuple[Moment, ...] = get_args(Moment)
GENERAL = "general"
SECTIONS = (GENERAL, *PHASES)

MAX_HYSTERESIS_US = 60_000_000
"""A vote that is held for longer than a minute is no vote for the next inference."""
MAX_SLEEP_DISABLE_MS = 60_000


@dataclass(frozen=True)
class Flag:
    """Whether or not."""

    default: bool = False

    def accept(self, value: object) -> bool:
        """Return the value. Raises ValueError unless it is a bool."""
        if not isinstance(value, bool):
            raise ValueError(f"is true or false, not {shown(value)}")
        return value


@dataclass(frozen=True)
class Count:
    """A whole number of a unit. Without a default the setting may be left open."""

    least: int
    most: int
    unit: str
    default: int | None = None

    def accept(self, value: object) -> int:
        """Return the value. Raises ValueError unless it is a whole number in the range."""
        if type(value) is not int:
            raise ValueError(f"is a whole number of {self.unit}, not {shown(value)}")
        if not self.least <= value <= self.most:
            raise ValueError(f"is from {self.least} to {self.most} {self.unit}, not {value}")
        return value


@dataclass(frozen=True)
class CornerChoice:
    """A voltage corner."""

    default: Corner = Corner.DISABLE

    def accept(self, value: object) -> Corner:
        """Return the corner itself or that of a name. Raises ValueError where it is neither."""
        if isinstance(value, Corner):
            return value
        if not isinstance(value, str):
            raise ValueError(f"is a corner, not {shown(value)}")
        return corner_of(value)


@dataclass(frozen=True)
class PowerModeChoice:
    """A power mode."""

    default: PowerMode = PowerMode.ADJUST_UP_DOWN

    def accept(self, value: object) -> PowerMode:
        """Return the power mode itself or that of a name. Raises ValueError where it is neither."""
        if not isinstance(value, str):
            raise ValueError(f"is a power mode, not {shown(value)}")
        return value if isinstance(value, PowerMode) else power_mode_of(value)


Kind: TypeAlias = Flag | Count | CornerChoice | PowerModeChoice

_LATENCY = Count(10, 65_535, "us")
_ENDS = ("MIN", "TARGET", "MAX")

_OF_GENERAL: Mapping[str, Kind] = {
    "ASYNC_VOTING_ENABLE": Flag(),
    "DSP_HYSTERESIS_TIME_US": Count(0, MAX_HYSTERESIS_US, "us", 0),
    "DSP_SLEEP_DISABLE_MS": Count(0, MAX_SLEEP_DISABLE_MS, "ms", 0),
    "DSP_RPC_POLLING_TIME_US": Count(0, 9_999, "us", 0),
}
_OF_PHASE: Mapping[str, Kind] = {
    "DSP_ENABLE_DCVS_START": Flag(True),
    "DSP_ENABLE_DCVS_DONE": Flag(True),
    "DSP_SLEEP_LATENCY_START_US": _LATENCY,
    "HIGH_PERFORMANCE_MODE": Flag(),
    "POWERMODE_START": PowerModeChoice(),
    "POWERMODE_DONE": PowerModeChoice(),
    **{f"{rail}_VOLTAGE_CORNER_{end}_START": CornerChoice() for rail in ("BUS", "CORE") for end in _ENDS},
    **{f"{rail}_VOLTAGE_CORNER_{end}_DONE": CornerChoice() for rail in ("BUS", "CORE") for end in _ENDS},
    "DSP_SLEEP_LATENCY_DONE_US": _LATENCY,
}
KINDS: Mapping[str, Mapping[str, Kind]] = {GENERAL: _OF_GENERAL, **dict.fromkeys(PHASES, _OF_PHASE)}
"""By section and key, in the order in which they are written."""


def check_section(section: str) -> None:
    """Raise ValueError, with the nearest, where there is no such section."""
    if section not in KINDS:
        raise ValueError(f"there is no section {shown(section)}{nearest(section, SECTIONS)}")


def kind_of(section: str, key: str) -> Kind:
    """Return the kind of values of a setting. Raises ValueError where there is none, with the nearest or where it
    belongs."""
    check_section(section)
    kind = KINDS[section].get(key)
    if kind is None:
        others = [other for other in SECTIONS if key in KINDS[other]]
        hint = f"; it belongs to {' or '.join(others)}" if others else nearest(key, KINDS[section])
        raise ValueError(f"{section} has no setting {shown(key)}{hint}")
    return kind


def accept(section: str, key: str, value: object) -> Value:
    """Return a value of a setting, checked. Raises ValueError with section, key and reason."""
    kind = kind_of(section, key)
    try:
        return kind.accept(value)
    except ValueError as error:
        raise ValueError(f"{key} of {section}: {error}") from None


def plain(value: Value) -> Plain:
    """Return a value as it stands in a file or goes over a wire."""
    if isinstance(value, Corner):
        return corner_name(value)
    return power_mode_name(value) if isinstance(value, PowerMode) else value
