"""Name corners and power modes, in the original's long spelling and in a short spelling."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from gputune.runtime.power.records import Corner, PowerMode


def corner_of(name: str) -> Corner:
    """Return the corner of a name: SNPE_DCVS_VOLTAGE_VCORNER_TURBO, DCVS_VOLTAGE_VCORNER_TURBO or TURBO, in any case.
    Raises ValueError where there is none, with the nearest."""
    corner = _CORNERS.get(name.upper())
    if corner is None:
        raise ValueError(f"{shown(name)} is no corner{nearest(_short(name), [each.name for each in Corner])}")
    return corner


def corner_name(corner: Corner) -> str:
    """Return the original's name of a corner, as it stands in its YAML files."""
    return f"SNPE_{_long_name(corner)}"


def power_mode_of(name: str) -> PowerMode:
    """Return the power mode of a name: SNPE_DSP_PERF_INFRASTRUCTURE_POWERMODE_ADJUST_UP_DOWN, the same without SNPE, or
    ADJUST_UP_DOWN, in any case. Raises ValueError where there is none, with the nearest."""
    mode = _MODES.get(name.upper())
    if mode is None:
        raise ValueError(f"{shown(name)} is no power mode{nearest(_short(name), list(PowerMode))}")
    return mode


def power_mode_name(mode: PowerMode) -> str:
    """Return the original's name of a power mode, as it stands in its YAML files."""
    return f"SNPE_{_MODE_PREFIX}{mode.value}"


def shown(value: object) -> str:
    """Return a value that came in, short enough for a message."""
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def nearest(name: str, names: Iterable[str]) -> str:
    """Return the end of a message: which of the names is like this one, else all of them."""
    spellings = {each.upper(): each for each in names}
    near = difflib.get_close_matches(name.upper()[:_SHOWN_CHARACTERS], spellings, n=1, cutoff=0.5)
    return f"; the nearest is {spellings[near[0]]}" if near else f"; there are {', '.join(spellings.values())}"


_SHOWN_CHARACTERS = 80
_ENDS = {
    Corner.DISABLE: "CORNER_DISABLE",
    Corner.MIN: "VCORNER_MIN_VOLTAGE_CORNER",
    Corner.MAX: "VCORNER_MAX_VOLTAGE_CORNER",
}
_MODE_PREFIX = "DSP_PERF_INFRASTRUCTURE_POWERMODE_"


def _short(name: str) -> str:
    """Return what is left of a name without all that the names of its kind begin with."""
    return re.sub(r".*(?:CORNER|POWERMODE)_", "", name.upper())


def _long_name(corner: Corner) -> str:
    return f"DCVS_VOLTAGE_{_ENDS.get(corner, f'VCORNER_{corner.name}')}"


def _corners() -> dict[str, Corner]:
    spellings = {corner.name: corner for corner in Corner}
    spellings |= {"MIN_VOLTAGE_CORNER": Corner.MIN, "MAX_VOLTAGE_CORNER": Corner.MAX}
    return spellings | {f"{prefix}{_long_name(each)}": each for each in Corner for prefix in ("", "SNPE_")}


def _modes() -> dict[str, PowerMode]:
    spellings = {mode.name: mode for mode in PowerMode}
    return spellings | {
        f"{prefix}{each}": each for each in PowerMode for prefix in ("", _MODE_PREFIX, f"SNPE_{_MODE_PREFIX}")
    }


_CORNERS = _corners()
_MODES = _modes()
